package org.junit

@Target(AnnotationTarget.FUNCTION)
public annotation class Test

public object Assert {
    @JvmStatic
    public fun assertNull(value: Any?) {
        if (value != null) throw AssertionError("expected null, but was:<$value>")
    }

    @JvmStatic
    public fun <T : Throwable> assertThrows(expected: Class<T>, run: () -> Unit): T {
        try {
            run()
        } catch (error: Throwable) {
            if (expected.isInstance(error)) return expected.cast(error)
            throw AssertionError("unexpected exception", error)
        }
        throw AssertionError("expected ${expected.name} to be thrown, but nothing was")
    }
}
