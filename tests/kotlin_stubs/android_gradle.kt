// The public signatures of the Android Gradle plugin that the generated plugin uses.
package com.android.build.api.variant

import org.gradle.api.Action
import org.gradle.api.Task
import org.gradle.api.file.DirectoryProperty
import org.gradle.api.provider.ListProperty
import org.gradle.api.tasks.TaskProvider

public interface SourceDirectories {
    public fun <T : Task> addGeneratedSourceDirectory(
        taskProvider: TaskProvider<T>,
        wiredWith: (T) -> DirectoryProperty,
    )

    public interface Flat : SourceDirectories

    public interface Layered : SourceDirectories
}

public interface Sources {
    public val java: SourceDirectories.Flat?
    public val assets: SourceDirectories.Layered?
}

public interface Component {
    public val name: String
    public val sources: Sources
}

public interface Variant : Component

public interface AndroidTest : Component

public interface HasAndroidTest {
    public val androidTest: AndroidTest?
}

public interface AndroidResources {
    public val noCompress: ListProperty<String>
}

public interface GeneratesApk {
    public val androidResources: AndroidResources
}

public interface VariantSelector

public interface VariantBuilder

public interface AndroidComponentsExtension<DSL : Any, BUILDER : VariantBuilder, VARIANT : Variant> {
    public fun selector(): VariantSelector

    public fun onVariants(selector: VariantSelector = selector(), callback: (VARIANT) -> Unit)

    public fun onVariants(selector: VariantSelector, callback: Action<VARIANT>)
}
