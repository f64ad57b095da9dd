"""The oldest TensorFlow Lite runtime that can run a .tflite, and the operators that decide it.

A runtime refuses an operator with a declared version that it lacks. Where the declared version is
too low for the operator's tensors, an older runtime loads the model, and fails or computes
nonsense. So the larger of the two versions counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.tflite.flatbuffer import is_custom, operators_of, read
from edgeconv.tflite.needs import needed_version
from edgeconv.tflite.releases import Release, releases
from edgeconv.tflite.uses import OperatorUse, has_channel_scales, use_of
from edgeconv.types import OldestRuntime, RuntimeNeed

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# tflite-runtime 2.7 to 2.9 load an integer FULLY_CONNECTED with a scale per channel, and give
# zeros; 2.10 is correct. No version of the operator distinguishes the two.
_CHANNEL_DENSE: Release = (2, 10, 0)


class _OperatorNeed(NamedTuple):
    """What one operator needs; an unknown `release` is None."""

    need: RuntimeNeed
    release: Release | None


def oldest_runtime(data: bytes, where: str) -> OldestRuntime:
    """The oldest runtime for the .tflite in `data`, which `where` names in an error.

    Operators of undocumented versions or types are named as unknown; the runtime is then that of
    the others. Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where=where)
    findings = {
        _find(model, use_of(model, graph, operator), operator)
        for graph, operator in operators_of(model)
    }
    oldest = max((f.release for f in findings if f.release is not None), default=None)
    return OldestRuntime(
        version="" if oldest is None else "{}.{}.{}".format(*oldest),
        operators=_needs(findings, oldest) if oldest is not None else (),
        unknown=_needs(findings, None),
    )


def _needs(findings: set[_OperatorNeed], release: Release | None) -> tuple[RuntimeNeed, ...]:
    needs = [finding.need for finding in findings if finding.release == release]
    return tuple(sorted(needs, key=lambda need: (need.operator, need.version, need.declared)))


def _find(model: ModelT, use: OperatorUse, operator: OperatorT) -> _OperatorNeed:
    declared = int(model.operatorCodes[operator.opcodeIndex].version)
    # A custom operator is in no release: the app provides it.
    needed = None if is_custom(model, operator) else needed_version(use)
    version = max(declared, needed or 0)
    release = None if needed is None else releases().get((use.name, version))
    note = ""
    if release is not None and release < _CHANNEL_DENSE and _is_channel_dense(use):
        release, note = _CHANNEL_DENSE, "integer inputs and a scale per channel"
    need = RuntimeNeed(operator=use.name, version=version, declared=declared, note=note)
    return _OperatorNeed(need, release)


def _is_channel_dense(use: OperatorUse) -> bool:
    is_integer = use.input_type(0) in ("int8", "int16")
    return use.name == "FULLY_CONNECTED" and is_integer and has_channel_scales(use.input(1))
