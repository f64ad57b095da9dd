"""A flat tf_keras model to one that is trained as if its numbers were 8-bit integers.

tfmot's wrappers and quantizers emulate the integers. Which of them goes where is decided here,
operator by operator as the converter will fuse them, and not by tfmot's `quantize_apply`: it
knows neither one-dimensional convolutions nor products of layers, and stops at what it does not
know.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused, unknown_name
from edgeconv.tf.qat.convolutions import Core, convolution_of, factors_of, folded
from edgeconv.tf.qat.graph import walk
from edgeconv.tf.qat.kinds import (
    class_name,
    is_channelwise_norm,
    is_rectifier,
    is_softmax,
    kind_of,
    kind_of_activation,
)
from edgeconv.tf.qat.parts import EmulatedLayers, new_inputs, new_model
from edgeconv.tf.qat.uses import Uses, hard_chain, known_to_tfmot
from edgeconv.types import TreatedLayer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgeconv.tf.qat.configs import Kept
    from edgeconv.tf.qat.convolutions import Convolution
    from edgeconv.tf.qat.graph import LayerUse
    from edgeconv.tf.qat.kinds import LayerKind
    from edgeconv.types import LayerTreatment, Qat, Recipe

_MAX_RANK = 4
# Their kernels have one scale, which a factor a channel would spoil; so it goes in beforehand.
_FOLDED_AT_ONCE = frozenset({"Dense", "Conv2DTranspose"})
# The converter fuses a ReLU into it only if it has a bias, and older runtimes know it without.
_WITHOUT_RECTIFIER = frozenset({"Conv2DTranspose"})
# Layers whose integer operator has a ReLU within.
_WITH_RECTIFIER = frozenset({"Add", "Subtract", "Multiply", "TFOpLambda"})


def annotated(model: Any, settings: Qat) -> tuple[Any, tuple[TreatedLayer, ...]]:
    """The model to train with quantization, and what became of each layer.

    `model` is functional and flat; it stays as it is, and its weights are copied. The new one
    has its inputs' and outputs' names. To be called in the scope of the strategy that it is
    trained under. What `settings.prune` and `settings.cluster` have made of the kernels is
    kept. Raises `UsageError` for a layer name or pattern that fits none, and `InputRefused`
    for a model that is not flat or of which nothing can be quantized.
    """
    _refuse_form(model)
    work = _Annotation(model, _chosen(model, settings.layers), _kept(settings))
    inputs = new_inputs(model)
    outputs = walk(model, inputs, work.apply)
    treated = tuple(work.treated.values())
    if all(one.treatment == "float" for one in treated):
        raise InputRefused(
            "none of the model's layers can be quantized", hint=_first_reason(treated)
        )
    return new_model(model, inputs, outputs), treated


def refuse_float_layers(treated: Iterable[TreatedLayer], recipe: Recipe) -> None:
    """Raise `InputRefused` where layers stay float, and the recipe allows no float operator."""
    left = [one for one in treated if one.treatment == "float"]
    if left and not recipe.allow_float:
        names = ", ".join(f"{one.name} ({one.kind}: {one.reason})" for one in left[:5])
        raise InputRefused(
            f"{recipe.name}: {len(left)} layers cannot be trained as integers: {names}",
            hint="allow them to stay float with --allow-float '*', or replace them in the model",
        )


def _refuse_form(model: Any) -> None:
    import tf_keras

    if not isinstance(model, tf_keras.Model) or not model._is_graph_network:
        raise InputRefused(
            f"quantization-aware training takes a functional tf_keras model, not {type(model)}",
            hint="build the model with tf_keras's functional or sequential API",
        )
    nested = [layer.name for layer in model.layers if isinstance(layer, tf_keras.Model)]
    if nested:
        raise InputRefused(f"the model has models as layers: {', '.join(nested)}")


def _chosen(model: Any, patterns: Sequence[str]) -> frozenset[str]:
    names = [one.name for one in model.layers if class_name(one) != "InputLayer"]
    if not patterns:
        return frozenset(names)
    chosen: set[str] = set()
    for pattern in patterns:
        fitting = fnmatch.filter(names, pattern)
        if not fitting:
            raise unknown_name("layer", pattern, names)
        chosen.update(fitting)
    return frozenset(chosen)


def _kept(settings: Qat) -> Kept:
    if settings.cluster is not None:
        return "clusters" if settings.prune is None else "zeros and clusters"
    return "nothing" if settings.prune is None else "zeros"


def _first_reason(treated: Sequence[TreatedLayer]) -> str:
    return f"{treated[0].name}: {treated[0].reason}" if treated else "the model has no layers"


class _Annotation:
    """The work on one model."""

    def __init__(self, model: Any, chosen: frozenset[str], kept: Kept) -> None:
        self.treated: dict[str, TreatedLayer] = {}
        self._uses, self._chosen, self._kept = Uses(model), chosen, kept
        self._parts = EmulatedLayers()
        # By the id of a tensor of `model`: what computing it along with another has given.
        self._ready: dict[int, Any] = {}

    def apply(self, use: LayerUse) -> Any:
        """The new tensors for a use of a layer, and for what is computed along with it."""
        if id(use.outputs[0]) in self._ready:
            return self._ready[id(use.outputs[0])]
        layer, kind = use.operation, kind_of(use.operation)
        if kind.name == "noise":
            self._treat(use, "quantized", "left out: what it does in training stretches ranges")
            return use.args[0]
        if kind.name == "same":
            self._treat(use, "quantized")
            return self._same(use)
        if layer.name not in self._chosen:
            self._treat(use, "float", "it is none of the layers to quantize")
            return self._parts.copied(use)
        made = self._quantized(use, kind)
        if made is None:
            reason = kind.reason or "there is no integer operator for its settings or rank"
            self._treat(use, "float", reason)
            return self._parts.copied(use)
        return made

    def _quantized(self, use: LayerUse, kind: LayerKind) -> Any:
        """The tensor of a layer in integers, None where it has to stay float."""
        hard = hard_chain(self._uses, use)
        if hard is not None:
            return self._absorbed(hard.uses, self._parts.hard(use.args[0], hard))
        if kind.name == "kernel":
            return self._with_kernel(use)
        if kind.name == "affine":
            return self._affine(use)
        return self._value(use, kind) if kind.name in ("value", "fixed") else None

    def _treat(self, use: LayerUse, treatment: LayerTreatment, reason: str = "") -> None:
        layer = use.operation
        self.treated[layer.name] = TreatedLayer(
            name=layer.name, kind=class_name(layer), treatment=treatment, reason=reason
        )

    def _absorbed(self, uses: Sequence[LayerUse], tensor: Any) -> Any:
        """Say of some uses, computed together, that this is what they give."""
        for use in uses:
            known = known_to_tfmot(use.operation) or use is not uses[0]
            self._treat(use, "quantized" if known else "quantized with a config of edgeconv's")
            self._ready[id(use.outputs[0])] = tensor
        return tensor

    def _same(self, use: LayerUse) -> Any:
        parts = self._parts
        if use.operation.name not in self._chosen and not parts.have_ranges((use.args, use.kwargs)):
            return parts.copied(use)
        return parts.mark(parts.copied(parts.with_ranges(use)))

    def _value(self, use: LayerUse, kind: LayerKind) -> Any:
        if class_name(use.operation) == "ReLU":
            made = self._parts.relu(use, self._parts.ranged(use.args[0]))
        else:
            made = self._parts.copied(self._parts.with_ranges(use))
        if kind.name == "fixed":
            return self._absorbed([use], self._parts.mark(made))
        absorbed = [use]
        if class_name(use.operation) in _WITH_RECTIFIER:
            made = self._rectified(absorbed, made)
        return self._absorbed(absorbed, self._parts.ranged(made))

    def _rectified(self, absorbed: list[LayerUse], tensor: Any) -> Any:
        """The tensor after a ReLU, where one is all that follows what was absorbed so far."""
        after = self._uses.follower(absorbed[-1])
        if after is None or not is_rectifier(after.operation):
            return tensor
        absorbed.append(after)
        return self._parts.copied(after._replace(args=(tensor,)))

    def _affine(self, use: LayerUse) -> Any:
        made = self._parts.affine(use, self._parts.ranged(use.args[0]))
        if made is None:
            return None
        absorbed = [use]
        return self._absorbed(absorbed, self._parts.ranged(self._rectified(absorbed, made)))

    def _with_kernel(self, use: LayerUse) -> Any:
        layer, rank = use.operation, len(use.args[0].shape)
        if class_name(layer) == "Embedding":
            core = Core(type(layer).from_config(layer.get_config()), layer.get_weights())
            return self._absorbed([use], self._parts.mark(self._core(core, use.args[0])))
        if rank > _MAX_RANK:
            return None
        convolution = convolution_of(layer, rank)
        tensor = self._parts.lifted(self._parts.ranged(use.args[0]), convolution)
        for core in convolution.cores[:-1]:
            tensor = self._parts.ranged(self._core(core, tensor))
        absorbed = [use]
        tensor = self._last_core(absorbed, convolution, tensor)
        if class_name(convolution.cores[-1].layer) in _WITHOUT_RECTIFIER:
            tensor = self._parts.ranged(tensor)
        tensor = self._activated(absorbed[-1], tensor, convolution.activation)
        if convolution.lifted:
            tensor = self._parts.lowered(tensor, layer.name)
        self._absorbed(absorbed, tensor)
        if kind_of_activation(convolution.activation).name == "float":
            reason = kind_of_activation(convolution.activation).reason
            self._treat(use, "float", f"its kernel is quantized, but {reason}")
        return tensor

    def _activated(self, last: LayerUse, tensor: Any, activation: str) -> Any:
        if activation != "linear":
            return self._parts.activated(tensor, activation, last.operation.name)
        after = self._uses.follower(last)
        to_softmax = after is not None and is_softmax(after.operation)
        return self._parts.ranged(tensor, before_softmax=to_softmax)

    def _last_core(self, absorbed: list[LayerUse], convolution: Convolution, tensor: Any) -> Any:
        """The core with the batch normalization and ReLU after it, as far as they fuse."""
        core, norm = convolution.cores[-1], None
        scaled_apart = class_name(core.layer) in _FOLDED_AT_ONCE and "clusters" in self._kept
        if convolution.activation == "linear" and not scaled_apart:
            norm = self._uses.follower(absorbed[0])
        linear = convolution.activation == "linear"
        if norm is None or not is_channelwise_norm(norm.operation) or not self._once(absorbed[0]):
            made = self._core(core, tensor)
        else:
            absorbed.append(norm)
            made = self._normed_core(core, norm, tensor)
        fuses = linear and class_name(core.layer) not in _WITHOUT_RECTIFIER
        return self._rectified(absorbed, made) if fuses else made

    def _normed_core(self, core: Core, norm: LayerUse, tensor: Any) -> Any:
        if class_name(core.layer) in _FOLDED_AT_ONCE:
            return self._core(folded(core, *factors_of(norm.operation)), tensor)
        return self._parts.normed(norm, self._core(core, tensor))

    def _once(self, use: LayerUse) -> bool:
        return self._uses.calls[use.operation.name] == 1

    def _core(self, core: Core, tensor: Any) -> Any:
        return self._parts.core(core, tensor, self._kept)
