"""Keras files that are written without Keras."""

import json
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

IMAGE = (None, 8, 8, 3)


def layer(kind: str, name: str, **settings: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **settings}, "name": name}


def given(name: str, shape: tuple[int | None, ...], **settings: Any) -> dict[str, Any]:
    return layer("InputLayer", name, batch_shape=list(shape), **{"dtype": "float32", **settings})


def called(config: dict[str, Any], source: str, shape: tuple[int | None, ...]) -> dict[str, Any]:
    """A layer called on an output of another, as Keras 3 writes it."""
    tensor = {"shape": list(shape), "dtype": "float32", "keras_history": [source, 0, 0]}
    argument = {"class_name": "__keras_tensor__", "config": tensor}
    return {**config, "inbound_nodes": [{"args": [argument], "kwargs": {}}]}


def functional(layers: list[dict[str, Any]], inputs: Any, outputs: Any) -> dict[str, Any]:
    settings = {"layers": layers, "input_layers": inputs, "output_layers": outputs}
    return {"class_name": "Functional", "config": settings}


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "s", "layers": list(layers)}}


def write_keras(
    path: Path, config: dict[str, Any], weights: dict[str, tuple[int, ...]] | None = None
) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(config))
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        if weights is not None:
            write_weights(path.with_suffix(".h5"), weights)
            archive.write(path.with_suffix(".h5"), "model.weights.h5")
    return path


def write_weights(path: Path, weights: dict[str, tuple[int, ...]]) -> None:
    with h5py.File(path, "w") as file:
        for name, shape in weights.items():
            file[name] = np.zeros(shape, np.float32)


def write_hdf5(path: Path, config: dict[str, Any], weights: dict[str, tuple[int, ...]]) -> Path:
    write_weights(path, weights)
    with h5py.File(path, "a") as file:
        file.attrs["model_config"] = json.dumps(config)
    return path


IMAGE_AND_META = functional(
    [
        given("image", IMAGE),
        given("meta", (None, 4), dtype="int32"),
        called(layer("Flatten", "flat"), "image", IMAGE),
        called(layer("Dense", "scores", units=3), "flat", (None, 192)),
        called(layer("Dense", "box", units=4), "flat", (None, 192)),
    ],
    [["image", 0, 0], ["meta", 0, 0]],
    {"s": ["scores", 0, 0], "b": ["box", 0, 0]},
)
