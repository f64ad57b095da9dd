package org.gradle.work

@Target(AnnotationTarget.CLASS)
public annotation class DisableCachingByDefault(val because: String)
