"""The options that several verbs have: how a model is opened, and how everything runs."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
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

CUSTOM = Option(
    "Input",
    "The module that defines the layers and functions of a Keras file, by dotted name or as "
    "./FILE.py; with :NAME only that one. It is imported. Repeatable.",
    text=CUSTOM_OBJECTS,
    several=True,
    metavar="MODULE[:NAME]",
)


def split_names(text: str, _: Any = None) -> tuple[str, ...]:
    """The names of a text with commas, for an option that takes no array."""
    return tuple(comma_list(text))


TAG = Option(
    "Input",
    "The graph of a SavedModel with exactly these tags, comma-separated. [default: serve]",
    name="tag",
    text=TEXT,
    make=split_names,
    to_raw=",".join,
    metavar="TAGS",
)
# How a trained model is opened.
Opened = Annotated[Opening, Within(tags=TAG, custom_objects=CUSTOM)]
Sandboxed = Annotated[
    SandboxMode | None,
    Option(
        "Execution",
        "Read models and data in a sandbox where there is one (auto), only in a sandbox (required, "
        "else exit code 4), or without one (off); see docs/security.md. [default: auto]",
        text=SANDBOX_MODE,
        metavar="[auto|required|off]",
    ),
]


def _bytes(mebibytes: int, _: Any) -> int:
    return mebibytes * 2**20


def _mebibytes(size_bytes: int) -> int:
    return size_bytes // 2**20


def _allowance(shown: str) -> Within:
    return Within(
        timeout_s=Option(
            "Execution",
            f"Wall-clock limit of each child process, in seconds. [default: {shown}]",
            least=0,
            is_above=True,
            is_shown=False,
        ),
        memory_bytes=Option(
            "Execution",
            "Resident-memory limit of each child process, in MiB; 0: none.",
            name="memory-limit-mib",
            least=0,
            make=_bytes,
            to_raw=_mebibytes,
            is_shown=False,
        ),
    )


def _negated(value: bool, _: Any = None) -> bool:
    return not value


# What the children of a verb may use: ten minutes, or no limit of time.
Allowed = Annotated[Allowance, _allowance("600.0")]
Unlimited = Annotated[Allowance, _allowance("none")]
_THREADS = Option(
    "Execution", "Threads. [default: one per core]", least=1, shown=None, is_common=True
)
_ALLOWANCE = _allowance("3600.0")
_NO_CACHE = Option(
    "Execution",
    "Neither read nor write the cache.",
    name="no-cache",
    make=_negated,
    to_raw=_negated,
)
_TRUSTED = Option(
    "Execution",
    "Load the model with this content although the scan refuses it; see docs/security.md. "
    "Repeatable, and never taken from a configuration.",
    name="trust-model",
    text=SHA256,
    several=True,
    is_typed=True,
    metavar="SHA256",
)
EXECUTED = Within(threads=_THREADS, allowance=_ALLOWANCE, use_cache=_NO_CACHE, trusted=_TRUSTED)
# How a verb runs models.
Executed = Annotated[Execution, EXECUTED]
QUIET = Annotated[bool, Option("Output", "No progress on stderr.", short="q", is_common=True)]
JSON = Annotated[
    bool, Option("Output", "Print the result as one JSON document.", name="json", is_common=True)
]


# Where the work of a verb is done.
Placed = Annotated[
    str | None,
    Option(
        "Execution",
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
    Option(
        "Data",
        "Preprocessing of each sample, such as 'resize=96x96&scale=1/255'. Or a .toml file; "
        "see docs/data.md. The manifest has it, and `bench` applies it too.",
        text=STEPS,
        metavar="STEPS",
        is_shown=False,
        is_common=True,
    ),
]
Batched = Annotated[
    int | None, Option("Input", "Fix a dynamic batch dimension to this size.", is_common=True)
]
AllowedFloat = Annotated[
    tuple[str, ...],
    Option(
        "Quality",
        "Operators that a full-integer recipe may leave in float, comma-separated; * for any.",
        text=NAMES,
        metavar="OPERATORS",
    ),
]
Ranged = Annotated[
    CalibrationRange | None,
    Option(
        "Quality",
        "Ranges by minmax, ema, percentile, mse, kl or auto. minmax: true minima and maxima; ema: "
        "a moving average of them; percentile: without the rarest values; mse: least squared "
        "error; kl: least lost information; auto: minmax where that is close to float on held-back "
        "calibration samples, else the best on them. If --methods is none or names some, minmax "
        "unless this is typed. See docs/methods.md. [default: auto]",
        metavar="RANGE",
        is_common=True,
    ),
]
Improved = Annotated[
    tuple[str, ...] | None,
    Option(
        "Quality",
        "equalization, rounding, bias-correction, auto or none. Post-training methods, "
        "comma-separated; auto: none where the plain file is close to float on held-back "
        "calibration samples, else those that help on them. [default: auto]",
        text=NAMES,
        metavar="METHODS",
        is_common=True,
    ),
]
Ruled = Annotated[
    tuple[LayerRule, ...],
    Option(
        "Quality",
        "Another precision for some layers. PRECISION: float32, float16, int16x8, int8, int4 or "
        "int4-block32 (a scale for every 32 weights; only for FULLY_CONNECTED in dynamic). PATTERN "
        "is an operator such as CONV_2D, or a layer's name with * and ?; `edgeconv debug` lists "
        "them. Repeatable.",
        name="layer",
        text=LAYER_RULE,
        several=True,
        metavar="PATTERN=PRECISION",
        is_common=True,
    ),
]
Suspected = Annotated[
    bool,
    Option(
        "Quality",
        "Convert even if the calibration samples cannot be what the model was trained on. The "
        "reasons become warnings in the manifest.",
    ),
]


class ExecutionOverrides(Request, frozen=True, kw_only=True):
    """How to run every model of a configuration; None: as the tables of each model say.

    `trusted` are the content hashes of models that are loaded although the scan refuses them.
    """

    threads: int | None = None
    timeout_s: float | None = None
    memory_limit_mib: int | None = None
    no_cache: bool = False
    trusted: tuple[str, ...] = ()

    def typed(self) -> dict[str, Any]:
        """The values that are set, by the keys of the options."""
        fields = {
            "threads": self.threads,
            "timeout-s": self.timeout_s,
            "memory-limit-mib": self.memory_limit_mib,
            "no-cache": self.no_cache or None,
            "trust-model": self.trusted or None,
        }
        return {key: value for key, value in fields.items() if value is not None}

    @property
    def execution(self) -> Execution:
        """How to run what belongs to no model. What is read may run the code that it names."""
        plain = Execution()
        timeout_s = plain.allowance.timeout_s if self.timeout_s is None else self.timeout_s
        memory_bytes = _bytes(self.memory_limit_mib or 0, None)
        return Execution(
            threads=self.threads or plain.threads,
            allowance=Allowance(timeout_s=timeout_s, memory_bytes=memory_bytes),
            use_cache=not self.no_cache,
            allow_code=True,
            trusted=self.trusted,
        )


RunForAll = Annotated[
    ExecutionOverrides,
    Within(
        threads=_THREADS,
        timeout_s=structs.replace(_ALLOWANCE.options["timeout_s"], shown=3600.0),
        memory_limit_mib=structs.replace(
            _ALLOWANCE.options["memory_bytes"], make=None, to_raw=None, shown=0
        ),
        no_cache=structs.replace(_NO_CACHE, make=None, to_raw=None),
        trusted=_TRUSTED,
    ),
]
