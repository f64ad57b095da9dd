package org.gradle.api.plugins

import org.gradle.api.Action

public interface AppliedPlugin

public interface ExtensionContainer {
    public fun <T> create(name: String, type: Class<T>, vararg arguments: Any): T

    public fun <T> getByType(type: Class<T>): T
}

public interface PluginManager {
    public fun withPlugin(id: String, action: Action<in AppliedPlugin>)
}
