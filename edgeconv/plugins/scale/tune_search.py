"""Which recipes to try, one after another, and how likely each is to keep the budget.

Uniform recipes come first, the cheapest one at the start, each with more methods until it keeps the
accuracy. Then, between a recipe that fails and a dearer one that succeeds, the layers that lose
most for their size get the higher precision: how many is found by bisection, and at last single
layers are lowered again. A recipe fails by its loss, whether verification refused its file or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist, pvariance
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.data.code import is_path
from edgeconv.measure.metrics.scoring import flips
from edgeconv.quantize.ranges.clipping import MIN_SAMPLES as RANGE_SAMPLES
from edgeconv.quantize.refine.refining import MIN_SAMPLES
from edgeconv.requests.recipes import make_recipes, recipe_names
from edgeconv.statistics.comparison import drop_of, is_faster_trial, loses_less, pareto_front
from edgeconv.system.store.toml_file import toml_value
from edgeconv.types import (
    CALIBRATED,
    FOUR_BIT,
    Accuracy,
    CalibrationRange,
    LayerRule,
    Loss,
    Objective,
    Opening,
    Precision,
    Recipe,
    RecipeName,
    Sensitivity,
    TuningTrial,
)

if TYPE_CHECKING:
    Measure = Callable[[Recipe], TuningTrial]
    Sensitivities = Callable[[Precision], Sequence[Sensitivity]]
    from edgeconv.requests.tune import TuneRequest
    from edgeconv.types.conversion import Methods

    _Settings = tuple[CalibrationRange, Methods]

_BYTES: dict[Precision, float] = {"int4": 0.5, "int8": 1, "int16x8": 1, "float16": 2, "float32": 4}
# The precision of the weights of each recipe.
_WEIGHTS: dict[RecipeName, Precision] = {
    "weight-only-int4": "int4",
    "int8x4": "int4",
    "int8": "int8",
    "weight-only-int8": "int8",
    "dynamic": "int8",
    "int16x8": "int8",
    "float16": "float16",
    "float32": "float32",
}
# The recipes by their usual cost, the cheapest first. int16x8 has reference kernels only.
ORDERS: dict[Objective, tuple[RecipeName, ...]] = {
    "size": (
        *("weight-only-int4", "int8x4", "int8", "weight-only-int8"),
        *("dynamic", "int16x8", "float16", "float32"),
    ),
    "latency": (
        *("int8", "int8x4", "float32", "float16"),
        *("weight-only-int8", "dynamic", "weight-only-int4", "int16x8"),
    ),
    # Those that compute in integers, and the others.
    "npu-latency": (
        *("int8", "int16x8", "int8x4"),
        *("float32", "float16", "weight-only-int8", "dynamic", "weight-only-int4"),
    ),
}
# Their files have all that files of another recipe have, and biases of twice the size.
_NO_SMALLER_THAN: dict[RecipeName, RecipeName] = {"int16x8": "int8"}
# Lowering one more layer is worth a trial if it saves this fraction, and at most this often.
_WORTHWHILE = 0.01
_LOWERED = 6
_LEAST_DB = -100.0
# A candidate that is likelier than this to be within the budget may be the answer. Half is enough
# for one of the few uniform recipes. Of many mixes the luckiest would win, so more is needed.
LIKELY, LIKELY_OF_MANY = 0.5, 0.8
# What is all but sure to be within it.
SURE = 0.95
# Fewer samples in a half show nothing about any budget.
LEAST_OF_A_PART = 20
LEAST_SAMPLES = 2 * LEAST_OF_A_PART
_NORMAL = NormalDist()


class Mix(NamedTuple):
    """Layers of `base`, whose weights or activations have the precision `low`, raised."""

    base: RecipeName
    low: Precision
    raised: Precision


_MIXES: dict[Objective, tuple[Mix, ...]] = {
    "size": (
        Mix("int8x4", "int4", "int8"),
        Mix("weight-only-int4", "int4", "int8"),
        Mix("int8", "int8", "int16x8"),
        Mix("int8", "int8", "float16"),
    ),
    "latency": (Mix("int8", "int8", "float32"), Mix("int8x4", "int4", "int8")),
    "npu-latency": (Mix("int8", "int8", "int16x8"),),
}


class Space(NamedTuple):
    """What there is to choose from: recipes, and what each layer loses in a precision.

    `weights` counts the numbers in the layers' weights.
    """

    objective: Objective
    uniform: tuple[Recipe, ...]
    weights: int
    sensitivities: Sensitivities


def in_order(names: Iterable[RecipeName], objective: Objective) -> tuple[RecipeName, ...]:
    """The names from the presumably cheapest to the dearest."""
    chosen = frozenset(names)
    return tuple(name for name in ORDERS[objective] if name in chosen)


def search(space: Space, measure: Measure, enough: float = SURE) -> Iterator[TuningTrial]:
    """Every trial as it is made, until the iteration ends or nothing is left to try.

    What must be larger than a trial that has a chance of `enough` is left out.
    """
    trials: list[TuningTrial] = []
    for recipe in space.uniform:
        if _is_too_large(recipe.name, space, trials, enough):
            continue
        if any(each.recipe.name == recipe.name and _is_good(each, enough) for each in trials):
            continue
        trial = measure(recipe)
        trials.append(trial)
        yield trial
    for mix in _MIXES[space.objective]:
        base = _base(trials, mix)
        good = cheapest(trials, space.objective, enough)
        if base is None or base.chance >= enough or _is_near(base, good, space):
            continue
        for trial in _mixed(space, mix, base, good, measure):
            trials.append(trial)
            yield trial


def is_candidate(trial: TuningTrial) -> bool:
    """Whether it is likely enough to be within the budget on fresh samples."""
    return not trial.error and trial.chance >= (LIKELY if trial.is_uniform else LIKELY_OF_MANY)


def cheapest(
    trials: Iterable[TuningTrial], objective: Objective, chance: float = 0.0
) -> TuningTrial | None:
    """The candidate of least cost, if any.

    Of those that are equally fast within noise the smallest is taken, then the one with the
    fewest rules, then the likeliest.
    """
    candidates = [each for each in trials if _is_good(each, chance)]
    if not candidates:
        return None
    first = min(candidates, key=lambda trial: trial.cost(objective))
    return min(
        (each for each in candidates if not is_cheaper(first, each, objective)),
        key=lambda trial: (trial.size_bytes, len(trial.recipe.layers), -trial.chance),
    )


def _is_good(trial: TuningTrial, chance: float) -> bool:
    return is_candidate(trial) and trial.chance >= chance


def _base(trials: Iterable[TuningTrial], mix: Mix) -> TuningTrial | None:
    """What a mix starts from: of the uniform trials of its recipe, the one that loses least."""
    bases = [
        trial
        for trial in trials
        if trial.recipe.name == mix.base
        and trial.is_uniform
        and trial.loss is not None
        # It would choose anew for each mix.
        and trial.recipe.methods != ("auto",)
    ]
    return min(bases, key=_drop, default=None)


def is_cheaper(a: TuningTrial, b: TuningTrial, objective: Objective) -> bool:
    """Whether a costs less than b, beyond noise where the cost is a time."""
    if objective == "latency" and not (a.error or b.error):
        return is_faster_trial(a, b)
    return a.cost(objective) < b.cost(objective)


def pareto(trials: Iterable[TuningTrial], objective: Objective) -> tuple[TuningTrial, ...]:
    """The Pareto set of cost and drop, by cost; what is within noise is equal."""
    measured = [
        trial for trial in trials if trial.loss is not None and trial.cost(objective) < float("inf")
    ]
    best = pareto_front(measured, lambda a, b: is_cheaper(a, b, objective), loses_less)
    chosen = [trial for trial, is_best in zip(measured, best, strict=True) if is_best]
    return tuple(sorted(chosen, key=lambda trial: (trial.cost(objective), _drop(trial))))


def _is_too_large(
    name: RecipeName, space: Space, trials: Sequence[TuningTrial], enough: float
) -> bool:
    """Whether a file must be larger than one that has a chance of `enough`."""
    good = cheapest(trials, space.objective, enough)
    if good is None or space.objective != "size":
        return False
    smaller = _NO_SMALLER_THAN.get(name)
    sizes = [trial.size_bytes for trial in trials if trial.recipe.name == smaller]
    # A trial that failed has no size.
    least_bytes = min(filter(None, sizes), default=0)
    return max(space.weights * _BYTES[_WEIGHTS[name]], least_bytes) >= good.size_bytes


def _is_near(base: TuningTrial, good: TuningTrial | None, space: Space) -> bool:
    """Whether the best so far is about as cheap as `base`, which has a size if it was refused."""
    is_size = space.objective == "size"
    near = (1 + _WORTHWHILE) * (base.size_bytes if is_size else base.cost(space.objective))
    return good is not None and good.cost(space.objective) <= near < float("inf")


def _drop(trial: TuningTrial) -> float:
    assert trial.loss is not None
    return trial.loss.drop


def _mixed(
    space: Space, mix: Mix, base: TuningTrial, good: TuningTrial | None, measure: Measure
) -> Iterator[TuningTrial]:
    """The trials of one mix: as few raised layers as keep the budget, smaller than `good`."""
    kept = base.post_training.eight_bit if base.post_training else ()
    low = [layer for layer in space.sensitivities(mix.low) if layer.layer not in kept]
    order = _by_need(low, mix)
    most = len(order)
    if good is not None and space.objective == "size":
        most = _affordable(order, mix, good.size_bytes - base.size_bytes)
    raised = yield from _bisected(order[:most], mix, base, measure)
    if raised is not None and _extra(mix) > 0:
        yield from _lowered(raised, mix, base, measure)


def _bisected(
    order: Sequence[Sensitivity], mix: Mix, base: TuningTrial, measure: Measure
) -> Generator[TuningTrial, None, Sequence[Sensitivity] | None]:
    """Yields trials; returns the shortest beginning of `order` that succeeds, None for none."""
    if not order:
        return None
    fails, succeeds = 0, len(order)
    trial = measure(_raised(base, order, mix))
    yield trial
    if not is_candidate(trial):
        return None
    while succeeds - fails > 1:
        middle = (fails + succeeds) // 2
        trial = measure(_raised(base, order[:middle], mix))
        yield trial
        if is_candidate(trial):
            succeeds = middle
        else:
            fails = middle
    return order[:succeeds]


def _lowered(
    raised: Sequence[Sensitivity], mix: Mix, base: TuningTrial, measure: Measure
) -> Iterator[TuningTrial]:
    """Single layers back to the low precision, the heaviest first, as long as that succeeds."""
    kept = list(raised)
    least = _WORTHWHILE * base.size_bytes
    # Without the last layer it was tried already.
    heavy = [layer for layer in raised[:-1] if layer.weights * _extra(mix) >= least]
    for layer in sorted(heavy, key=lambda layer: -layer.weights)[:_LOWERED]:
        rest = [other for other in kept if other is not layer]
        trial = measure(_raised(base, rest, mix))
        yield trial
        if is_candidate(trial):
            kept = rest


def _by_need(layers: Iterable[Sensitivity], mix: Mix) -> list[Sensitivity]:
    """The layers by the noise that raising them removes, for each byte that it costs."""

    def need(layer: Sensitivity) -> float:
        noise = float(10 ** (-max(layer.snr_db, _LEAST_DB) / 10))
        return noise / (layer.weights * _extra(mix) or 1.0)

    able = [layer for layer in layers if layer.weights > 0 or _extra(mix) == 0]
    return sorted(able, key=lambda layer: (-need(layer), layer.layer))


def _extra(mix: Mix) -> float:
    return _BYTES[mix.raised] - _BYTES[mix.low]


def _affordable(order: Sequence[Sensitivity], mix: Mix, room_bytes: float) -> int:
    """How many layers from the beginning cost less than `room_bytes` together."""
    spent = 0.0
    for count, layer in enumerate(order):
        spent += layer.weights * _extra(mix)
        if spent >= room_bytes:
            return count
    return len(order)


def _raised(base: TuningTrial, layers: Iterable[Sensitivity], mix: Mix) -> Recipe:
    """The recipe of `base` with these layers raised."""
    names = sorted(layer.layer for layer in layers)
    rules = tuple(LayerRule(pattern=name, precision=mix.raised) for name in names)
    return msgspec.structs.replace(base.recipe, layers=rules)


def loss_of(before: Accuracy, after: Accuracy) -> Loss:
    """What `after` loses to `before`, by the same metric on the same samples."""
    drop, interval = drop_of(before, after)
    if before.correct:
        fixed, broken = flips(before, after)
        # One flip more than was counted: none on these samples does not mean none on others.
        variance = (fixed + broken + 1) / after.samples
        return Loss(
            value=after.value,
            drop=drop,
            samples=after.samples,
            variance=variance,
            interval=interval,
            fixed=fixed,
            broken=broken,
        )
    parts = [a - b for a, b in zip(before.per_sample, after.per_sample, strict=True)]
    return Loss(
        value=after.value,
        drop=drop,
        samples=after.samples,
        variance=pvariance(parts),
        interval=interval,
    )


def chance_within(loss: Loss, budget: float, samples: int) -> float:
    """How probable a drop of at most `budget` is on `samples` other samples.

    Predictive: the drop on the samples of `loss` and the drop on the others both scatter around
    the true drop, each with the variance of one sample's part over their number. The normal
    distribution is close enough for a ranking; half a step is added, since counts are discrete.
    """
    step = 0.5 / samples if loss.broken is not None else 0.0
    spread = math.sqrt(loss.variance * (1 / loss.samples + 1 / samples))
    room = budget + step - loss.drop
    if spread == 0:
        return float(room >= 0)
    return _NORMAL.cdf(room / spread)


def enough_samples(budget: float) -> int:
    """How many samples are needed in all for one answer of each half to be within the budget."""
    return 2 * max(LEAST_OF_A_PART, math.ceil(1 / budget - 1e-9)) if budget > 0 else LEAST_SAMPLES


# No NPU computes in floats, and Vela 5.2 ends by SIGFPE on weights of 4 bits.
_ON_NPU: tuple[RecipeName, ...] = ("int8", "int16x8")
_WITHOUT_METHODS = ("float32", "float16")
_AS_CONVERTED = ("int8", "int16x8")
# Balancing the ranges of channels helps where activations or weights have few bits.
_EQUALIZED = (*FOUR_BIT, "int8")


def uniform_recipes(
    request: TuneRequest, calibration: int, *, equalizes: bool
) -> tuple[Recipe, ...]:
    """The recipes with the same precision everywhere, the presumably cheapest first.

    A recipe that quantizes comes several times: with the methods that cost least first.
    `calibration` counts the samples that calibrate; a method that needs more is left out.
    `equalizes` says whether the model has layers that can be equalized.
    """
    names: tuple[RecipeName, ...] = ORDERS[request.objective]
    if request.recipes:
        names = recipe_names(request.recipes)
    elif request.objective == "size":
        # The drop is measured from float32, which is therefore always within the budget.
        names = tuple(name for name in names if name != "float32")
    elif request.objective == "npu-latency":
        names = _ON_NPU
    return tuple(
        _recipe(name, request, settings)
        for name in in_order(names, request.objective)
        for settings in _settings(name, calibration, equalizes)
    )


def _settings(name: RecipeName, calibration: int, equalizes: bool) -> tuple[_Settings, ...]:
    """The ranges and methods to try, one after another until one keeps the accuracy."""
    if name in _WITHOUT_METHODS:
        return (("minmax", ()),)
    layerwise = tuple(method for method, least in MIN_SAMPLES.items() if calibration >= least)
    # Rounding to nearest is rarely good enough with 4 bits.
    settings: list[_Settings] = [] if name in FOUR_BIT and layerwise else [("minmax", ())]
    if layerwise:
        settings.append(("minmax", layerwise))
    if equalizes and calibration and name in _EQUALIZED:
        settings.append(("minmax", ("equalization", *layerwise)))
    # With 16 bits there is room for every value, and nothing to gain by clipping.
    if name in CALIBRATED and name != "int16x8" and calibration >= RANGE_SAMPLES["mse"]:
        settings.append(("auto", layerwise))
    # What `convert` makes: `auto` leaves in float what no scale serves.
    if name in _AS_CONVERTED and calibration:
        settings.append(("auto", ("auto",)))
    return tuple(settings)


def _recipe(name: RecipeName, request: TuneRequest, settings: _Settings) -> Recipe:
    ranges, methods = settings
    (recipe,) = make_recipes(
        [name],
        # TFLiteConverter would start from the trained model, in TensorFlow, each time.
        engine="litert",
        calibration_range=ranges,
        full_integer=request.full_integer or request.objective == "npu-latency",
        methods=None if name in _WITHOUT_METHODS else methods or ["none"],
    )
    return recipe


def recipe_text(
    recipe: Recipe, request: TuneRequest, opening: Opening, calibration: str, preprocess: str
) -> str:
    """The [convert] table in TOML from which `edgeconv convert` makes the same bytes.

    `calibration` is the SOURCE relative to the folder of the file, `preprocess` the steps.
    Default values are left out.
    """
    values: dict[str, object] = {
        "to": recipe.name,
        "engine": recipe.engine,
        "calibration": calibration,
    }
    if preprocess != "none":
        values["preprocess"] = preprocess
    if recipe.name in CALIBRATED:
        values["calibration-range"] = recipe.calibration_range
        if recipe.only_integers:
            values["full-integer"] = True
        if request.allow_suspect_calibration:
            values["allow-suspect-calibration"] = True
    if recipe.name not in _WITHOUT_METHODS:
        values["methods"] = ",".join(recipe.methods) or "none"
    if recipe.layers:
        values["layer"] = [f"{rule.pattern}={rule.precision}" for rule in recipe.layers]
    if request.signature:
        values["signature"] = request.signature
    if request.batch is not None:
        values["batch"] = request.batch
    if opening.tags:
        values["tag"] = ",".join(opening.tags)
    if opening.custom_objects:
        # The file is used from any folder; a dotted name is looked up where edgeconv is run.
        values["custom-objects"] = [
            str(Path(opening.directory, text)) if is_path(text) else text
            for text in opening.custom_objects
        ]
    lines = [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(["[convert]", *lines, ""])


def _value(value: object) -> str:
    """A value in TOML; a list has a line for each item."""
    if not isinstance(value, list):
        return toml_value(value)
    return "[\n" + "".join(f"    {toml_value(item)},\n" for item in value) + "]"
