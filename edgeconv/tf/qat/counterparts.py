"""Layers of Keras 3 and tf_keras as new layers of tf_keras: their classes and settings."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

import numpy as np

from edgeconv.tf.lazy import keras, tf_keras
from edgeconv.tf.qat.activations import fusable
from edgeconv.tf.qat.factory import NoCounterpart
from edgeconv.tf.qat.kinds import class_name

# They compute their activation last, so that it can become another layer.
_ACTIVATED_LAST = re.compile(
    r"Dense|EinsumDense|Activation|(Depthwise|Separable)?Conv\dD(Transpose)?"
)
_RENAMED = {"LeakyReLU": {"negative_slope": "alpha"}}
# Settings of tf_keras that are not in the signatures.
_UNDECLARED: dict[str, dict[str, Any]] = {
    name: {"zero_output_for_mask": False} for name in ("RNN", "SimpleRNN", "LSTM", "GRU")
}
# Settings that are layers.
_NESTED = frozenset({"layer", "backward_layer", "cell", "cells"})
_TRAINING_ONLY = re.compile(r"Dropout|SpatialDropout\dD|GaussianDropout|AlphaDropout|GaussianNoise")
_AUGMENTATION = re.compile(r"Random(?!Crop)\w+|AugMix|RandAugment")
# Values that mean the same as no setting.
_SAME_AS_NONE = {"data_format": "channels_last"}
_FLOATS = frozenset(
    {"float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16", "float32"}
)
_LIBRARIES = frozenset({"tf_keras", "tensorflow", "tensorflow_model_optimization"})
_CODE = "its function is code, which is not copied"


class Counterpart(NamedTuple):
    """A new layer and what follows it: an activation, by its name in Keras 3, or a layer."""

    layer: Any
    activation: str = "linear"
    activation_layer: Any = None


def is_augmentation(operation: Any) -> bool:
    """Whether a layer changes samples in training, and nothing else."""
    return _AUGMENTATION.fullmatch(class_name(operation)) is not None


def acts_in_training_only(operation: Any) -> bool:
    """Whether a layer passes its input on at inference."""
    return _TRAINING_ONLY.fullmatch(class_name(operation)) is not None


def float32_if_float(dtype: str) -> str:
    """The dtype of the new layer for a dtype or policy: QAT computes in float32."""
    return "float32" if dtype in _FLOATS else dtype


def counterpart(operation: Any, name: str, *, frozen: bool) -> Counterpart:
    """A new layer of tf_keras for a layer, without its weights. Raises `NoCounterpart`."""
    module = type(operation).__module__
    if module.startswith("keras.src.layers."):
        return _from_keras_3(operation, name, frozen)
    if class_name(operation) == "Lambda":
        raise NoCounterpart(_CODE)
    if not module.startswith("tf_keras.src.layers.") and not _is_users_own(operation):
        raise NoCounterpart("its class is not one of Keras's own")
    config = {**operation.get_config(), "name": name}
    config["dtype"] = float32_if_float(operation._dtype_policy.name)
    _finish(config, operation, frozen)
    return Counterpart(type(operation).from_config(config))


def _is_users_own(operation: Any) -> bool:
    """Whether a layer is of a class that the user derived from one of tf_keras."""
    package = type(operation).__module__.split(".")[0]
    return isinstance(operation, tf_keras.layers.Layer) and package not in _LIBRARIES


def _from_keras_3(operation: Any, name: str, frozen: bool) -> Counterpart:
    config, kind = operation.get_config(), _tf_keras_class(operation)
    last: tuple[str, Any] = ("linear", None)
    if _ACTIVATED_LAST.fullmatch(class_name(operation)):
        config["activation"], *rest = _split(operation, config["activation"])
        last = (rest[0], rest[1])
    settings = _translated(operation, config, kind)
    settings["name"] = name
    _finish(settings, operation, frozen)
    # Its configuration would need the shapes that it was called with.
    is_attention = class_name(operation) == "MultiHeadAttention"
    layer = kind(**settings) if is_attention else kind.from_config(settings)
    return Counterpart(layer, *last)


def _finish(config: dict[str, Any], operation: Any, frozen: bool) -> None:
    if class_name(operation) == "Normalization":
        _add_statistics(config, operation)
    # A batch normalization that does not train uses its moving averages, as before.
    if frozen and class_name(operation) == "BatchNormalization":
        config["trainable"] = False


def _tf_keras_class(operation: Any) -> Any:
    if class_name(operation) == "Lambda":
        raise NoCounterpart(_CODE)
    kind = getattr(tf_keras.layers, class_name(operation), None)
    if kind is None:
        raise NoCounterpart("tf_keras has no layer of this class")
    return kind


def _split(operation: Any, activation: Any) -> tuple[str, str, Any]:
    """The activation within the layer, and the function or layer to follow it."""
    if isinstance(activation, str):
        fused = fusable(activation)
        return (fused, "linear", None) if fused else ("linear", activation, None)
    if isinstance(operation.activation, keras.layers.Layer):
        return "linear", "linear", operation.activation
    if activation is None:
        return "linear", "linear", None
    raise NoCounterpart("its activation is a function of the model's own code")


def _translated(operation: Any, config: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The settings of a Keras 3 layer for `kind`, its class in tf_keras."""
    ours, theirs = _settings_of(type(operation)), _settings_of(kind)
    renamed = _RENAMED.get(class_name(operation), {})
    settings: dict[str, Any] = {"trainable": operation.trainable, "dtype": _dtype(operation)}
    for key, value in _values(operation, config):
        if renamed.get(key, key) in theirs:
            settings[renamed.get(key, key)] = value
        elif key in ours and value not in (ours[key], _SAME_AS_NONE.get(key, ours[key])):
            raise NoCounterpart(f"in tf_keras it has no setting {key} ({key}={value!r})")
    return settings


def _values(operation: Any, config: dict[str, Any]) -> Any:
    """The settings that matter; initializers do not, since weights are copied."""
    left_out = {"name", "trainable", "dtype", "quantization_config"}
    for key, value in config.items():
        if key in left_out or key.endswith("_initializer"):
            continue
        if key == "seed":
            yield key, value if isinstance(value, int) else None
        elif key.endswith("activation"):
            yield key, _activation(value)
        elif key in _NESTED:
            yield key, _nested(operation, key)
        else:
            yield key, value


def _activation(value: Any) -> str:
    if not isinstance(value, str):
        raise NoCounterpart("its activation is not a name, and not the last thing it computes")
    fused = fusable(value)
    if fused is None:
        raise NoCounterpart(f"in tf_keras it has no activation {value!r}")
    return fused


def _nested(operation: Any, key: str) -> Any:
    is_forward = key == "layer" and class_name(operation) == "Bidirectional"
    value = getattr(operation, "forward_layer" if is_forward else key)
    return list(map(_inner, value)) if isinstance(value, (list, tuple)) else _inner(value)


def _inner(layer: Any) -> dict[str, Any]:
    """The configuration, for tf_keras, of a layer within a layer."""
    if isinstance(layer, (keras.Model, tf_keras.Model)):
        raise NoCounterpart("it contains a whole model")
    inner = counterpart(layer, layer.name, frozen=False)
    if inner.activation != "linear" or inner.activation_layer is not None:
        raise NoCounterpart("its inner layer has an activation that tf_keras does not have")
    config: dict[str, Any] = tf_keras.layers.serialize(inner.layer)
    return config


def _add_statistics(settings: dict[str, Any], operation: Any) -> None:
    """Make the statistics of a normalization constants: weights would need another step."""
    if operation.mean is None:
        raise NoCounterpart("it was never adapted to data")
    for key in ("mean", "variance"):
        value = np.asarray(getattr(operation, key), dtype="float32")
        kept = sorted(axis % value.ndim for axis in operation.axis)
        settings[key] = value.reshape([value.shape[axis] for axis in kept]).tolist()


def _dtype(operation: Any) -> str:
    policy = operation.dtype_policy
    if getattr(policy, "quantization_mode", None):
        raise NoCounterpart(f"its weights are quantized already ({policy.name})")
    return float32_if_float(policy.name)


def _settings_of(kind: Any) -> dict[str, Any]:
    """The settings of a layer class and its bases, with the defaults of the most derived."""
    settings: dict[str, Any] = {"activity_regularizer": None, **_UNDECLARED.get(kind.__name__, {})}
    for base in reversed(kind.__mro__):
        if base.__name__ in ("Layer", "Module", "object") or "__init__" not in vars(base):
            continue
        for name, parameter in inspect.signature(base.__init__).parameters.items():
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                settings[name] = parameter.default
    return settings
