"""The inputs and outputs of a .tflite, for runtimes that are told raw tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, UsageError
from edgeconv.types import Signature

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model
    from edgeconv.types import TensorSpec


def signature_of(model: Model) -> Signature:
    """The signature of `model` that is to run, its tensors in the order of the graph.

    Its key is "" in a file without signatures. Raises `InputRefused` for a file that is no
    model, and `UsageError` where the signature is not there or has to be chosen.
    """
    from edgeconv.tflite.flatbuffer import parse
    from edgeconv.tflite.summary import summarize

    data = model.file.read_bytes()
    found = summarize(data, where=str(model.file)).signatures
    keys = [signature.key for signature in found]
    if model.signature is None and len(keys) == 1:
        index = 0
    elif model.signature in keys:
        index = keys.index(model.signature)
    else:
        wanted = "one of several" if model.signature is None else repr(model.signature)
        raise UsageError(
            f"{model.file}: cannot tell which signature is meant: {wanted}",
            hint=f"it has {', '.join(map(repr, keys))}",
        )
    return _in_graph_order(parse(data, where=str(model.file)), found[index], index)


def _in_graph_order(model: ModelT, found: Signature, index: int) -> Signature:
    if not model.signatureDefs:
        return found
    definition = model.signatureDefs[index]
    graph: SubGraphT = model.subgraphs[definition.subgraphIndex]

    def ordered(
        specs: tuple[TensorSpec, ...], maps: list[object], order: object
    ) -> tuple[TensorSpec, ...]:
        places = list(order)  # type: ignore[call-overload]
        indices = [entry.tensorIndex for entry in maps]  # type: ignore[attr-defined]
        if any(place not in places for place in indices):
            # A tensor that is no end of the graph: there is no order to be had.
            return specs
        pairs = zip(indices, specs, strict=True)
        return tuple(spec for _, spec in sorted(pairs, key=lambda pair: places.index(pair[0])))

    return Signature(
        key=found.key,
        inputs=ordered(found.inputs, definition.inputs, graph.inputs),
        outputs=ordered(found.outputs, definition.outputs, graph.outputs),
    )


def check_fixed(model: Model, signature: Signature, where: str) -> None:
    """Raise `InputRefused` where an input has a dimension that is left open."""
    for spec in signature.inputs:
        if -1 in spec.shape:
            raise InputRefused(
                f"{model.file}: input {spec.name!r} has the shape {list(spec.shape)}, and "
                f"{where} takes no model that leaves a dimension open",
                hint="convert it with a fixed one: edgeconv convert --batch 1",
            )


def refuse_strings(model: Model, signature: Signature, where: str) -> None:
    """Raise `InputRefused` for a model with strings, which `where` cannot be given or asked for."""
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype == "string":
            raise InputRefused(
                f"{model.file}: {spec.name!r} holds strings, and {where} takes numbers only",
                hint="measure it with --runtime litert, or with tflite-runtime over ssh",
            )


def raw(inputs: Arrays, specs: tuple[TensorSpec, ...]) -> dict[str, NDArray[np.generic]]:
    """Samples by input in the tensors' own dtypes, strings as they are, in the order of `specs`.

    Raises `InputRefused` for an input that has no samples.
    """
    missing = [spec.name for spec in specs if spec.name not in inputs]
    if missing:
        raise InputRefused(f"there are no samples for the model's inputs {missing}")
    return {
        spec.name: inputs[spec.name]
        if spec.dtype == "string"
        else quantized(inputs[spec.name], spec)
        for spec in specs
    }


def quantized(value: NDArray[np.generic], spec: TensorSpec) -> NDArray[np.generic]:
    """`value` in the tensor's dtype, to the bit as LiteRT's QUANTIZE makes it of floats."""
    import numpy as np

    from edgeconv.runtimes.runner import quantize

    if not spec.scale:
        return np.ascontiguousarray(value, spec.dtype)
    return np.asarray(quantize(value, spec.dtype, spec.scale[0], spec.zero_point[0]))


def dequantized(value: NDArray[np.generic], spec: TensorSpec) -> NDArray[np.generic]:
    """`value` as float32 where the tensor is quantized, else as it is."""
    import numpy as np

    from edgeconv.runtimes.runner import dequantize

    return np.asarray(dequantize(value, spec.scale[0], spec.zero_point[0])) if spec.scale else value
