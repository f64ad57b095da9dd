package org.gradle.api.tasks

import org.gradle.api.Action
import org.gradle.api.Task
import org.gradle.api.provider.Provider

@Target(AnnotationTarget.CLASS)
public annotation class CacheableTask

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class Input

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class InputDirectory

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class InputFiles

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class Internal

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class OutputDirectory

@Target(AnnotationTarget.PROPERTY_GETTER)
public annotation class PathSensitive(val value: PathSensitivity)

@Target(AnnotationTarget.FUNCTION)
public annotation class TaskAction

public enum class PathSensitivity { ABSOLUTE, RELATIVE, NAME_ONLY, NONE }

public interface TaskProvider<T : Task> : Provider<T>

public interface TaskContainer {
    public fun <T : Task> register(name: String, type: Class<T>, action: Action<in T>): TaskProvider<T>
}
