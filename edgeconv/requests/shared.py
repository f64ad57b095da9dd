"""The options that several verbs take: how a model is opened, and how all is run."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from edgeconv.processes.sandbox import Mode
from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.texts import CUSTOM_OBJECTS, SANDBOX_MODE, SHA256, TEXT, comma_list
from edgeconv.types import Allowance, Execution, Opening

CUSTOM = Option(
    group="Input",
    text=CUSTOM_OBJECTS,
    several=True,
    metavar="MODULE[:NAME]",
    help="The module that defines the layers and functions of a Keras file, by dotted name or as "
    "./FILE.py; with :NAME only that one. It is imported. Repeatable.",
)


def split_names(text: str, _: Any = None) -> tuple[str, ...]:
    """The names of a text with commas, for an option that takes no array."""
    return tuple(comma_list(text))


TAG = Option(
    text=TEXT,
    name="tag",
    group="Input",
    make=split_names,
    say=",".join,
    metavar="TAGS",
    help="The graph of a SavedModel with exactly these tags, comma-separated. [default: serve]",
)
# How a trained model is opened.
Opened = Annotated[Opening, Within(tags=TAG, custom_objects=CUSTOM)]
Sandboxed = Annotated[
    Mode | None,
    Option(
        group="Execution",
        text=SANDBOX_MODE,
        metavar="[auto|required|off]",
        help="Whether models and data are read in a sandbox: where there is one, or else not at "
        "all (exit code 4), or never; see docs/security.md. [default: auto]",
    ),
]


def _bytes(mebibytes: int, _: Any) -> int:
    return mebibytes * 2**20


def _mebibytes(size_bytes: int) -> int:
    return size_bytes // 2**20


def _allowance(shown: str) -> Within:
    return Within(
        timeout_s=Option(
            group="Execution",
            least=0,
            is_above=True,
            is_shown=False,
            help=f"Wall-clock limit of each child process, in seconds. [default: {shown}]",
        ),
        memory_bytes=Option(
            name="memory-limit-mib",
            group="Execution",
            least=0,
            make=_bytes,
            say=_mebibytes,
            is_shown=False,
            help="Resident-memory limit of each child process, in MiB; 0: none.",
        ),
    )


def _negated(value: bool, _: Any = None) -> bool:
    return not value


# What the children of a verb may use: for an hour, ten minutes, or as long as it takes.
Allowed = Annotated[Allowance, _allowance("600.0")]
Unlimited = Annotated[Allowance, _allowance("none")]
EXECUTION = {
    "threads": Option(group="Execution", least=1, shown=None, help="Threads; default: cores."),
    "allowance": _allowance("3600.0"),
    "use_cache": Option(
        name="no-cache",
        group="Execution",
        make=_negated,
        say=_negated,
        help="Neither read nor write the stage cache.",
    ),
    "trusted": Option(
        name="trust-model",
        group="Execution",
        text=SHA256,
        several=True,
        is_typed=True,
        metavar="SHA256",
        help="Load the model with this content although the scan refuses it; see docs/security.md. "
        "Repeatable, and never taken from a configuration.",
    ),
}
# How a verb runs models.
Executed = Annotated[Execution, Within(**EXECUTION)]
QUIET = Annotated[bool, Option(short="q", group="Output", help="No progress on stderr.")]
JSON = Annotated[bool, Option(name="json", group="Output", help="Print the result as JSON.")]


class ExecutionOverrides(Request, frozen=True, kw_only=True):
    """What is said once of how to run, for every model of a configuration; None: as each says.

    `trusted` are the content hashes of models that are loaded although the scan refuses them.
    """

    threads: int | None = None
    timeout_s: float | None = None
    memory_limit_mib: int | None = None
    no_cache: bool = False
    trusted: tuple[str, ...] = ()

    def typed(self) -> dict[str, Any]:
        """What was said, by the keys of the options."""
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
        """How to run what is of no model. What is read may run the code that it names."""
        plain = Execution()
        timeout_s = plain.allowance.timeout_s if self.timeout_s is None else self.timeout_s
        return Execution(
            threads=self.threads or plain.threads,
            allowance=Allowance(
                timeout_s=timeout_s, memory_bytes=(self.memory_limit_mib or 0) * 2**20
            ),
            use_cache=not self.no_cache,
            allow_code=True,
            trusted=self.trusted,
        )


_ALLOWANCE = EXECUTION["allowance"]
assert isinstance(_ALLOWANCE, Within)
RunForAll = Annotated[
    ExecutionOverrides,
    Within(
        threads=EXECUTION["threads"],
        timeout_s=structs.replace(_ALLOWANCE.options["timeout_s"], shown=3600.0),
        memory_limit_mib=structs.replace(
            _ALLOWANCE.options["memory_bytes"], make=None, say=None, shown=0
        ),
        no_cache=structs.replace(EXECUTION["use_cache"], make=None, say=None),
        trusted=EXECUTION["trusted"],
    ),
]
