// Runs the actions of the generated Gradle tasks on plain values, without Gradle.
package harness

import edgeconv.gradle.ConvertTask
import edgeconv.gradle.EmbedTask
import edgeconv.gradle.SourcesTask
import java.io.File
import org.gradle.api.Action
import org.gradle.api.file.ConfigurableFileCollection
import org.gradle.api.file.CopySpec
import org.gradle.api.file.Directory
import org.gradle.api.file.DirectoryProperty
import org.gradle.api.file.FileSystemOperations
import org.gradle.api.file.SyncSpec
import org.gradle.api.provider.ListProperty
import org.gradle.api.provider.Property
import org.gradle.api.provider.Provider
import org.gradle.api.provider.Transformer
import org.gradle.process.ExecOperations
import org.gradle.process.ExecSpec

public open class Known<T>(private val value: T) : Property<T> {
    override val isPresent: Boolean = true

    override fun get(): T = value

    override fun <S> map(transformer: Transformer<out S?, in T>): Provider<S> = error("not here")

    override fun <S> flatMap(transformer: Transformer<out Provider<out S>?, in T>): Provider<S> = error("not here")

    override fun set(value: T?): Unit = error("not here")

    override fun set(provider: Provider<out T>): Unit = error("not here")

    override fun convention(value: T?): Property<T> = error("not here")

    override fun convention(provider: Provider<out T>): Property<T> = error("not here")
}

private object NoMore : ListProperty<String> {
    override val isPresent: Boolean = true

    override fun get(): List<String> = emptyList()

    override fun <S> map(transformer: Transformer<out S?, in List<String>>): Provider<S> = error("not here")

    override fun <S> flatMap(transformer: Transformer<out Provider<out S>?, in List<String>>): Provider<S> =
        error("not here")

    override fun set(provider: Provider<out Iterable<String>>): Unit = error("not here")

    override fun add(value: String): Unit = error("not here")
}

/** `--labels labels.txt`, relative to the working directory. */
private object Labels : ListProperty<String> by NoMore {
    override fun get(): List<String> = listOf("--labels", "labels.txt")
}

private class Folder(override val asFile: File) : Directory {
    override fun dir(path: String): Directory = Folder(File(asFile, path))
}

private class KnownFolder(file: File) : Known<Directory>(Folder(file)), DirectoryProperty {
    override fun dir(path: String): Provider<Directory> = Known(get().dir(path))
}

private class Files(override val singleFile: File = File("none")) : ConfigurableFileCollection {
    override fun from(vararg paths: Any): ConfigurableFileCollection = error("not here")
}

private class Command : ExecSpec {
    override var workingDir = File(".")
    override var commandLine = emptyList<String>()
}

private object Processes : ExecOperations {
    override fun exec(action: Action<in ExecSpec>): Any {
        val command = Command().also { action.execute(it) }
        val process = ProcessBuilder(command.commandLine).directory(command.workingDir)
        return check(process.redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor() == 0)
    }
}

private class Copy : SyncSpec {
    var source = File(".")
    var target = File(".")

    override fun from(vararg paths: Any): CopySpec = apply { source = (paths.single() as Directory).asFile }

    override fun into(path: Any): CopySpec = apply { target = (path as DirectoryProperty).get().asFile }
}

private object FileSystem : FileSystemOperations {
    override fun sync(action: Action<in SyncSpec>): Any {
        val copy = Copy().also { action.execute(it) }
        copy.target.deleteRecursively()
        return copy.source.copyRecursively(copy.target)
    }
}

/** Converts the .tflite at `source` and embeds the result, below `place`. */
public fun buildSteps(program: String, source: File, place: File) {
    val (converted, embedded) = listOf("converted", "embedded").map { File(place, it) }
    object : ConvertTask() {
        override val executable = Known(program)
        override val edgeconvVersion = Known("")
        override val arguments = NoMore
        override val argumentFiles = Files()
        override val workingDirectory = KnownFolder(place)
        override val output = KnownFolder(converted)
        override val processes = Processes
        override val source = Files(source)
        override val recipe = Known("float32")
    }.convert()
    object : EmbedTask() {
        override val executable = Known(program)
        override val edgeconvVersion = Known("")
        override val arguments = Labels
        override val argumentFiles = Files()
        override val workingDirectory = KnownFolder(place)
        override val output = KnownFolder(embedded)
        override val processes = Processes
        override val artifact = KnownFolder(converted)
        override val symbol = Known("built")
        override val packageName = Known("com.example.built")
    }.embed()
    for ((path, target) in mapOf("src/main/kotlin" to "kotlin", "src/main/assets" to "assets")) {
        object : SourcesTask() {
            override val embedded = KnownFolder(File(place, "embedded"))
            override val folder = Known(path)
            override val output = KnownFolder(File(place, target))
            override val files = FileSystem
        }.copy()
    }
}
