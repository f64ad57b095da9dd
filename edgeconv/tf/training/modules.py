"""Model modules: those of this package, and a user's by file or by dotted name."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgeconv.data.code import Blamed, refuse_missing_module
from edgeconv.errors import InputRefused, UsageError, closest, unknown_name
from edgeconv.plugins import BASELINE_MODELS, baseline_model
from edgeconv.tf.keras_io import keras_of
from edgeconv.tf.training.checked import (
    refuse_data,
    refuse_model,
    refuse_numbers,
    try_measure,
)
from edgeconv.tf.training.measures import name_of, per_sample_loss, per_sample_metric
from edgeconv.tf.training.spec import LabeledSamples, TrainSpec

if TYPE_CHECKING:
    from types import ModuleType

    from edgeconv.models import Data, ModelModule

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
    """Raise an `EdgeconvError` where there is no module `name`, without importing it."""
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
    # Else layers without a name of the module's are numbered after those of `trained`.
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
