// The public signatures of Android that generated code uses, on files of this machine.
package android.content

import android.content.res.AssetManager

public class Context(public val assets: AssetManager)
