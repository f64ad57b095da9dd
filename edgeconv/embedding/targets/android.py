"""The target `android`: assets, Kotlin on the Interpreter, a test on a device, a Gradle plugin."""

import math
from collections.abc import Mapping
from pathlib import Path

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.accessors import normalization, render
from edgeconv.embedding.c_files import CLASS_OPTION, app_values, check_labels, golden_bytes
from edgeconv.embedding.interface import Embedding, Port, TargetOption, yes_or_no
from edgeconv.model.tflite.metadata import (
    ImageMetadata,
    ModelMetadata,
    TensorMetadata,
    graph_names,
    with_metadata,
)
from edgeconv.types import Preprocessing
from edgeconv.types.errors import UsageError

# Versions with the Interpreter; 2.0 had none.
_LITERT = r"(?:1\.\d+|2\.[1-9]\d*)\.\d+(?:-[A-Za-z0-9.]+)?"
# The oldest Android for releases of LiteRT, by the beginning of their versions.
_LOWEST_SDK = {"1.4.0": 26, "1.": 21, "2.": 23}
_SDK = r"[1-9][0-9]{0,2}"
OPTIONS = {
    "package": TargetOption(
        help="the Kotlin package, and namespace of the module; default: edgeconv.SYMBOL",
        pattern=r"(?:[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+)?",
        example="com.example.digits",
    ),
    "class": CLASS_OPTION,
    "minSdk": TargetOption(
        help="the lowest API level of Android that the module runs on",
        default="23",
        pattern=_SDK,
        example="26",
    ),
    "compileSdk": TargetOption(
        help="the API level of Android that the module is compiled against",
        default="35",
        pattern=_SDK,
        example="36",
    ),
    "litert": TargetOption(
        help="the version of com.google.ai.edge.litert:litert with the Interpreter: 1.x, or 2.1 "
        "and newer",
        default="2.1.5",
        pattern=_LITERT,
        example="2.3.2",
    ),
    "module": yes_or_no("yes: with the build file of a library module; no: without"),
    "plugin": yes_or_no(
        "yes: with the Gradle plugin that runs edgeconv in a build, needed once for all models of "
        "the build; no: without",
        "no",
    ),
}
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
# The view of a ByteBuffer as each.
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
# Names that the generated code uses.
_TAKEN = """
    AndroidJUnit4 Any Boolean Buffer Byte ByteBuffer ByteOrder Context Double File
    FileChannel FileInputStream FileNotFoundException Float IllegalArgumentException
    IllegalStateException InstrumentationRegistry Int Interpreter List
    Long Math MessageDigest RunWith Short String Test Unit
"""


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embedding.interface`."""
    package = _package(embedding)
    _check_sdk(embedding.options)
    model = shipped_model(embedding)
    values = {
        **app_values(embedding, model, _ARRAYS, _RESERVED, _TAKEN.split()),
        "package": package,
        "views": _VIEWS,
        **{name: embedding.options[name] for name in ("minSdk", "compileSdk", "litert")},
    }
    symbol, name = embedding.symbol, values["class"]
    main, test = "src/main", "src/androidTest"
    folder = package.replace(".", "/")
    written: dict[str, bytes | Path] = {
        f"{main}/assets/{symbol}.tflite": model,
        f"{main}/kotlin/{folder}/{name}.kt": render("android_model.j2", **values),
        f"{test}/assets/{symbol}_golden.bin": golden_bytes(embedding),
        f"{test}/kotlin/{folder}/{name}SelfTest.kt": render("android_self_test.j2", **values),
        f"{test}/kotlin/{folder}/{name}Test.kt": render("android_test.j2", **values),
    }
    if embedding.options["module"] == "yes":
        written["build.gradle.kts"] = render("android_build.j2", **values)
        written[f"{main}/AndroidManifest.xml"] = render("android_manifest.j2")
    return {**written, **(_plugin() if embedding.options["plugin"] == "yes" else {})}


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embedding.interface`."""
    lines = (
        f"{embedding.symbol}.tflite is the published model with TFLite metadata, and has another "
        "hash",
        'the app\'s build file needs androidResources { noCompress += "tflite" }, or the plugin',
    )
    if embedding.options["plugin"] == "no":
        return lines
    return (*lines, "gradle-plugin serves all models of a build: include it once")


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


def _check_sdk(options: Mapping[str, str]) -> None:
    """Raise `UsageError` for API levels that do not fit LiteRT or each other."""
    litert, lowest, compiled = options["litert"], int(options["minSdk"]), int(options["compileSdk"])
    needed = next(sdk for start, sdk in _LOWEST_SDK.items() if litert.startswith(start))
    if lowest < needed:
        raise UsageError(
            f"--option minSdk={lowest} is too low for LiteRT {litert}",
            hint=f"use minSdk={needed} or higher; LiteRT 1.x, except 1.4.0, runs from 21 on",
        )
    if compiled < lowest:
        raise UsageError(
            f"--option compileSdk={compiled} is lower than minSdk={lowest}",
            hint=f"use compileSdk={max(lowest, int(OPTIONS['compileSdk'].default))}",
        )


def _package(embedding: Embedding) -> str:
    symbol = embedding.symbol.lower()
    default = f"edgeconv.{symbol}_" if symbol in _NO_PACKAGE else f"edgeconv.{symbol}"
    package = embedding.options["package"] or default
    if reserved := sorted(_NO_PACKAGE & set(package.split("."))):
        raise UsageError(
            f"--option package={package}: {reserved[0]!r} is a word of Kotlin or Java",
            hint="choose another, as in package=com.example.digits",
        )
    return package


# The model that an app ships: the published one with the standard TFLite metadata in it.
#
# Other tools for TFLite models can read its labels and its normalization. The file differs from the
# published one: the generated code checks its own hash and size.

LABELS_FILE = "labels.txt"


def shipped_model(embedding: Embedding) -> bytes:
    """The .tflite with metadata and labels. Raises `InputRefused` for a label of several lines."""
    data = embedding.model.read_bytes()
    named = {port.name: port for port in (*embedding.inputs, *embedding.outputs)}
    labeled = None if embedding.labeled is None else embedding.outputs[embedding.labeled].name
    inputs, outputs = graph_names(data)
    artifact = embedding.artifact
    metadata = ModelMetadata(
        name=embedding.name,
        # Only edgeconv's own files have a key.
        description=f"Converted to {artifact.recipe.name} by edgeconv." if artifact.key else "",
        inputs=tuple(_input(name, named.get(name)) for name in inputs),
        outputs=tuple(
            TensorMetadata(name=name, labels=LABELS_FILE if name == labeled else "")
            for name in outputs
        ),
    )
    labels = {LABELS_FILE: _labels_text(embedding)} if embedding.labels else {}
    return with_metadata(data, metadata, labels)


def _labels_text(embedding: Embedding) -> bytes:
    check_labels(embedding.labels)
    return "".join(f"{label}\n" for label in embedding.labels).encode("utf-8", "replace")


def _input(name: str, port: Port | None) -> TensorMetadata:
    steps = port.preprocessing if port else None
    if port is None or steps is None:
        return TensorMetadata(name=name)
    image = _image(port, steps)
    mean, std = _mean_and_std(port)
    # Readers reject an image of floats without normalization.
    if image and not mean and normalization(port) is None:
        mean, std = (0.0,), (1.0,)
    prepared = describe({"": steps})
    return TensorMetadata(
        name=name, description=f"Prepared by {prepared}", image=image, mean=mean, std=std
    )


def _image(port: Port, steps: Preprocessing) -> ImageMetadata | None:
    """The image that an input is by its preprocessing; None for anything else."""
    of_pixels = steps.channels in ("rgb", "gray") or steps.resize or steps.crop
    if not of_pixels or steps.channels == "bgr" or steps.mel_bins or len(port.fixed) != 4:
        return None
    _, height, width, channels = port.fixed
    if channels not in (1, 3):
        return None
    return ImageMetadata(color="rgb" if channels == 3 else "gray", height=height, width=width)


def _mean_and_std(port: Port) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(x * scale - mean) / std as (x - mean') / std', as the metadata has it; () if impossible."""
    step = normalization(port)
    if step is None or not step["scale"] or 0.0 in step["std"]:
        return (), ()
    count = max(len(step["mean"]), len(step["std"]))
    mean = tuple(float(m) / step["scale"] for m in _repeated(step["mean"], count))
    std = tuple(float(s) / step["scale"] for s in _repeated(step["std"], count))
    return (mean, std) if all(math.isfinite(v) for v in (*mean, *std)) else ((), ())


def _repeated(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return values * count if len(values) == 1 else values
