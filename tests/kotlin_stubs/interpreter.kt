package org.tensorflow.lite

import java.io.DataInputStream
import java.io.DataOutputStream
import java.io.File
import java.nio.Buffer
import java.nio.ByteBuffer

/**
 * The public signatures of the Interpreter that generated code uses. What runs is LiteRT: a process
 * of Python, interpreter_process.py, that is told of each run through its standard input.
 */
public class Interpreter(model: ByteBuffer, options: Options) : AutoCloseable {
    public class Options {
        public var threads: Int = -1

        public fun setNumThreads(numThreads: Int): Options = apply { threads = numThreads }
    }

    private val file = File.createTempFile("model", ".tflite")
    private val process: Process
    private val out: DataOutputStream
    private val answers: DataInputStream

    init {
        require(model.isDirect) { "a mapped or direct buffer is needed" }
        file.writeBytes(ByteArray(model.capacity()).also { model.duplicate().get(it) })
        val script = System.getProperty("interpreter")
        process = ProcessBuilder(System.getProperty("python"), script, file.path)
            .redirectError(ProcessBuilder.Redirect.INHERIT)
            .start()
        out = DataOutputStream(process.outputStream)
        answers = DataInputStream(process.inputStream)
    }

    public fun runSignature(inputs: Map<String, Any>, outputs: Map<String, Any>, signatureKey: String) {
        run(signatureKey, inputs, outputs)
    }

    public fun runForMultipleInputsOutputs(inputs: Array<Any>, outputs: Map<Int, Any>) {
        val named = inputs.withIndex().associate { (index, buffer) -> "$index" to buffer }
        run("", named, outputs.mapKeys { "${it.key}" })
    }

    override fun close() {
        out.close()
        check(process.waitFor() == 0) { "the interpreter failed" }
        file.delete()
    }

    private fun run(key: String, inputs: Map<String, Any>, outputs: Map<String, Any>) {
        text(key)
        out.writeInt(inputs.size)
        for ((name, value) in inputs) {
            val buffer = value as ByteBuffer
            check((buffer as Buffer).position() == 0) { "$name is not at its beginning" }
            text(name)
            bytes(ByteArray(buffer.capacity()).also { buffer.duplicate().get(it) })
        }
        out.writeInt(outputs.size)
        outputs.keys.forEach { text(it) }
        out.flush()
        for (value in outputs.values) {
            val answer = ByteArray(answers.readInt())
            answers.readFully(answer)
            (value as ByteBuffer).put(answer)
        }
    }

    private fun text(value: String): Unit = bytes(value.toByteArray())

    private fun bytes(value: ByteArray) {
        out.writeInt(value.size)
        out.write(value)
    }
}
