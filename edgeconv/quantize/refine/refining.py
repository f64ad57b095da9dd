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
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.quantize.refine.correcting import LayerCorrection, RefineOptions
from edgeconv.quantize.refine.floating import FloatOutputs, KeptOutputs
from edgeconv.quantize.refine.layers import unrefined_operators
from edgeconv.quantize.refine.matching import match_layers, unmatched_layers
from edgeconv.quantize.refine.running import SampleRun, peak_bytes, tensor_bytes
from edgeconv.tflite.edit import ensure_signature
from edgeconv.tflite.flatbuffer import entry_subgraphs, parse, serialize, text
from edgeconv.tflite.segments import state_outside
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ai_edge_litert.schema_py_generated import ModelT
    from numpy.typing import NDArray

    from edgeconv.quantize.calibrate import Feed
    from edgeconv.quantize.refine.correcting import RefinedLayer
    from edgeconv.quantize.refine.layers import RefinableLayer

Method = Literal["rounding", "bias-correction"]

# Fewer samples than these do more harm than good.
MIN_SAMPLES: dict[Method, int] = {"rounding": 32, "bias-correction": 16}
_MOST_SAMPLES = 256
# For the activations of all samples that are alive at one place of both graphs.
_MOST_BYTES = 2**29
# Means need far fewer samples than second moments.
_MOST_SAMPLES_OF_MEANS, _MOST_BYTES_OF_MEANS = 128, 2**28
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
) -> RefinedModel:
    """`quantized`, which was made of `floating`, after the pass.

    `feeds` has float samples by signature. `weight_bits` gives layers, by the name of the float
    model's output tensor, weights of 4 or 8 bits; the others keep what the file has. Without
    `methods` those are rounded to nearest, and no samples are needed. `kept` are outputs of the
    float model on these feeds, of an earlier file. Where the pass does not apply, the model comes
    back as it is, and a note says why. Raises `InputRefused` for models
    that do not belong together or too few samples, and `ToolFailed` where a model does not run.
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
    for layer in layers:
        options = RefineOptions(
            rounding="rounding" in methods,
            bias="bias-correction" in methods,
            bits=bits.get(layer.name),
        )
        refined.append(_refine(LayerCorrection(inside.model, outside.model, layer, options), runs))
    is_changed = any(layer.changed for layer in refined)
    return RefinedModel(
        serialize(inside.model) if is_changed else quantized,
        tuple(refined),
        _notes(inside.model, refined, unmatched_layers(outside.model, layers)),
    )


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
            raise InputRefused(
                f"the model has no convolution or dense layer {name!r}",
                hint=f"it has {', '.join(sorted(names)) or 'none'}",
            )
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
                f"{method} needs {MIN_SAMPLES[method]} calibration samples, and there are {count}",
                hint="give more samples, or leave the method out",
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
