"""Tables of the errors of a quantized model by layer, and of its times by operator and layer."""

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
    """The name of a layer; the first one where a converter joined several."""
    first, _, others = units.plain(name).partition(";")
    return f"{first} …" if others else first or units.ABSENT


def worst_first(errors: tuple[LayerError, ...]) -> list[tuple[int, LayerError]]:
    """The layers with their position in the graph, from 1; NaN is the worst."""
    numbered = list(enumerate(errors, start=1))
    return sorted(numbered, key=lambda pair: _badness(pair[1]))


def models_with_layers(report: Report) -> list[Measurement]:
    """The models with errors by layer; that with the worst layer comes first."""
    models = [model for model in report.measurements if model.layer_errors]
    return sorted(models, key=lambda model: _badness(worst_first(model.layer_errors)[0][1]))


def layer_tables(report: Report) -> list[tuple[str, str, PageTable]]:
    """For each of `models_with_layers`: its name, its worst layer, and the table."""
    tables = []
    for index, model in enumerate(models_with_layers(report)):
        name = units.plain(model.name)
        _, worst = worst_first(model.layer_errors)[0]
        summary = f"worst: {layer_name(worst.layer)}, {units.decibels(worst.snr_db)}"
        if model.acceleration and model.acceleration.begins_at:
            summary += f"; the error begins at {layer_name(model.acceleration.begins_at)}"
        tables.append((name, summary, _layers(index, name, model)))
    return tables


def profile_tables(report: Report) -> list[tuple[str, str, list[PageTable]]]:
    """For each profiled model: its name, a summary, and tables by operator and by layer."""
    profiles = [(units.plain(m.name), m.profile) for m in report.measurements if m.profile]
    return [
        (
            name,
            profile_line(profile),
            [_by_operator(index, name, profile), _by_layer(index, name, profile)],
        )
        for index, (name, profile) in enumerate(profiles)
    ]


def profile_line(profile: Profile) -> str:
    """The method, the share that is not delegated, and the residual."""
    own = sum(each.mean_us for each in profile.operators if not each.delegate)
    return (
        f"{_METHODS[profile.method]}; {_share(own, profile)} not delegated, "
        f"residual {units.duration(profile.residual_us)}"
    )


def _badness(error: LayerError) -> tuple[bool, float]:
    """NaN is worse than all, and does not compare."""
    return (False, 0.0) if math.isnan(error.snr_db) else (True, error.snr_db)


def _layers(index: int, name: str, model: Measurement) -> PageTable:
    errors, against = model.layer_errors, units.plain(model.layers_against) or "the float32 model"
    finite = [each.max_error for each in errors if math.isfinite(each.max_error)]
    largest = max(finite, default=0.0)
    return PageTable(
        name=f"layers-{index}",
        caption=f"{name} against {against}, layer by layer, the worst first. "
        "Every 6 dB halve the error.",
        headings=headings("Layer", "Operator", "Position", "SNR", "Largest error", text={0, 1}),
        lines=tuple(_layer(position, error, largest) for position, error in worst_first(errors)),
    )


def _layer(position: int, error: LayerError, largest: float) -> Line:
    share = error.max_error / largest if largest and math.isfinite(error.max_error) else None
    return Line(
        cells=(
            Cell(text=layer_name(error.layer), kind="name"),
            Cell(text=units.plain(error.operator), kind="name"),
            number(str(position), position),
            number(units.decibels(error.snr_db), min(error.snr_db, MAX_SNR_DB)),
            Cell(text=units.significant(error.max_error), key=error.max_error, share=share),
        )
    )


def _by_operator(index: int, name: str, profile: Profile) -> PageTable:
    groups: dict[tuple[str, str], list[OperatorTime]] = defaultdict(list)
    for each in profile.operators:
        groups[(each.operator, each.delegate)].append(each)
    sums = {key: sum(each.mean_us for each in group) for key, group in groups.items()}
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
        caption=f"The time of {name} by operator, {units.duration(profile.total_us)} in all.",
        headings=headings("Operator", "Run by", "Count", "Time", "Share", text={0, 1}),
        lines=(*lines, residual),
    )


def _by_layer(index: int, name: str, profile: Profile) -> PageTable:
    return PageTable(
        name=f"times-{index}",
        caption=f"The time of {name} by layer, the longest first.",
        headings=headings(
            "Layer", "Operator", "Run by", "Position", "Time", "Share", text={0, 1, 2}
        ),
        lines=tuple(
            _time_line(
                (
                    layer_name(each.layer),
                    units.plain(each.operator),
                    _delegate(each.delegate),
                    str(each.index + 1),
                ),
                each.mean_us,
                profile,
            )
            for each in sorted(profile.operators, key=lambda each: -each.mean_us)
        ),
    )


def _time_line(names: tuple[str, ...], time_us: float, profile: Profile) -> Line:
    share = time_us / profile.total_us if profile.total_us > 0 else math.nan
    bar = min(max(share, 0.0), 1.0) if math.isfinite(share) else None
    return Line(
        cells=(
            *(number(t, int(t)) if t.isdigit() else Cell(text=t, kind="name") for t in names),
            number(units.duration(time_us), time_us),
            Cell(text=_share(time_us, profile), key=share, share=bar),
        )
    )


def _delegate(delegate: str) -> str:
    return units.plain(delegate) if delegate else "the runtime"


def _share(time_us: float, profile: Profile) -> str:
    return units.percent(time_us / profile.total_us, 1) if profile.total_us > 0 else units.ABSENT
