"""The target `android`: assets, Kotlin on the Interpreter, a test on a device, a Gradle plugin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.embed.app_files import app_values
from edgeconv.embed.app_metadata import shipped_model
from edgeconv.embed.c_files import golden_bytes
from edgeconv.embed.rendering import render
from edgeconv.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embed.interface import Embedding

OPTIONS = {
    "package": "the Kotlin package, and namespace of the module. [default: edgeconv.SYMBOL]",
    "module": "yes: with the build file of a library module; no: without. [default: yes]",
    "plugin": "yes: with the Gradle plugin that runs edgeconv in a build; no: without. "
    "[default: yes]",
}
# The newest release whose documentation names the Interpreter.
_LITERT = "2.1.5"
# The array for each type that org.tensorflow.lite.DataType has.
_ARRAYS = {
    "float32": "FloatArray",
    "int8": "ByteArray",
    "uint8": "ByteArray",
    "bool": "BooleanArray",
    "int16": "ShortArray",
    "int32": "IntArray",
    "int64": "LongArray",
}
# How a ByteBuffer is seen as each.
_VIEWS = {
    "FloatArray": "asFloatBuffer()",
    "ByteArray": "duplicate()",
    "ShortArray": "asShortBuffer()",
    "IntArray": "asIntBuffer()",
    "LongArray": "asLongBuffer()",
}
_KOTLIN = """
    as break class continue do else false for fun if in interface is null object package return
    super this throw true try typealias typeof val var when while
"""
_JAVA = """
    abstract assert boolean byte case catch char const default double enum extends final finally
    float goto implements import instanceof int long native new private protected public short
    static strictfp switch synchronized throws transient void volatile
"""
_RESERVED = frozenset(_KOTLIN.split())
_NO_PACKAGE = _RESERVED | frozenset(_JAVA.split())
# What the generated code calls by these names.
_TAKEN = """
    AndroidJUnit4 Any Boolean Buffer Byte ByteBuffer ByteOrder Context Double FileChannel
    FileInputStream FileNotFoundException Float IllegalArgumentException IllegalStateException
    InstrumentationRegistry Int Interpreter List Long Math MessageDigest RunWith Short String Test
    Unit
"""
_PACKAGE = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+")


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embed.interface`."""
    package = _package(embedding)
    model = shipped_model(embedding)
    values = {
        **app_values(embedding, model, _ARRAYS, _RESERVED, _TAKEN.split()),
        "package": package,
        "views": _VIEWS,
        "litert": _LITERT,
    }
    symbol, name = embedding.symbol, values["class"]
    main, test = "src/main", "src/androidTest"
    folder = package.replace(".", "/")
    found: dict[str, bytes | Path] = {
        f"{main}/assets/{symbol}.tflite": model,
        f"{main}/kotlin/{folder}/{name}.kt": render("android_model.j2", **values),
        f"{test}/assets/{symbol}_golden.bin": golden_bytes(embedding),
        f"{test}/kotlin/{folder}/{name}SelfTest.kt": render("android_self_test.j2", **values),
        f"{test}/kotlin/{folder}/{name}Test.kt": render("android_test.j2", **values),
    }
    if _is_chosen(embedding, "module"):
        found["build.gradle.kts"] = render("android_build.j2", **values)
        found[f"{main}/AndroidManifest.xml"] = render("android_manifest.j2")
    return {**found, **(_plugin() if _is_chosen(embedding, "plugin") else {})}


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embed.interface`."""
    return (
        f"{embedding.symbol}.tflite is the published model with TFLite metadata in it, and so has "
        "a hash of its own",
        'the app\'s build file needs androidResources { noCompress += "tflite" }, or the plugin',
    )


def _plugin() -> dict[str, bytes]:
    """The Gradle plugin, an included build."""
    folder = "gradle-plugin"
    code = f"{folder}/src/main/kotlin/edgeconv/gradle"
    return {
        f"{folder}/settings.gradle.kts": render("gradle_settings.j2"),
        f"{folder}/build.gradle.kts": render("gradle_build.j2"),
        f"{code}/EdgeconvTasks.kt": render("gradle_tasks.j2"),
        f"{code}/EdgeconvPlugin.kt": render("gradle_plugin.j2"),
    }


def _is_chosen(embedding: Embedding, option: str) -> bool:
    chosen = embedding.options.get(option, "yes")
    if chosen not in ("yes", "no"):
        raise unknown_name(f"value of {option}", chosen, ("yes", "no"))
    return chosen == "yes"


def _package(embedding: Embedding) -> str:
    symbol = embedding.symbol.lower()
    default = f"edgeconv.{symbol}_" if symbol in _NO_PACKAGE else f"edgeconv.{symbol}"
    package = embedding.options.get("package", default)
    if not _PACKAGE.fullmatch(package) or _NO_PACKAGE & set(package.split(".")):
        raise UsageError(
            f"package={package} is no package that Kotlin and Android take",
            hint="two or more words of small letters, digits and _, as in com.example.digits",
        )
    return package
