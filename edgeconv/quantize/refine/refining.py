"""The layer-wise pass over a quantized model: each layer is fitted to the float one.

Layer by layer, in the order of the graph and on the activations that the layers before it now
give: weights are rounded for the least error of the layer's output toward that of the float
model on the float activations (as in Li et al. 2025, "GPTAQ: Efficient Finetuning-Free
Quantization for Asymmetric Calibration", with the rounding of `rounding`), and the bias is set
so that every channel's mean is the float one (Nagel, van Baalen, Blankevoort, Welling 2019,
"Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2 and
appendix D; measured on samples). Runs in a child, since it runs the models.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from edgeconv.model.tflite.biases import LARGEST_BIAS
from edgeconv.model.tflite.edit import ensure_signature, is_in_blocks
from edgeconv.model.tflite.flatbuffer import entry_subgraphs, parse, serialize, text
from edgeconv.model.tflite.operators import scales_of, shape_of, type_of
from edgeconv.model.tflite.segments import state_outside
from edgeconv.quantize.refine.layers import (
    RefinableLayer,
    float_values,
    geometry,
    to_rows,
    unrefined_operators,
)
from edgeconv.quantize.refine.matching import match_layers, unmatched_layers
from edgeconv.quantize.refine.moments import Geometry, Moments, Quantity, lacking, moments
from edgeconv.quantize.refine.rounding import (
    Rounded,
    absmax_scales,
    damp_moment,
    round_nearest,
    round_weights,
)
from edgeconv.quantize.refine.running import (
    FloatOutputs,
    KeptOutputs,
    SampleRun,
    peak_bytes,
    tensor_bytes,
)
from edgeconv.quantize.refine.weights import (
    bias_type,
    largest_unit,
    read_weights,
    takes_int4,
    write_bias,
    write_weights,
)
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT, TensorT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.refine.simulating import RoundedWeights

    Floats = NDArray[np.float64]

Method = Literal["rounding", "bias-correction"]

# Fewer samples than these do more harm than good.
MIN_SAMPLES: dict[Method, int] = {"rounding": 32, "bias-correction": 16}
_MOST_SAMPLES = 256
# For the activations of all samples that are alive at one place of both graphs.
_MOST_BYTES = 2**29
# Means need far fewer samples than second moments.
_MOST_SAMPLES_OF_MEANS, _MOST_BYTES_OF_MEANS = 64, 2**28
# How many layers a note names.
_MOST_NAMES = 5


class RefinedModel(NamedTuple):
    """The model after the pass, every weighted layer in order, and notes for people."""

    model: bytes
    layers: tuple[RefinedLayer, ...]
    notes: tuple[str, ...]


def refine_layers(
    quantized: bytes,
    floating: bytes,
    feeds: Mapping[str, Feed],
    *,
    methods: frozenset[Method],
    weight_bits: Mapping[str, int] | None = None,
    threads: int,
    kept: KeptOutputs | None = None,
    rounded: Mapping[int, RoundedWeights] | None = None,
) -> RefinedModel:
    """`quantized`, which was made of `floating`, after the pass.

    `feeds` has float samples by signature. `weight_bits` gives layers, by the name of the float
    model's output tensor, weights of 4 or 8 bits; the others keep what the file has. Without
    `methods` those are rounded to nearest, and no samples are needed. `kept` are outputs of the
    float model on these feeds, of an earlier file. `rounded` are weights, by the number of the
    float operator, that the pass of another file has rounded: layers whose biases allow it take
    them. Where the pass does not apply, the model comes back as it is, and a note says why. Raises
    `InputRefused` for models that do not belong together or too few samples, and `ToolFailed` where
    a model does not run.
    """
    bits = weight_bits or {}
    inside, outside = _signed(quantized, "the quantized model"), _signed_float(floating)
    reason = _does_not_apply(inside.model, outside.model, feeds)
    if reason or not (methods or bits):
        return RefinedModel(quantized, (), (reason,) if reason else ())
    layers = match_layers(inside.model, outside.model)
    _refuse_unknown(bits, layers)
    runs = None
    if methods and layers:
        inputs = _inputs(inside, outside, methods, layers, feeds)
        runs = _runs((inside.model, outside.model), layers, inputs, threads, kept or KeptOutputs())
    refined = []
    together = _fewer_bits_together(inside.model, layers, bits)
    for layer in layers:
        options = RefineOptions(
            rounding="rounding" in methods,
            bias="bias-correction" in methods,
            bits=bits.get(layer.name),
            rounded=(rounded or {}).get(layer.floating.number),
        )
        if layer.quantized.weights in together:
            layer = layer._replace(left_alone="")
            options = RefineOptions(rounding=False, bias=False, bits=4)
            refined.append(
                LayerCorrection(inside.model, outside.model, layer, options).without_samples()
            )
            continue
        refined.append(_refine(LayerCorrection(inside.model, outside.model, layer, options), runs))
    is_changed = any(layer.changed for layer in refined)
    return RefinedModel(
        serialize(inside.model) if is_changed else quantized,
        tuple(refined),
        _notes(inside.model, refined, unmatched_layers(outside.model, layers)),
    )


def _fewer_bits_together(
    model: ModelT, layers: Sequence[RefinableLayer], bits: Mapping[str, int]
) -> set[int]:
    """The tensors of weights that several layers share, all of which are to have 4 bits.

    They are rounded to nearest, since inputs of one layer say nothing about the others'.
    """
    users: dict[int, list[RefinableLayer]] = {}
    for layer in layers:
        users.setdefault(layer.quantized.weights, []).append(layer)
    return {
        tensor
        for tensor, sharing in users.items()
        if all(
            each.shares and bits.get(each.name) == 4 and takes_int4(model, each) for each in sharing
        )
    }


class _Runs(NamedTuple):
    """The quantized graph on the samples, and what the float graph's layers give on them."""

    quantized: SampleRun
    floating: FloatOutputs


def _refine(correction: LayerCorrection, runs: _Runs | None) -> RefinedLayer:
    """Bring both graphs to the layer, and put the corrected layer into the file."""
    layer = correction.layer
    if runs is None:
        return correction.without_samples()
    runs.quantized.advance(layer.quantized.number)
    x = runs.quantized.quantity(layer.quantized.source)
    if layer.left_alone or x is None:
        return correction.without_samples()
    return correction.with_samples(x, runs.floating)


class _SignedModel(NamedTuple):
    """A .tflite with a signature, as bytes and as objects."""

    data: bytes
    model: ModelT


def _signed(data: bytes, where: str) -> _SignedModel:
    model = parse(data, where=where)
    if model.signatureDefs:
        return _SignedModel(data, model)
    data = ensure_signature(data)
    return _SignedModel(data, parse(data, where=where))


@functools.lru_cache(maxsize=2)
def _signed_float(data: bytes) -> _SignedModel:
    """The float model, which is only read: many files are made of the same one."""
    return _signed(data, "the float model")


def _does_not_apply(inside: ModelT, outside: ModelT, feeds: Mapping[str, Feed]) -> str:
    for model in (inside, outside):
        if entry_subgraphs(model) != [0] or len(model.signatureDefs) > 1:
            return "the pass over layers does not apply to a model of several signatures"
        kept = state_outside(model)
        if kept:
            return f"the pass over layers does not apply to a model with {', '.join(kept)}"
    if feeds and text(inside.signatureDefs[0].signatureKey) not in feeds:
        return "the pass over layers has no samples of the model's signature"
    return ""


def _refuse_unknown(bits: Mapping[str, int], layers: Sequence[RefinableLayer]) -> None:
    names = {layer.name for layer in layers}
    for name, count in bits.items():
        if name not in names:
            raise InputRefused(f"the model has no convolution or dense layer {name!r}")
        if count not in (4, 8):
            raise InputRefused(
                f"weights of {count} bits for layer {name!r}: only 4 and 8 are known"
            )


def _runs(
    models: tuple[ModelT, ModelT],
    layers: Sequence[RefinableLayer],
    inputs: Mapping[str, NDArray[np.generic]],
    threads: int,
    kept: KeptOutputs,
) -> _Runs:
    """The quantized and the float model on the inputs."""
    numbers = [layer.floating.number for layer in layers]
    last = max(layer.quantized.number for layer in layers)
    samples = len(next(iter(inputs.values())))
    floating = SampleRun(models[1], max(numbers), inputs, threads=threads)
    return _Runs(
        SampleRun(models[0], last, inputs, threads=threads),
        FloatOutputs(floating, numbers, samples, kept),
    )


def _inputs(
    inside: _SignedModel,
    outside: _SignedModel,
    methods: frozenset[Method],
    layers: Sequence[RefinableLayer],
    feeds: Mapping[str, Feed],
) -> dict[str, NDArray[np.generic]]:
    """The samples that the methods need, up to what memory allows, by input."""
    feed = feeds.get(text(inside.model.signatureDefs[0].signatureKey))
    count = 0 if feed is None else feed.samples
    for method in sorted(methods):
        if count < MIN_SAMPLES[method]:
            raise InputRefused(
                f"{method} needs {MIN_SAMPLES[method]} calibration samples, and there are {count}"
            )
    assert feed is not None
    batch = count // len(feed)
    numbers = (
        [layer.quantized.number for layer in layers],
        [layer.floating.number for layer in layers],
    )
    each = sum(
        peak_bytes(signed.model, ends, tensor_bytes(signed.data, feed.shapes))
        for signed, ends in zip((inside, outside), numbers, strict=True)
    )
    least = -(-max(MIN_SAMPLES[method] for method in methods) // batch)
    samples, size_bytes = _MOST_SAMPLES_OF_MEANS, _MOST_BYTES_OF_MEANS
    if "rounding" in methods:
        samples, size_bytes = _MOST_SAMPLES, _MOST_BYTES
    most = max(least, min(samples // batch, size_bytes // max(1, each)))
    return _sampled(feed, most)


def _sampled(feed: Feed, most: int) -> dict[str, NDArray[np.generic]]:
    """At most `most` batches, evenly spread over all, by input: [batches, *shape of one batch]."""
    chosen = set(np.linspace(0, len(feed) - 1, min(most, len(feed))).astype(int).tolist())
    batches = [batch for number, batch in enumerate(feed) if number in chosen]
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def _notes(
    model: ModelT, layers: Sequence[RefinedLayer], unmatched: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    if unmatched:
        names = listed(unmatched, _MOST_NAMES)
        notes.append(f"{names}: the quantized model has no layer with these weights")
    if others := unrefined_operators(model):
        notes.append(f"the pass over layers leaves {', '.join(others)} alone")
    reasons: dict[str, list[str]] = {}
    for layer in layers:
        if layer.left_alone:
            reasons.setdefault(layer.left_alone, []).append(layer.name)
    notes += [f"{listed(names, _MOST_NAMES)}: {reason}" for reason, names in reasons.items()]
    return tuple(notes)


# Beyond this the second moment of a layer's inputs would take more than half a gigabyte.
MOST_INPUTS = 4608
_NO_INT4 = "the runtime has no 4-bit weights for it, they keep 8 bits"
_TOO_WIDE = f"it has more than {MOST_INPUTS} inputs, its weights are rounded to nearest"


class RefineOptions(NamedTuple):
    """What to change in a layer; `bits` None keeps what the file has.

    `rounded` are weights to take instead of rounding them here.
    """

    rounding: bool
    bias: bool
    bits: int | None
    rounded: RoundedWeights | None = None


class RefinedLayer(NamedTuple):
    """What became of a layer.

    `bits` are 32 for float weights. `left_alone` says what was not done, and why.
    """

    name: str
    operator: str
    bits: int
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
        """Round the weights to nearest where they are to have other bits.

        Another layer that shares them may have done so; the bias has to follow them.
        """
        is_done = self._bits == self._stored_bits and not self.layer.shares
        if self.layer.left_alone or self._start is None or is_done:
            return self._outcome(changed=False)
        self._write(self._start, self._float_bias)
        return self._outcome(changed=True)

    def with_samples(self, x: Quantity, floating: FloatOutputs) -> RefinedLayer:
        """Round and correct by the layer's inputs, `x`, and the outputs of the float layers."""
        weights = self._taken or self._start
        means = weights is None or not self.options.rounding or self._geometry.d > MOST_INPUTS
        means = means or self._taken is not None
        y = floating.of(self.layer, self._geometry, self._weights, means=means)
        if y is None:
            return self.without_samples()
        x_moments = None
        if weights is not None and not means:
            x_moments = moments(x, y, self._geometry)
            weights = self._rounded(x_moments, weights)
        bias = self._float_bias
        if self.options.bias:
            values = self._weights if weights is None else weights.values
            lack = x_moments.lacking(values) if x_moments else lacking(x, y, self._geometry, values)
            bias = bias + lack.reshape(-1)
        self._write(weights, bias)
        return self._outcome(changed=True)

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

    def _write(self, weights: Rounded | None, bias: Floats) -> None:
        scales = np.ones(len(bias), np.float32)
        if weights is not None:
            write_weights(self.inside, self.layer, weights, self._bits)
            scales = weights.scales.reshape(-1)
        if self.layer.quantized.bias == -1 and not np.any(bias):
            return
        if self.layer.shares and bias_type(self.inside, self.layer) == "float32":
            return
        write_bias(self.inside, self.layer, bias, scales)

    def _outcome(self, *, changed: bool) -> RefinedLayer:
        why = self.layer.left_alone
        if not why:
            why = self._why_not_bits
        if not why and self.options.rounding and self._geometry.d > MOST_INPUTS:
            why = _TOO_WIDE
        bits = self._stored_bits if self.layer.left_alone else self._bits
        return RefinedLayer(self.layer.name, self.layer.operator, bits, why, changed)

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
    def _taken(self) -> Rounded | None:
        """Weights of another file; None where there are none, or others than this one can have."""
        given, start, least = self.options.rounded, self._start, self._least_scales
        if given is None or start is None or given.bits != self._bits:
            return None
        scales = given.weights.scales
        is_able = scales.shape == start.scales.shape and not self._one_scale
        return given.weights if is_able and (least is None or (scales >= least).all()) else None
