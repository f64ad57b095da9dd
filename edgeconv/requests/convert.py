"""What `convert` is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

from edgeconv.errors import UsageError, unknown_name
from edgeconv.requests.option import Option
from edgeconv.requests.request import Request
from edgeconv.requests.shared import Executed, Opened, Sandboxed
from edgeconv.requests.texts import (
    KEYED_SOURCE,
    LAYER_RULE,
    NAMES,
    PLACE,
    SOURCE,
    STEPS,
    TARGET_RUNTIME,
    TEXT,
)
from edgeconv.requests.training import Trained
from edgeconv.store.hashes import hash_of
from edgeconv.types import (
    EVERY_RECIPE,
    CalibrationRange,
    Engine,
    Execution,
    IoType,
    LayerRule,
    Opening,
    Recipe,
    Steps,
    TargetRuntime,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIDES = ("input", "output")


def io_pair(texts: Sequence[str], _: Any = None) -> tuple[IoType, IoType]:
    """The input and output type that the texts of `--io` ask for. Raises `UsageError`."""
    chosen: dict[str, Any] = {}
    for text in texts:
        side, equals, io_type = text.rpartition("=")
        if io_type not in get_args(IoType):
            raise unknown_name("--io type", io_type, get_args(IoType))
        if equals and side not in _SIDES:
            raise unknown_name("--io side", side, _SIDES)
        for name in [side] if equals else _SIDES:
            if chosen.get(name, io_type) != io_type:
                raise UsageError(f"--io gives the {name} two types: {chosen[name]} and {io_type}")
            chosen[name] = io_type
    return chosen.get("input", "float32"), chosen.get("output", "float32")


def _said_io(pair: tuple[str, str]) -> tuple[str, ...]:
    if pair[0] == pair[1]:
        return () if pair[0] == "float32" else (pair[0],)
    return tuple(f"{side}={name}" for side, name in zip(_SIDES, pair, strict=True))


def by_signature(texts: Sequence[str], values: Mapping[tuple[str, ...], Any]) -> dict[str, str]:
    """The SOURCE of each signature, "" for all that are not named. Raises `UsageError`.

    What stands before a = is a signature only where several were asked for, and it is a
    plain name: a path may have a = in it.
    """
    keys = values.get(("signature",), ())
    sources: dict[str, str] = {}
    for text in texts:
        key, equals, source = text.partition("=")
        named = bool(equals) and key.isidentifier() and (key in keys or "all" in keys)
        name = key if named else ""
        if name in sources:
            what = f"signature {name!r}" if name else "every signature"
            raise UsageError(
                f"--calibration gives {what} two sources", hint="--calibration KEY=SOURCE for each"
            )
        sources[name] = source if named else text
    return sources


def _said_sources(sources: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{key}={source}" if key else source for key, source in sources.items())


def named_shapes(texts: Sequence[str], _: Any = None) -> dict[str, tuple[int, ...]]:
    """Shapes by input from `image=1x224x224x3`, -1 for a ?. Raises `UsageError`."""
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part == "?" or (part.isdecimal() and int(part)) for part in parts):
            raise UsageError(
                f"--shape {text}: not of the form INPUT=AxBxC",
                hint="as in --shape image=1x224x224x3",
            )
        shapes[name] = tuple(-1 if part == "?" else int(part) for part in parts)
    return shapes


def _said_shapes(shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    return tuple(
        f"{name}={'x'.join('?' if size < 0 else str(size) for size in shape)}"
        for name, shape in shapes.items()
    )


def _said_recipes(recipes: Sequence[str | Recipe]) -> str:
    return ",".join(each.name if isinstance(each, Recipe) else each for each in recipes)


Ranged = Annotated[
    CalibrationRange,
    Option(
        group="Quality",
        help="True minima and maxima; an exponential moving average of them, which clips; without "
        "the rarest values; of the least squared error; of the least lost information; or the one "
        "of these that does best on held-back calibration samples. See docs/methods.md.",
    ),
]
Improved = Annotated[
    tuple[str, ...] | None,
    Option(
        group="Quality",
        text=NAMES,
        metavar="METHODS",
        help="Post-training methods of the quantised recipes, comma-separated: equalization, "
        "rounding, bias-correction; or auto, those that do good on held-back calibration samples; "
        "or none. [default: auto for weights of 4 bits, else none]",
    ),
]
Ruled = Annotated[
    tuple[LayerRule, ...],
    Option(
        name="layer",
        group="Quality",
        text=LAYER_RULE,
        several=True,
        metavar="PATTERN=PRECISION",
        help="Another precision for some layers: float32, float16, int16x8, int8, int4, or "
        "int4-block32 (a scale for every 32 weights; FULLY_CONNECTED of dynamic). PATTERN is "
        "an operator such as CONV_2D, or a layer's name with * and ?; `edgeconv debug` lists them.",
    ),
]


class ConvertRequest(Request, frozen=True, kw_only=True):
    """A model to convert, by which recipes, with which data, and where to.

    `to`: names of recipes, which the options for recipes are about, or recipes as they are.
    `signature`: keys, none for the only one, `("all",)` for every one; several go into one file.
    `batch` and `shapes` fix dynamic dimensions: the first one of every input, or by input name a
    whole shape in which -1 leaves a dimension as it is. `calibration` is a SOURCE by signature key,
    "" for every signature not named; `samples` of it calibrate, None for all but the held-back
    ones. `training` is the SOURCE of labelled samples that the recipe qat trains on; it calibrates
    too where no other does. `select_ops` allows operators that only TensorFlow has.
    `target_runtime` is one to prove the artifacts on besides the one installed here.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    directory: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Directory to publish in. [default: NAME.tflites]",
        ),
    ] = None
    to: Annotated[
        tuple[str | Recipe, ...],
        Option(
            group="Recipes",
            text=NAMES,
            say=_said_recipes,
            words=("all", *EVERY_RECIPE),
            help="Recipes, comma-separated: float32, float16, dynamic, weight-only-int8, int8, "
            "int16x8; all for these; weight-only-int4, int8x4 (weights of 4 bits); and qat, "
            "quantisation-aware training to int8.",
        ),
    ]
    signature: Annotated[
        tuple[str, ...],
        Option(
            text=TEXT,
            group="Input",
            several=True,
            metavar="KEY",
            help="The signature to convert, if there are several. More than one, or `all`, go into "
            "one file.",
        ),
    ] = ()
    calibration: Annotated[
        dict[str, str],
        Option(
            group="Data",
            text=KEYED_SOURCE,
            several=True,
            make=by_signature,
            say=_said_sources,
            metavar="[KEY=]SOURCE",
            help="Samples to calibrate and verify with: a file, a directory or KIND:PLACE, with "
            "?INPUT=ARRAY to rename; see docs/data.md. int8 and int16x8 need them. KEY= is for one "
            "signature of several.",
        ),
    ] = {}
    samples: Annotated[
        int | None,
        Option(
            group="Data",
            help="How many samples calibrate. [default: all but up to 8, which are held back to "
            "verify]",
        ),
    ] = None
    preprocess: Annotated[
        Steps,
        Option(
            group="Data",
            text=STEPS,
            metavar="STEPS",
            is_shown=False,
            help="What is done to each stored sample, as in "
            "'resize=224x224&scale=1/127.5&mean=1', or a .toml file; see docs/data.md. It goes "
            "into the manifest, and `bench` does it too.",
        ),
    ] = Steps()
    training: Annotated[
        str,
        Option(
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples with labels that qat trains on; they calibrate too, without "
            "--calibration.",
        ),
    ] = ""
    input_type: Annotated[
        IoType,
        Option(
            text=TEXT,
            name="io",
            group="Recipes",
            several=True,
            takes="text",
            make=io_pair,
            say=_said_io,
            also="output_type",
            metavar="TYPE",
            help="Input and output type of the full-integer recipes: float32, int8, uint8 or "
            "(int16x8) int16; input=TYPE or output=TYPE sets one side. [default: float32]",
        ),
    ] = "float32"
    output_type: IoType = "float32"
    batch: Annotated[
        int | None, Option(group="Input", help="Fix a dynamic batch dimension to this.")
    ] = None
    shapes: Annotated[
        dict[str, tuple[int, ...]],
        Option(
            text=TEXT,
            name="shape",
            group="Input",
            several=True,
            make=named_shapes,
            say=_said_shapes,
            metavar="INPUT=AxBxC",
            help="Fix the dynamic dimensions of an input, the batch included; ? leaves one as it "
            "is.",
        ),
    ] = {}
    target_runtime: Annotated[
        TargetRuntime,
        Option(
            group="Recipes",
            text=TARGET_RUNTIME,
            metavar="RUNTIME",
            help="Prove the files on this runtime too: litert, litert==2.1.0, "
            "tflite-runtime==2.14.0. It is installed in an environment of its own, once.",
        ),
    ] = TargetRuntime()
    select_ops: Annotated[
        bool,
        Option(
            name="allow-select-ops",
            group="Recipes",
            help="Allow operators that only TensorFlow has. They run where the Select-TF (Flex) "
            "delegate is linked, and are verified in a TensorFlow that has it, installed once.",
        ),
    ] = False
    engine: Annotated[Engine, Option(group="Recipes")] = "auto"
    calibration_range: Ranged = "minmax"
    methods: Improved = None
    layers: Ruled = ()
    allow_float: Annotated[
        tuple[str, ...],
        Option(
            group="Quality",
            text=NAMES,
            metavar="OPERATORS",
            help="Operators that a full-integer recipe may leave in float, comma-separated; * for "
            "any.",
        ),
    ] = ()
    min_snr_db: Annotated[
        float | None,
        Option(
            group="Quality",
            help="Lowest signal-to-noise ratio of an output against the float model that is "
            "published. [default: by recipe]",
        ),
    ] = None
    qat: Trained = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None

    def key(self) -> str:
        """The hash of what decides the result, but for the content of what is read."""
        return hash_of(super().key(), [each for each in self.to if isinstance(each, Recipe)])

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The recipes that `to` names, with all that is said of them. Raises `UsageError`."""
        from edgeconv.quantize.recipes import make_recipes

        ready = tuple(each for each in self.to if isinstance(each, Recipe))
        names = [each for each in self.to if isinstance(each, str)]
        if ready and not names:
            return ready
        return ready + make_recipes(
            names,
            engine=self.engine,
            calibration_range=self.calibration_range,
            input_type=self.input_type,
            output_type=self.output_type,
            allow_float=self.allow_float,
            min_snr_db=self.min_snr_db,
            methods=self.methods,
            layers=self.layers,
            qat=self.qat,
        )

    @property
    def sources(self) -> dict[str, str]:
        """The SOURCE that calibrates by signature key: those to train on, without any other."""
        return self.calibration or ({"": self.training} if self.training else {})
