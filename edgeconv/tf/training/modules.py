"""Model modules: edgeconv's own, and a user's by file or by dotted name."""

import importlib.util
import math
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from edgeconv.data.code import Blamed, refuse_missing_module
from edgeconv.models import Data, ModelModule
from edgeconv.plugins import BASELINE_MODELS, baseline_model
from edgeconv.tf.keras_io import arrange_inputs, infer, inputs_of, keras_of, refuse_names
from edgeconv.tf.lazy import keras, tf, tf_keras
from edgeconv.tf.training.spec import LabeledSamples, PerSample, TrainSpec
from edgeconv.types.errors import InputRefused, UsageError, closest, unknown_name

_NEEDED = ("build", "data", "LOSS", "METRIC", "EPOCHS", "GLOBAL_BATCH", "LEARNING_RATE")
_FUNCTIONS = ("build", "data")
_BLAMED = "the model module"


def load_module(name: str) -> ModelModule:
    """The module: NAME of this package, a file ending in .py, or a dotted name.

    Raises `UsageError` for an unknown one, `InputRefused` for one without what training needs.
    """
    module = _module(name)
    missing = [
        part
        for part in _NEEDED
        if not hasattr(module, part) or (part in _FUNCTIONS and not callable(getattr(module, part)))
    ]
    if missing:
        raise InputRefused(
            f"the model module {name} has no {', '.join(missing)}",
            hint="a model module has the functions build() and data(location), and "
            "LOSS, METRIC, EPOCHS, GLOBAL_BATCH and LEARNING_RATE; see docs/training.md",
        )
    checked = cast("ModelModule", module)
    refuse_numbers(checked, name)
    return checked


def refuse_missing(name: str) -> None:
    """Raise an `EdgeconvError` if no module `name` exists, without importing it."""
    if name in BASELINE_MODELS:
        return
    if name.endswith(".py"):
        if not Path(name).is_file():
            near = closest(Path(name).name, [path.name for path in Path(name).parent.glob("*.py")])
            hint = f"did you mean {str(Path(name).with_name(near))!r}?" if near else ""
            raise InputRefused(f"{name}: no such file", hint=hint or "check the path")
        return
    if not all(part.isidentifier() for part in name.split(".")):
        raise unknown_name("model module", name, BASELINE_MODELS)
    try:
        refuse_missing_module(name, str(Path.cwd()))
    except InputRefused:
        if "." not in name:
            raise unknown_name("model module", name, BASELINE_MODELS) from None
        raise


def _module(name: str) -> ModuleType:
    if name in BASELINE_MODELS:
        return baseline_model(name)
    refuse_missing(name)
    what = f"the model module {name}, when it was imported,"
    if name.endswith(".py"):
        path = Path(name)
        with Blamed(what, str(path.absolute().parent), code=_BLAMED):
            return _from_file(path)
    with Blamed(what, str(Path.cwd()), code=_BLAMED):
        return import_module(name)


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Keras finds a module's own layers by it.
    sys.modules.setdefault(path.stem, module)
    # Its neighbors can be imported, as from any script.
    sys.path.insert(0, str(path.absolute().parent))
    spec.loader.exec_module(module)
    return module


def read_data(module: ModelModule, name: str, path: str | None) -> Data:
    """The module's samples. Raises `InputRefused` where they are missing or do not fit."""
    with _blamed(f"data() of {name}", module):
        try:
            data = module.data(path)
        except (OSError, ValueError, ImportError) as error:
            raise InputRefused(
                f"{name} has no data: {error}", hint="name the file or directory with --data"
            ) from error
    refuse_data(name, data)
    return data


def _blamed(what: str, module: ModelModule) -> Blamed:
    home = Path(getattr(module, "__file__", None) or ".").absolute().parent
    return Blamed(what, str(home), code=_BLAMED)


def spec_of(
    module: ModelModule,
    name: str,
    data: Data,
    *,
    learning_rate: float,
    validation_fraction: float,
    seed: int,
) -> TrainSpec:
    """What a model module trains."""
    samples = LabeledSamples(data.x_train, data.y_train)
    train, validation = _split(samples, data.groups_train, validation_fraction, seed)
    loss, metric = per_sample_loss(module.LOSS), per_sample_metric(module.METRIC)
    span = f"{samples.labels.min()} to {samples.labels.max()}"

    def build() -> Any:
        with _blamed(f"build() of {name}", module):
            model = module.build()
        refuse_model(name, model, data)
        for what, measure in (("LOSS", loss), ("METRIC", metric)):
            with _blamed(f"{what} of {name}, with labels from {span},", module):
                try_measure(measure, samples, model)
        return model

    def optimizer(model: Any, steps: int, replicas: int) -> Any:
        create = getattr(module, "optimizer", None)
        optimizers = keras_of(model).optimizers
        if create is None:
            # Falling to 0, the result depends little on which epoch is the last.
            return optimizers.Adam(optimizers.schedules.CosineDecay(learning_rate, steps))
        with _blamed(f"optimizer() of {name}", module):
            own = create(learning_rate, steps, replicas)
        if not isinstance(own, optimizers.Optimizer):
            raise InputRefused(
                f"{name}: optimizer() returns {type(own).__name__}",
                hint=f"let it return one of {keras_of(model).__name__}.optimizers",
            )
        return own

    return TrainSpec(
        name=name,
        build=build,
        train=train,
        validation=validation,
        loss=loss,
        metric=metric,
        metric_name=name_of(module.METRIC),
        optimizer=optimizer,
        plain=lambda model: _plain(module, name, model),
    )


def _plain(module: ModelModule, name: str, trained: Any) -> Any:
    """The same model on plain variables, without a strategy's copies and placements."""
    # Otherwise layers that the module does not name would be numbered after `trained`'s layers.
    keras_of(trained).backend.clear_session()
    plain = module.build()
    weights = trained.get_weights()
    if [tuple(v.shape) for v in plain.weights] != [value.shape for value in weights]:
        raise InputRefused(
            f"{name}: build() returned one model, and then another",
            hint="let it build the same layers at each call",
        )
    plain.set_weights(weights)
    return plain


def _split(
    samples: LabeledSamples, groups: Any, fraction: float, seed: int
) -> tuple[LabeledSamples, LabeledSamples | None]:
    """The samples to train on, and those to validate with: whole groups."""
    import numpy as np

    names, of_sample = np.unique(
        np.arange(len(samples)) if groups is None else groups, return_inverse=True
    )
    count = round(len(names) * fraction)
    if fraction and not count:
        what = "samples" if groups is None else "groups of samples"
        raise UsageError(
            f"--validation-fraction: {fraction:g} of {len(names)} {what} leaves none to validate "
            "with",
            hint="raise --validation-fraction",
        )
    if not count:
        return samples, None
    validates = np.zeros(len(names), bool)
    validates[np.random.default_rng(seed).permutation(len(names))[:count]] = True
    rows = validates[of_sample]
    return samples.take(~rows), samples.take(rows)


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

    Raises the measure's own errors, for a label that is not a class of the model or a wrong shape.
    """
    import numpy as np

    flat = samples.labels.reshape(len(samples), -1)
    rows = np.array([flat.min(axis=1).argmin(), flat.max(axis=1).argmax()])
    inputs = {name: tf.constant(array[rows]) for name, array in samples.inputs.items()}
    outputs = infer(model, arrange_inputs(model, inputs))
    measure(tf.constant(samples.labels[rows]), outputs)


# Losses and metrics as functions of (labels, outputs) that return one number per sample.
#
# Labels and outputs are tensors of (batch, ...), the result is float32 (batch,).
# What the loss goes by in records and in Keras's logs.
_NAMES_OF_LOSSES = ("loss", "mean_loss")
# Attributes of Keras's metric and loss objects.
_OF_KERAS = ("result", "reduction")


def per_sample_loss(loss: str | PerSample) -> PerSample:
    """A loss by its name in Keras, or the function itself.

    Raises `InputRefused` for an unknown name, and for a class or object of Keras.
    """
    return _per_sample("LOSS", loss, tf_keras.losses.get)


def per_sample_metric(metric: str | PerSample) -> PerSample:
    """A metric by its name in Keras, or the function itself. Raises as `per_sample_loss`."""
    measure = _accuracy if metric == "accuracy" else metric
    return _per_sample("METRIC", measure, tf_keras.metrics.get)


def name_of(metric: str | PerSample) -> str:
    """The name of a metric in records; no loss has it."""
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "")
    return name if name.isidentifier() and name not in _NAMES_OF_LOSSES else "metric"


def _accuracy(labels: Any, outputs: Any) -> Any:
    """Whether each sample's class is correct; one output is a probability of the second class."""
    if outputs.shape[-1] == 1:
        return tf.equal(tf.cast(labels, tf.bool), outputs > 0.5)
    if labels.shape.rank == outputs.shape.rank:
        labels = tf.argmax(labels, -1) if labels.shape[-1] > 1 else tf.squeeze(labels, -1)
    return tf.equal(tf.cast(labels, tf.int64), tf.argmax(outputs, -1))


def _per_sample(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    measure = _function(what, named, known)

    def measured(labels: Any, outputs: Any) -> Any:
        if labels.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
            labels = labels[..., tf.newaxis]
        values = tf.cast(measure(labels, outputs), tf.float32)
        if values.shape.rank == 0:
            raise InputRefused(
                f"{what} of the model module returns one number for a whole batch",
                hint="let it return one per sample, without the mean over them",
            )
        return tf.reduce_mean(tf.reshape(values, (tf.shape(values)[0], -1)), axis=1)

    return measured


def _function(what: str, named: str | PerSample, known: Callable[[str], Any]) -> PerSample:
    """The function itself."""
    try:
        function: Any = known(named) if isinstance(named, str) else named
    except ValueError:
        function = ""
    # Keras returns some unknown names as they are.
    if isinstance(function, str):
        why = "Keras has no function of this name"
    elif isinstance(function, type) or any(hasattr(function, name) for name in _OF_KERAS):
        why = "this is a class or an object of Keras"
    elif not callable(function):
        why = "this is not a function"
    else:
        return cast("PerSample", function)
    raise InputRefused(
        f"{what} of the model module is {named!r}: {why}",
        hint="give the name of a function of Keras, such as mean_absolute_error, or a function "
        "of (labels, outputs) that returns one number per sample",
    )
