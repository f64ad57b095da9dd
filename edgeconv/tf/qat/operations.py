"""Operations used as layers (`x + y`, `keras.ops.mean`, `tf.reshape`) as real layers of tf_keras.

Keras 3 has a class for each operation, tf_keras a TFOpLambda with the name of TensorFlow's
function. Both become an `OpCall`, for which one function builds layers. Raises `NoCounterpart`
where no layers compute the same.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from edgeconv.tf.lazy import tf
from edgeconv.tf.qat import arithmetic, shaping
from edgeconv.tf.qat.factory import (
    LayerFactory,
    NoCounterpart,
    OpCall,
    Unmatched,
    apply_activation,
    gelu_by_tanh,
    is_tensor,
    leaky_relu,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.tf.qat.graph import LayerUse

_OP_LAYERS = ("TFOpLambda", "SlicingOpLambda")
# They return a shape or a mask, which only other such operations take.
_SHAPES_AND_MASKS = {"shape", "NotEqual", "math.not_equal"}
_RESHAPES = ("Reshape", "reshape", "ExpandDims", "expand_dims", "Squeeze", "squeeze")


def is_operation(operation: Any) -> bool:
    """Whether a node of a graph is an operation, and not a layer."""
    module = type(operation).__module__
    return module.startswith("keras.src.ops.") or type(operation).__name__ in _OP_LAYERS


def layers_for(factory: LayerFactory, use: LayerUse) -> Any:
    """The outputs of new layers for an operation. Raises `NoCounterpart`."""
    symbol = operation_name(use.operation)
    leaves = tf.nest.flatten((use.args, use.kwargs))
    has_unmatched = any(isinstance(leaf, Unmatched) for leaf in leaves)
    if symbol in _SHAPES_AND_MASKS or (has_unmatched and not any(map(is_tensor, leaves))):
        return [Unmatched() for _ in use.outputs]
    # A reshape's output has the shape.
    if has_unmatched and symbol not in _RESHAPES:
        raise NoCounterpart("it computes with a shape or a mask")
    if symbol not in _HANDLERS:
        raise NoCounterpart("no layer of tf_keras computes it")
    return _HANDLERS[symbol](factory, _call(use))


def operation_name(operation: Any) -> str:
    """The name of the operation: Keras 3's class, or TensorFlow's function."""
    symbol = getattr(operation, "symbol", None) or type(operation).__name__
    return str(symbol).removeprefix("compat.v1.")


def _call(use: LayerUse) -> OpCall:
    operation = use.operation
    function = getattr(operation, "function", None) or operation.call
    if operation_name(operation) == "__operators__.getitem":
        return OpCall({"x": use.args[0], "key": shaping.slices(use)}, use.outputs)
    bound = inspect.signature(function).bind(*use.args, **use.kwargs).arguments
    arguments = {**bound, **bound.pop("kwargs", {})}
    if not hasattr(operation, "function"):
        # The settings of an operation of Keras 3, such as an axis.
        settings = {key: v for key, v in vars(operation).items() if not key.startswith("_")}
        arguments = {**arguments, **settings}
    arguments.pop("name", None)
    return OpCall(arguments, use.outputs)


def _leaky_relu(factory: LayerFactory, call: OpCall) -> Any:
    slope = call.get("negative_slope", "alpha", default=0.2)
    return leaky_relu(factory, call.first, arithmetic.number(slope))


def _gelu(factory: LayerFactory, call: OpCall) -> Any:
    if call.get("approximate", default=False):
        return gelu_by_tanh(factory, call.first)
    return apply_activation(factory, "gelu", call.first)


def _softmax(factory: LayerFactory, call: OpCall) -> Any:
    axis, rank = call.get("axis"), len(call.first.shape)
    if axis is None or axis in (-1, rank - 1):
        return apply_activation(factory, "softmax", call.first)
    return factory.layer("Softmax", call.first, axis=axis)


def _activation(name: str) -> Callable[[LayerFactory, OpCall], Any]:
    return lambda factory, call: apply_activation(factory, name, call.first)


def _cast(factory: LayerFactory, call: OpCall) -> Any:
    dtype = call.outputs[0].dtype
    name, tensor = getattr(dtype, "name", dtype), call.first
    if "float" not in name:
        raise NoCounterpart(f"no layer of tf_keras casts to {name}")
    # Rescaling casts its input to float32.
    return tensor if tensor.dtype.is_floating else factory.layer("Rescaling", tensor, scale=1.0)


def _pooled(kind: str, ending: str) -> Callable[[LayerFactory, OpCall], Any]:
    """A mean or maximum over axes; `ending` follows where the layer is one of several."""

    def pool(factory: LayerFactory, call: OpCall) -> Any:
        axes, keepdims = call.get("axis"), bool(call.get("keepdims", default=False))
        return shaping.reduce_axes(factory, kind, call.first, axes, keepdims, ending)

    return pool


def _sum(factory: LayerFactory, call: OpCall) -> Any:
    tensor, axes = call.first, call.get("axis")
    count = shaping.count_over(tensor, axes)
    keepdims = bool(call.get("keepdims", default=False))
    mean = shaping.reduce_axes(factory, "Average", tensor, axes, keepdims, "mean")
    return arithmetic.affine(factory, mean, float(count), 0.0)


def _swapped(factory: LayerFactory, call: OpCall) -> Any:
    order = list(range(len(call.shape)))
    first, second = call.get("axis1"), call.get("axis2")
    order[first], order[second] = order[second], order[first]
    return shaping.transpose_axes(factory, call.first, order)


def _split(factory: LayerFactory, call: OpCall) -> Any:
    shapes: list[shaping.Shape] = [tuple(tensor.shape) for tensor in call.outputs]
    return shaping.split(factory, call.first, call.get("axis", default=0), shapes)


def _pad(factory: LayerFactory, call: OpCall) -> Any:
    mode = str(call.get("mode", default="constant")).lower()
    if mode != "constant" or call.get("constant_values", default=0) not in (0, None):
        raise NoCounterpart("the layers of tf_keras pad with zeros only")
    return shaping.pad_with_zeros(factory, call.first, call.get("pad_width", "paddings"))


# Operations that are an activation, by its name in Keras 3.
_ACTIVATIONS = {
    "relu": ("Relu", "nn.relu"),
    "relu6": ("Relu6", "nn.relu6"),
    "hard_sigmoid": ("HardSigmoid",),
    "hard_silu": ("HardSilu",),
    "hard_tanh": ("HardTanh",),
    "selu": ("Selu", "nn.selu"),
    "sigmoid": ("Sigmoid", "math.sigmoid", "nn.sigmoid"),
    "tanh": ("Tanh", "math.tanh", "nn.tanh"),
    "silu": ("Silu", "nn.silu", "nn.swish"),
    "softplus": ("Softplus", "math.softplus", "nn.softplus"),
    "softsign": ("Softsign", "nn.softsign"),
    "exponential": ("Exp", "math.exp"),
}
_HANDLERS: dict[str, Callable[[LayerFactory, OpCall], Any]] = {
    **{symbol: _activation(name) for name, symbols in _ACTIVATIONS.items() for symbol in symbols},
    **dict.fromkeys(("Add", "math.add", "__operators__.add"), arithmetic.add),
    **dict.fromkeys(("Subtract", "math.subtract"), arithmetic.subtract),
    **dict.fromkeys(("Multiply", "math.multiply"), arithmetic.multiply),
    **dict.fromkeys(("TrueDivide", "Divide", "math.truediv", "math.divide"), arithmetic.divide),
    **dict.fromkeys(("Power", "math.pow"), arithmetic.power),
    **dict.fromkeys(("Square", "math.square"), lambda m, c: m.layer("Multiply", [c.first] * 2)),
    **dict.fromkeys(
        ("Negative", "math.negative"),
        lambda m, c: arithmetic.affine(m, c.first, -1.0, 0.0),
    ),
    **dict.fromkeys(("Maximum", "math.maximum"), arithmetic.maximum),
    **dict.fromkeys(("Minimum", "math.minimum"), arithmetic.minimum),
    **dict.fromkeys(("Clip", "clip_by_value"), arithmetic.clip),
    **dict.fromkeys(("Absolute", "math.abs"), arithmetic.absolute),
    **dict.fromkeys(("LeakyRelu", "nn.leaky_relu"), _leaky_relu),
    **dict.fromkeys(("Gelu", "nn.gelu"), _gelu),
    **dict.fromkeys(
        ("Elu", "nn.elu"),
        lambda f, c: f.layer("ELU", c.first, alpha=float(c.get("alpha", default=1.0))),
    ),
    **dict.fromkeys(("Softmax", "nn.softmax", "nn.softmax_v2"), _softmax),
    **dict.fromkeys(("Cast", "cast"), _cast),
    **dict.fromkeys(("Mean", "math.reduce_mean"), _pooled("Average", "")),
    **dict.fromkeys(("Max", "Amax", "math.reduce_max"), _pooled("Max", "")),
    **dict.fromkeys(("Sum", "math.reduce_sum"), _sum),
    **dict.fromkeys(_RESHAPES, lambda f, c: shaping.reshape_samples(f, c.first, c.shape)),
    **dict.fromkeys(
        ("Transpose", "transpose"),
        lambda f, c: shaping.transpose_axes(f, c.first, c.get("axes", "perm")),
    ),
    "Swapaxes": _swapped,
    **dict.fromkeys(("Matmul", "linalg.matmul"), arithmetic.matmul),
    **dict.fromkeys(
        ("Concatenate", "concat"),
        lambda f, c: shaping.concatenate(f, list(c.first), c.get("axis", default=-1)),
    ),
    **dict.fromkeys(
        ("Stack", "stack"),
        lambda f, c: shaping.stack(f, list(c.first), c.get("axis", default=0)),
    ),
    **dict.fromkeys(("Split", "split", "Unstack", "unstack"), _split),
    **dict.fromkeys(
        ("GetItem", "__operators__.getitem"),
        lambda f, c: shaping.slice_tensor(f, c.first, c.get("key"), c.shape),
    ),
    **dict.fromkeys(("Pad", "pad"), _pad),
    **dict.fromkeys(
        ("identity", "Copy", "ConvertToTensor", "convert_to_tensor"), lambda _, c: c.first
    ),
}
