"""The request of `convert`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

from edgeconv.requests.request import (
    POSITIVE,
    Argument,
    Data,
    Input,
    Quality,
    Recipes,
    Request,
    out,
)
from edgeconv.requests.shared import (
    Batched,
    Executed,
    Improved,
    OnlyIntegers,
    Opened,
    Preprocessed,
    Ranged,
    Ruled,
    Sandboxed,
    Suspected,
)
from edgeconv.requests.texts import (
    KEYED_SOURCE,
    NAMES,
    SOURCE,
    SUBJECT,
    TARGET_RUNTIME,
    TEXT,
    by_signature,
)
from edgeconv.requests.training import Trained
from edgeconv.system.store.hashes import hash_of
from edgeconv.types import (
    EVERY_RECIPE,
    DataSource,
    Engine,
    Execution,
    IoType,
    Opening,
    Recipe,
    Steps,
    TargetRuntime,
)
from edgeconv.types.errors import UsageError, unknown_name

_SIDES = ("input", "output")


def io_pair(texts: Sequence[str]) -> tuple[IoType, IoType]:
    """The input and output type of the texts of `--io`. Raises `UsageError`."""
    chosen: dict[str, Any] = {}
    for text in texts:
        side, equals, io_type = text.rpartition("=")
        if io_type not in get_args(IoType):
            raise unknown_name("--io type", io_type, get_args(IoType))
        if equals and side not in _SIDES:
            raise unknown_name("--io side", side, _SIDES)
        for name in [side] if equals else _SIDES:
            if chosen.get(name, io_type) != io_type:
                raise UsageError(
                    f"--io gives the {name} two types: {chosen[name]} and {io_type}",
                    hint="give one type, or input=TYPE and output=TYPE",
                )
            chosen[name] = io_type
    return chosen.get("input", "float32"), chosen.get("output", "float32")


def _io_texts(pair: tuple[str, str]) -> tuple[str, ...]:
    if pair[0] == pair[1]:
        return () if pair[0] == "float32" else (pair[0],)
    return tuple(f"{side}={name}" for side, name in zip(_SIDES, pair, strict=True))


def named_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input from `image=1x224x224x3`, -1 for a ?. Raises `UsageError`."""
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part == "?" or (part.isdecimal() and int(part)) for part in parts):
            raise UsageError(
                f"--shape {text}: not of the form INPUT=AxBxC",
                hint="for example --shape image=1x224x224x3",
            )
        shapes[name] = tuple(-1 if part == "?" else int(part) for part in parts)
    return shapes


def _shape_texts(shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        f"{name}={'x'.join('?' if size < 0 else str(size) for size in shape)}"
        for name, shape in shapes.items()
    )


def _recipe_names(recipes: Sequence[str | Recipe]) -> str:
    return ",".join(each.name if isinstance(each, Recipe) else each for each in recipes)


class ConvertRequest(Request, frozen=True, kw_only=True):
    """A model to convert, by which recipes, with which data, and where to.

    `to`: names of recipes, to which the recipe options apply, or ready recipes. `signature`: keys,
    none for the only one, `("all",)` for every one; several go into one file. `batch` and `shapes`
    fix dynamic dimensions: the first of every input, or by input name a whole shape, -1 for one
    that stays dynamic. `calibration`: a SOURCE by signature key, "" for every other signature;
    `samples` of it calibrate, None for all but the held-back ones. `training`: the SOURCE of
    labeled samples for the recipe qat, which also calibrate where no other does. `select_ops`
    allows operators that only TensorFlow has. The files are verified on `target_runtime` too.
    `states` are outputs fed back as inputs, OUTPUT=INPUT, `("none",)` for none, () for those that
    are recognized. `fuse_lstm` keeps LSTM layers as single operators, which keep their state.
    `allow_suspect_calibration` converts with samples that cannot be right.
    """

    model: Annotated[str, Argument(text=SUBJECT)]
    directory: Annotated[str | None, out("Directory to publish in. [default: NAME.tflites]")] = None
    to: Annotated[
        tuple[str | Recipe, ...],
        Recipes(
            "float32, float16, dynamic, weight-only-int8, int8, int16x8, weight-only-int4, int8x4, "
            "all or qat. Comma-separated; all is the first six, the next two have 4-bit weights, "
            "qat is quantization-aware training to int8.",
            text=NAMES,
            to_raw=_recipe_names,
            words=("all", *EVERY_RECIPE),
            metavar="RECIPES",
        ),
    ]
    signature: Annotated[
        tuple[str, ...],
        Input(
            "The signature to convert, if there are several. More than one, or `all`, go into one "
            "file.",
            text=TEXT,
            several=True,
            metavar="KEY",
        ),
    ] = ()
    calibration: Annotated[
        dict[str, DataSource],
        Data(
            "Samples to calibrate and verify with, such as train.npz. A file, a directory or "
            "KIND:PLACE; ?INPUT=ARRAY renames. See docs/data.md. int8 and int16x8 need them. KEY= "
            "is for one signature of several.",
            text=KEYED_SOURCE,
            several=True,
            make=by_signature,
            depends=True,
            to_raw=lambda sources: tuple(
                f"{key}={source}" if key else str(source) for key, source in sources.items()
            ),
        ),
    ] = {}
    samples: Annotated[
        int | None,
        Data(
            "How many samples to calibrate with. [default: all but a seventh, at most 64, which "
            "verify]",
            bounds=POSITIVE,
        ),
    ] = None
    preprocess: Preprocessed = Steps()
    training: Annotated[
        DataSource | None,
        Data(
            "Labeled samples that qat trains on. Without --calibration they calibrate too.",
            text=SOURCE,
        ),
    ] = None
    input_type: Annotated[
        IoType,
        Recipes(
            "Input and output type: float32, int8, uint8 or int16. For full-integer recipes (int16 "
            "for int16x8 only); input=TYPE or output=TYPE sets one side. [default: float32]",
            name="io",
            text=TEXT,
            several=True,
            takes="text",
            make=io_pair,
            to_raw=_io_texts,
            also="output_type",
            metavar="TYPE",
        ),
    ] = "float32"
    output_type: IoType = "float32"
    batch: Batched = None
    shapes: Annotated[
        dict[str, tuple[int, ...]],
        Input(
            "Fix the dynamic dimensions of an input, batch included; ? leaves one dynamic.",
            name="shape",
            text=TEXT,
            several=True,
            make=named_shapes,
            to_raw=_shape_texts,
            metavar="INPUT=AxBxC",
        ),
    ] = {}
    target_runtime: Annotated[
        TargetRuntime,
        Recipes(
            "Verify on this runtime too, such as tflite-runtime==2.14.0. Others are litert==2.1.0, "
            "tflite-micro, gpu, arm64 and armv7. It is installed once, in a separate environment.",
            text=TARGET_RUNTIME,
            is_shown=False,
        ),
    ] = TargetRuntime()
    select_ops: Annotated[
        bool,
        Recipes(
            "Allow operators that only TensorFlow has. They run where the Select-TF (Flex) "
            "delegate is linked, and are verified in a TensorFlow that has it, installed once.",
            name="allow-select-ops",
        ),
    ] = False
    states: Annotated[
        tuple[str, ...],
        Input(
            "An output that the app feeds back as an input, as the state of a recurrent model. "
            "[default: those whose names and shapes say so] `none` for none.",
            name="state",
            text=TEXT,
            several=True,
            metavar="OUTPUT=INPUT",
        ),
    ] = ()
    fuse_lstm: Annotated[
        bool,
        Recipes(
            "Keep each LSTM layer one operator, which is smaller than unrolled steps. It keeps its "
            "state between invokes: the app resets it before each input.",
            name="fuse-lstm",
        ),
    ] = False
    engine: Annotated[
        Engine, Recipes("The quantizer: litert-quantizer (litert) or TFLiteConverter (tflite).")
    ] = "auto"
    calibration_range: Ranged = None
    methods: Improved = None
    layers: Ruled = ()
    full_integer: OnlyIntegers = False
    min_snr_db: Annotated[
        float | None,
        Quality(
            "Lowest signal-to-noise ratio of an output, against the float model, that verification "
            "accepts. [default: none; 60 for float32]"
        ),
    ] = None
    allow_suspect_calibration: Suspected = False
    qat: Trained = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None

    def key(self) -> str:
        """The hash of what decides the result, without the content of what is read."""
        return hash_of(super().key(), [each for each in self.to if isinstance(each, Recipe)])
