"""One layer corrected: its weights rounded, and its bias fitted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edgeconv.quantize.refine.layers import RefinableLayer, float_values, geometry, to_rows
from edgeconv.quantize.refine.moments import moments, outputs
from edgeconv.quantize.refine.rounding import (
    Rounded,
    absmax_scales,
    damp_moment,
    round_nearest,
    round_weights,
)
from edgeconv.quantize.refine.weights import (
    bias_type,
    largest_unit,
    read_bias,
    read_weights,
    takes_int4,
    write_bias,
    write_weights,
)
from edgeconv.tflite.biases import LARGEST_BIAS
from edgeconv.tflite.blocks import is_in_blocks
from edgeconv.tflite.uses import scales_of, shape_of, type_of

if TYPE_CHECKING:
    from ai_edge_litert.schema_py_generated import ModelT, TensorT
    from numpy.typing import NDArray

    from edgeconv.quantize.refine.floating import FloatOutputs
    from edgeconv.quantize.refine.moments import Geometry, Moments, Outputs, Quantity

    Floats = NDArray[np.float64]

# Beyond this the second moment of a layer's inputs would take more than half a gigabyte.
MOST_INPUTS = 4608
_NO_INT4 = "the runtime has no 4-bit weights for it, they keep 8 bits"
_TOO_WIDE = f"it has more than {MOST_INPUTS} inputs, its weights are rounded to nearest"


class RefineOptions(NamedTuple):
    """What to change in a layer; `bits` None keeps what the file has."""

    rounding: bool
    bias: bool
    bits: int | None


class RefinedLayer(NamedTuple):
    """What became of a layer.

    Errors are of its output before the activation, on the samples, as a share of the float
    output's power: with weights rounded to nearest and the bias as it was, and as it is now;
    None where that was not measured. `bits` are 32 for float weights. `left_alone` says what
    was not done, and why.
    """

    name: str
    operator: str
    bits: int
    error_before: float | None = None
    error_after: float | None = None
    left_alone: str = ""
    changed: bool = False


@dataclass(frozen=True)
class LayerCorrection:
    """A layer of a quantized model `inside`, and its counterpart in the float model `outside`."""

    inside: ModelT
    outside: ModelT
    layer: RefinableLayer
    options: RefineOptions

    def without_samples(self) -> RefinedLayer:
        """Round the weights to nearest where they are to have other bits."""
        if self.layer.left_alone or self._start is None or self._bits == self._stored_bits:
            return self._outcome(changed=False)
        self._write(self._start, self._float_bias)
        return self._outcome(changed=True)

    def with_samples(self, x: Quantity, floating: FloatOutputs) -> RefinedLayer:
        """Round and correct by the layer's inputs, `x`, and the outputs of the float layers."""
        weights = self._start
        means = weights is None or not self.options.rounding or self._geometry.d > MOST_INPUTS
        y = floating.of(self.layer, self._geometry, self._weights, means=means)
        if y is None:
            return self.without_samples()
        if weights is None or means:
            before = after = outputs(x, y, self._geometry, self._nearest_values)
        else:
            x_moments = moments(x, y, self._geometry)
            weights = self._rounded(x_moments, weights)
            before, after = (
                x_moments.outputs(self._nearest_values),
                x_moments.outputs(weights.values),
            )
        first = self._error(before, self._stored_bias)
        bias = self._float_bias + (after.lacking.reshape(-1) if self.options.bias else 0.0)
        layer = self._write(weights, bias)
        stored = read_bias(self.inside, layer, len(bias))
        return self._outcome(changed=True, before=first, after=self._error(after, stored))

    def _rounded(self, x_moments: Moments, start: Rounded) -> Rounded:
        # A bias that follows the weights makes up for means; else the weights have to.
        about = x_moments if self.options.bias else x_moments.about_zero()
        moment = damp_moment(about.covariance, about.rows)
        missing = np.swapaxes(about.cross, 1, 2) - self._weights @ about.covariance
        target = self._weights + np.swapaxes(
            np.linalg.solve(moment, np.swapaxes(missing, 1, 2)), 1, 2
        )
        return round_weights(
            target,
            moment,
            start,
            self._bits,
            least=self._least_scales,
            keep_scales=self._one_scale,
            symmetric=self._spares_least,
        )

    def _error(self, layer_outputs: Outputs, bias: Floats) -> float:
        off = layer_outputs.lacking.reshape(-1) + self._float_bias - bias
        mean = layer_outputs.mean.reshape(-1) + self._float_bias
        power = float(np.sum(layer_outputs.variance) + np.sum(mean**2))
        noise = float(np.sum(layer_outputs.noise) + np.sum(off**2))
        return noise / power if power else 0.0

    def _write(self, weights: Rounded | None, bias: Floats) -> RefinableLayer:
        scales = np.ones(len(bias), np.float32)
        if weights is not None:
            write_weights(self.inside, self.layer, weights, self._bits)
            scales = weights.scales.reshape(-1)
        if self.layer.quantized.bias == -1 and not np.any(bias):
            return self.layer
        return write_bias(self.inside, self.layer, bias, scales)

    def _outcome(
        self, *, changed: bool, before: float | None = None, after: float | None = None
    ) -> RefinedLayer:
        why = self.layer.left_alone
        if not why:
            why = self._why_not_bits
        if not why and self.options.rounding and self._geometry.d > MOST_INPUTS:
            why = _TOO_WIDE
        bits = self._stored_bits if self.layer.left_alone else self._bits
        return RefinedLayer(self.layer.name, self.layer.operator, bits, before, after, why, changed)

    @property
    def _tensor(self) -> TensorT:
        return self.inside.subgraphs[0].tensors[self.layer.quantized.weights]

    @cached_property
    def _stored_bits(self) -> int:
        return {"int8": 8, "uint8": 8, "int4": 4}.get(type_of(self._tensor), 32)

    @cached_property
    def _one_scale(self) -> bool:
        return self._bits == self._stored_bits and len(scales_of(self._tensor)) == 1

    @cached_property
    def _spares_least(self) -> bool:
        """Whether -8 is to be spared: LiteRT's own dense kernel for float inputs gets it wrong."""
        graph, tensors = self.inside.subgraphs[0], self.layer.quantized
        is_direct = graph.operators[tensors.number].inputs[1] == tensors.weights
        is_hybrid = is_direct and type_of(graph.tensors[tensors.source]) == "float32"
        is_dense = self.layer.operator == "FULLY_CONNECTED" and not is_in_blocks(self._tensor)
        return self._bits == 4 and is_dense and is_hybrid

    @cached_property
    def _why_not_bits(self) -> str:
        if self.options.bits in (None, self._stored_bits):
            return ""
        if self._stored_bits == 32:
            return "its weights are floats, and stay so"
        takes = self.options.bits == 8 or takes_int4(self.inside, self.layer)
        return "" if takes else _NO_INT4

    @cached_property
    def _bits(self) -> int:
        bits = self.options.bits
        return self._stored_bits if bits is None or self._why_not_bits else bits

    @cached_property
    def _geometry(self) -> Geometry:
        tensor = self.inside.subgraphs[0].tensors[self.layer.quantized.source]
        return geometry(self.inside, self.layer, shape_of(tensor))

    @cached_property
    def _weights(self) -> Floats:
        values = float_values(self.outside, self.layer.floating.weights)
        rows: Floats = to_rows(values, self.layer.operator, self._geometry.groups)
        return rows

    @cached_property
    def _float_bias(self) -> Floats:
        channels = self._weights.shape[0] * self._weights.shape[1]
        index = self.layer.floating.bias
        return np.zeros(channels) if index == -1 else float_values(self.outside, index)

    @cached_property
    def _stored_bias(self) -> Floats:
        return read_bias(self.inside, self.layer, len(self._float_bias))

    @cached_property
    def _least_scales(self) -> Floats | None:
        """The scales below which the bias would leave an int32."""
        unit = largest_unit(self.inside, self.layer)
        if not unit:
            return None
        least = np.abs(self._float_bias) / (unit * LARGEST_BIAS[bias_type(self.inside, self.layer)])
        return least.reshape(*self._weights.shape[:2], 1)

    @cached_property
    def _start(self) -> Rounded | None:
        """The weights rounded to nearest, None where they are floats."""
        if self._stored_bits == 32:
            return None
        if self._bits == self._stored_bits:
            return read_weights(self.inside, self.layer, self._geometry.groups)
        scales = absmax_scales(self._weights, self._bits, least=self._least_scales)
        return round_nearest(self._weights, scales, self._bits)

    @cached_property
    def _nearest_values(self) -> Floats:
        return self._weights if self._start is None else self._start.values
