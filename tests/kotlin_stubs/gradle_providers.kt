package org.gradle.api.provider

import org.gradle.api.Action
import org.gradle.process.ExecOutput
import org.gradle.process.ExecSpec

public fun interface Transformer<OUT, IN> {
    public fun transform(value: IN): OUT
}

public interface Provider<T> {
    public val isPresent: Boolean

    public fun get(): T

    public fun <S> map(transformer: Transformer<out S?, in T>): Provider<S>

    public fun <S> flatMap(transformer: Transformer<out Provider<out S>?, in T>): Provider<S>
}

public interface Property<T> : Provider<T> {
    public fun set(value: T?)

    public fun set(provider: Provider<out T>)

    public fun convention(value: T?): Property<T>

    public fun convention(provider: Provider<out T>): Property<T>
}

public interface ListProperty<T> : Provider<List<T>> {
    public fun set(provider: Provider<out Iterable<T>>)

    public fun add(value: T)
}

public interface ProviderFactory {
    public fun exec(action: Action<in ExecSpec>): ExecOutput
}
