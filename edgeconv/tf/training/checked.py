"""What a model module gives, held against what training needs, before anything is trained."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused
from edgeconv.models import Data
from edgeconv.tf.keras_io import arranged, inputs_of, refuse_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.models import ModelModule
    from edgeconv.tf.training.spec import LabeledSamples, PerSample


def refuse_numbers(module: ModelModule, name: str) -> None:
    """Raise `InputRefused` for a module whose own epochs, batch or learning rate cannot be."""
    for what in ("EPOCHS", "GLOBAL_BATCH"):
        value = getattr(module, what)
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise InputRefused(f"{name}: {what} is {value!r}; a whole number from 1 is needed")
    rate = module.LEARNING_RATE
    if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < float(rate) < math.inf:
        raise InputRefused(f"{name}: LEARNING_RATE is {rate!r}; a number above 0 is needed")


def refuse_data(name: str, data: Any) -> None:
    """Raise `InputRefused` for what `data()` gives, if it cannot be trained or tested with."""
    if not isinstance(data, Data):
        raise InputRefused(
            f"{name}: data() returns {type(data).__name__}",
            hint="let it return edgeconv.models.Data(x_train, y_train, x_test, y_test)",
        )
    _refuse_part(f"{name}: its training data", data.x_train, data.y_train)
    _refuse_part(f"{name}: its test data", data.x_test, data.y_test)
    _refuse_groups(name, data)
    shapes = [{n: a.shape[1:] for n, a in x.items()} for x in (data.x_train, data.x_test)]
    if shapes[0] != shapes[1]:
        raise InputRefused(
            f"{name}: its training samples are {_in_words(shapes[0])}, and its test samples "
            f"{_in_words(shapes[1])}",
            hint="data() gives the same inputs in both parts",
        )


def _refuse_groups(name: str, data: Data) -> None:
    import numpy as np

    groups, count = data.groups_train, len(data.y_train)
    if groups is None:
        return
    if not isinstance(groups, np.ndarray) or groups.dtype.kind not in "iu":
        raise InputRefused(f"{name}: groups_train is no array of integers")
    if groups.shape != (count,):
        raise InputRefused(
            f"{name}: groups_train has the shape {groups.shape}, and there are {count} samples",
            hint="one number for each training sample, equal for those that belong together",
        )


def _refuse_part(what: str, inputs: Any, labels: Any) -> None:
    if not isinstance(inputs, dict) or not inputs:
        raise InputRefused(
            f"{what}: the samples are {type(inputs).__name__}",
            hint="x_train and x_test are dictionaries: one array for each input, by its name",
        )
    for key, array in (*((f"input {name!r}", a) for name, a in inputs.items()), ("labels", labels)):
        _refuse_array(f"{what}, {key}", array)
    counts = {input_name: len(array) for input_name, array in inputs.items()}
    if not len(labels) or set(counts.values()) != {len(labels)}:
        raise InputRefused(
            f"{what} have {len(labels)} labels, and samples {counts}",
            hint="data() gives as many labels as samples, and at least one",
        )


def _refuse_array(where: str, array: Any) -> None:
    import numpy as np

    if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
        kind = f"an array of {array.dtype}" if hasattr(array, "dtype") else type(array).__name__
        raise InputRefused(f"{where}: {kind}", hint="an array of numbers is needed")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InputRefused(
            f"{where}: row {row} has a NaN or an infinity", hint="let data() leave such rows out"
        )


def refuse_model(name: str, model: Any, data: Data) -> None:
    """Raise `InputRefused` for what `build()` gives, if it is no model for these samples."""
    import keras
    import tf_keras

    if not isinstance(model, (tf_keras.Model, keras.Model)):
        raise InputRefused(
            f"{name}: build() returns {type(model).__name__}", hint="let it return a Keras model"
        )
    if not model.built or not inputs_of(model):
        raise InputRefused(
            f"{name}: build() gives a model that does not say what its inputs are",
            hint="build it of layers with Input(shape, name=…), or begin a Sequential with one",
        )
    refuse_names(f"{name}: build()", model)
    if len(model.outputs) != 1:
        raise InputRefused(f"{name}: the model has {len(model.outputs)} outputs; one is trained")
    if not model.trainable_variables:
        raise InputRefused(f"{name}: the model has no weight that is trained")
    wanted = {input_name: _shape(tensor) for input_name, tensor in inputs_of(model).items()}
    given = {input_name: array.shape[1:] for input_name, array in data.x_train.items()}
    if wanted.keys() != given.keys() or not all(_fits(wanted[n], given[n]) for n in wanted):
        raise InputRefused(
            f"{name}: the model takes {_in_words(wanted)}, and the samples are {_in_words(given)}",
            hint="data() gives an array for each input, by the name it has in build()",
        )


def _shape(tensor: Any) -> tuple[int | None, ...]:
    return tuple(tensor.shape)[1:]


def _fits(wanted: tuple[int | None, ...], given: tuple[int, ...]) -> bool:
    return len(wanted) == len(given) and all(
        size in (None, own) for size, own in zip(wanted, given, strict=True)
    )


def _in_words(shapes: Mapping[str, tuple[int | None, ...]]) -> str:
    sizes = {name: "×".join(str(size or "any") for size in shape) for name, shape in shapes.items()}
    return ", ".join(f"{name!r} of {size or 'one number'}" for name, size in sizes.items())


def try_measure(measure: PerSample, samples: LabeledSamples, model: Any) -> None:
    """Take a loss or metric of the samples with the least and with the greatest label.

    Raises what the measure does: a label may be no class of the model, or its shape be wrong.
    """
    import numpy as np
    import tensorflow as tf

    flat = samples.labels.reshape(len(samples), -1)
    rows = np.array([flat.min(axis=1).argmin(), flat.max(axis=1).argmax()])
    inputs = {name: tf.constant(array[rows]) for name, array in samples.inputs.items()}
    outputs = model(arranged(model, inputs), training=False)
    measure(tf.constant(samples.labels[rows]), outputs)
