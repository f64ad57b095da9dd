"""Operations used as layers (`x + y`, `keras.ops.mean`, `tf.reshape`) in a model of tf_keras.

Keras 3 has a class for each operation, tf_keras a TFOpLambda with the name of a function. Both
become an `OpLayer`, which calls the operation; `kinds` decides by its name how it is quantized.

A few become layers of tf_keras, which the annotation looks for: adding and multiplying by constants
(several in a row are one Rescaling, and this one depthwise convolution), ReLUs (they go into the
operator before), softmaxes (which limit the range before), means and maxima over whole images
(which equalization passes), and reshapes (whose shape is then a constant).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.qat.kinds import class_name, plain_name

if TYPE_CHECKING:
    from edgeconv.tf.qat.graph import LayerUse


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class NoCounterpart(Exception):
    """A layer or operation that no layer of tf_keras computes; says why, in one clause."""


class LayerFactory:
    """Builds layers of tf_keras with unique names.

    `prefix` begins the names of the next layers: the path of the layer or operation of the walked
    model that they are for.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self.prefix: tuple[str, ...] = ()

    def name(self, *after: str) -> str:
        """A unique name, with the names of the models around a layer if needed."""
        own = "_".join((self.prefix[-1], *after))
        longer = "_".join((*self.prefix, *after))
        numbered = (f"{longer}_{number}" for number in range(1, len(self._taken) + 2))
        candidates = map(valid_name, (own, longer, *numbered))
        chosen = next(candidate for candidate in candidates if candidate not in self._taken)
        self._taken.add(chosen)
        return chosen

    def layer(self, kind: str, inputs: Any, *after: str, **config: Any) -> Any:
        """The output of a new layer of class `kind` for the tensors `inputs`."""
        return getattr(tf_keras.layers, kind)(name=self.name(*after), **config)(inputs)

    def operation(self, function: Callable[..., Any], symbol: str, tensors: Sequence[Any]) -> Any:
        """The outputs of a new `OpLayer` for tensors."""
        return op_layer(function, symbol, self.name())(tensors)


def op_layer(function: Callable[..., Any], symbol: str, name: str) -> Any:
    """A layer that calls `function` with its tensors; `symbol` is the name of the operation."""
    return _op_layer_class()(function, symbol, name=name)


@cache
def _op_layer_class() -> Any:
    class OpLayer(tf_keras.layers.Layer):  # type: ignore[misc]
        """Calls an operation. It has no weights, and its configuration is for this process."""

        def __init__(self, function: Callable[..., Any], symbol: str, name: str) -> None:
            super().__init__(name=name, dtype="float32", autocast=False)
            self.function = tf.autograph.experimental.do_not_convert(function)
            self.symbol = symbol

        def call(self, tensors: Any) -> Any:
            return self.function(*tf.nest.flatten(tensors))

        def get_config(self) -> Any:
            return {"function": self.function, "symbol": self.symbol, "name": self.name}

    return OpLayer


def valid_name(name: str) -> str:
    """The name with other characters where TensorFlow refuses it, as it does more than Keras 3."""
    cleaned = _NOT_IN_A_NAME.sub("_", name)
    return cleaned if cleaned[0].isalnum() else f"layer{cleaned}"


_OP_LAYERS = ("TFOpLambda", "SlicingOpLambda")
# The batch that tells whether an operation computes across samples: no other dimension has it.
_UNUSUAL_BATCH = 7919
_ACROSS_SAMPLES = "it computes across samples"


class _OpCall(NamedTuple):
    """A call of an operation of Keras 3 or TensorFlow: ordered arguments by name, and outputs."""

    arguments: dict[str, Any]
    outputs: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """The first argument."""
        return next(iter(self.arguments.values()))

    @property
    def pair(self) -> tuple[Any, Any]:
        """The first two arguments."""
        left, right, *_ = self.arguments.values()
        return left, right

    def get(self, *names: str, default: Any = None) -> Any:
        """An argument by any of its names."""
        return next((self.arguments[name] for name in names if name in self.arguments), default)


# A layer of tf_keras for a call, or None where the operation itself has to be called.
_AsLayer = Callable[[LayerFactory, _OpCall], Any]
# The scale and the offset that a constant stands for.
_Numbers = Callable[[Any], tuple[Any, Any]]


def is_operation(operation: Any) -> bool:
    """Whether a node of a graph is an operation, and not a layer."""
    module = type(operation).__module__
    return module.startswith("keras.src.ops.") or type(operation).__name__ in _OP_LAYERS


def operation_name(operation: Any) -> str:
    """The name of the operation: Keras 3's class, or TensorFlow's function."""
    symbol = getattr(operation, "symbol", None) or type(operation).__name__
    return str(symbol).removeprefix("compat.v1.")


def apply_operation(factory: LayerFactory, use: LayerUse) -> Any:
    """The outputs of a new layer for an operation. Raises `NoCounterpart`."""
    as_layer = _AS_LAYERS.get(plain_name(operation_name(use.operation)))
    outputs = as_layer(factory, _call_of(use)) if as_layer else None
    return _called(factory, use) if outputs is None else outputs


def apply_activation(factory: LayerFactory, name: str, tensor: Any) -> Any:
    """A tensor after a function of Keras 3, by its name there. Raises `NoCounterpart`."""
    fused = fusable(name)
    if fused == "linear":
        return tensor
    if fused:
        return factory.layer("Activation", tensor, activation=fused)
    if name == "relu6":
        return factory.layer("ReLU", tensor, max_value=6.0)
    function = getattr(keras.activations, name, None)
    if function is None:
        raise NoCounterpart(f"Keras has no activation {name!r}")
    return factory.operation(function, name, [tensor])


# By the name in Keras 3.
_IN_TF_KERAS = {
    **{name: name for name in ("linear", "relu", "sigmoid", "tanh", "softmax", "softplus")},
    **{name: name for name in ("softsign", "elu", "selu", "exponential", "gelu", "mish")},
    "silu": "swish",
    "swish": "swish",
}


def fusable(name: str) -> str | None:
    """The name in tf_keras of a function of Keras 3; None where tf_keras has none."""
    return _IN_TF_KERAS.get(name)


def _called(factory: LayerFactory, use: LayerUse) -> Any:
    """The outputs of a layer that calls the operation."""
    structure = (use.args, use.kwargs)
    leaves = tf.nest.flatten(structure)
    positions = [index for index, leaf in enumerate(leaves) if is_tensor(leaf)]
    compute = use.operation.call

    def function(*tensors: Any) -> Any:
        values = dict(zip(positions, tensors, strict=True))
        filled = [values.get(index, leaf) for index, leaf in enumerate(leaves)]
        args, kwargs = tf.nest.pack_sequence_as(structure, filled)
        return compute(*args, **kwargs)

    tensors = [leaves[index] for index in positions]
    _refuse_across_samples(function, tensors)
    return factory.operation(function, _symbol(use), tensors)


def _symbol(use: LayerUse) -> str:
    """The name of the operation; as in TensorFlow, PadV2 for a pad with a number other than 0."""
    name = operation_name(use.operation)
    if plain_name(name) != "pad" or _call_of(use).get("constant_values") in (None, 0):
        return name
    return "PadV2"


def _refuse_across_samples(function: Any, tensors: list[Any]) -> None:
    """Raise `NoCounterpart` where not every output has a row for each sample."""
    if not any(tensor.shape.rank and tensor.shape[0] is None for tensor in tensors):
        return
    specs = [tf.TensorSpec(_with_unusual_batch(t.shape), t.dtype) for t in tensors]
    try:
        outputs = (
            tf.function(function, autograph=False).get_concrete_function(*specs).structured_outputs
        )
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise NoCounterpart(_ACROSS_SAMPLES) from error
    floats = [each.shape for each in tf.nest.flatten(outputs) if each.dtype.is_floating]
    if any(not shape.rank or shape[0] != _UNUSUAL_BATCH for shape in floats):
        raise NoCounterpart(_ACROSS_SAMPLES)


def _with_unusual_batch(shape: Any) -> list[int | None]:
    sizes = list(shape)
    return [_UNUSUAL_BATCH, *sizes[1:]] if sizes and sizes[0] is None else sizes


def _call_of(use: LayerUse) -> _OpCall:
    operation = use.operation
    function = getattr(operation, "function", None) or operation.call
    bound = inspect.signature(function).bind(*use.args, **use.kwargs).arguments
    arguments = {**bound, **bound.pop("kwargs", {})}
    if not hasattr(operation, "function"):
        # The settings of an operation of Keras 3, such as an axis.
        settings = {key: v for key, v in vars(operation).items() if not key.startswith("_")}
        arguments = {**arguments, **settings}
    return _OpCall(arguments, use.outputs)


def is_tensor(value: Any) -> bool:
    """Whether a value is a symbolic tensor of tf_keras."""
    return isinstance(value, tf_keras.__internal__.KerasTensor)


def _is_number(value: Any) -> bool:
    return not is_tensor(value) and np.ndim(value) == 0


def _affine(factory: LayerFactory, tensor: Any, scale: Any, offset: Any) -> Any:
    """A tensor times `scale` plus `offset`: numbers, or arrays that do not vary by sample."""
    before = tensor._keras_history.layer
    if not tensor.dtype.is_floating or _varies_by_sample(tensor, scale, offset):
        return None
    if class_name(before) == "Rescaling" and before.input.dtype.is_floating:
        # `x * 2 + 1` is one layer.
        factor = np.asarray(scale, "float64")
        scale, offset = factor * before.scale, factor * before.offset + np.asarray(offset)
        tensor = before.input
    settings = [np.asarray(value, "float32").tolist() for value in (scale, offset)]
    return factory.layer("Rescaling", tensor, scale=settings[0], offset=settings[1])


def _varies_by_sample(tensor: Any, *constants: Any) -> bool:
    rank, shapes = len(tensor.shape), map(np.shape, constants)
    return any(len(shape) > rank or (len(shape) == rank and shape[0] != 1) for shape in shapes)


def _with_constant(after: _Numbers, before: _Numbers | None = None) -> _AsLayer:
    """A tensor and a constant as a Rescaling.

    `after` and `before` give its scale and offset for a constant after the tensor, or before it.
    """

    def compute(factory: LayerFactory, call: _OpCall) -> Any:
        left, right = call.pair
        if is_tensor(left) and is_tensor(right):
            return None
        if is_tensor(left):
            return _affine(factory, left, *after(right))
        return _affine(factory, right, *before(left)) if before else None

    return compute


def _square(factory: LayerFactory, call: _OpCall) -> Any:
    # The converter has an integer operator for products, and none for squares.
    return factory.layer("Multiply", [call.first, call.first])


def _power(factory: LayerFactory, call: _OpCall) -> Any:
    exponent = call.pair[1]
    return _square(factory, call) if _is_number(exponent) and float(exponent) == 2.0 else None


def _clip(factory: LayerFactory, call: _OpCall) -> Any:
    low = call.get("x_min", "clip_value_min")
    high = call.get("x_max", "clip_value_max")
    if not (_is_number(low) and _is_number(high)) or float(low):
        return None
    return factory.layer("ReLU", call.first, max_value=float(high))


def _maximum(factory: LayerFactory, call: _OpCall) -> Any:
    tensor, limit = sorted(call.pair, key=is_tensor, reverse=True)
    return factory.layer("ReLU", tensor) if _is_number(limit) and not float(limit) else None


def _relu(max_value: float | None) -> _AsLayer:
    return lambda factory, call: factory.layer("ReLU", call.first, max_value=max_value)


def _softmax(factory: LayerFactory, call: _OpCall) -> Any:
    if call.get("axis", default=-1) not in (None, -1, len(call.first.shape) - 1):
        return None
    return factory.layer("Activation", call.first, activation="softmax")


def _pooled(kind: str) -> _AsLayer:
    """The mean or maximum over all positions of an image or sequence."""

    def pool(factory: LayerFactory, call: _OpCall) -> Any:
        axes, rank = call.get("axis"), len(call.first.shape)
        over = [] if axes is None else sorted(int(axis) % rank for axis in np.ravel(axes))
        if rank not in (3, 4, 5) or over != [*range(1, rank - 1)]:
            return None
        keepdims = bool(call.get("keepdims", default=False))
        return factory.layer(f"Global{kind}Pooling{rank - 2}D", call.first, keepdims=keepdims)

    return pool


def _reshape(factory: LayerFactory, call: _OpCall) -> Any:
    before, after = tuple(call.first.shape), tuple(call.outputs[0].shape)
    if before == after:
        return call.first
    if not after or after[0] != before[0] or after[1:].count(None) > 1 or None in before[1:]:
        return None
    target = [-1 if size is None else size for size in after[1:]]
    if None not in after[1:] and np.prod(target) != np.prod(before[1:]):
        raise NoCounterpart(_ACROSS_SAMPLES)
    return factory.layer("Reshape", call.first, target_shape=target)


def _split(factory: LayerFactory, call: _OpCall) -> Any:
    """Slices: the converter leaves a split in float if one of its parts is unused."""
    rank, start = len(call.first.shape), 0
    axis = call.get("axis", default=0) % rank
    if axis == 0 or call.first.shape[axis] is None:
        return None
    keys = []
    for output in call.outputs:
        is_part = len(output.shape) == rank
        size = output.shape[axis] if is_part else 1
        keys.append((*[slice(None)] * axis, slice(start, start + size) if is_part else start))
        start += size
    return factory.operation(lambda tensor: [tensor[key] for key in keys], "split", [call.first])


def _product(_: LayerFactory, call: _OpCall) -> Any:
    """Refuse a constant kernel or matrix: between ranges the converter fails on float weights."""
    leaves = tf.nest.flatten(list(call.arguments.values()))
    if any(not is_tensor(leaf) and np.ndim(leaf) > 1 for leaf in leaves):
        raise NoCounterpart("the converter takes a constant kernel or matrix only from a layer")


def _cast(_: LayerFactory, call: _OpCall) -> Any:
    """All floats are float32 here."""
    dtype = getattr(call.outputs[0].dtype, "name", call.outputs[0].dtype)
    return call.first if call.first.dtype.is_floating and "float" in dtype else None


_AS_LAYERS: dict[str, _AsLayer] = {
    "add": _with_constant(lambda value: (1.0, value), lambda value: (1.0, value)),
    "multiply": _with_constant(lambda value: (value, 0.0), lambda value: (value, 0.0)),
    "subtract": _with_constant(
        lambda value: (1.0, -np.asarray(value, "float64")), lambda value: (-1.0, value)
    ),
    **dict.fromkeys(
        ("truedivide", "truediv", "divide"),
        _with_constant(lambda value: (1.0 / np.asarray(value, "float64"), 0.0)),
    ),
    "negative": lambda factory, call: _affine(factory, call.first, -1.0, 0.0),
    "square": _square,
    **dict.fromkeys(("power", "pow"), _power),
    **dict.fromkeys(("clip", "clipbyvalue"), _clip),
    "maximum": _maximum,
    "relu": _relu(None),
    "relu6": _relu(6.0),
    **dict.fromkeys(("softmax", "softmaxv2"), _softmax),
    "mean": _pooled("Average"),
    **dict.fromkeys(("max", "amax"), _pooled("Max")),
    **dict.fromkeys(("reshape", "expanddims", "squeeze"), _reshape),
    **dict.fromkeys(("split", "unstack"), _split),
    **dict.fromkeys(("matmul", "dot", "tensordot", "einsum", "inner", "convolution"), _product),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "depthwiseconv", "depthwiseconv2d"), _product),
    **dict.fromkeys(("convtranspose", "conv2dtranspose", "separableconv"), _product),
    **dict.fromkeys(("cast", "converttotensor"), _cast),
    **dict.fromkeys(("identity", "copy"), lambda _, call: call.first),
}
