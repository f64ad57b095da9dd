"""The `GraphSummary` of a .tflite: names, tensors and integers at the ends of its signatures."""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.model.tflite.flatbuffer import (
    entry_subgraphs,
    graphs_of,
    is_constant,
    operator_name,
    operators_of,
    parse,
    read,
    text,
    type_names,
)
from edgeconv.model.tflite.operators import (
    count_operators,
    custom_operators,
    float_operators,
    is_quantized_tensor,
    weigh,
)
from edgeconv.types import GraphSummary, Signature, TensorSpec
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
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
    for signature, graph in graphs_of(model, key):
        before = _before_dequantize(model, graph)
        for output in signature.outputs:
            index = output.tensorIndex
            tensor = graph.tensors[before.get(index, index)]
            if scales := spec_of("", tensor).scale:
                steps[text(output.name)] = max(scales)
    return steps


def constant_outputs(data: bytes, key: str) -> frozenset[str]:
    """The outputs of signature `key` that depend on none of its inputs, by name.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    names = set[str]()
    for signature, graph in graphs_of(model, key):
        reached = {each.tensorIndex for each in signature.inputs}
        for operator in graph.operators:
            # What reads a variable or a table may give something else each time.
            reads_state = not any(tensor != -1 for tensor in operator.inputs)
            if reads_state or not reached.isdisjoint(operator.inputs):
                reached.update(operator.outputs)
        names |= {text(each.name) for each in signature.outputs if each.tensorIndex not in reached}
    return frozenset(names)


def unused_inputs(data: bytes) -> tuple[str, ...]:
    """The inputs of signatures that no operator reads and no output is, by name.

    Raises `InputRefused` for bytes that are not a model.
    """
    model = read(data, where="the model")
    names: dict[str, None] = {}
    for signature in model.signatureDefs or ():
        graph = model.subgraphs[signature.subgraphIndex]
        used = {index for operator in graph.operators for index in operator.inputs}
        used |= {*graph.outputs}
        names |= {text(i.name): None for i in signature.inputs if i.tensorIndex not in used}
    return tuple(names)


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


# The schema's activation functions with a bound, and the largest magnitude that each gives.
_BOUNDS = {"RELU6": 6.0, "RELU_N1_TO_1": 1.0}
# tflite-micro's softmax takes 2**26 steps of its input, times beta, as a multiplier, and ends the
# program where that is under 1: a step must be 2**-26 at least, and 32 / 2**31 is that.
_SOFTMAX_BOUND = 32.0
# The kernel's number among an operator's inputs. A depthwise kernel is never pruned.
_COUNT = struct.Struct("<i")


def tensor_specs(data: bytes, *, where: str) -> dict[str, TensorSpec]:
    """Every tensor of the graphs that a caller can run, weights included, by name.

    Duplicate names are numbered: "name", "name (2)". Raises `InputRefused`, which names the file as
    `where`, for bytes that are not a model.
    """
    model = parse(data, where=where)
    specs: dict[str, TensorSpec] = {}
    # The last number of each name: many tensors of one name must not take quadratic time.
    numbers: dict[str, int] = {}
    for index in entry_subgraphs(model):
        for tensor in model.subgraphs[index].tensors:
            name = unique = text(tensor.name)
            while unique in specs:
                numbers[name] = numbers.get(name, 1) + 1
                unique = f"{name} ({numbers[name]})"
            specs[unique] = spec_of(unique, tensor)
    return specs


def layers_of_graphs(data: bytes, *, where: str) -> dict[str, frozenset[str]]:
    """The outputs of the operators of every graph, by the graph's name.

    A graph without a name is called "main", as viewers do. Raises `InputRefused`.
    """
    model = parse(data, where=where)
    layers: dict[str, frozenset[str]] = {}
    for graph in model.subgraphs:
        outputs = {i for operator in graph.operators for i in operator.outputs if i != -1}
        names = frozenset(text(graph.tensors[i].name) for i in outputs)
        key = text(graph.name) or "main"
        layers[key] = layers.get(key, frozenset()) | names
    return layers


def activation_bounds(data: bytes) -> dict[str, float]:
    """What kernels compute of a tensor in an int32, so that its steps must not be too small.

    By name: the bound of each that RELU6 or RELU_N1_TO_1 gives, fused or not, and 32 / beta for the
    inputs of SOFTMAX.
    """
    from ai_edge_litert.schema_py_generated import ActivationFunctionType

    codes = {getattr(ActivationFunctionType, name): bound for name, bound in _BOUNDS.items()}
    model = read(data, where="the model")
    bounds: dict[str, float] = {}
    for graph, operator in operators_of(model):
        fused = getattr(operator.builtinOptions, "fusedActivationFunction", 0)
        bound = codes.get(fused) or _BOUNDS.get(operator_name(model, operator))
        if bound:
            bounds |= {text(graph.tensors[i].name): bound for i in operator.outputs}
        beta = getattr(operator.builtinOptions, "beta", 0.0)
        if beta > 0.0 and operator_name(model, operator) == "SOFTMAX":
            for name in (text(graph.tensors[i].name) for i in operator.inputs):
                bounds[name] = max(bounds.get(name, 0.0), _SOFTMAX_BOUND / beta)
    return bounds


def largest_scales(data: bytes) -> dict[str, float]:
    """The largest scale of every quantized tensor, by name; infinite where one is not finite."""
    scales: dict[str, float] = {}
    for graph in read(data, where="the model").subgraphs:
        for tensor in graph.tensors:
            own = None if tensor.quantization is None else tensor.quantization.scale
            if own is not None and len(own):
                finite = all(math.isfinite(scale) for scale in own)
                scales[text(tensor.name)] = float(max(own)) if finite else math.inf
    return scales


class InnerRange(NamedTuple):
    """A tensor between two operators: its name, the values it can hold, and their step."""

    name: str
    low: float
    high: float
    step: float
    is_input: bool


def inner_ranges(data: bytes) -> list[InnerRange]:
    """The int8 activations that operators compute for others, in the order of the file.

    The quantized inputs are among them, and what goes to the model's outputs is not. Raises
    `InputRefused` for bytes that are not a model.
    """
    model = parse(data, where="the model")
    ranges = []
    for graph in model.subgraphs:
        inputs, outputs = set(graph.inputs), _outputs(model, graph)
        for operator in graph.operators:
            is_input = operator_name(model, operator) == "QUANTIZE"
            is_input = is_input and not inputs.isdisjoint(operator.inputs)
            for index in set(operator.outputs) - outputs - {-1}:
                tensor = graph.tensors[index]
                spec = spec_of(text(tensor.name), tensor)
                if spec.dtype == "int8" and len(spec.scale) == 1:
                    step, zero = spec.scale[0], spec.zero_point[0]
                    low, high = (-128 - zero) * step, (127 - zero) * step
                    ranges.append(InnerRange(spec.name, low, high, step, is_input))
    return ranges


def _outputs(model: ModelT, graph: SubGraphT) -> set[int]:
    """The outputs of a graph, and what a DEQUANTIZE makes one of."""
    outputs = set(graph.outputs)
    for operator in graph.operators:
        is_last = not outputs.isdisjoint(operator.outputs)
        if is_last and operator_name(model, operator) == "DEQUANTIZE":
            outputs.update(operator.inputs)
    return outputs


def vocabularies(data: bytes, *, where: str) -> tuple[tuple[bytes, ...], ...]:
    """The strings of every constant tensor of strings, in the order of the file.

    These are the keys and the string values of its tables. A malformed tensor counts as empty.
    Raises `InputRefused`, which names the file as `where`, for bytes that are not a model.
    """
    model = read(data, where=where)
    tensors = (
        _strings(bytes(model.buffers[tensor.buffer].data))
        for graph in model.subgraphs
        for tensor in graph.tensors
        if type_names()[tensor.type] == "string" and is_constant(model, tensor)
    )
    return tuple(strings for strings in tensors if strings)


def _strings(buffer: bytes) -> tuple[bytes, ...]:
    """A buffer of strings: their number, where each begins and the last ends, and the bytes."""
    if len(buffer) < _COUNT.size:
        return ()
    (count,) = _COUNT.unpack_from(buffer)
    if count < 1 or (count + 2) * _COUNT.size > len(buffer):
        return ()
    offsets = struct.unpack_from(f"<{count + 1}i", buffer, _COUNT.size)
    return tuple(buffer[start:end] for start, end in itertools.pairwise(offsets))


def valid_names(raw: Sequence[str], fallback: str) -> list[str]:
    """`raw` as valid, unique signature names, in the same order; `fallback` for an empty one."""
    taken: set[str] = set()
    # The last number of each name: a model may have thousands of one name.
    numbers: dict[str, int] = {}
    names = []
    for raw_name in raw:
        bare = re.sub(r":\d+$", "", raw_name).removeprefix(f"{SERVING_DEFAULT}_")
        base = re.sub(r"[^A-Za-z0-9_.]+", "_", bare).strip("_") or fallback
        name = base
        while name in taken:
            numbers[base] = numbers.get(base, 1) + 1
            name = f"{base}_{numbers[base]}"
        taken.add(name)
        names.append(name)
    return names


def match_names(own: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> dict[str, str] | None:
    """The name in `other` of each tensor of `own`; None if that is not certain.

    Equal names correspond, and so do single tensors. Otherwise the names without converters'
    additions decide, or types and shapes of one sample, where each is unique.
    """
    if {spec.name for spec in own} == {spec.name for spec in other}:
        return {spec.name: spec.name for spec in own}
    if len(own) != len(other):
        return None
    if len(own) == 1:
        return {own[0].name: other[0].name}
    by_name = (valid_names([spec.name for spec in each], "") for each in (own, other))
    kinds = (
        [("float32" if spec.scale else spec.dtype, spec.shape[1:]) for spec in each]
        for each in (own, other)
    )
    for keys, theirs in (tuple(by_name), tuple(kinds)):
        if set(keys) == set(theirs) and len(set(keys)) == len(keys):
            names = dict(zip(theirs, (spec.name for spec in other), strict=True))
            return {spec.name: names[key] for spec, key in zip(own, keys, strict=True)}
    return None


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
    for signature, graph in graphs_of(model, key):
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
