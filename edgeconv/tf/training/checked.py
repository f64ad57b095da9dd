"""Checks of what a model module returns, before anything is trained."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.models import Data
from edgeconv.tf.keras_io import arrange_inputs, inputs_of, refuse_names
from edgeconv.tf.lazy import keras, tf, tf_keras

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.models import ModelModule
    from edgeconv.tf.training.spec import LabeledSamples, PerSample


def refuse_numbers(module: ModelModule, name: str) -> None:
    """Raise `InputRefused` for a module whose own epochs, batch or learning rate is unusable."""
    for what in ("EPOCHS", "GLOBAL_BATCH"):
        value = getattr(module, what)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise InputRefused(f"{name}: {what} is {value!r}; it must be an integer of at least 1")
    rate = module.LEARNING_RATE
    if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < float(rate) < math.inf:
        raise InputRefused(f"{name}: LEARNING_RATE is {rate!r}; it must be above 0")


def refuse_data(name: str, data: Any) -> None:
    """Raise `InputRefused` where a model cannot be trained or tested with what `data()` returns."""
    if not isinstance(data, Data):
        raise InputRefused(
            f"{name}: data() returns {type(data).__name__}",
            hint="let it return edgeconv.models.Data(x_train, y_train, x_test, y_test)",
        )
    _refuse_part(f"{name}: its training data", data.x_train, data.y_train)
    _refuse_part(f"{name}: its test data", data.x_test, data.y_test)
    _refuse_groups(name, data)
    train, test = ({n: a.shape[1:] for n, a in x.items()} for x in (data.x_train, data.x_test))
    if train != test:
        raise InputRefused(
            f"{name}: its training samples are {_in_words(train)}, and its test samples "
            f"{_in_words(test)}",
            hint="let data() return the same inputs in both parts",
        )


def _refuse_groups(name: str, data: Data) -> None:
    import numpy as np

    groups, count = data.groups_train, len(data.y_train)
    if groups is None:
        return
    if not isinstance(groups, np.ndarray) or groups.dtype.kind not in "iu":
        raise InputRefused(f"{name}: groups_train is not an array of integers")
    if groups.shape != (count,):
        raise InputRefused(
            f"{name}: groups_train has shape {groups.shape}, and there are {count} samples",
            hint="give one number per training sample, equal for those that belong together",
        )


def _refuse_part(what: str, inputs: Any, labels: Any) -> None:
    if not isinstance(inputs, dict) or not inputs:
        raise InputRefused(
            f"{what}: the samples are {type(inputs).__name__}",
            hint="make x_train and x_test dictionaries: one array per input, by its name",
        )
    for key, array in (*((f"input {name!r}", a) for name, a in inputs.items()), ("labels", labels)):
        _refuse_array(f"{what}, {key}", array)
    counts = {input_name: len(array) for input_name, array in inputs.items()}
    if not len(labels) or set(counts.values()) != {len(labels)}:
        raise InputRefused(
            f"{what} have {len(labels)} labels, and samples {counts}",
            hint="let data() return one label per sample, and at least one sample",
        )


def _refuse_array(where: str, array: Any) -> None:
    import numpy as np

    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if hasattr(array, "dtype") else type(array).__name__
        raise InputRefused(f"{where}: {kind}", hint="give an array of numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InputRefused(
            f"{where}: row {row} has a NaN or an infinity", hint="let data() leave such rows out"
        )


def refuse_model(name: str, model: Any, data: Data) -> None:
    """Raise `InputRefused` where what `build()` returns is not a model for these samples."""
    if not isinstance(model, (tf_keras.Model, keras.Model)):
        raise InputRefused(
            f"{name}: build() returns {type(model).__name__}", hint="let it return a Keras model"
        )
    if not model.built or not inputs_of(model):
        raise InputRefused(
            f"{name}: build() returns a model without known inputs",
            hint="build it of layers with Input(shape, name=…), or start a Sequential with one",
        )
    refuse_names(f"{name}: build()", model)
    if len(model.outputs) != 1:
        raise InputRefused(f"{name}: the model has {len(model.outputs)} outputs; it must have one")
    if not model.trainable_variables:
        raise InputRefused(f"{name}: the model has no trainable weight")
    expected = {input_name: tuple(t.shape)[1:] for input_name, t in inputs_of(model).items()}
    shapes = {input_name: array.shape[1:] for input_name, array in data.x_train.items()}
    if expected.keys() != shapes.keys() or not all(_fits(expected[n], shapes[n]) for n in shapes):
        raise InputRefused(
            f"{name}: the model takes {_in_words(expected)}, and the samples are "
            f"{_in_words(shapes)}",
            hint="let data() return an array for each input, by the name it has in build()",
        )


def _fits(expected: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(expected) == len(shape) and all(
        size in (None, own) for size, own in zip(expected, shape, strict=True)
    )


def _in_words(shapes: Mapping[str, tuple[int | None, ...]]) -> str:
    sizes = {name: "×".join(str(size or "any") for size in shape) for name, shape in shapes.items()}
    return ", ".join(f"{name!r} of {size or 'one number'}" for name, size in sizes.items())


def try_measure(measure: PerSample, samples: LabeledSamples, model: Any) -> None:
    """Compute a loss or metric of the samples with the smallest and with the largest label.

    Raises what the measure does, for a label that is not a class of the model, or a wrong shape.
    """
    import numpy as np

    flat = samples.labels.reshape(len(samples), -1)
    rows = np.array([flat.min(axis=1).argmin(), flat.max(axis=1).argmax()])
    inputs = {name: tf.constant(array[rows]) for name, array in samples.inputs.items()}
    outputs = model(arrange_inputs(model, inputs), training=False)
    measure(tf.constant(samples.labels[rows]), outputs)
