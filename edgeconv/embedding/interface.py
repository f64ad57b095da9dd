"""What a target of `embed` is, and what it is given.

A target is a module of `edgeconv.plugins.EMBED_TARGETS` with

    files(embedding) -> Mapping[str, bytes | Path]
        What is to be written: a relative path, with `/`, and the content, or a file to copy.
        Equal embeddings give equal bytes on any machine: no time, no version, no path of this
        machine. Raises `InputRefused` for a model that the target cannot have, `UsageError` for
        an option with a value that means nothing.
    OPTIONS: Mapping[str, Option]
        The options that it takes, by name. Each value is checked before the model is run, and
        `Embedding.options` has all of them: what was given, and the defaults.

and may have

    notes(embedding) -> tuple[str, ...]
        What the user should know of what was written, a sentence each.

Names of models, tensors and labels are anybody's text: they go into generated code through the
filters of `edgeconv.embedding.escaping`, or as identifiers of `edgeconv.embedding.accessors`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING

from edgeconv.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.types import Artifact, Preprocessing, Signature


@dataclass(frozen=True, kw_only=True)
class TargetOption:
    """An option of a target, which is text: one of `choices`, or what `pattern` matches as a whole.

    `help` is a line that begins with what a value means, and `example` a value for the hint of an
    error. `default` is what an option that is not given has; "" where the target works it out.
    """

    help: str
    default: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ".*"
    example: str = ""

    @property
    def shown(self) -> str:
        """The help, with the default where there is one."""
        return f"{self.help}. [default: {self.default}]" if self.default else f"{self.help}."

    def check(self, name: str, value: str) -> None:
        """Raise `UsageError` for a value that the option `name` cannot have."""
        if self.choices and value not in self.choices:
            raise unknown_name(f"value of {name}", value, self.choices)
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise UsageError(
                f"--option {name}={value}: no value that it can have; {name} is {self.help}",
                hint=f"as in {name}={self.example}",
            )


def yes_or_no(help_: str, default: str = "yes") -> TargetOption:
    """An option that is yes or no."""
    return TargetOption(help=help_, default=default, choices=("yes", "no"))


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output of the model, as code has to know it.

    `index` is its place among the signature's own inputs (or outputs), `graph_index` its place
    among those of the graph, which is what interpreters without signatures count by. `shape`
    has -1 where a dimension is open, and `fixed` what the golden vectors have there. `scale` is
    None where the tensor is not quantised. `preprocessing` is what was done to stored samples
    in training, None for an output or where nothing is declared.
    """

    name: str
    index: int
    graph_index: int
    shape: tuple[int, ...]
    fixed: tuple[int, ...]
    dtype: str
    bytes: int
    scale: float | None = None
    zero_point: int = 0
    preprocessing: Preprocessing | None = None

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        count = 1
        for size in self.fixed:
            count *= size
        return count

    @property
    def is_open(self) -> bool:
        """Whether a dimension is open."""
        return -1 in self.shape


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One invoke of the model: raw little-endian bytes of every port, in the order of `index`."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How far an output may be from the golden one and still be right.

    `steps` is for integers: so many levels. `absolute` is for floats, in the output's unit.
    """

    steps: int = 0
    absolute: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Golden:
    """Invokes of the model in LiteRT, for a self-test; a tolerance for each output.

    `source` says where the samples came from, and has no path of this machine.
    """

    vectors: tuple[Vector, ...]
    tolerances: tuple[Tolerance, ...]
    source: str


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """One model to be embedded; all that a target knows.

    `artifact` is the manifest without what belongs to the machine it was made on. `model` is
    the .tflite. `symbol` is a C identifier that all generated names begin with. `labels` are
    the names of classes, () where there are none, and `labelled` is the index of the output
    that they belong to. `is_stateful`: the model keeps something from one invoke to the next,
    while every golden vector is the answer of a model that was just loaded. `options` are all
    options of the target, by name.
    """

    artifact: Artifact
    model: Path
    symbol: str
    signature: Signature
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    golden: Golden
    labels: tuple[str, ...]
    labelled: int | None
    is_stateful: bool
    options: Mapping[str, str]

    @property
    def name(self) -> str:
        """The model's name, as its manifest has it."""
        return self.artifact.name

    @property
    def sha256(self) -> str:
        """The hash of the .tflite, as hexadecimal."""
        return self.artifact.sha256

    @property
    def size_bytes(self) -> int:
        """The size of the .tflite."""
        return self.artifact.size_bytes
