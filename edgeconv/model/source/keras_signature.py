"""The inputs and outputs that the config of a Keras file declares, without building layers."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from edgeconv.types import Signature, TensorSpec
from edgeconv.types.words import SERVING_DEFAULT

Shape = tuple[int, ...]
Config = dict[str, Any]


# The deepest nesting of models that is followed for the shape of an output.
_DEEPEST = 20
_SAME_SHAPE = (
    *("Activation", "Softmax", "ReLU", "LeakyReLU", "PReLU", "ELU", "Dropout", "Identity"),
    *("BatchNormalization", "LayerNormalization", "UnitNormalization", "Normalization"),
    *("Rescaling", "GaussianNoise", "SpatialDropout1D", "SpatialDropout2D"),
)
_GLOBAL_POOLING = tuple(
    f"Global{kind}Pooling{rank}D" for kind in ("Average", "Max") for rank in (1, 2, 3)
)


class _KerasTensor(NamedTuple):
    """A shape, None if unknown, and a dtype."""

    shape: Shape | None
    dtype: str


def declared_signature(config: Config, depth: int = 0) -> Signature | None:
    """The signature by the names, shapes and dtypes in the config; None if it has none.

    A subclassed model has none, nor has a Sequential one that was never called. Dynamic dimensions
    are -1; an output whose shape needs a computation has no known rank. Outputs are named by the
    keys of a dict, or by their layers.
    """
    settings = settings_of(config)
    if "input_layers" in settings:
        return _functional(settings, depth)
    layers = layers_of(config)
    return _sequential(layers, depth) if layers else None


def never_called(config: Config) -> bool:
    """Whether it is a Sequential model without an input shape."""
    layers = layers_of(config)
    if config.get("class_name") != "Sequential" or not layers:
        return False
    settings = settings_of(layers[0])
    has_shape = any(name in settings for name in ("batch_shape", "batch_input_shape"))
    # A nested model has its own input.
    return not (has_shape or layers_of(layers[0]) or built_for(config))


def built_for(config: Config) -> Any:
    """The input shape that a model was built for, as stored by Keras; None if not stored."""
    built = config.get("build_config")
    return built.get("input_shape") if isinstance(built, dict) else None


def layers_of(config: Config) -> list[Config]:
    """The configs of a model's layers; [] for a layer."""
    settings = config.get("config")
    # A Sequential model of early Keras is its bare list of layers.
    return _dicts(settings if isinstance(settings, list) else settings_of(config).get("layers"))


def settings_of(config: Config) -> Config:
    """The settings of a layer or model; {} if missing."""
    settings = config.get("config")
    return settings if isinstance(settings, dict) else {}


def name_of(layer: Config) -> str:
    """A layer's name, "" if it has none."""
    return str(layer.get("name") or settings_of(layer).get("name") or "")


def _functional(settings: Config, depth: int) -> Signature | None:
    by_name = {name_of(layer): layer for layer in _dicts(settings.get("layers"))}
    inputs = [_input(by_name.get(ref[0], {})) for _, ref in _references(settings["input_layers"])]
    if not inputs or None in inputs:
        return None
    tensors = dict(_tensors(by_name))
    # Each nested model once: nesting would double the work at every depth.
    named = {ref[0] for _, ref in _references(settings.get("output_layers"))}
    nested = {name: _nested(by_name.get(name, {}), depth) for name in named}
    outputs = [
        _spec(key or ref[0], _output(by_name.get(ref[0], {}), ref, tensors, nested[ref[0]]))
        for key, ref in _references(settings.get("output_layers"))
    ]
    return Signature(
        key=SERVING_DEFAULT, inputs=tuple(s for s in inputs if s), outputs=tuple(outputs)
    )


def _sequential(layers: list[Config], depth: int) -> Signature | None:
    first = _input(layers[0])
    if first is None:
        return None
    last = layers[-1]
    output = _output(last, (name_of(last), 0, 0), {}, _nested(last, depth))
    return Signature(key=SERVING_DEFAULT, inputs=(first,), outputs=(_spec(name_of(last), output),))


def _input(layer: Config) -> TensorSpec | None:
    """The input of an InputLayer, or of the first layer of an older Sequential model."""
    settings = settings_of(layer)
    shape = _shape(settings.get("batch_shape", settings.get("batch_input_shape")))
    if shape is None or settings.get("sparse") or settings.get("ragged"):
        return None
    name = name_of(layer) if layer.get("class_name") == "InputLayer" else f"{name_of(layer)}_input"
    return TensorSpec(name=name, shape=shape, dtype=_dtype(layer))


def _output(
    layer: Config, ref: tuple[Any, ...], tensors: dict[Any, _KerasTensor], nested: Signature | None
) -> _KerasTensor:
    """The output of a layer at `ref`: the layer's name, its call, and the output's index.

    `nested` is the signature of a layer that is a model.
    """
    if ref in tensors:
        return tensors[ref]
    if layer.get("class_name") == "InputLayer":
        return _KerasTensor(_shape(settings_of(layer).get("batch_shape")), _dtype(layer))
    if nested and 0 <= ref[2] < len(nested.outputs):
        inner = nested.outputs[ref[2]]
        return _KerasTensor(inner.shape if inner.rank_known else None, inner.dtype)
    inputs = _input_shape(layer, ref[1])
    return _KerasTensor(_derived(layer, inputs) if inputs else None, _dtype(layer))


def _nested(layer: Config, depth: int) -> Signature | None:
    """The signature of a layer that is a model, down to a depth."""
    is_model = layers_of(layer) and depth < _DEEPEST
    return declared_signature(layer, depth + 1) if is_model else None


def _input_shape(layer: Config, call: int) -> Shape | None:
    """The shape of the only tensor that a layer is called with, if known."""
    calls = layer.get("inbound_nodes")
    if isinstance(calls, list) and 0 <= call < len(calls):
        tensors = [tensor for _, tensor in _inbound(calls[call])]
        if len(tensors) == 1:
            return tensors[0].shape
    return _shape(built_for(layer))


def _derived(layer: Config, inputs: Shape) -> Shape | None:
    """The output shape of a layer for an input shape, if known."""
    name, settings = layer.get("class_name"), settings_of(layer)
    last = settings.get("data_format", "channels_last") == "channels_last"
    if name in _SAME_SHAPE:
        return inputs
    if name == "Dense" and isinstance(settings.get("units"), int):
        return (*inputs[:-1], settings["units"])
    if name == "Flatten" and -1 not in inputs[1:]:
        return (inputs[0], math.prod(inputs[1:]))
    if name in _GLOBAL_POOLING and last and not settings.get("keepdims"):
        return (inputs[0], inputs[-1])
    target = _shape(settings.get("target_shape")) if name == "Reshape" else None
    return (inputs[0], *target) if target and -1 not in target else None


def _tensors(by_name: dict[str, Config]) -> Iterator[tuple[tuple[Any, ...], _KerasTensor]]:
    """Every tensor that Keras 3 stores with a call of a layer, by the layer that it is from."""
    for layer in by_name.values():
        yield from _inbound(layer.get("inbound_nodes"))


def _inbound(node: Any) -> Iterator[tuple[tuple[Any, ...], _KerasTensor]]:
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict) and part.get("class_name") == "__keras_tensor__":
            settings = settings_of(part)
            history = settings.get("keras_history")
            if isinstance(history, list) and list(map(type, history)) == [str, int, int]:
                tensor = _KerasTensor(_shape(settings.get("shape")), str(settings.get("dtype")))
                yield tuple(history), tensor
        elif isinstance(part, dict):
            waiting += part.values()


def _references(node: Any, key: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Each [LAYER, CALL, OUTPUT] in a structure, with its key in a dict, if any."""
    if isinstance(node, dict):
        for name, part in node.items():
            yield from _references(part, str(name))
    elif isinstance(node, list) and len(node) >= 3 and list(map(type, node[:3])) == [str, int, int]:
        yield key, tuple(node[:3])
    elif isinstance(node, list):
        for part in node:
            yield from _references(part, key)


def _spec(name: str, tensor: _KerasTensor) -> TensorSpec:
    known = tensor.shape is not None
    return TensorSpec(name=name, shape=tensor.shape or (), dtype=tensor.dtype, rank_known=known)


def _dtype(layer: Config) -> str:
    """The dtype that a layer computes in."""
    dtype = settings_of(layer).get("dtype", "float32")
    if isinstance(dtype, dict):
        dtype = settings_of(dtype).get("name", "float32")
    return str(dtype).removeprefix("mixed_")


def _shape(node: Any) -> Shape | None:
    if not isinstance(node, list) or not all(isinstance(size, int | None) for size in node):
        return None
    return tuple(-1 if size is None else size for size in node)


def _dicts(node: Any) -> list[Config]:
    return [each for each in node if isinstance(each, dict)] if isinstance(node, list) else []
