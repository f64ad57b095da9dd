"""The tensors at the ends of a signature, and the integers behind its float tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import operator_name, read, text
from edgeconv.model.tflite.summary import spec_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, SubGraphT


class EndLevels(NamedTuple):
    """The integers of a tensor: its scale and zero point, and the lowest and the highest."""

    scale: float
    zero_point: int
    lowest: int
    highest: int

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number that they stand for."""
        low, high = (self.scale * (end - self.zero_point) for end in (self.lowest, self.highest))
        return low, high


_LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def end_tensors(data: bytes, key: str) -> tuple[dict[str, str], dict[str, str]]:
    """The names of the tensors of signature `key`, by input and by output.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) == key:
            tensors = model.subgraphs[signature.subgraphIndex].tensors
            inputs, outputs = (
                {text(each.name): text(tensors[each.tensorIndex].name) for each in side}
                for side in (signature.inputs, signature.outputs)
            )
            return inputs, outputs
    return {}, {}


def end_levels(data: bytes, key: str) -> tuple[dict[str, EndLevels], dict[str, EndLevels]]:
    """The integers of each input and output of signature `key` that has such, by name.

    For a float, the integers that a QUANTIZE makes of it, or a DEQUANTIZE makes it of. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) == key:
            graph = model.subgraphs[signature.subgraphIndex]
            after, before = _bridged(model, graph)
            inputs, outputs = (
                {text(e.name): other.get(e.tensorIndex, e.tensorIndex) for e in side}
                for side, other in ((signature.inputs, after), (signature.outputs, before))
            )
            return _levels(graph, inputs), _levels(graph, outputs)
    return {}, {}


def rounded_indices(data: bytes, key: str) -> tuple[str, ...]:
    """The integer inputs of signature `key` that become indices, and do not stand for all of them.

    Those are inputs with a scale other than 1 that a CAST makes whole numbers of. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    rounded = []
    for signature in model.signatureDefs or ():
        if text(signature.signatureKey) != key:
            continue
        graph = model.subgraphs[signature.subgraphIndex]
        _, before = _bridged(model, graph)
        cast = {
            before.get(operator.inputs[0], -1)
            for operator in graph.operators
            if operator_name(model, operator) == "CAST"
            and not spec_of("", graph.tensors[operator.outputs[0]]).dtype.startswith("float")
        }
        inputs = {text(e.name): e.tensorIndex for e in signature.inputs if e.tensorIndex in cast}
        rounded += [name for name, each in _levels(graph, inputs).items() if each.scale != 1]
    return tuple(rounded)


def _bridged(model: ModelT, graph: SubGraphT) -> tuple[dict[int, int], dict[int, int]]:
    """What a QUANTIZE makes of a tensor, and what a DEQUANTIZE makes a tensor of."""
    after: dict[int, int] = {}
    before: dict[int, int] = {}
    for operator in graph.operators:
        name = operator_name(model, operator)
        if name == "QUANTIZE":
            after.setdefault(operator.inputs[0], operator.outputs[0])
        elif name == "DEQUANTIZE":
            before[operator.outputs[0]] = operator.inputs[0]
    return after, before


def _levels(graph: SubGraphT, tensors: dict[str, int]) -> dict[str, EndLevels]:
    specs = {name: spec_of(name, graph.tensors[index]) for name, index in tensors.items()}
    return {
        name: EndLevels(spec.scale[0], spec.zero_point[0], *_LIMITS[spec.dtype])
        for name, spec in specs.items()
        if spec.scale and spec.dtype in _LIMITS
    }
