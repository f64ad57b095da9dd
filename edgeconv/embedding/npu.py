"""The model as Vela compiles it for an NPU, in place of the published file."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec

from edgeconv.embedding.interface import TargetOption
from edgeconv.plugins import npu_compiler
from edgeconv.system.store import sha256_file
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.measuring import ACCELERATORS, parse_npu

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embedding.interface import Embedding
    from edgeconv.types import Allowance, NpuChoice, NpuEstimate, Signature

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

    The golden vectors stay those of the published file. Raises `ToolFailed` where Vela is not
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
