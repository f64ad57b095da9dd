package android.content.res

import java.io.Closeable
import java.io.File
import java.io.FileDescriptor
import java.io.FileInputStream
import java.io.FileNotFoundException
import java.io.InputStream

/** The assets are the files of a directory; those in `compressed` have no descriptor. */
public class AssetManager(private val directory: File, private val compressed: Set<String> = emptySet()) {
    public fun open(name: String): InputStream = FileInputStream(File(directory, name))

    public fun openFd(name: String): AssetFileDescriptor {
        if (name in compressed) throw FileNotFoundException("$name; it is probably compressed")
        return AssetFileDescriptor(File(directory, name))
    }
}

public class AssetFileDescriptor(file: File) : Closeable {
    private val stream = FileInputStream(file)
    public val fileDescriptor: FileDescriptor = stream.fd
    public val startOffset: Long = 0
    public val declaredLength: Long = file.length()

    override fun close(): Unit = stream.close()
}
