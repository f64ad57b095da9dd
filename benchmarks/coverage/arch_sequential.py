"""Chains of layers as a Sequential, which is what most people write: the twins of other rows."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.coverage.arch_vision import multi_output
from benchmarks.coverage.settled import library_of, save

_TOLERANCE = 1e-5


def sequential(
    directory: Path, *, build: Callable[..., Path], library: str, kind: str, from_call: bool = False
) -> Path:
    """The model of another row, the same layers with the same weights, as a Sequential.

    With `from_call` it has no Input, and knows its shapes from having been called.
    """
    functional = build(directory, library=library, kind="keras")
    keras = library_of(library)
    model = keras.models.load_model(functional, compile=False)
    functional.unlink()
    (tensor,) = model.inputs
    with np.load(directory / "calibration.npz") as arrays:
        (samples,) = arrays.values()
    batch = tensor.shape[0]
    start = keras.layers.Input(
        tensor.shape[1:], batch_size=batch, dtype=tensor.dtype, name=model.layers[0].name
    )
    twin = keras.Sequential(model.layers[1:] if from_call else [start, *model.layers[1:]])
    if batch is None:
        few = samples[:8]
        np.testing.assert_allclose(np.asarray(twin(few)), np.asarray(model(few)), atol=_TOLERANCE)
    if from_call:
        # It has the name of an Input that nobody wrote.
        np.savez(directory / "calibration.npz", **{twin.inputs[0]._keras_history[0].name: samples})
    return save(keras, twin, directory, kind)


def several_outputs(directory: Path, *, library: str, kind: str) -> Path:
    """Outputs in a list, which go by the names of their layers; two of them are of one layer."""
    path = multi_output(directory, library=library, kind="keras")
    keras = library_of(library)
    model = keras.models.load_model(path, compile=False)
    path.unlink()
    box, heat, kinds = model.outputs
    half = keras.layers.Rescaling(0.5, name="half")
    listed = keras.Model(model.inputs, [box, heat, kinds, half(box), half(kinds)])
    return save(keras, listed, directory, kind)
