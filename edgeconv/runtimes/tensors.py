"""The inputs and outputs of a .tflite, for runtimes that take raw tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.types import Signature, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model


def signature_of(model: Model) -> Signature:
    """The signature of `model` that is to run, its tensors in the order of the graph.

    Its key is "" in a file without signatures. Raises `InputRefused` for a file that is not a
    model, and `UsageError` for an unknown signature, or without one if there are several.
    """
    from edgeconv.model.tflite.flatbuffer import read
    from edgeconv.model.tflite.summary import summarize

    data = model.file.read_bytes()
    signatures = summarize(data, where=str(model.file)).signatures
    keys = [signature.key for signature in signatures]
    if model.signature is None and len(keys) == 1:
        index = 0
    elif model.signature in keys:
        index = keys.index(model.signature)
    else:
        problem = f"no signature {model.signature!r}" if model.signature else "several signatures"
        raise UsageError(f"{model.file} has {problem}", hint=f"choose one of {quoted(keys)}")
    return _in_graph_order(read(data, where=str(model.file)), signatures[index], index)


def _in_graph_order(model: ModelT, signature: Signature, index: int) -> Signature:
    if not model.signatureDefs:
        return signature
    definition = model.signatureDefs[index]
    graph: SubGraphT = model.subgraphs[definition.subgraphIndex]

    def ordered(
        specs: tuple[TensorSpec, ...], maps: list[object], order: object
    ) -> tuple[TensorSpec, ...]:
        positions = list(order)  # type: ignore[call-overload]
        indices = [entry.tensorIndex for entry in maps]  # type: ignore[attr-defined]
        if any(index not in positions for index in indices):
            # One of the signature's tensors is not an input or output of the graph.
            return specs
        pairs = zip(indices, specs, strict=True)
        return tuple(spec for _, spec in sorted(pairs, key=lambda pair: positions.index(pair[0])))

    return Signature(
        key=signature.key,
        inputs=ordered(signature.inputs, definition.inputs, graph.inputs),
        outputs=ordered(signature.outputs, definition.outputs, graph.outputs),
    )


def check_fixed(model: Model, signature: Signature, where: str) -> None:
    """Raise `InputRefused` if an input has an open dimension."""
    for spec in signature.inputs:
        if -1 in spec.shape:
            raise InputRefused(
                f"{model.file}: input {spec.name!r} has the shape {list(spec.shape)}, and "
                f"{where} needs fixed dimensions",
                hint="convert the SavedModel or Keras file that it comes from with a fixed batch: "
                "edgeconv convert MODEL --batch 1",
            )


def refuse_strings(model: Model, signature: Signature, where: str) -> None:
    """Raise `InputRefused` for a model with strings, which `where` does not support."""
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype == "string":
            raise InputRefused(
                f"{model.file}: {spec.name!r} holds strings, and {where} takes numbers only",
                hint="measure it with --runtime litert, or with tflite-runtime over ssh",
            )


def raw(inputs: Arrays, specs: tuple[TensorSpec, ...]) -> dict[str, NDArray[np.generic]]:
    """Samples (n, *sample) by input in the tensors' own dtypes, in the order of `specs`.

    Strings stay as they are. Raises `InputRefused` for an input that has no samples.
    """
    missing = [spec.name for spec in specs if spec.name not in inputs]
    if missing:
        raise InputRefused(f"there are no samples for the model's inputs {missing}")
    return {spec.name: quantized(inputs[spec.name], spec) for spec in specs}


def quantized(value: NDArray[np.generic], spec: TensorSpec) -> NDArray[np.generic]:
    """`value`, of any shape, in the tensor's dtype, to the bit as LiteRT's QUANTIZE makes it.

    Strings stay as they are.
    """
    import numpy as np

    from edgeconv.runtimes.runner import quantize

    if spec.dtype == "string":
        return value
    if not spec.scale:
        return np.ascontiguousarray(value, spec.dtype)
    return np.asarray(quantize(value, spec.dtype, spec.scale[0], spec.zero_point[0]))


def dequantized(value: NDArray[np.generic], spec: TensorSpec) -> NDArray[np.generic]:
    """`value`, of any shape, as float32 where the tensor is quantized, else unchanged."""
    import numpy as np

    from edgeconv.runtimes.runner import dequantize

    return np.asarray(dequantize(value, spec.scale[0], spec.zero_point[0])) if spec.scale else value
