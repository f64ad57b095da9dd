"""The layer-wise pass over a quantized model: each layer made to answer as the float one does.

Layer by layer, in the order of the graph and on the activations that the layers before it now
give: weights are rounded for the least error of the layer's output toward that of the float
model on the float activations (as in Li et al. 2025, "GPTAQ: Efficient Finetuning-Free
Quantization for Asymmetric Calibration", with the rounding of `rounding`), and the bias is set
so that every channel's mean is the float one (Nagel, van Baalen, Blankevoort, Welling 2019,
"Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2 and
appendix D; measured on samples). Runs in a child, since it runs the models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.quantize.refine.correcting import LayerCorrection, RefineOptions
from edgeconv.quantize.refine.layers import match_layers, unrefined_operators
from edgeconv.quantize.refine.running import SampleRun, peak_bytes, tensor_bytes
from edgeconv.tflite.edit import ensure_signature
from edgeconv.tflite.flatbuffer import entry_subgraphs, parse, serialize, text
from edgeconv.tflite.segments import state_outside

if TYPE_CHECKING:
    from collections.abc import Mapping

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
) -> RefinedModel:
    """`quantized`, which was made of `floating`, after the pass.

    `feeds` has float samples by signature. `weight_bits` gives layers, by the name of the float
    model's output tensor, weights of 4 or 8 bits; the others keep what the file has. Without
    `methods` those are rounded to nearest, and no samples are needed. Where the pass does not
    apply, the model comes back as it is, and a note says why. Raises `InputRefused` for models
    that do not belong together or too few samples, and `ToolFailed` where a model does not run.
    """
    bits = weight_bits or {}
    inside = parse(ensure_signature(quantized), where="the quantized model")
    outside = parse(ensure_signature(floating), where="the float model")
    reason = _does_not_apply(inside, outside, feeds)
    if reason or not (methods or bits):
        return RefinedModel(quantized, (), (reason,) if reason else ())
    layers = match_layers(inside, outside)
    _refuse_unknown(bits, layers)
    pass_ = _Pass(inside, outside, methods, bits)
    runs = _runs(pass_, layers, feeds, threads) if methods and layers else None
    done = tuple(pass_.refine(layer, runs) for layer in layers)
    if not any(layer.changed for layer in done):
        return RefinedModel(quantized, done, _notes(inside, done))
    return RefinedModel(serialize(inside), done, _notes(inside, done))


@dataclass(frozen=True)
class _Pass:
    inside: ModelT
    outside: ModelT
    methods: frozenset[Method]
    bits: Mapping[str, int]

    def refine(
        self, layer: RefinableLayer, runs: tuple[SampleRun, SampleRun] | None
    ) -> RefinedLayer:
        """Bring both graphs to the layer, and the layer into the file."""
        if runs is not None:
            runs[0].advance(layer.quantized.number)
            runs[1].advance(layer.floating.number)
        wish = RefineOptions(
            rounding="rounding" in self.methods,
            bias="bias-correction" in self.methods,
            bits=self.bits.get(layer.name),
        )
        correction = LayerCorrection(self.inside, self.outside, layer, wish)
        if runs is None or layer.left_alone:
            return correction.without_samples()
        seen = runs[0].quantity(layer.quantized.source)
        own = runs[1].quantity(layer.floating.source)
        if seen is None or own is None:
            return correction.without_samples()
        return correction.with_samples(seen, own)


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


def _refuse_unknown(bits: Mapping[str, int], layers: list[RefinableLayer]) -> None:
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
    pass_: _Pass, layers: list[RefinableLayer], feeds: Mapping[str, Feed], threads: int
) -> tuple[SampleRun, SampleRun]:
    feed = feeds.get(text(pass_.inside.signatureDefs[0].signatureKey))
    batch = 0 if feed is None else next(iter(feed.shapes.values()))[0]
    given = 0 if feed is None else len(feed) * batch
    for method in sorted(pass_.methods):
        if given < MIN_SAMPLES[method]:
            raise InputRefused(
                f"{method} needs {MIN_SAMPLES[method]} calibration samples, and there are {given}",
                hint="give more samples, or leave the method away",
            )
    assert feed is not None
    numbers = (
        [layer.quantized.number for layer in layers],
        [layer.floating.number for layer in layers],
    )
    each = sum(
        peak_bytes(model, ends, tensor_bytes(serialize(model), feed.shapes))
        for model, ends in zip((pass_.inside, pass_.outside), numbers, strict=True)
    )
    least = -(-max(MIN_SAMPLES[method] for method in pass_.methods) // batch)
    most = max(least, min(_MOST_SAMPLES // batch, _MOST_BYTES // max(1, each)))
    inputs = _sampled(feed, most)
    return (
        SampleRun(pass_.inside, numbers[0][-1], inputs, threads=threads),
        SampleRun(pass_.outside, numbers[1][-1], inputs, threads=threads),
    )


def _sampled(feed: Feed, most: int) -> dict[str, NDArray[np.generic]]:
    """At most so many batches, evenly spread over all: (batches, *shape) by input."""
    chosen = set(np.linspace(0, len(feed) - 1, min(most, len(feed))).astype(int).tolist())
    batches = [batch for number, batch in enumerate(feed) if number in chosen]
    return {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}


def _notes(model: ModelT, layers: tuple[RefinedLayer, ...]) -> tuple[str, ...]:
    notes = []
    if unrefined_operators(model):
        notes.append(f"the pass over layers leaves {', '.join(unrefined_operators(model))} alone")
    reasons: dict[str, list[str]] = {}
    for layer in layers:
        if layer.left_alone:
            reasons.setdefault(layer.left_alone, []).append(layer.name)
    notes += [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return tuple(notes)
