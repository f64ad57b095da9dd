package org.gradle.api.file

import java.io.File
import org.gradle.api.Action
import org.gradle.api.provider.Property
import org.gradle.api.provider.Provider

public interface Directory {
    public val asFile: File

    public fun dir(path: String): Directory
}

public interface DirectoryProperty : Property<Directory> {
    public fun dir(path: String): Provider<Directory>
}

public interface ConfigurableFileCollection {
    public val singleFile: File

    public fun from(vararg paths: Any): ConfigurableFileCollection
}

public interface ProjectLayout {
    public val projectDirectory: Directory
    public val buildDirectory: DirectoryProperty
}

public interface CopySpec {
    public fun from(vararg paths: Any): CopySpec

    public fun into(path: Any): CopySpec
}

public interface SyncSpec : CopySpec

public interface FileSystemOperations {
    public fun sync(action: Action<in SyncSpec>): Any
}
