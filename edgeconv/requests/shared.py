"""The options that several verbs have: how a model is opened, and how everything runs."""

from operator import not_
from typing import Annotated, Any

from msgspec.structs import replace

from edgeconv.requests.request import (
    ABOVE_ZERO,
    NOT_BELOW_ZERO,
    POSITIVE,
    Data,
    Input,
    Option,
    Output,
    Quality,
    Request,
    Running,
    Within,
    request_of,
)
from edgeconv.requests.texts import (
    CUSTOM_OBJECTS,
    LAYER_RULE,
    NAMES,
    SANDBOX_MODE,
    SHA256,
    STEPS,
    TEXT,
    comma_list,
)
from edgeconv.types import Allowance, CalibrationRange, Execution, LayerRule, Opening, Steps
from edgeconv.types.execution import SandboxMode

CUSTOM = Input(
    "The module that defines the layers and functions of a Keras file, by dotted name or as "
    "./FILE.py; with :NAME only that one. It is imported. Repeatable.",
    text=CUSTOM_OBJECTS,
    several=True,
)


TAG = Input(
    "The graph of a SavedModel with exactly these tags, comma-separated. [default: serve]",
    name="tag",
    text=TEXT,
    make=lambda text: tuple(comma_list(text)),
    to_raw=",".join,
    metavar="TAGS",
)
LABELED_OUTPUT = Data("The output that the labels are for, if there are several.", text=TEXT)
# How a trained model is opened.
Opened = Annotated[Opening, Within(tags=TAG, custom_objects=CUSTOM)]
Sandboxed = Annotated[
    SandboxMode | None,
    Running(
        "Read models and data in a sandbox where there is one (auto), only in a sandbox (required, "
        "else exit code 4), or without one (off); see docs/security.md. [default: auto]",
        text=SANDBOX_MODE,
    ),
]


def _timeout(shown: str) -> Option:
    text = f"Wall-clock limit of each child process, in seconds. [default: {shown}]"
    return Running(text, bounds=ABOVE_ZERO, is_shown=False)


_THREADS = Running("Threads. [default: one per core]", bounds=POSITIVE, shown=None)
_MEMORY = Running(
    "Resident-memory limit of each child process, in MiB; 0: none.",
    name="memory-limit-mib",
    bounds=NOT_BELOW_ZERO,
    make=lambda mebibytes: mebibytes * 2**20,
    to_raw=lambda size_bytes: size_bytes // 2**20,
    is_shown=False,
)
_NO_CACHE = Running("Neither read nor write the cache.", name="no-cache", make=not_, to_raw=not_)
_TRUSTED = Running(
    "Load the model with this content although the scan refuses it; see docs/security.md. "
    "Repeatable, and never taken from a configuration.",
    name="trust-model",
    text=SHA256,
    several=True,
    is_typed=True,
)
# What the children of a verb may use: ten minutes, or no limit of time.
Allowed = Annotated[Allowance, Within(timeout_s=_timeout("600.0"), memory_bytes=_MEMORY)]
Unlimited = Annotated[Allowance, Within(timeout_s=_timeout("none"), memory_bytes=_MEMORY)]
EXECUTED = Within(
    threads=_THREADS,
    allowance=Within(timeout_s=_timeout("3600.0"), memory_bytes=_MEMORY),
    use_cache=_NO_CACHE,
    trusted=_TRUSTED,
)
# How a verb runs models.
Executed = Annotated[Execution, EXECUTED]
QUIET = Annotated[bool, Output("No progress on stderr.", short="q")]
VERBOSE = Annotated[bool, Output("Print all details of the result.", short="v")]
JSON = Annotated[bool, Output("Print the result as one JSON document.", name="json")]


# Where the work of a verb is done.
Placed = Annotated[
    str | None,
    Running(
        "Where to run: ray, a cluster that is started here, or ray://HOST:PORT. [default: "
        "processes on this machine]",
        text=TEXT,
        is_typed=True,
        metavar="CLUSTER",
    ),
]

# What the post-training verbs have.
Preprocessed = Annotated[
    Steps,
    Data(
        "Preprocessing of each sample, such as 'resize=96x96&scale=1/255'. Or a .toml file; "
        "see docs/data.md. The manifest has it, and `bench` applies it too.",
        text=STEPS,
        is_shown=False,
    ),
]
Batched = Annotated[
    int | None, Input("Fix a dynamic batch dimension to this size.", bounds=POSITIVE)
]
OnlyIntegers = Annotated[
    bool,
    Quality(
        "Refuse a file of int8, int16x8, int8x4 or qat in which an operator stays in float. "
        "Integer inputs or outputs (--io), and an NPU, imply it."
    ),
]
Ranged = Annotated[
    CalibrationRange | None,
    Quality(
        "Ranges by minmax, ema, percentile, mse, kl or auto. minmax: true minima and maxima; ema: "
        "a moving average of them; percentile: without the rarest values; mse: least squared "
        "error; kl: least lost information; auto: minmax where that is close to float on held-back "
        "calibration samples, else the best on them. If --methods is none or names some, minmax "
        "unless this is typed. See docs/methods.md. [default: auto]",
        metavar="RANGE",
    ),
]
Improved = Annotated[
    tuple[str, ...] | None,
    Quality(
        "equalization, rounding, bias-correction, auto or none. Post-training methods, "
        "comma-separated; auto: none where the plain file is close to float on held-back "
        "calibration samples, else those that help on them. [default: auto]",
        text=NAMES,
        metavar="METHODS",
    ),
]
Ruled = Annotated[
    tuple[LayerRule, ...],
    Quality(
        "Another precision for some layers. PRECISION: float32, float16, int16x8, int8, int4 or "
        "int4-block32 (a scale for every 32 weights; only for FULLY_CONNECTED in dynamic). PATTERN "
        "is an operator such as CONV_2D, or a layer's name with * and ?; `edgeconv debug` lists "
        "them. Repeatable.",
        name="layer",
        text=LAYER_RULE,
        several=True,
    ),
]
Suspected = Annotated[
    bool,
    Quality(
        "Convert even if the calibration samples cannot be what the model was trained on. The "
        "reasons become warnings in the manifest."
    ),
]


def _plain(option: Option, **changes: Any) -> Option:
    """An option whose value is what is typed."""
    return replace(option, make=None, to_raw=None, **changes)


class _Run(Request, frozen=True, kw_only=True):
    execution: Executed = Execution()


class ExecutionOverrides(Request, frozen=True, kw_only=True):
    """How to run every model of a configuration; None: as the tables of each model say.

    `trusted` are the content hashes of models that are loaded although the scan refuses them.
    """

    threads: Annotated[int | None, _THREADS] = None
    timeout_s: Annotated[float | None, replace(_timeout("3600.0"), shown=3600.0)] = None
    memory_limit_mib: Annotated[int | None, replace(_MEMORY, make=None, to_raw=None, shown=0)] = (
        None
    )
    no_cache: Annotated[bool, _plain(_NO_CACHE)] = False
    trusted: Annotated[tuple[str, ...], _TRUSTED] = ()

    def typed(self) -> dict[str, Any]:
        """The values that are set, by the keys of the options."""
        return {leaf.key: value for leaf, value in self.values() if value != leaf.default}

    @property
    def execution(self) -> Execution:
        """How to run what belongs to no model. What is read may run the code that it names."""
        return request_of(_Run, self.typed(), runs_code=True).execution


RunForAll = Annotated[ExecutionOverrides, Within()]
