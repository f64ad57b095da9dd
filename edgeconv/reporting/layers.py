"""Tables of the errors of a quantized model by layer, and of its times by operator and layer."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeVar

import msgspec

from edgeconv.reporting import units
from edgeconv.reporting.tables import Cell, Column, Table, number, table
from edgeconv.types import MAX_SNR_DB, LayerError, Measurement, Profile, Report

_Numbered = tuple[int, LayerError]


_Timed = TypeVar("_Timed")


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


def layer_tables(report: Report) -> list[tuple[str, str, Table]]:
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


def profile_tables(report: Report) -> list[tuple[str, str, list[Table]]]:
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
    """The share that is not delegated, and the residual."""
    own = sum(each.mean_us for each in profile.operators if not each.delegate)
    return (
        f"by the runtime's own profiling; {_share(own, profile)} not delegated, "
        f"residual {units.duration(profile.residual_us)}"
    )


def _badness(error: LayerError) -> tuple[bool, float]:
    """NaN is worse than all, and does not compare."""
    return (False, 0.0) if math.isnan(error.snr_db) else (True, error.snr_db)


def _layers(index: int, name: str, model: Measurement) -> Table:
    errors, against = model.layer_errors, units.plain(model.layers_against) or "the float32 model"
    finite = [each.max_error for each in errors if math.isfinite(each.max_error)]
    largest = max(finite, default=0.0)

    def largest_error(pair: _Numbered) -> Cell:
        error = pair[1].max_error
        share = error / largest if largest and math.isfinite(error) else None
        return Cell(units.significant(error), key=error, share=share)

    return table(
        (*_LAYER, Column("Largest error", largest_error)),
        worst_first(errors),
        name=f"layers-{index}",
        caption=f"{name} against {against}, layer by layer, the worst first. "
        "Every 6 dB halve the error.",
    )


def _by_operator(index: int, name: str, profile: Profile) -> Table:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in profile.operators:
        groups[(units.plain(each.operator), _delegate(each.delegate))].append(each.mean_us)
    rows = [(*names, str(len(times)), sum(times)) for names, times in groups.items()]
    rows.sort(key=lambda row: -row[3])
    return table(
        (
            Column("Operator", lambda row: Cell(row[0], kind="name"), is_text=True),
            Column("Run by", lambda row: Cell(row[1], kind="name"), is_text=True),
            Column(
                "Count",
                lambda row: number(row[2], int(row[2])) if row[2] else Cell("", kind="name"),
            ),
            *_times(profile, lambda row: row[3]),
        ),
        [*rows, ("not in any operator", "", "", profile.residual_us)],
        name=f"operators-{index}",
        caption=f"The time of {name} by operator, {units.duration(profile.total_us)} in all.",
    )


def _by_layer(index: int, name: str, profile: Profile) -> Table:
    return table(
        (
            Column("Layer", lambda e: Cell(layer_name(e.layer), kind="name"), is_text=True),
            Column("Operator", lambda e: Cell(units.plain(e.operator), kind="name"), is_text=True),
            Column("Run by", lambda e: Cell(_delegate(e.delegate), kind="name"), is_text=True),
            Column("Position", lambda e: number(str(e.index + 1), e.index + 1)),
            *_times(profile, lambda e: e.mean_us),
        ),
        sorted(profile.operators, key=lambda each: -each.mean_us),
        name=f"times-{index}",
        caption=f"The time of {name} by layer, the longest first.",
    )


def _times(profile: Profile, of: Callable[[_Timed], float]) -> tuple[Column[_Timed], ...]:
    """A time and its share of the whole."""

    def share(each: _Timed) -> Cell:
        part = of(each) / profile.total_us if profile.total_us > 0 else math.nan
        bar = min(max(part, 0.0), 1.0) if math.isfinite(part) else None
        return Cell(_share(of(each), profile), key=part, share=bar)

    return (
        Column("Time", lambda each: number(units.duration(of(each)), of(each))),
        Column("Share", share),
    )


def _delegate(delegate: str) -> str:
    return units.plain(delegate) if delegate else "the runtime"


def _share(time_us: float, profile: Profile) -> str:
    return units.percent(time_us / profile.total_us, 1) if profile.total_us > 0 else units.ABSENT


_LAYER: tuple[Column[_Numbered], ...] = (
    Column("Layer", lambda pair: Cell(layer_name(pair[1].layer), kind="name"), is_text=True),
    Column("Operator", lambda pair: Cell(units.plain(pair[1].operator), kind="name"), is_text=True),
    Column("Position", lambda pair: number(str(pair[0]), pair[0])),
    Column(
        "SNR", lambda pair: number(units.decibels(pair[1].snr_db), min(pair[1].snr_db, MAX_SNR_DB))
    ),
)


Shown = Literal["errors", "times"]
# An exact layer would leave no color for the others.
_MOST_DB = 100.0
_HEADINGS: dict[Shown, str] = {"errors": "SNR against float32 (dB)", "times": "p50 (µs)"}
_COLORS = {"bad": "#d73a31", "middle": "#f7e7a8", "good": "#e8f4ec"}


def node_data(
    model: Measurement, graphs: Mapping[str, Collection[str]], shown: Shown
) -> bytes | None:
    """The JSON file; None if no layer of the graphs has a value.

    `graphs` has the names of the layers of every graph. Errors are signal-to-noise ratios in
    decibels, at most 100, and times are medians in microseconds; bad values are red.
    """
    values = _node_errors(model) if shown == "errors" else _node_times(model)
    data = {
        graph: {
            "name": _HEADINGS[shown],
            "results": {name: {"value": values[name]} for name in values if name in layers},
            "gradient": _gradient(shown),
        }
        for graph, layers in graphs.items()
    }
    kept = {graph: each for graph, each in data.items() if each["results"]}
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n" if kept else None


def _node_errors(model: Measurement) -> dict[str, float]:
    return {
        error.tensor: min(max(error.snr_db, -_MOST_DB), _MOST_DB)
        for error in model.layer_errors
        if not math.isnan(error.snr_db)
    }


def _node_times(model: Measurement) -> dict[str, float]:
    operators = model.profile.operators if model.profile else ()
    return {each.tensor: each.mean_us for each in operators if math.isfinite(each.mean_us)}


def _gradient(shown: Shown) -> list[dict[str, float | str]]:
    order = ("bad", "middle", "good") if shown == "errors" else ("good", "middle", "bad")
    return [
        {"stop": stop, "bgColor": _COLORS[name]}
        for stop, name in zip((0.0, 0.5, 1.0), order, strict=True)
    ]
