package javax.inject

@Target(AnnotationTarget.PROPERTY_GETTER, AnnotationTarget.CONSTRUCTOR)
public annotation class Inject
