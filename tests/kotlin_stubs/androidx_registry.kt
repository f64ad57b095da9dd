package androidx.test.platform.app

import android.content.Context
import android.content.res.AssetManager
import java.io.File

/** The app's assets and the test's are in two directories below the property `embedded`. */
public object InstrumentationRegistry {
    @JvmStatic
    public fun getInstrumentation(): Instrumentation = Instrumentation()
}

public class Instrumentation {
    private val embedded = File(System.getProperty("embedded"))
    public val targetContext: Context = Context(AssetManager(File(embedded, "src/main/assets")))
    public val context: Context = Context(AssetManager(File(embedded, "src/androidTest/assets")))
}
