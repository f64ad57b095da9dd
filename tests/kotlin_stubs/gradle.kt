// The public signatures of Gradle that the generated plugin uses; nothing here runs.
package org.gradle.api

import org.gradle.api.file.ProjectLayout
import org.gradle.api.plugins.ExtensionContainer
import org.gradle.api.plugins.PluginManager
import org.gradle.api.provider.ProviderFactory
import org.gradle.api.tasks.TaskContainer

/** Marks an interface whose lambdas have a receiver in the Kotlin DSL. */
public annotation class HasImplicitReceiver

@HasImplicitReceiver
public fun interface Action<T> {
    public fun execute(target: T)
}

public interface Named {
    public val name: String
}

public interface Plugin<T> {
    public fun apply(project: T)
}

public interface Task {
    public var group: String?
}

public abstract class DefaultTask : Task {
    override var group: String? = null
}

public interface DomainObjectCollection<T> : Collection<T> {
    public fun all(action: Action<in T>)
}

public interface NamedDomainObjectContainer<T> : DomainObjectCollection<T>

public interface Project {
    public val extensions: ExtensionContainer
    public val layout: ProjectLayout
    public val pluginManager: PluginManager
    public val providers: ProviderFactory
    public val tasks: TaskContainer
}
