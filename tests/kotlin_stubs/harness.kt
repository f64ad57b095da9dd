// Runs what was generated: a class of tests, or one model with typed arrays.
package harness

import android.content.Context
import android.content.res.AssetManager
import edgeconv.bytes.Bytes
import edgeconv.floats.Floats
import edgeconv.levels.Levels
import edgeconv.order.Order
import edgeconv.wide.Wide
import java.io.File
import org.junit.Test

public fun main(arguments: Array<String>) {
    when (arguments[0]) {
        "tests" -> tests(Class.forName(arguments[1]))
        "levels" -> levels()
        "floats" -> floats()
        "bytes" -> bytes()
        "order" -> order()
        "wide" -> wide()
        "broken" -> broken()
        "compressed" -> compressed()
        "update" -> update(File(arguments[1]), arguments[2], arguments[3])
        "build" -> buildSteps(arguments[1], File(arguments[2]), File(arguments[3]))
    }
}

private fun tests(type: Class<*>) {
    val methods = type.methods.filter { it.isAnnotationPresent(Test::class.java) }
    for (method in methods.sortedBy { it.name }) {
        method.invoke(type.getConstructor().newInstance())
        println("passed ${method.name}")
    }
}

private val assets = File(System.getProperty("embedded"), "src/main/assets")

private fun levels() {
    val values = generateSequence(::readlnOrNull).map { it.toFloat() }.toList().toFloatArray()
    println(Levels.InputX.quantize(values).joinToString(" "))
    println(Levels.InputX.dequantize(Levels.InputX.quantize(values)).joinToString(" "))
    Levels.open(Context(AssetManager(assets))).use { model ->
        val outputs = model.run(Levels.Inputs(Levels.InputX.quantize(values.copyOf(4))))
        println(outputs.y.joinToString(" "))
        println(Levels.OutputY.dequantize(outputs.y).joinToString(" "))
    }
}

private fun floats() {
    Floats.open(Context(AssetManager(assets))).use { model ->
        val normal = FloatArray(4) { Floats.InputX.normalize(it.toFloat(), it) }
        println(normal.joinToString(" "))
        println(model.run(Floats.Inputs(normal)).y.joinToString(" "))
        println(model.run(Floats.Inputs(FloatArray(4))).y.joinToString(" "))
    }
    println(Floats.labels.map { it.toByteArray().joinToString("") { byte -> "%02x".format(byte) } })
    println(Floats.InputX.PREPROCESSING)
}

private fun bytes() {
    val levels = Bytes.InputImage.quantize(floatArrayOf(-100f, 0f, 63.5f, 1000f))
    println(levels.joinToString(" ") { it.toUByte().toString() })
    println(Bytes.InputImage.dequantize(levels).joinToString(" "))
    Bytes.open(Context(AssetManager(assets))).use { model ->
        val scores = model.run(Bytes.Inputs(levels)).scores
        println(Bytes.OutputScores.dequantize(scores).joinToString(" "))
    }
}

private fun order() {
    Order.open(Context(AssetManager(assets))).use { model ->
        val inputs = Order.Inputs(floatArrayOf(1f, 2f, 3f), intArrayOf(-4, 5), floatArrayOf(10f, 20f, 30f))
        val outputs = model.run(inputs)
        println(outputs.twice.joinToString(" "))
        println(outputs.sum.joinToString(" "))
    }
}

private fun wide() {
    Wide.open(Context(AssetManager(assets))).use { model ->
        val large = 1L shl 40
        val outputs = model.run(
            Wide.Inputs(floatArrayOf(1f, 2f, 3f), longArrayOf(large, -1), floatArrayOf(0f, 2f, 2f))
        )
        println(outputs.wide.joinToString(" "))
        println(outputs.less.joinToString(" "))
    }
}

private fun broken() {
    val golden = File(System.getProperty("embedded"), "src/androidTest/assets/floats_golden.bin").readBytes()
    golden[golden.size - 16 + 3] = 0x7f
    Floats.open(Context(AssetManager(assets))).use { model ->
        println(edgeconv.floats.FloatsSelfTest.failure(model, golden))
        println(edgeconv.floats.FloatsSelfTest.failure(model, golden.copyOf(3)))
    }
    runCatching { Floats.open(Context(AssetManager(File("/nowhere")))) }.onFailure { println(it) }
    Floats.open(Context(AssetManager(assets))).use { model ->
        runCatching { model.run(Floats.Inputs(FloatArray(5))) }.onFailure { println(it.message) }
    }
}

private fun compressed() {
    val packed = AssetManager(assets, setOf(Floats.ASSET))
    runCatching { Floats.open(Context(packed)) }.onFailure { println(it) }
}

private fun update(file: File, interfaceId: String, sha256: String) {
    runCatching { Levels.openUpdate(file, interfaceId, sha256) }
        .onFailure { println(it.message) }
        .onSuccess { model -> model.use { println(it.run(Levels.Inputs(byteArrayOf(-3, -3, -3, -1))).y.joinToString(" ")) } }
}
