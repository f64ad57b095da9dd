"""Where a quantised model goes away from the float one, and where its time goes."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Line, PageTable, headings, number
from edgeconv.types import MAX_SNR_DB

if TYPE_CHECKING:
    from edgeconv.types import LayerError, Measurement, OperatorTime, Profile, Report

_METHODS = {
    "runtime": "by the runtime's own profiling",
    "sub-models": "by timing models that end after each operator",
}


def layer_name(name: str) -> str:
    """A layer as it is shown: of the names that a converter joined, the first."""
    first, _, others = units.plain(name).partition(";")
    return f"{first} …" if others else first or units.ABSENT


def worst_first(errors: tuple[LayerError, ...]) -> list[tuple[int, LayerError]]:
    """The layers with their place in the graph, from 1; NaN is worse than all."""
    numbered = list(enumerate(errors, start=1))
    return sorted(numbered, key=lambda pair: _badness(pair[1]))


def layered(report: Report) -> list[Measurement]:
    """The models with errors by layer, that with the worst layer first."""
    models = [model for model in report.measurements if model.layer_errors]
    return sorted(models, key=lambda model: _badness(worst_first(model.layer_errors)[0][1]))


def layer_tables(report: Report) -> list[tuple[str, str, PageTable]]:
    """For each of `layered`: its name, which layer is the worst, and the table."""
    found = []
    for index, model in enumerate(layered(report)):
        name = units.plain(model.name)
        _, worst = worst_first(model.layer_errors)[0]
        said = f"worst: {layer_name(worst.layer)}, {units.decibels(worst.snr_db)}"
        found.append((name, said, _layers(index, name, model.layer_errors)))
    return found


def profile_tables(report: Report) -> list[tuple[str, str, list[PageTable]]]:
    """For each profiled model: its name, how it was found, by operator and by layer."""
    found = []
    for index, model in enumerate(_profiled(report)):
        assert model.profile is not None
        name = units.plain(model.name)
        tables = [_by_operator(index, name, model.profile), _by_layer(index, name, model.profile)]
        found.append((name, profile_line(model.profile), tables))
    return found


def profile_line(profile: Profile) -> str:
    """How it was found, what was not delegated, and what is left over."""
    own = sum(one.mean_us for one in profile.operators if not one.delegate)
    return (
        f"{_METHODS[profile.method]}; {_share(own, profile)} not delegated, "
        f"residual {units.duration(profile.residual_us)}"
    )


def _badness(error: LayerError) -> tuple[bool, float]:
    """NaN is worse than all, and does not compare."""
    return (False, 0.0) if math.isnan(error.snr_db) else (True, error.snr_db)


def _profiled(report: Report) -> list[Measurement]:
    return [model for model in report.measurements if model.profile]


def _layers(index: int, name: str, errors: tuple[LayerError, ...]) -> PageTable:
    finite = [each.max_error for each in errors if math.isfinite(each.max_error)]
    largest = max(finite, default=0.0)
    return PageTable(
        name=f"layers-{index}",
        caption=f"{name} against the float32 model, layer by layer, the worst first. "
        "Every 6 dB halve the error.",
        headings=headings("Layer", "Operator", "Place", "SNR", "Largest error", text={0, 1}),
        lines=tuple(_layer(place, error, largest) for place, error in worst_first(errors)),
    )


def _layer(place: int, error: LayerError, largest: float) -> Line:
    share = error.max_error / largest if largest and math.isfinite(error.max_error) else None
    return Line(
        cells=(
            Cell(text=layer_name(error.layer), kind="name"),
            Cell(text=units.plain(error.operator), kind="name"),
            number(str(place), place),
            number(units.decibels(error.snr_db), min(error.snr_db, MAX_SNR_DB)),
            Cell(text=units.significant(error.max_error), key=error.max_error, share=share),
        )
    )


def _by_operator(index: int, name: str, profile: Profile) -> PageTable:
    groups: dict[tuple[str, str], list[OperatorTime]] = defaultdict(list)
    for one in profile.operators:
        groups[(one.operator, one.delegate)].append(one)
    sums = {key: sum(one.mean_us for one in ones) for key, ones in groups.items()}
    lines = [
        _time_line(
            (units.plain(operator), _delegate(delegate), str(len(groups[operator, delegate]))),
            sums[operator, delegate],
            profile,
        )
        for operator, delegate in sorted(sums, key=lambda key: -sums[key])
    ]
    residual = _time_line(("not in any operator", "", ""), profile.residual_us, profile)
    return PageTable(
        name=f"operators-{index}",
        caption=f"The time of {name} by operator; all of it is {units.duration(profile.total_us)}.",
        headings=headings("Operator", "Run by", "Count", "Time", "Share", text={0, 1}),
        lines=(*lines, residual),
    )


def _by_layer(index: int, name: str, profile: Profile) -> PageTable:
    ones = sorted(profile.operators, key=lambda one: -one.mean_us)
    return PageTable(
        name=f"times-{index}",
        caption=f"The time of {name} by layer, the longest first.",
        headings=headings("Layer", "Operator", "Run by", "Place", "Time", "Share", text={0, 1, 2}),
        lines=tuple(
            _time_line(
                (
                    layer_name(one.layer),
                    units.plain(one.operator),
                    _delegate(one.delegate),
                    str(one.index + 1),
                ),
                one.mean_us,
                profile,
            )
            for one in ones
        ),
    )


def _time_line(names: tuple[str, ...], time_us: float, profile: Profile) -> Line:
    share = time_us / profile.total_us if profile.total_us > 0 else math.nan
    bar = min(max(share, 0.0), 1.0) if math.isfinite(share) else None
    cells = [Cell(text=text, kind="" if text.isdigit() else "name") for text in names]
    cells = [number(c.text, int(c.text)) if c.text.isdigit() else c for c in cells]
    return Line(
        cells=(
            *cells,
            number(units.duration(time_us), time_us),
            Cell(text=_share(time_us, profile), key=share, share=bar),
        )
    )


def _delegate(delegate: str) -> str:
    return units.plain(delegate) if delegate else "the runtime itself"


def _share(time_us: float, profile: Profile) -> str:
    return units.percent(time_us / profile.total_us, 1) if profile.total_us > 0 else units.ABSENT
