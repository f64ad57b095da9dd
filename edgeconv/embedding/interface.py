"""The interface of a target of `embed`, and the values that it gets.

A target is a module of `edgeconv.plugins.EMBED_TARGETS` with

    files(embedding) -> Mapping[str, bytes | Path]
        The files to write: relative paths with `/`, and their content, or a file to copy. Equal
        embeddings give equal bytes on any machine: no time, no version, no path of this machine.
        Raises `InputRefused` for a model that the target does not support, `UsageError` for an
        option with a bad value.
    OPTIONS: Mapping[str, TargetOption]
        Its options by name. Each value is checked before the model runs, and `Embedding.options`
        has all of them, defaults included.

and may have

    notes(embedding) -> tuple[str, ...]
        Notes for the user, a sentence each.

Names of models, tensors and labels may have any text. They go into generated code through the
filters of `edgeconv.embedding.accessors`, or as identifiers of `edgeconv.embedding.accessors`.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgeconv.plugins import npu_compiler
from edgeconv.system.store import hash_of, sha256_file
from edgeconv.types import Allowance, Artifact, NpuChoice, NpuEstimate, Preprocessing, Signature
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError, unknown_name
from edgeconv.types.measuring import ACCELERATORS, parse_npu

# The runtimes whose outputs may be the golden ones.
LITERT, MICRO = "litert", "tflite-micro"


@dataclass(frozen=True, kw_only=True)
class TargetOption:
    """An option of a target: its value is one of `choices`, or matches all of `pattern`.

    `help` begins with the meaning of a value, and `example` is one for the hint of an error. With
    the `default` "" the target chooses.
    """

    help: str
    default: str = ""
    choices: tuple[str, ...] = ()
    pattern: str = ".*"
    example: str = ""

    @property
    def shown(self) -> str:
        """The help, with the default if it has one."""
        return f"{self.help}. [default: {self.default}]" if self.default else f"{self.help}."

    def check(self, name: str, value: str) -> None:
        """Raise `UsageError` for a value that the option `name` cannot have."""
        if self.choices and value not in self.choices:
            raise unknown_name(f"value of {name}", value, self.choices)
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise UsageError(
                f"--option {name}={value}: not a valid value; {name} is {self.help}",
                hint=f"give one such as {name}={self.example}",
            )


def yes_or_no(help_: str, default: str = "yes") -> TargetOption:
    """An option that is yes or no."""
    return TargetOption(help=help_, default=default, choices=("yes", "no"))


@dataclass(frozen=True, kw_only=True)
class Port:
    """An input or output of the model for generated code.

    `index` is its position in the signature, `graph_index` that in the graph, for interpreters
    without signatures. `shape` has -1 for an open dimension, and `fixed` the size in the golden
    vectors. `scale` is None where the tensor is not quantized. `preprocessing` is that of training,
    None for an output or where none is declared.
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
        return math.prod(self.fixed)

    @property
    def is_open(self) -> bool:
        """Whether a dimension is open."""
        return -1 in self.shape


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One invoke of the model: little-endian bytes of every port, in the order of `index`."""

    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """How much an output may differ from the golden one: integer `steps`, or `absolute`."""

    steps: int = 0
    absolute: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Golden:
    """Invokes of the model in a runtime, for a self-test, with a tolerance for each output.

    `source` is the kind of the samples' source, without a path of this machine; `kernels` names
    the runtime.
    """

    vectors: tuple[Vector, ...]
    tolerances: tuple[Tolerance, ...]
    source: str
    kernels: str = LITERT

    @property
    def runtime(self) -> str:
        """Its name, for a sentence."""
        return "LiteRT" if self.kernels == LITERT else self.kernels

    @property
    def text(self) -> str:
        """What it is of, for a comment."""
        return f"{self.source} samples" + (f" in {self.kernels}" if self.kernels != LITERT else "")


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """One model to embed, with all that a target gets.

    `artifact` is the manifest without facts of the machine that made it. `model` is the .tflite.
    All generated names begin with `symbol`, a C identifier. `labels` are the names of classes, and
    `labeled` is the index of their output. `is_stateful`: the model keeps a state between invokes;
    every golden vector is of a newly loaded model. `options` are all options of the target by name.
    """

    artifact: Artifact
    model: Path
    symbol: str
    signature: Signature
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    golden: Golden
    labels: tuple[str, ...]
    labeled: int | None
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
    def interface_id(self) -> str:
        """The hash of all facts that generated code has of a model beside its bytes.

        Code that was made for one model runs each with the same interface: names, types, shapes,
        scales, zero points and places of inputs and outputs, preprocessing, and labels.
        """
        sides = [
            [
                (p.name, p.graph_index, p.dtype, p.shape, p.scale, p.zero_point, p.preprocessing)
                for p in sorted(ports, key=lambda port: port.name)
            ]
            for ports in (self.inputs, self.outputs)
        ]
        return hash_of("interface", self.signature.key, sides, self.labels, self.labeled)[:32]

    @property
    def size_bytes(self) -> int:
        """The size of the .tflite."""
        return self.artifact.size_bytes


NPU_OPTION = {
    "npu": TargetOption(
        help="an Arm NPU: the model as Vela compiles it for that NPU, with the operator "
        "ethos-u; as in "
        "`edgeconv bench --npu`",
        pattern=rf"(?:(?:{'|'.join(ACCELERATORS)})(?:\?[\w.=&-]+)?)?",
        example="ethos-u55-128",
    )
}


def npu_of(options: Mapping[str, str]) -> NpuChoice | None:
    """The NPU that the options name, if any. Raises `UsageError` for a bad one."""
    if not options.get("npu"):
        return None
    if options.get("micro") == "no":
        raise UsageError(
            "an NPU's operator runs in TensorFlow Lite for Microcontrollers, and --option micro=no "
            "leaves that out",
            hint="remove --option micro=no or --option npu",
        )
    return parse_npu(options["npu"])


def compiled_for_npu(
    embedding: Embedding, npu: NpuChoice, scratch: Path, allowance: Allowance
) -> tuple[Embedding, tuple[str, ...]]:
    """The embedding with the compiled model, a file in `scratch`, and notes on what it is.

    The golden vectors still come from the published file. Raises `ToolFailed` where Vela is not
    installed or does not compile it, `InputRefused` where the NPU would compute nothing.
    """
    compiled = npu_compiler().compile_for(
        npu, embedding.model, scratch=scratch, allowance=allowance
    )
    if not compiled.estimate.on_npu:
        raise InputRefused(
            f"no operator of {embedding.name} runs on {npu}, which computes in int8 and int16 only",
            hint="embed the file of the recipe int8 or int16x8",
        )
    model = scratch / "compiled.tflite"
    model.write_bytes(compiled.content)
    _refuse_other_ends(embedding, model)
    artifact = msgspec.structs.replace(
        embedding.artifact, sha256=sha256_file(model), size_bytes=len(compiled.content)
    )
    changed = dataclasses.replace(embedding, artifact=artifact, model=model)
    return changed, _notes(compiled.estimate, embedding)


def _refuse_other_ends(embedding: Embedding, model: Path) -> None:
    """Raise `ToolFailed` for a compiled model with other inputs or outputs, or in another order."""
    before = _ends(embedding.model, embedding.signature.key)
    after = _ends(model, embedding.signature.key)
    if before != after:
        raise ToolFailed(f"the compiled {embedding.name} has other inputs and outputs: {after}")


def _ends(model: Path, key: str) -> list[list[tuple[object, ...]]]:
    from edgeconv.runtimes.interface import Model
    from edgeconv.runtimes.tensors import signature_of

    signature: Signature = signature_of(Model(file=model, signature=key or None))
    return [
        [(spec.name, spec.dtype, spec.scale, spec.zero_point) for spec in specs]
        for specs in (signature.inputs, signature.outputs)
    ]


def _notes(estimate: NpuEstimate, embedding: Embedding) -> tuple[str, ...]:
    left = ", ".join(each.operator for each in estimate.left)
    return (
        f"{embedding.name} is compiled by {estimate.compiler} for {estimate.npu}, system "
        f"{estimate.system}, memory mode {estimate.memory}: {estimate.on_npu} of "
        f"{estimate.operators} operators are on the NPU{left and f'; on the processor: {left}'}",
        f"the self-test expects what {embedding.golden.runtime} answered with the file before it "
        "was compiled: Arm says that an Ethos-U equals the reference kernels bit for bit, and "
        "nothing was run on one here",
    )
