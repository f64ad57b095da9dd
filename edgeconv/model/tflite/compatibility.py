"""The oldest TensorFlow Lite runtime that can run a .tflite, and the operators that decide it.

A runtime refuses an operator with a declared version that it lacks. Where the declared version is
too low for the operator's tensors, an older runtime loads the model, and fails or computes
nonsense. So the larger of the two versions counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.edit import require_version
from edgeconv.model.tflite.flatbuffer import (
    MOST_FLATBUFFER_BYTES,
    is_custom,
    operators_of,
    parse,
    read,
    serialize,
    text,
)
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import OperatorUse, has_channel_scales, use_of
from edgeconv.model.tflite.releases import Release, releases
from edgeconv.types import OldestRuntime, RuntimeNeed

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT

# tflite-runtime 2.7 to 2.9 load an integer FULLY_CONNECTED with a scale per channel, and give
# zeros; 2.10 is correct. No version of the operator distinguishes the two.
_CHANNEL_DENSE: Release = (2, 10, 0)
# The entry of the metadata that TensorFlow's converter writes, of a fixed length.
_RELEASE, _RELEASE_BYTES = "min_runtime_version", 16


class _OperatorNeed(NamedTuple):
    """What one operator needs; an unknown `release` is None."""

    need: RuntimeNeed
    release: Release | None


def oldest_runtime(data: bytes, where: str) -> OldestRuntime:
    """The oldest runtime for the .tflite in `data`, which `where` names in an error.

    Operators of undocumented versions or types are named as unknown; the runtime is then that of
    the others. Raises `InputRefused` for bytes that are not a model.
    """
    return _oldest(read(data, where=where))


def with_needs_declared(data: bytes) -> bytes:
    """The same model, which an older runtime than `oldest_runtime` refuses.

    Each operator declares the version that its tensors need, where that is known, and
    `min_runtime_version` is the release that has all of them. `data` itself where that is so
    already, or for a model that is too large to edit. Raises `InputRefused` for bytes that are not
    a model.
    """
    if len(data) > MOST_FLATBUFFER_BYTES:
        return data
    model = parse(data, where="the model")
    before = [(operator.opcodeIndex, operator) for _, operator in operators_of(model)]
    for graph, operator in operators_of(model):
        use = use_of(model, graph, operator)
        needed = needed_version(use)
        # A version that no runtime has would only make the file useless.
        if needed and (use.name, needed) in releases() and not is_custom(model, operator):
            require_version(model, operator, needed)
    is_raised = any(operator.opcodeIndex != index for index, operator in before)
    is_told = _tell_release(model, _oldest(model).version)
    return serialize(model) if is_raised or is_told else data


def _tell_release(model: ModelT, release: str) -> bool:
    """Write `min_runtime_version`, or remove it for ""; returns whether that changed anything."""
    import numpy as np
    from ai_edge_litert.schema_py_generated import BufferT, MetadataT

    entries = model.metadata or []
    entry = next((each for each in entries if text(each.name) == _RELEASE), None)
    if not release:
        model.metadata = [each for each in entries if each is not entry]
        return entry is not None
    data = np.frombuffer(release.encode().ljust(_RELEASE_BYTES, b"\0"), np.uint8)
    if entry is None:
        entry = MetadataT(name=_RELEASE)
        model.metadata = [*entries, entry]
    elif np.array_equal(model.buffers[entry.buffer].data, data):
        return False
    tensors = (tensor for graph in model.subgraphs for tensor in graph.tensors)
    if sum(each.buffer == entry.buffer for each in (*model.metadata, *tensors)) == 1:
        model.buffers[entry.buffer] = BufferT(data=data)
    else:
        model.buffers.append(BufferT(data=data))
        entry.buffer = len(model.buffers) - 1
    return True


def _oldest(model: ModelT) -> OldestRuntime:
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
