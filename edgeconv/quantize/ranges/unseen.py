"""Ranges of results that the calibration samples say nothing about.

Where two equal tensors are subtracted, or a gate stays shut in all samples, the result is zero or
float noise. A scale made from it is useless: the integers are clipped for every other sample, and
tflite-micro aborts where an operator's inputs are many times coarser than its output. Such
a result gets the range that its operator can give from the ranges of its inputs, and so does what
follows from such results alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.model.tflite.edit import OwnConstants
from edgeconv.model.tflite.flatbuffer import operators_of, read, text
from edgeconv.model.tflite.operators import OperatorUse, shape_of, use_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT


# A sum of fewer steps than these of its inputs is mostly their rounding. An int16 one of two
# aborts tflite-micro.
_FEW_STEPS = 4
# What is smaller than this part of that is noise alone.
_NOISE = 16
# A sum of independent terms hardly exceeds this times their norm.
_MOST_NORMS = 4.0
# The outputs of these have one range, whatever the samples.
_FIXED = {"LOGISTIC": (0.0, 1.0), "SOFTMAX": (0.0, 1.0), "TANH": (-1.0, 1.0)}
_ACTIVATIONS = {
    "RELU": (0.0, math.inf),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
# By their numbers in the schema.
_FUSED = {1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
# The output has the range of the inputs.
_KEEPING_NAMES = """
    AVERAGE_POOL_2D BATCH_TO_SPACE_ND BROADCAST_TO CONCATENATION DEPTH_TO_SPACE EXPAND_DIMS
    GATHER MAXIMUM MAX_POOL_2D MINIMUM MIRROR_PAD PACK PAD REDUCE_MAX REDUCE_MIN RESHAPE
    RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH
    SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK
"""
_KEEPING = frozenset(_KEEPING_NAMES.split())
# The axis of the weights' output channels.
_CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0, "TRANSPOSE_CONV": 0}
_TRANSPOSED_BIAS = 3


class _Span(NamedTuple):
    """What a tensor holds, zero included, and the step of its integers, 0 for a constant."""

    low: float
    high: float
    step: float = 0.0

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def reach(self) -> float:
        return max(-self.low, self.high)


class _Possible(NamedTuple):
    """What an operator can give, and the least width of an output that is more than rounding."""

    low: float
    high: float
    least: float = 0.0


def widen_unseen(
    model: bytes, ranges: Mapping[str, Any], *, bits: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`ranges` with a usable one for every result that is zero or noise, and the names of these.

    Only what an operator gave by itself is named, not what follows from it.
    """
    look = _Look(read(model, where="the model"), ranges, bits)
    for graph, operator in operators_of(look.model):
        look.at(graph, operator)
    wide = dict(ranges)
    for name, span in look.wide.items():
        limits = ranges[name]
        low = np.minimum(limits["min"], np.float32(span.low))
        wide[name] = {**limits, "min": low, "max": np.maximum(limits["max"], np.float32(span.high))}
    return wide, tuple(look.unseen)


class _Look:
    """Operator by operator, in order: whose output is unseen, and what it can be."""

    def __init__(self, model: ModelT, ranges: Mapping[str, Any], bits: int) -> None:
        self.model = model
        self.wide: dict[str, _Span] = {}
        self.unseen: list[str] = []
        self._ranges, self._bits = ranges, bits
        self._constants = OwnConstants(model)
        self._fixed: dict[str, _Span] = {}

    def at(self, graph: SubGraphT, operator: OperatorT) -> None:
        """Look at the next operator."""
        use = use_of(self.model, graph, operator)
        names = [text(each.name) for each in use.outputs if each is not None]
        if use.name in _FIXED:
            self._fixed |= dict.fromkeys(names, self._span_of(*_FIXED[use.name]))
        spans = [self._span(graph, index) for index in operator.inputs if index != -1]
        possible = self._possible(graph, operator, use, [each for each in spans if each])
        if possible is None:
            return
        low, high = _clipped(use, possible)
        follows = self._follows(graph, operator)
        for name in names:
            known = self._measured(name)
            if known is None or not (follows or known.width < possible.least):
                continue
            if not follows and known.width > possible.least / _NOISE:
                # It says something: it gets as many steps as its kernel takes, and no more.
                grown = possible.least / known.width
                self.wide[name] = self._span_of(known.low * grown, known.high * grown)
                continue
            span = self._span_of(min(low, known.low), max(high, known.high))
            if span.width > known.width:
                self.wide[name] = span
                if not follows:
                    self.unseen.append(name)

    def _follows(self, graph: SubGraphT, operator: OperatorT) -> bool:
        """Whether all that varies in the inputs comes from what is unseen, or was zero as well."""
        names = [text(graph.tensors[index].name) for index in operator.inputs if index != -1]
        active = [name for name in names if name in self._ranges]
        still = (self._measured(name) for name in active if name not in self.wide)
        return any(name in self.wide for name in active) and all(
            each is not None and not each.width for each in still
        )

    def _span(self, graph: SubGraphT, index: int) -> _Span | None:
        if self._constants.is_whole(graph, index):
            values = self._constants.read(graph, index)
            return _Span(float(np.min(values, initial=0)), float(np.max(values, initial=0)))
        name = text(graph.tensors[index].name)
        return self.wide.get(name) or self._fixed.get(name) or self._measured(name)

    def _measured(self, name: str) -> _Span | None:
        limits = self._ranges.get(name)
        if not limits or np.size(limits["max"]) != 1:
            return None
        return self._span_of(float(np.min(limits["min"])), float(np.max(limits["max"])))

    def _span_of(self, low: float, high: float) -> _Span:
        low, high = min(0.0, low), max(0.0, high)
        symmetric = self._bits == 16
        step = max(-low, high) / (2**15 - 1) if symmetric else (high - low) / (2**self._bits - 1)
        return _Span(low, high, step)

    def _possible(
        self, graph: SubGraphT, operator: OperatorT, use: OperatorUse, spans: list[_Span]
    ) -> _Possible | None:
        if use.name in _CHANNELS:
            return self._weighted(graph, operator, use)
        if use.name in _KEEPING and spans:
            return _Possible(min(s.low for s in spans), max(s.high for s in spans))
        if use.name in _ACTIVATIONS and spans:
            # There is no better guess for inputs that are never positive.
            return _Possible(0.0, spans[0].high or spans[0].reach, spans[0].step)
        if use.name in _REDUCTIONS and spans:
            return _reduced(use, spans[0])
        rule = _PAIRS.get(use.name)
        return rule(*spans) if rule and len(spans) == 2 else None

    def _weighted(
        self, graph: SubGraphT, operator: OperatorT, use: OperatorUse
    ) -> _Possible | None:
        """What a layer gives at most, by the absolute sums and the norms of its channels."""
        is_transposed = use.name == "TRANSPOSE_CONV"
        source = self._span(graph, operator.inputs[2 if is_transposed else 0])
        if source is None or not self._constants.is_whole(graph, operator.inputs[1]):
            return None
        weights = self._constants.read(graph, operator.inputs[1])
        rows = np.moveaxis(weights, min(_CHANNELS[use.name], weights.ndim - 1), 0)
        rows = np.abs(rows.reshape(len(rows), -1).astype(np.float64))
        sums = np.minimum(rows.sum(1), _MOST_NORMS * np.sqrt(np.square(rows).sum(1)))
        slot = _TRANSPOSED_BIAS if is_transposed else 2
        bias = operator.inputs[slot] if slot < len(operator.inputs) else -1
        center: Any = 0.0
        if bias != -1 and self._constants.is_whole(graph, bias):
            center = self._constants.read(graph, bias).astype(np.float64)
        reach = source.reach * sums
        return _Possible(float(np.min(center - reach)), float(np.max(center + reach)))


def _clipped(use: OperatorUse, possible: _Possible) -> tuple[float, float]:
    """By the operator's activation, its own or a fused one."""
    name = (
        use.name
        if use.name in _ACTIVATIONS
        else _FUSED.get(use.option("fusedActivationFunction") or 0)
    )
    if name is None:
        return possible.low, possible.high
    low, high = _ACTIVATIONS[name]
    return max(low, min(high, possible.low)), max(low, min(high, possible.high))


def _sum(left: _Span, right: _Span) -> _Possible:
    least = _FEW_STEPS * max(left.step, right.step)
    return _Possible(left.low + right.low, left.high + right.high, least)


def _difference(left: _Span, right: _Span) -> _Possible:
    return _sum(left, _Span(-right.high, -right.low, right.step))


def _product(left: _Span, right: _Span) -> _Possible:
    ends = [a * b for a in left[:2] for b in right[:2]]
    # Columns of a constant may differ: a small one makes no other's values rounding.
    is_constant = not left.step or not right.step
    least = 0.0 if is_constant else max(left.step * right.reach, right.step * left.reach)
    return _Possible(min(ends), max(ends), least)


def _reduced(use: OperatorUse, source: _Span) -> _Possible:
    """The rounding of the inputs averages out in a mean."""
    count = max(1.0, _size(use.input(0)) / _size(use.output))
    factor = 1.0 if use.name == "MEAN" else count
    least = source.step * factor / math.sqrt(count)
    return _Possible(source.low * factor, source.high * factor, least)


def _size(tensor: TensorT | None) -> int:
    return max(1, math.prod(shape_of(tensor)))


_REDUCTIONS = frozenset({"MEAN", "SUM"})
_PAIRS: dict[str, Callable[[_Span, _Span], _Possible]] = {
    "ADD": _sum,
    "MUL": _product,
    "SUB": _difference,
}
