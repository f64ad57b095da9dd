"""The number of parameters in a Keras file, by the shapes of its weights."""

from __future__ import annotations

import math
import re
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from edgeconv.source.keras_signature import layers_of, name_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Config = dict[str, Any]
    # The path of a weight by names, and its number of values.
    Weight = tuple[tuple[str, ...], int]

# Keras stores them next to the weights of the model.
_NO_WEIGHTS = frozenset({"optimizer", "optimizer_weights", "seed_generator", "metrics"})
_IN_MODEL = ("layers", "_layer_checkpoint_dependencies")
_HDF5_ROOT = "model_weights"
# Layers whose weights are all trained if the layer is.
_ALL_TRAINED = re.compile(
    r"Dense|EinsumDense|(Depthwise|Separable)?Conv[123]D(Transpose)?|Embedding|PReLU|LSTM|GRU|"
    r"SimpleRNN|(LSTM|GRU|SimpleRNN)Cell|(Layer|Group|RMS)Normalization|Attention|"
    r"AdditiveAttention|MultiHeadAttention|GroupedQueryAttention|RNN|ConvLSTM[123]D"
)
_WRAPPERS = ("Bidirectional", "TimeDistributed")
_BATCH_NORMALIZATION = "BatchNormalization"
_MOVING = ("moving_mean", "moving_variance")


class Parameters(NamedTuple):
    """All parameters, and those that are trained; None if unknown."""

    total: int
    trained: int | None


def weights_of(file: Path | IO[bytes]) -> tuple[Weight, ...]:
    """The weights in an HDF5 file. Raises h5py's errors for a damaged one."""
    import h5py

    weights: list[Weight] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            parts = tuple(name.split("/"))
            if _NO_WEIGHTS.isdisjoint(parts):
                weights.append((parts, math.prod(item.shape or ())))

    with h5py.File(file, "r") as root:
        root.visititems(add)
    return tuple(weights)


def parameters(config: Config, weights: tuple[Weight, ...]) -> Parameters:
    """The parameters of the model that `config` describes and `weights` belong to."""
    if any(parts[0] == _HDF5_ROOT for parts, _ in weights):
        weights = tuple(weight for weight in weights if weight[0][0] == _HDF5_ROOT)
        by_name = dict(_named(config, trained=True))
        trained = [_trained_by_name(by_name, parts) for parts, _ in weights]
    else:
        trained = [_trained_by_path(config, parts) for parts, _ in weights]
    sizes = [size for _, size in weights]
    trained_size = sum(size for size, is_trained in zip(sizes, trained, strict=True) if is_trained)
    return Parameters(sum(sizes), None if None in trained else trained_size)


def _trained_by_path(config: Config, parts: tuple[str, ...]) -> bool | None:
    """By the path in a .keras file: layers/CLASS_NUMBER/…/vars/NUMBER."""
    layer, is_trained = config, True
    while len(parts) > 1 and parts[0] in _IN_MODEL and layers_of(layer):
        inner = _by_path(layer).get(parts[1])
        if inner is None:
            return None
        layer, parts = inner, parts[2:]
        is_trained = is_trained and _is_trained(layer)
    index = int(parts[-1]) if parts[-1].isdecimal() else -1
    return _trained(layer, is_trained, is_moving=index >= _first_moving(layer))


def _trained_by_name(
    by_name: Mapping[str, tuple[Config, bool]], parts: tuple[str, ...]
) -> bool | None:
    """By the names of layers in an .h5 file: model_weights/LAYER/…/WEIGHT."""
    layers = [by_name[part] for part in parts[1:-1] if part in by_name]
    if not layers:
        return None
    is_trained = all(trained for _, trained in layers)
    return _trained(layers[-1][0], is_trained, is_moving=parts[-1].startswith(_MOVING))


def _trained(layer: Config, is_trained: bool, *, is_moving: bool) -> bool | None:
    if not is_trained:
        return False
    kind = _class(layer)
    if kind == _BATCH_NORMALIZATION:
        return not is_moving
    return True if _ALL_TRAINED.fullmatch(kind) else None


def _class(layer: Config) -> str:
    """The class of a layer, or of the one that it wraps."""
    inner = settings_of(layer).get("layer")
    if layer.get("class_name") in _WRAPPERS and isinstance(inner, dict):
        layer = inner
    return str(layer.get("class_name"))


def _first_moving(layer: Config) -> int:
    """The number of the first weight of a batch normalization that is not trained."""
    settings = settings_of(layer)
    return sum(settings.get(name, True) is not False for name in ("scale", "center"))


def _by_path(model: Config) -> dict[str, Config]:
    """The layers of a model by their names in a .keras file."""
    layers: dict[str, Config] = {}
    counts: dict[str, int] = {}
    for layer in layers_of(model):
        name = _snake_case(str(layer.get("class_name")))
        count = counts[name] = counts.get(name, -1) + 1
        layers[f"{name}_{count}" if count else name] = layer
    return layers


def _snake_case(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _named(config: Config, *, trained: bool) -> Iterator[tuple[str, tuple[Config, bool]]]:
    """Every layer by its name, and whether it and the models around it are trained."""
    waiting = [(layer, trained) for layer in layers_of(config)]
    while waiting:
        layer, above = waiting.pop()
        is_trained = above and _is_trained(layer)
        yield name_of(layer), (layer, is_trained)
        waiting += [(inner, is_trained) for inner in layers_of(layer)]


def _is_trained(layer: Config) -> bool:
    return settings_of(layer).get("trainable", True) is not False
