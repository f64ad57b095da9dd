"""A flat tf_keras model to one that is trained with emulated 8-bit integers.

tfmot's wrappers and quantizers emulate the integers. They are placed here, operator by operator as
the converter will fuse them. tfmot's `quantize_apply` knows neither one-dimensional convolutions
nor products of layers, and fails at unknown layers.
"""

import fnmatch
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from edgeconv.tf.qat.convolutions import (
    Convolution,
    Core,
    convolution_of,
    factors_of,
    fold_norm,
    normalizes_unlike_columns,
)
from edgeconv.tf.qat.graph import LayerUse, Uses, hard_chain, known_to_tfmot, walk
from edgeconv.tf.qat.kinds import (
    LayerKind,
    class_name,
    is_rectifier,
    is_softmax,
    kind_of,
    kind_of_activation,
    operation_of,
    shown_kind,
)
from edgeconv.tf.qat.parts import EmulatedLayers, new_inputs, new_model
from edgeconv.types import LayerTreatment, Qat, Recipe, TreatedLayer
from edgeconv.types.errors import InputRefused, unknown_name
from edgeconv.types.words import listed

_MAX_RANK = 4
# Their kernels have one scale, which a factor per channel would break: it is folded first.
_FOLDED_AT_ONCE = frozenset({"Dense", "Conv2DTranspose"})
# The converter fuses a ReLU only with a bias, and older runtimes know it only without.
_WITHOUT_RECTIFIER = frozenset({"Conv2DTranspose"})
# Their integer operators contain a ReLU.
_WITH_RECTIFIER = frozenset({"add", "subtract", "multiply"})


# One scale of the whole input would leave its narrow columns a few integers.
NORMALIZED_IN_FLOAT = "the columns of its input differ too much in range for one scale of 8 bits"


def annotate(
    model: Any, settings: Qat, *, takes_floats: bool = True
) -> tuple[Any, tuple[TreatedLayer, ...]]:
    """The model to train with quantization, and how each layer is treated.

    `model` is functional and flat; it does not change, and its weights are copied. The new one has
    the same names of inputs and outputs. Call it in the scope of the training's strategy.
    `takes_floats`: the file will take floats, so that its input may be normalized in float. Raises
    `UsageError` for a layer name or pattern without a match, and `InputRefused` where no layer can
    be quantized.
    """
    annotation = _Annotation(model, settings, takes_floats)
    inputs = new_inputs(model)
    outputs = walk(model, inputs, annotation.apply)
    treated = tuple(annotation.treated.values())
    if all(layer.treatment == "float" for layer in treated):
        why = f"{treated[0].name}: {treated[0].reason}" if treated else "the model has no layers"
        raise InputRefused(
            f"none of the model's layers can be trained as integers; {why}",
            hint="convert to float16 instead",
        )
    return new_model(model, inputs, outputs), treated


def refuse_float_layers(treated: Iterable[TreatedLayer], recipe: Recipe) -> None:
    """Raise `InputRefused` where layers stay float, and the recipe is to have only integers.

    A normalization of the input may always stay float.
    """
    left = (layer for layer in treated if layer.treatment == "float")
    floats = [layer for layer in left if layer.reason != NORMALIZED_IN_FLOAT]
    if floats and recipe.only_integers:
        names = listed((f"{layer.name} ({layer.kind}: {layer.reason})" for layer in floats), 5)
        raise InputRefused(
            f"{recipe.name}: {len(floats)} layers cannot be trained as integers: {names}",
            hint="without --full-integer and --io they stay float; or replace them in the model",
        )


def _chosen(model: Any, patterns: Sequence[str]) -> frozenset[str]:
    names = [layer.name for layer in model.layers if class_name(layer) != "InputLayer"]
    matches = {pattern: fnmatch.filter(names, pattern) for pattern in patterns}
    for pattern, matching in matches.items():
        if not matching:
            raise unknown_name("layer", pattern, names)
    return frozenset(itertools.chain(*matches.values()) if patterns else names)


class _Annotation:
    """The annotation of one model."""

    def __init__(self, model: Any, settings: Qat, takes_floats: bool) -> None:
        self.treated: dict[str, TreatedLayer] = {}
        self._uses, self._chosen = Uses(model), _chosen(model, settings.layers)
        self._takes_floats = takes_floats
        self._layers = EmulatedLayers()
        # By the id of a tensor of `model`: the new tensor that was computed along with another.
        self._ready: dict[int, Any] = {}

    def apply(self, use: LayerUse) -> Any:
        """The new tensors for a use of a layer."""
        if id(use.outputs[0]) in self._ready:
            return self._ready[id(use.outputs[0])]
        layer, kind = use.operation, kind_of(use.operation)
        if kind.name == "noise":
            self._treat(use, "quantized", "left out: in training it widens ranges")
            return use.args[0]
        if kind.name == "same":
            self._treat(use, "quantized")
            return self._same(use)
        if layer.name not in self._chosen:
            self._treat(use, "float", "it is not one of the layers to quantize")
            return self._layers.copied(use)
        if self._takes_floats and normalizes_unlike_columns(use):
            self._treat(use, "float", NORMALIZED_IN_FLOAT)
            return self._layers.normalized(use)
        tensor = self._quantized(use, kind)
        if tensor is None:
            reason = kind.reason or "there is no integer operator for its settings or rank"
            self._treat(use, "float", reason)
            return self._layers.copied(use)
        return tensor

    def _quantized(self, use: LayerUse, kind: LayerKind) -> Any:
        """The tensor of a layer in integers; None where it has to stay float."""
        hard = hard_chain(self._uses, use)
        if hard is not None:
            return self._absorbed(hard.uses, self._layers.hard(use.args[0], hard))
        if kind.name == "kernel":
            return self._with_kernel(use)
        if kind.name == "affine":
            return self._affine(use)
        return self._value(use, kind) if kind.name in ("value", "fixed") else None

    def _treat(self, use: LayerUse, treatment: LayerTreatment, reason: str = "") -> None:
        layer = use.operation
        self.treated[layer.name] = TreatedLayer(
            name=layer.name, kind=shown_kind(layer), treatment=treatment, reason=reason
        )

    def _absorbed(self, uses: Sequence[LayerUse], tensor: Any) -> Any:
        """Note that uses are computed together, with this result."""
        for use in uses:
            known = known_to_tfmot(use.operation) or use is not uses[0]
            self._treat(use, "quantized" if known else "quantized with a config of edgeconv's")
            self._ready[id(use.outputs[0])] = tensor
        return tensor

    def _same(self, use: LayerUse) -> Any:
        layers = self._layers
        if use.operation.name not in self._chosen and not layers.have_ranges(
            (use.args, use.kwargs)
        ):
            return layers.copied(use)
        return layers.mark(layers.copied(layers.with_ranges(use)))

    def _value(self, use: LayerUse, kind: LayerKind) -> Any:
        if class_name(use.operation) == "ReLU":
            tensor = self._layers.relu(use, self._layers.ranged(use.args[0]))
        else:
            tensor = self._layers.copied(self._layers.with_ranges(use))
        if kind.name == "fixed":
            return self._absorbed([use], self._layers.mark(tensor))
        absorbed = [use]
        if operation_of(use.operation) in _WITH_RECTIFIER:
            tensor = self._rectified(absorbed, tensor)
        return self._absorbed(absorbed, self._layers.ranged(tensor))

    def _rectified(self, absorbed: list[LayerUse], tensor: Any) -> Any:
        """The tensor after the ReLU that alone follows the absorbed uses, if there is one."""
        after = self._uses.follower(absorbed[-1])
        if after is None or not is_rectifier(after.operation):
            return tensor
        absorbed.append(after)
        return self._layers.copied(after._replace(args=(tensor,)))

    def _affine(self, use: LayerUse) -> Any:
        tensor = self._layers.affine(use, self._layers.ranged(use.args[0]))
        if tensor is None:
            return None
        absorbed = [use]
        return self._absorbed(absorbed, self._layers.ranged(self._rectified(absorbed, tensor)))

    def _with_kernel(self, use: LayerUse) -> Any:
        layer, rank = use.operation, len(use.args[0].shape)
        if class_name(layer) == "Embedding":
            core = Core(type(layer).from_config(layer.get_config()), layer.get_weights())
            return self._absorbed([use], self._layers.mark(self._core(core, use.args[0])))
        if rank > _MAX_RANK:
            return None
        convolution = convolution_of(layer, rank)
        tensor = self._layers.lifted(self._layers.ranged(use.args[0]), convolution)
        for core in convolution.cores[:-1]:
            tensor = self._layers.ranged(self._core(core, tensor))
        absorbed = [use]
        tensor = self._last_core(absorbed, convolution, tensor)
        if class_name(convolution.cores[-1].layer) in _WITHOUT_RECTIFIER:
            tensor = self._layers.ranged(tensor)
        tensor = self._activated(absorbed[-1], tensor, convolution.activation)
        if convolution.lifted:
            tensor = self._layers.lowered(tensor, layer.name)
        self._absorbed(absorbed, tensor)
        activation = kind_of_activation(convolution.activation)
        if activation.name == "float":
            self._treat(use, "float", f"its kernel is quantized, but {activation.reason}")
        return tensor

    def _activated(self, last: LayerUse, tensor: Any, activation: str) -> Any:
        if activation != "linear":
            return self._layers.activated(tensor, activation, last.operation.name)
        after = self._uses.follower(last)
        to_softmax = after is not None and is_softmax(after.operation)
        return self._layers.ranged(tensor, before_softmax=to_softmax)

    def _last_core(self, absorbed: list[LayerUse], convolution: Convolution, tensor: Any) -> Any:
        """The core with the batch normalization and ReLU after it, as far as they fuse."""
        core, norm = convolution.cores[-1], None
        is_linear = convolution.activation == "linear"
        folds_at_once = class_name(core.layer) in _FOLDED_AT_ONCE
        if is_linear:
            norm = self._uses.norm_after(absorbed[0])
        if norm is None:
            tensor = self._core(core, tensor)
        else:
            absorbed.append(norm)
            if folds_at_once:
                tensor = self._core(fold_norm(core, *factors_of(norm.operation)), tensor)
            else:
                tensor = self._layers.normed(norm, self._core(core, tensor))
        fuses = is_linear and class_name(core.layer) not in _WITHOUT_RECTIFIER
        return self._rectified(absorbed, tensor) if fuses else tensor

    def _core(self, core: Core, tensor: Any) -> Any:
        return self._layers.core(core, tensor)
