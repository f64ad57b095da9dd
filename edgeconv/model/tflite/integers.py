"""Makes operators integer that litert-quantizer leaves in float although LiteRT has a kernel.

litert-quantizer does not know every operator, and wraps those that it does not know in DEQUANTIZE
and QUANTIZE. One that only moves or orders values gives the same for the integers; others get a
scale from the QUANTIZE that follows, or from the range of their values.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.model.tflite.edit import code_of, require_version, store_values
from edgeconv.model.tflite.flatbuffer import (
    is_constant,
    operator_name,
    parse,
    read,
    serialize,
    text,
    type_names,
)
from edgeconv.model.tflite.kernels import COMPARISONS, KERNELS, IntegerKernel, IntegerType
from edgeconv.model.tflite.needs import needed_version
from edgeconv.model.tflite.operators import SHAPE_ONLY, scales_of, type_of, use_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT

    Ranges = Mapping[str, tuple[float, float]]

_INTEGERS: dict[str, IntegerType] = {"int8": "int8", "int16": "int16"}
# The version of a QUANTIZE that takes integers.
_REQUANTIZES = 2
# A QUANTIZE to whole numbers rounds; 0 and 1 differ by one step.
_ROUNDS = "ROUND"
_MOST_ROUNDED = {"int8": 127.0, "int16": 32767.0}
# The input whose scale the output gets, where it is not the first.
_SCALED_INPUT = {"FILL": 1, "ONE_HOT": 2}
# Their float inputs need one scale.
_JOINS = frozenset({"MINIMUM", "ONE_HOT"}) | COMPARISONS
# Kernels that compare abort at a scale of 1 or more, and round all values to 256ths.
_LEAST_COMPARED, _MOST_COMPARED = 2.0**-8, 1.0


class _IntegerScale(NamedTuple):
    """What an integer stands for: `scale` times its distance from `zero_point`."""

    integers: IntegerType
    scale: float
    zero_point: int

    @classmethod
    def of_range(cls, low: float, high: float, integers: IntegerType) -> _IntegerScale:
        """The finest that has 0 and the whole range, symmetric for 16 bits."""
        low, high = min(low, 0.0), max(high, 0.0)
        if integers == "int16":
            return cls(integers, _single(max(-low, high) / 32767) or 1.0, 0)
        scale = _single((high - low) / 255) or 1.0
        return cls(integers, scale, round(-128 - low / scale))

    @classmethod
    def of_tensor(cls, tensor: TensorT) -> _IntegerScale:
        points = tensor.quantization.zeroPoint
        point = int(points[0]) if points is not None and len(points) else 0
        return cls(_INTEGERS[type_of(tensor)], scales_of(tensor)[0], point)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        low, high = (-128, 127) if self.integers == "int8" else (-32768, 32767)
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale


# The scales that kernels of int8 demand.
_DEMANDED = {
    "L2_NORMALIZATION": _IntegerScale("int8", 1 / 128, 0),
    "LOG_SOFTMAX": _IntegerScale("int8", 16 / 256, 127),
}


def with_integer_kernels(
    data: bytes,
    ranges: Ranges | None = None,
    *,
    integers: IntegerType = "int8",
    kept: Collection[str] = (),
    only_integers: bool = True,
) -> bytes:
    """The same model, with integers wherever there is a kernel for them.

    `ranges` has the least and greatest value of float activations by the tensor's name, `kept` the
    outputs of operators that stay in float. `integers` are those of an operator whose inputs are
    floats; only with `only_integers` a comparison of such gets them. SHAPE and RANK, which every
    Keras `Flatten` of a dynamic batch has, read the integer tensor before a DEQUANTIZE. What is
    then used for nothing is removed; `data` itself comes back if there is nothing to change.
    Raises `InputRefused` for bytes that are not a model.
    """
    known = read(data, where="the model")
    if not any(_may_change(known, graph) for graph in known.subgraphs):
        return data
    model = parse(data, where="the model")
    graphs = [
        _IntegerGraph(model, graph, ranges or {}, integers, frozenset(kept), only_integers)
        for graph in model.subgraphs
    ]
    changed = [graph.run() for graph in graphs]
    changed += [_gets_floats(model, signature) for signature in model.signatureDefs or ()]
    return serialize(model) if any(changed) else data


def _gets_floats(model: ModelT, signature: Any) -> bool:
    """Whether litert-quantizer gave a signature an output's integers; it gets its floats."""
    graph = model.subgraphs[signature.subgraphIndex]
    ends = [o for o in graph.operators if operator_name(model, o) == "DEQUANTIZE"]
    floats = {o.inputs[0]: o.outputs[0] for o in ends if o.outputs[0] in graph.outputs}
    wrong = [o for o in signature.outputs if o.tensorIndex not in graph.outputs]
    for each in wrong:
        each.tensorIndex = floats.get(each.tensorIndex, each.tensorIndex)
    return bool(wrong)


def _may_change(model: ModelT, graph: SubGraphT) -> bool:
    """Whether an operator reads floats that were integers, or has a kernel that is not used."""
    floats = {
        operator.outputs[0]
        for operator in graph.operators
        if operator_name(model, operator) == "DEQUANTIZE"
    }
    return any(
        _is_ours(operator_name(model, operator)) or not floats.isdisjoint(operator.inputs)
        for operator in graph.operators
    )


def _is_ours(name: str) -> bool:
    kernel = KERNELS.get(name)
    return name == _ROUNDS or (kernel is not None and kernel.scales != "litert-quantizer")


class _IntegerGraph:
    """One graph, whose operators become integer in their order."""

    def __init__(
        self,
        model: ModelT,
        graph: SubGraphT,
        ranges: Ranges,
        integers: IntegerType,
        kept: frozenset[str],
        only_integers: bool,
    ) -> None:
        self._model = model
        self._graph = graph
        self._ranges = ranges
        self._integers = integers
        self._kept = kept
        self._only_integers = only_integers
        # The integer tensor by the float tensor with the same values.
        self._twins: dict[int, int] = {}
        self._made = set[int]()
        self._bypassed = set[int]()
        self._is_changed = False
        self._operators: list[OperatorT] = []
        self._readers: dict[int, list[OperatorT]] = {}
        for operator in graph.operators:
            for index in set(operator.inputs) - {-1}:
                self._readers.setdefault(index, []).append(operator)

    def run(self) -> bool:
        """Change the graph; whether there was anything to change."""
        for operator in self._graph.operators:
            self._take(operator)
        if not self._is_changed:
            return False
        self._graph.operators = self._operators
        _remove_copies(self._model, self._graph)
        used = {i for o in self._graph.operators for i in o.inputs} | set(self._graph.outputs)
        needless = (self._made | self._bypassed) - used
        self._graph.operators = [
            o for o in self._graph.operators if not needless.intersection(o.outputs)
        ]
        return True

    def _take(self, operator: OperatorT) -> None:
        name = operator_name(self._model, operator)
        first = operator.inputs[0] if operator.inputs else -1
        if name == "DEQUANTIZE" and self._is_one_scale(first):
            self._twins[operator.outputs[0]] = first
        elif name == "QUANTIZE" and first in self._made:
            operator.inputs = [self._twins[first]]
            require_version(self._model, operator, _REQUANTIZES)
        elif name in SHAPE_ONLY and first in self._twins:
            self._is_changed = True
            self._bypassed.add(first)
            operator.inputs = [self._twins[first], *operator.inputs[1:]]
        elif name != "QUANTIZE" and self._computes_integers(operator):
            # litert-quantizer gives it the floats of a tensor that is an output of the model too.
            floats = self._twins.keys() & set(operator.inputs)
            self._is_changed = self._is_changed or bool(floats)
            self._bypassed |= floats
            operator.inputs = [self._twins.get(index, index) for index in operator.inputs]
        else:
            integers = self._kind_for(operator, name)
            if integers is not None:
                self._make_integer(operator, name, integers)
                return
        self._operators.append(operator)

    def _computes_integers(self, operator: OperatorT) -> bool:
        outputs = operator.outputs
        return len(outputs) > 0 and type_of(self._graph.tensors[outputs[0]]) in _INTEGERS

    def _is_one_scale(self, index: int) -> bool:
        tensor = self._graph.tensors[index]
        return (
            type_of(tensor) in _INTEGERS
            and len(scales_of(tensor)) == 1
            and not is_constant(self._model, tensor)
        )

    def _kind_for(self, operator: OperatorT, name: str) -> IntegerType | None:
        """The integers that an operator on floats can have; None where it stays as it is."""
        if not _is_ours(name) or self._is_kept(operator):
            return None
        inputs = self._float_inputs(operator)
        outputs = self._float_outputs(operator)
        if not (inputs or outputs):
            return None
        twins = [self._twins[i] for i in inputs if i in self._twins]
        if name in COMPARISONS and not (twins or self._only_integers):
            # Rounded, they would often be on the wrong side of what they are compared with.
            return None
        integers = _INTEGERS[type_of(self._graph.tensors[twins[0]])] if twins else self._integers
        kernel = KERNELS[name]
        if name == _ROUNDS:
            return integers if self._is_small(outputs[0], integers) else None
        if not kernel.takes(integers):
            return None
        if kernel.scales == "input" and not (twins or self._is_between_ends(inputs, outputs)):
            targets = [self._targets(index) for index in outputs]
            if not all(targets) or any(target is None for each in targets for target in each):
                return None
        have_scales = kernel.scales != "values" or all(
            any(self._targets(i)) or self._name(i) in self._ranges for i in outputs
        )
        known = all(
            i in self._twins or self._is_constant(i) or self._input_scaling(i, outputs) is not None
            for i in inputs
        )
        return integers if have_scales and known else None

    def _is_between_ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether callers give the inputs, and nobody reads the outputs as floats but they."""
        readers = [each for index in outputs for each in self._readers.get(index, ())]
        known = [i for i in self._graph.inputs if self._name(i) in self._ranges]
        return set(inputs) <= {*known, *filter(self._is_constant, inputs)} and all(
            _is_ours(operator_name(self._model, reader)) for reader in readers
        )

    def _is_small(self, index: int, integers: IntegerType) -> bool:
        limits = self._ranges.get(self._name(index))
        return limits is not None and max(map(abs, limits)) <= _MOST_ROUNDED[integers]

    def _input_scaling(self, index: int, outputs: Sequence[int]) -> _IntegerScale | None:
        """How a float input is to be quantized: by its range, or like the tensors made of it."""
        name = self._name(index)
        if name in self._ranges:
            return _IntegerScale.of_range(*self._ranges[name], self._integers)
        targets = [t for output in outputs for t in self._targets(output) if t is not None]
        scalings = {_IntegerScale.of_tensor(target) for target in targets}
        return scalings.pop() if len(scalings) == 1 else None

    def _is_kept(self, operator: OperatorT) -> bool:
        return any(self._name(index) in self._kept for index in operator.outputs if index != -1)

    def _name(self, index: int) -> str:
        return text(self._graph.tensors[index].name)

    def _is_constant(self, index: int) -> bool:
        return is_constant(self._model, self._graph.tensors[index])

    def _float_inputs(self, operator: OperatorT) -> list[int]:
        return [i for i in operator.inputs if i != -1 and self._is_float(i)]

    def _float_outputs(self, operator: OperatorT) -> list[int]:
        return [i for i in operator.outputs if i != -1 and self._is_float(i)]

    def _is_float(self, index: int) -> bool:
        return type_of(self._graph.tensors[index]) == "float32"

    def _targets(self, index: int) -> list[TensorT | None]:
        """What a float tensor becomes after operators that move values; None for what stays float.

        Empty where nothing reads it.
        """
        targets: list[TensorT | None] = [None] if index in self._graph.outputs else []
        for operator in self._readers.get(index, ()):
            name = operator_name(self._model, operator)
            kernel = KERNELS.get(name)
            if name == "QUANTIZE":
                targets.append(self._graph.tensors[operator.outputs[0]])
            elif kernel is not None and kernel.scales == "input" and name not in _JOINS:
                for output in self._float_outputs(operator):
                    targets += self._targets(output)
            elif name not in SHAPE_ONLY:
                targets.append(None)
        return targets

    def _make_integer(self, operator: OperatorT, name: str, integers: IntegerType) -> None:
        kernel = KERNELS[name]
        outputs = self._float_outputs(operator)
        scaling = self._shared_scaling(operator, name, outputs, integers)
        inputs = [
            self._integer(index, outputs, integers, scaling)
            if index != -1 and self._is_float(index)
            else index
            for index in operator.inputs
        ]
        if name in COMPARISONS and scaling is not None:
            inputs = self._comparable(inputs, scaling)
        operator.inputs = inputs
        if name == _ROUNDS:
            operator = _bridge(self._model, "QUANTIZE", operator.inputs[0], operator.outputs[0])
        self._operators.append(operator)
        for index in outputs:
            own = scaling or self._output_scaling(index, name, kernel, integers)
            number = self._append_twin(index, own)
            operator.outputs = [number if each == index else each for each in operator.outputs]
            bridge = _bridge(self._model, "DEQUANTIZE", number, index)
            self._operators.append(bridge)
            self._settle_version(bridge)
            self._made.add(index)
        self._settle_version(operator)
        self._is_changed = True

    def _settle_version(self, operator: OperatorT) -> None:
        needed = needed_version(use_of(self._model, self._graph, operator))
        if needed is not None:
            require_version(self._model, operator, needed)

    def _shared_scaling(
        self, operator: OperatorT, name: str, outputs: Sequence[int], integers: IntegerType
    ) -> _IntegerScale | None:
        """The scale of all float inputs and outputs, for an operator that passes integers on."""
        if KERNELS[name].scales != "input" and name not in COMPARISONS:
            return None
        if name not in _JOINS:
            index = operator.inputs[_SCALED_INPUT.get(name, 0)]
            return self._scaling_of(index, outputs, integers)
        import numpy as np

        # A constant between the values of the others takes their scale.
        inputs = self._float_inputs(operator)
        scalings = [
            self._scaling_of(index, outputs, integers)
            for index in inputs
            if not self._is_constant(index)
        ]
        limits = [scaling.range for scaling in scalings]
        constants = [self._values(index) for index in inputs if self._is_constant(index)]
        if scalings:
            low, high = min(low for low, _ in limits), max(high for _, high in limits)
            # The minimum is never above x, and of numbers beyond reach any decides as well.
            reach = high if name == "MINIMUM" else high + (high - low)
            least = -math.inf if name == "MINIMUM" else low - (high - low)
            constants = [np.clip(values, least, reach) for values in constants]
        limits += [(float(values.min()), float(values.max())) for values in constants]
        low, high = min(low for low, _ in limits), max(high for _, high in limits)
        return next(
            (each for each in scalings if each.range[0] <= low and high <= each.range[1]),
            _IntegerScale.of_range(low, high, integers),
        )

    def _scaling_of(
        self, index: int, outputs: Sequence[int], integers: IntegerType
    ) -> _IntegerScale:
        if index in self._twins:
            return _IntegerScale.of_tensor(self._graph.tensors[self._twins[index]])
        if self._is_constant(index):
            values = self._values(index)
            return _IntegerScale.of_range(float(values.min()), float(values.max()), integers)
        scaling = self._input_scaling(index, outputs)
        assert scaling is not None, "it was looked for before"
        return scaling

    def _output_scaling(
        self, index: int, name: str, kernel: IntegerKernel, integers: IntegerType
    ) -> _IntegerScale:
        if kernel.scales == "kernel":
            return _DEMANDED[name]
        if name == _ROUNDS:
            return _IntegerScale(integers, 1.0, 0)
        for target in self._targets(index):
            if target is not None and type_of(target) == integers:
                return _IntegerScale.of_tensor(target)
        return _IntegerScale.of_range(*self._ranges[self._name(index)], integers)

    def _integer(
        self,
        index: int,
        outputs: Sequence[int],
        integers: IntegerType,
        shared: _IntegerScale | None,
    ) -> int:
        """The integer tensor of a float one, made if there is none of the wanted scale."""
        scaling = shared or self._scaling_of(index, outputs, integers)
        if self._is_constant(index):
            return self._append_constant(index, scaling)
        source = self._twins.get(index)
        if source is not None and _IntegerScale.of_tensor(self._graph.tensors[source]) == scaling:
            self._bypassed.add(index)
            return source
        number = self._append_twin(index, scaling, keeps=source is not None)
        bridge = _bridge(self._model, "QUANTIZE", index if source is None else source, number)
        self._operators.append(bridge)
        self._settle_version(bridge)
        if source is None:
            return number
        self._bypassed.add(index)
        require_version(self._model, bridge, _REQUANTIZES)
        return number

    def _comparable(self, inputs: Sequence[int], scaling: _IntegerScale) -> list[int]:
        """The inputs of a comparison, multiplied by a power of 2 where a kernel needs it.

        They have one scale, so that integers compare as the numbers do.
        """
        exponent = 0
        while scaling.scale * 2.0**exponent >= _MOST_COMPARED:
            exponent -= 1
        while scaling.scale * 2.0**exponent < _LEAST_COMPARED:
            exponent += 1
        if not exponent:
            return list(inputs)
        factor = 2.0**exponent
        scaled = scaling._replace(scale=scaling.scale * factor)
        return [self._multiplied(index, factor, scaled) for index in inputs]

    def _multiplied(self, index: int, factor: float, scaled: _IntegerScale) -> int:
        """An integer tensor times a number, whose integers are the same."""
        from ai_edge_litert.schema_py_generated import (
            BuiltinOperator,
            BuiltinOptions,
            MulOptionsT,
            OperatorT,
        )

        number = self._append(index, scaled)
        if self._is_constant(index):
            return number
        import numpy as np

        by = self._append(index, _IntegerScale.of_range(0.0, factor, scaled.integers))
        tensor = self._graph.tensors[by]
        tensor.shape, tensor.shapeSignature, tensor.buffer = [], None, 0
        most = np.iinfo(scaled.integers).max
        store_values(self._model, tensor, np.array(most, scaled.integers))
        operator = OperatorT(
            opcodeIndex=code_of(self._model, BuiltinOperator.MUL),
            inputs=[index, by],
            outputs=[number],
            builtinOptionsType=BuiltinOptions.MulOptions,
            builtinOptions=MulOptionsT(),
        )
        self._operators.append(operator)
        self._settle_version(operator)
        return number

    def _append_twin(self, index: int, scaling: _IntegerScale, *, keeps: bool = False) -> int:
        """Add an integer tensor for a float one; with `keeps` it does not become its twin."""
        number = self._append(index, scaling)
        if not keeps:
            self._twins[index] = number
        return number

    def _append(self, index: int, scaling: _IntegerScale) -> int:
        from ai_edge_litert.schema_py_generated import QuantizationParametersT

        twin = copy.copy(self._graph.tensors[index])
        kind = scaling.integers
        twin.name = f"{text(twin.name)}_{kind}_{len(self._graph.tensors)}"
        twin.type = next(code for code, name in type_names().items() if name == kind)
        twin.quantization = QuantizationParametersT(
            scale=[scaling.scale], zeroPoint=[scaling.zero_point]
        )
        self._graph.tensors.append(twin)
        return len(self._graph.tensors) - 1

    def _append_constant(self, index: int, scaling: _IntegerScale) -> int:
        import numpy as np

        number = self._append(index, scaling)
        limits = np.iinfo(scaling.integers)
        levels = np.round(self._values(index) / scaling.scale) + scaling.zero_point
        stored = np.clip(levels, limits.min, limits.max).astype(scaling.integers)
        store_values(self._model, self._graph.tensors[number], stored)
        return number

    def _values(self, index: int) -> Any:
        import numpy as np

        buffer = self._model.buffers[self._graph.tensors[index].buffer]
        return np.frombuffer(bytes(buffer.data), "<f4")


def _single(value: float) -> float:
    """The value as the file stores it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]  # type: ignore[no-any-return]


def _bridge(model: ModelT, name: str, source: int, target: int) -> OperatorT:
    """A QUANTIZE or DEQUANTIZE between two tensors."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator, OperatorT

    code = code_of(model, getattr(BuiltinOperator, name))
    return OperatorT(opcodeIndex=code, inputs=[source], outputs=[target])


def _remove_copies(model: ModelT, graph: SubGraphT) -> None:
    """Remove every QUANTIZE to the scale that its input has.

    That of an output of the graph only where its input is made and read nowhere else.
    """
    same: dict[int, int] = {}
    kept = []
    for operator in graph.operators:
        is_copy = operator_name(model, operator) == "QUANTIZE" and _are_alike(
            graph.tensors[operator.inputs[0]], graph.tensors[operator.outputs[0]]
        )
        if is_copy and operator.outputs[0] not in graph.outputs:
            same[operator.outputs[0]] = operator.inputs[0]
        elif not (is_copy and _give_name(graph, operator)):
            kept.append(operator)
    graph.operators = kept
    for operator in graph.operators:
        operator.inputs = [_first(same, i) for i in operator.inputs]


def _give_name(graph: SubGraphT, copy_operator: OperatorT) -> bool:
    """Make the input of a copy the output of the graph itself; False if it cannot be."""
    source, target = copy_operator.inputs[0], copy_operator.outputs[0]
    if source in graph.inputs or source in graph.outputs:
        return False
    for operator in graph.operators:
        operator.inputs = [target if i == source else i for i in operator.inputs]
        operator.outputs = [target if i == source else i for i in operator.outputs]
    return True


def _first(same: dict[int, int], index: int) -> int:
    while index in same:
        index = same[index]
    return index


def _are_alike(source: TensorT, target: TensorT) -> bool:
    def points(tensor: TensorT) -> list[int]:
        return list(tensor.quantization.zeroPoint) if tensor.quantization else []

    return (
        source.type == target.type
        and bool(scales_of(source))
        and scales_of(source) == scales_of(target)
        and points(source) == points(target)
    )
