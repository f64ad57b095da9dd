"""The `GraphSummary` of a .tflite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tflite.flatbuffer import operator_name, read, text, type_names
from edgeconv.tflite.operators import count_operators, custom_operators, float_operators
from edgeconv.tflite.weights import is_quantized_tensor, weigh
from edgeconv.types import GraphSummary, Signature, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT, TensorT


def summarize(data: bytes, *, where: str) -> GraphSummary:
    """The summary of the .tflite file in `data`, which is not run.

    Signatures and their tensors are in the file's order. A file without signatures gets one of key
    "", with the first subgraph's inputs, outputs and tensor names. Raises `InputRefused`, which
    names the file as `where`, for bytes that are not a model.
    """
    model = read(data, where=where)
    weights = weigh(model, where=where)
    return GraphSummary(
        signatures=_signatures(model),
        operators=count_operators(model),
        weight_bytes=weights.stored_bytes,
        quantized_weight_share=weights.quantized_share,
        float16_weight_share=weights.float16_share,
        float_operators=float_operators(model),
        custom_operators=custom_operators(model),
        description=text(model.description),
    )


def is_quantized(summary: GraphSummary) -> bool:
    """Whether any weight or activation is quantized. Float16 weights are not."""
    if summary.quantized_weight_share > 0 or any(o.name == "QUANTIZE" for o in summary.operators):
        return True
    # Without a QUANTIZE, quantized activations are inputs or outputs.
    tensors = (t for s in summary.signatures for t in (*s.inputs, *s.outputs))
    return any(tensor.scale for tensor in tensors)


def output_steps(data: bytes, key: str) -> dict[str, float]:
    """The quantization step of each output of signature `key`, by name, in the output's unit.

    A float output of a DEQUANTIZE has the step of its integers; any other float output is omitted.
    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    steps = {}
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) == key:
            graph = model.subgraphs[signature.subgraphIndex]
            before = _before_dequantize(model, graph)
            for output in signature.outputs:
                index = output.tensorIndex
                tensor = graph.tensors[before.get(index, index)]
                if scales := spec_of("", tensor).scale:
                    steps[text(output.name)] = max(scales)
    return steps


def steps_by_output(data: bytes, keys: Iterable[str]) -> dict[tuple[str, str], float]:
    """The `output_steps` of several signatures, by signature and output."""
    return {(key, name): step for key in keys for name, step in output_steps(data, key).items()}


def _before_dequantize(model: ModelT, graph: SubGraphT) -> dict[int, int]:
    """The input of each DEQUANTIZE, by its output."""
    return {
        output: operator.inputs[0]
        for operator in reversed(graph.operators)
        if operator.inputs and operator.inputs[0] != -1
        if operator_name(model, operator) == "DEQUANTIZE"
        for output in operator.outputs
    }


def _signatures(model: ModelT) -> tuple[Signature, ...]:
    if not model.signatureDefs:
        return (_unnamed_signature(model.subgraphs[0]),)
    return tuple(
        Signature(
            key=text(signature.signatureKey),
            inputs=_mapped(model.subgraphs[signature.subgraphIndex], signature.inputs),
            outputs=_mapped(model.subgraphs[signature.subgraphIndex], signature.outputs),
        )
        for signature in model.signatureDefs
    )


def _unnamed_signature(graph: SubGraphT) -> Signature:
    def specs(indices: list[int]) -> tuple[TensorSpec, ...]:
        tensors = (graph.tensors[index] for index in indices)
        return tuple(spec_of(text(tensor.name), tensor) for tensor in tensors)

    return Signature(key="", inputs=specs(graph.inputs), outputs=specs(graph.outputs))


def _mapped(graph: SubGraphT, maps: list[object]) -> tuple[TensorSpec, ...]:
    named = ((text(m.name), graph.tensors[m.tensorIndex]) for m in maps)  # type: ignore[attr-defined]
    return tuple(spec_of(name, tensor) for name, tensor in named)


def spec_of(name: str, tensor: TensorT) -> TensorSpec:
    """The description of a tensor under this name."""
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    if is_quantized_tensor(tensor):
        quantization = tensor.quantization
        scale = tuple(float(s) for s in _items(quantization.scale))
        zero_point = tuple(int(z) for z in _items(quantization.zeroPoint))
    return TensorSpec(
        name=name,
        shape=_shape(tensor),
        dtype=type_names()[tensor.type],
        scale=scale,
        zero_point=zero_point,
    )


def _shape(tensor: TensorT) -> tuple[int, ...]:
    shape = tuple(int(d) for d in _items(tensor.shape))
    signature = tuple(int(d) for d in _items(tensor.shapeSignature))
    # The shape has 1 where its signature has a dynamic dimension.
    return signature if len(signature) == len(shape) else shape


def _items(vector: object) -> list[float]:
    return [] if vector is None else list(vector)  # type: ignore[call-overload]
