"""Which use of a layer follows which, and chains of uses that are one operator."""

from __future__ import annotations

import functools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.tf.lazy import tf
from edgeconv.tf.qat.graph import LayerUse, walk
from edgeconv.tf.qat.kinds import activation_of, class_name, is_rectifier

if TYPE_CHECKING:
    from collections.abc import Sequence

_TFMOT_ACTIVATIONS = frozenset(
    {"relu", "swish", "gelu", "relu6", "linear", "softmax", "sigmoid", "tanh"}
)
_SIX = 6.0
_THREE = 3.0


class Uses:
    """All uses of layers in a model, by who takes their outputs."""

    def __init__(self, model: Any) -> None:
        self.calls: Counter[str] = Counter()
        self._takers: dict[int, list[LayerUse]] = {}
        self._first_taken: dict[int, Any] = {}
        outputs = walk(model, model.inputs, self._note)
        self._leaving = {id(tensor) for tensor in outputs}

    def _note(self, use: LayerUse) -> Any:
        self.calls[use.operation.name] += 1
        self._first_taken[id(use.outputs[0])] = use.args[0] if use.args else None
        for tensor in tf.nest.flatten((use.args, use.kwargs)):
            self._takers.setdefault(id(tensor), []).append(use)
        return use.outputs

    def follower(self, use: LayerUse) -> LayerUse | None:
        """The only use that takes the output of a use; None for others, or a model's output."""
        if len(use.outputs) != 1 or id(use.outputs[0]) in self._leaving:
            return None
        takers = self._takers.get(id(use.outputs[0]), [])
        return takers[0] if len(takers) == 1 else None

    def taken(self, use: LayerUse) -> Any:
        """The model's own tensor that is the first argument of a use."""
        return self._first_taken[id(use.outputs[0])]


class Hard(NamedTuple):
    """A hard sigmoid, min(max(x + 3, 0), 6) / 6, or where `swish` that times x."""

    uses: Sequence[LayerUse]
    swish: bool


def hard_chain(uses: Uses, use: LayerUse) -> Hard | None:
    """The hard sigmoid or hard swish that begins with a use, in any spelling."""
    if not _is_affine(use, 1.0, _THREE):
        return None
    clip = uses.follower(use)
    if clip is None or not _is_relu6(clip.operation):
        return None
    sixth = uses.follower(clip)
    if sixth is None or not _is_affine(sixth, 1 / _SIX, 0.0):
        return None
    product = uses.follower(sixth)
    if product is not None and _is_product_with_input(uses, use, product):
        return Hard([use, clip, sixth, product], swish=True)
    return Hard([use, clip, sixth], swish=False)


def _is_product_with_input(uses: Uses, use: LayerUse, product: LayerUse) -> bool:
    if class_name(product.operation) == "Multiply":
        factors = list(product.args[0])
    elif getattr(product.operation, "symbol", "") == "math.multiply":
        factors = [*product.args, *product.kwargs.values()]
    else:
        return False
    return len(factors) == 2 and any(factor is uses.taken(use) for factor in factors)


def _is_affine(use: LayerUse, factor: float, offset: float) -> bool:
    """Whether a use multiplies by a number and adds a number, in any spelling."""
    layer = use.operation
    if class_name(layer) == "Rescaling":
        values = (layer.scale, layer.offset)
    elif class_name(layer) == "TFOpLambda":
        values = _scalar_function(layer.symbol, use)
    else:
        return False
    close = functools.partial(math.isclose, rel_tol=1e-6, abs_tol=1e-9)
    numbers = [value for value in values if isinstance(value, (int, float))]
    return len(numbers) == 2 and all(map(close, numbers, (factor, offset)))


def _scalar_function(symbol: str, use: LayerUse) -> tuple[Any, Any]:
    other = use.args[1] if len(use.args) > 1 else use.kwargs.get("y")
    if symbol in ("__operators__.add", "math.add"):
        return 1.0, other
    if symbol == "math.multiply":
        return other, 0.0
    return (1 / other, 0.0) if symbol == "math.truediv" and isinstance(other, float) else ("", "")


def _is_relu6(layer: Any) -> bool:
    if not is_rectifier(layer):
        return False
    if class_name(layer) == "ReLU":
        return bool(layer.max_value == _SIX)
    return "relu6" in (activation_of(layer), getattr(layer, "symbol", "").removeprefix("nn."))


def known_to_tfmot(layer: Any) -> bool:
    """Whether tfmot's default 8-bit scheme has a config for a layer."""
    from tensorflow_model_optimization.python.core.quantization.keras.default_8bit import (
        default_8bit_quantize_registry,
    )

    if class_name(layer) == "Activation":
        return activation_of(layer) in _TFMOT_ACTIVATIONS
    # Its transforms split them.
    if class_name(layer) in ("SeparableConv1D", "SeparableConv2D"):
        return True
    return bool(default_8bit_quantize_registry.Default8BitQuantizeRegistry().supports(layer))
