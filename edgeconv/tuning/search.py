"""Which recipes to try, one after the other: no file and no process, only what trials said.

Uniform recipes first, from the cheapest. Then, between one that fails and a dearer one that
does, the layers that lose most for what they weigh get the higher precision: by bisection on how
many, and last by lowering single layers again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.statistics.comparison import is_faster_trial, loses_less, unbeaten
from edgeconv.tuning.chances import LIKELY, LIKELY_OF_MANY, SURE
from edgeconv.types import CALIBRATED, LayerRule

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from edgeconv.types import (
        Objective,
        Precision,
        Recipe,
        RecipeName,
        Sensitivity,
        TuningTrial,
    )

    Measure = Callable[[Recipe], TuningTrial]
    Sensitivities = Callable[[Precision], Sequence[Sensitivity]]

_BYTES: dict[Precision, float] = {
    "int4": 0.5,
    "int8": 1,
    "int16x8": 1,
    "float16": 2,
    "float32": 4,
}
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
# What a recipe usually costs, the cheapest first. int16x8 has reference kernels only.
ORDERS: dict[Objective, tuple[RecipeName, ...]] = {
    "size": (
        *("weight-only-int4", "int8x4", "int8", "weight-only-int8"),
        *("dynamic", "int16x8", "float16", "float32"),
    ),
    "latency": (
        *("int8", "int8x4", "float32", "float16"),
        *("weight-only-int8", "dynamic", "weight-only-int4", "int16x8"),
    ),
}
# Lowering one more layer is worth a trial if it saves this share, and so often.
_WORTHWHILE = 0.01
_LOWERED = 6
_LEAST_DB = -100.0


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
    """The names from the cheapest to the dearest, as far as can be said beforehand."""
    asked = frozenset(names)
    return tuple(name for name in ORDERS[objective] if name in asked)


def search(space: Space, measure: Measure, enough: float = SURE) -> Iterator[TuningTrial]:
    """Every trial as it is made; the search ends where the iteration does, or with nothing left.

    What must be larger than a trial that has a chance of `enough` is left out.
    """
    trials: list[TuningTrial] = []
    for recipe in space.uniform:
        if _is_too_large(recipe.name, space, trials, enough):
            continue
        trial = measure(recipe)
        trials.append(trial)
        yield trial
    for mix in _MIXES[space.objective]:
        base = next((one for one in trials if one.recipe.name == mix.base), None)
        good = cheapest(trials, space.objective, enough)
        if base is None or base.error or base.chance >= enough or _is_near(base, good, space):
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
    """The candidate of least cost; None where there is none.

    Those that are as fast within noise are equal, and the smallest of them is taken; of those
    the one with the fewest rules, then the likelier.
    """
    candidates = [one for one in trials if is_candidate(one) and one.chance >= chance]
    if not candidates:
        return None
    first = min(candidates, key=lambda one: one.cost(objective))
    return min(
        (one for one in candidates if not is_cheaper(first, one, objective)),
        key=lambda one: (one.size_bytes, len(one.recipe.layers), -one.chance),
    )


def is_cheaper(a: TuningTrial, b: TuningTrial, objective: Objective) -> bool:
    """Whether a costs less than b, beyond noise where the cost is a time."""
    if objective == "latency" and not (a.error or b.error):
        return is_faster_trial(a, b)
    return a.cost(objective) < b.cost(objective)


def pareto(trials: Iterable[TuningTrial], objective: Objective) -> tuple[TuningTrial, ...]:
    """The trials that no other betters in cost or drop without being worse in the other, by cost.

    What is within noise is equal.
    """
    judged = [one for one in trials if one.loss is not None and one.cost(objective) < float("inf")]
    best = unbeaten(judged, lambda a, b: is_cheaper(a, b, objective), loses_less)
    found = [one for one, is_best in zip(judged, best, strict=True) if is_best]
    return tuple(sorted(found, key=lambda one: (one.cost(objective), _drop(one))))


def _is_too_large(
    name: RecipeName, space: Space, trials: Iterable[TuningTrial], enough: float
) -> bool:
    """Whether the weights alone are more than a whole file that does."""
    good = cheapest(trials, space.objective, enough)
    if good is None or space.objective != "size":
        return False
    return space.weights * _BYTES[_WEIGHTS[name]] >= good.size_bytes


def _is_near(base: TuningTrial, good: TuningTrial | None, space: Space) -> bool:
    """Whether what does already is as cheap as `base`; what fails is not timed, and so never."""
    near = (1 + _WORTHWHILE) * base.cost(space.objective)
    return good is not None and good.cost(space.objective) <= near < float("inf")


def _drop(trial: TuningTrial) -> float:
    assert trial.loss is not None
    return trial.loss.drop


def _mixed(
    space: Space,
    mix: Mix,
    base: TuningTrial,
    good: TuningTrial | None,
    measure: Measure,
) -> Iterator[TuningTrial]:
    """The trials of one mix: as few raised layers as keep the budget, smaller than `good`."""
    order = _by_need(space.sensitivities(mix.low), mix)
    most = len(order)
    if good is not None and space.objective == "size":
        most = _affordable(order, mix, good.size_bytes - base.size_bytes)
    raised = yield from _bisected(order[:most], mix, base, measure)
    if raised is not None and _extra(mix) > 0:
        yield from _lowered(raised, mix, base, measure)


def _bisected(
    order: Sequence[Sensitivity], mix: Mix, base: TuningTrial, measure: Measure
) -> Generator[TuningTrial, None, Sequence[Sensitivity] | None]:
    """Trials; what comes back is the shortest beginning of `order` that does, None if none."""
    if not order:
        return None
    fails, does = 0, len(order)
    trial = measure(_raised(base, order, mix))
    yield trial
    if not is_candidate(trial):
        return None
    while does - fails > 1:
        middle = (fails + does) // 2
        trial = measure(_raised(base, order[:middle], mix))
        yield trial
        if is_candidate(trial):
            does = middle
        else:
            fails = middle
    return order[:does]


def _lowered(
    raised: Sequence[Sensitivity], mix: Mix, base: TuningTrial, measure: Measure
) -> Iterator[TuningTrial]:
    """Single layers back to the low precision, the heaviest first, as long as that does."""
    kept = list(raised)
    least = _WORTHWHILE * base.size_bytes
    heavy = [one for one in raised if one.weights * _extra(mix) >= least]
    # Without the last one it was tried already.
    heavy = [one for one in heavy if one is not raised[-1]]
    for layer in sorted(heavy, key=lambda one: -one.weights)[:_LOWERED]:
        rest = [one for one in kept if one is not layer]
        trial = measure(_raised(base, rest, mix))
        yield trial
        if is_candidate(trial):
            kept = rest


def _by_need(layers: Iterable[Sensitivity], mix: Mix) -> list[Sensitivity]:
    """The layers by the noise that raising them takes away, for each byte that it costs."""
    able = [one for one in layers if one.weights > 0 or _extra(mix) == 0]
    return sorted(able, key=lambda one: (-_noise(one) / _cost_bytes(one, mix), one.layer))


def _noise(layer: Sensitivity) -> float:
    return float(10 ** (-max(layer.snr_db, _LEAST_DB) / 10))


def _extra(mix: Mix) -> float:
    return _BYTES[mix.raised] - _BYTES[mix.low]


def _cost_bytes(layer: Sensitivity, mix: Mix) -> float:
    return layer.weights * _extra(mix) or 1.0


def _affordable(order: Sequence[Sensitivity], mix: Mix, room_bytes: float) -> int:
    """How many from the beginning cost less than `room_bytes` together."""
    spent = 0.0
    for count, layer in enumerate(order):
        spent += layer.weights * _extra(mix)
        if spent >= room_bytes:
            return count
    return len(order)


def _raised(base: TuningTrial, layers: Iterable[Sensitivity], mix: Mix) -> Recipe:
    """The recipe of `base` with these layers raised, and what its methods turned out to be."""
    rules = tuple(LayerRule(pattern=name, precision=mix.raised) for name in _names(layers))
    recipe = msgspec.structs.replace(base.recipe, layers=rules)
    found = base.post_training
    if found is None:
        return recipe
    has_ranges = recipe.name in CALIBRATED
    return msgspec.structs.replace(
        recipe,
        methods=found.methods,
        calibration_range=found.calibration_range if has_ranges else "minmax",
    )


def _names(layers: Iterable[Sensitivity]) -> list[str]:
    return sorted(one.layer for one in layers)
