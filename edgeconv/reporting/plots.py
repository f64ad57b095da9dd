"""Plots of a report: trade-offs with what the budget allows, times, drops, epochs and layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import quantiles

from rich.cells import cell_len, set_cell_size

from edgeconv.reporting import units
from edgeconv.reporting.drawing import Fields, Plot, drawable
from edgeconv.reporting.facts import metric
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.units import drop_value, interval_value, is_share
from edgeconv.types import MAX_SNR_DB, Latency, LayerError, Measurement, Report, TrainingRecord

# As in charts/accuracy.json.
_WIDTH, _HEIGHT = 330, 220
_MOST_WORTH = 1e12
# An axis that shows only differences of a hundredth of a point would exaggerate them.
_LEAST_SHARES = 0.02
_LEAST_RATIO = 2.0


@dataclass(frozen=True, kw_only=True)
class BudgetRegion:
    """The most that a model may cost and the least that it must be worth; None has no limit."""

    most_cost: float | None = None
    least_value: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the budget limits either axis."""
        return self.most_cost is not None or self.least_value is not None


_NO_LIMIT = BudgetRegion()


@dataclass(frozen=True)
class Point:
    """A model in a plot: its cost (positive) and its accuracy, or another metric.

    `number` is its row in the table of the models; `is_best`: no other artifact beats it.
    """

    label: str
    cost: float
    accuracy: float
    is_baseline: bool
    number: int = 0
    is_best: bool = False


@dataclass(frozen=True)
class Worth:
    """The metric on the vertical axis: a share of right answers, or any number."""

    name: str = "Accuracy"
    is_share: bool = True
    higher_is_better: bool = True

    def written(self, value: float) -> str:
        """The value as text."""
        return units.percent(value) if self.is_share else units.significant(value, 4)

    def drawable(self, value: float) -> bool:
        """Whether the value has a place on the axis."""
        return 0 <= value <= 1 if self.is_share else abs(value) < _MOST_WORTH


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    bent: Callable[[float], float] = float

    def share(self, value: float) -> float:
        """The position of the value along the axis, from 0 to 1."""
        low, high, at = self.bent(self.low), self.bent(self.high), self.bent(value)
        return (at - low) / (high - low)

    def bounded(self, value: float | None, otherwise: float) -> float:
        """The value, limited to the axis; `otherwise` without a value."""
        return otherwise if value is None else min(max(value, self.low), self.high)


_ACCURACY = Worth()


def accuracy_plot(
    points: Sequence[Point],
    *,
    cost: str,
    unit: str,
    worth: Worth = _ACCURACY,
    region: BudgetRegion = _NO_LIMIT,
) -> Plot | None:
    """Accuracy against a cost in bytes or microseconds (`unit`); None without any model to show.

    What `region` allows is shaded. Better is always upwards.
    """
    # The last ones are drawn on top.
    shown = sorted(
        (p for p in points if drawable(p.cost) and worth.drawable(p.accuracy)),
        key=lambda p: p.is_best,
    )
    if not shown:
        return None
    across = _cost_axis([p.cost for p in shown], region.most_cost)
    up = _worth_axis([p.accuracy for p in shown], worth, region.least_value)
    form = {"bytes": units.size, "microseconds": units.duration}[unit]
    marks = [_mark(p, f"{p.label}: {form(p.cost)}, {worth.written(p.accuracy)}") for p in shown]
    is_reversed = not worth.higher_is_better
    return Plot(
        chart="accuracy",
        title=f"{worth.name} against {cost}",
        description="; ".join(mark["tip"] for mark in marks),
        data={
            **_corner(region, across, up),
            "baselines": [{"worth": p.accuracy} for p in shown if p.is_baseline],
            "front": [mark for mark, p in zip(marks, shown, strict=True) if p.is_best],
            "labels": _labels(shown, across, up, is_reversed=is_reversed),
            "models": marks,
        },
        axes={
            "x": {
                "title": f"{cost} →",
                "axis": {"style": unit},
                "scale": {"type": "log", "domain": [across.low, across.high]},
            },
            "y": {
                "title": f"↑ {worth.name}{' (less is better)' * is_reversed}",
                "axis": {"style": "share"} if worth.is_share else {},
                "scale": {"domain": [up.low, up.high], "reverse": is_reversed},
            },
        },
        rows=tuple(p.number for p in shown),
    )


def _cost_axis(costs: list[float], limit: float | None) -> _Axis:
    """An axis with room around the costs, and around a limit that is near them."""
    if limit is not None and drawable(limit) and min(costs) / 2 < limit < max(costs) * 2:
        costs = [*costs, limit]
    low, high = min(costs) / 1.15, max(costs) * 1.15
    short = max(1.0, math.sqrt(_LEAST_RATIO / (high / low)))
    return _Axis(low / short, high * short, math.log)


def _worth_axis(values: list[float], worth: Worth, limit: float | None) -> _Axis:
    """An axis with room around the values, and around a limit that is near them."""
    spread = max(max(values) - min(values), 1e-3)
    if limit is not None and min(values) - spread <= limit <= max(values) + spread:
        values = [*values, limit]
    low, high = min(values), max(values)
    room = 0.15 * max(high - low, 1e-3)
    if worth.is_share:
        room = max(room, 0.65 * _LEAST_SHARES - (high - low) / 2)
        return _Axis(max(low - room, 0.0), min(high + room, 1.0))
    return _Axis(low - room, high + room)


def _corner(region: BudgetRegion, across: _Axis, up: _Axis) -> dict[str, list[Fields]]:
    """The area that the budget allows, and a line at each limit within the plot."""
    limits = [v for v in (region.most_cost, region.least_value) if v is not None]
    if not limits or any(math.isnan(limit) for limit in limits):
        return {"allowed": [], "limits": []}
    cost = across.bounded(region.most_cost, across.high)
    worth = up.bounded(region.least_value, up.low)
    corner = {"cost": across.low, "to_cost": cost, "worth": worth, "to_worth": up.high}
    upright = [{**corner, "cost": cost}] if cost < across.high else []
    level = [{**corner, "to_worth": worth}] if worth > up.low else []
    return {"allowed": [corner], "limits": upright + level}


def _mark(point: Point, tip: str) -> Fields:
    kind = "baseline" if point.is_baseline else "best" if point.is_best else "other"
    return {"cost": point.cost, "worth": point.accuracy, "kind": kind, "tip": tip}


def _labels(
    points: Sequence[Point], across: _Axis, up: _Axis, *, is_reversed: bool
) -> list[Fields]:
    """Names next to their points; those that are farther away have a line to it."""
    shares = [(across.share(p.cost), up.share(p.accuracy)) for p in points]
    places = [(x * _WIDTH, (y if is_reversed else 1 - y) * _HEIGHT) for x, y in shares]
    labels = place_labels(places, [p.label for p in points], _WIDTH, _HEIGHT)
    return [
        {**vars(label), "from_x": x, "from_y": y}
        for (x, y), label in zip(places, labels, strict=True)
        if label
    ]


def size_region(report: Report) -> BudgetRegion:
    """What the budget allows of size and accuracy, by the loosest limit of all models."""
    base = report.baseline.size_bytes if report.baseline else None
    return _region(report, "max-size-bytes", "max-size-ratio", base)


def latency_region(report: Report) -> BudgetRegion:
    """What the budget allows of median latency and accuracy."""
    times = (m.latency.p50_us for m in report.measurements if m.recipe == "float32" and m.latency)
    base = next(times, None)
    return _region(report, "max-latency-p50-us", "max-latency-ratio", base)


def _region(report: Report, limit: str, ratio_limit: str, base: float | None) -> BudgetRegion:
    cost, ratio = _loosest(report, limit, max), _loosest(report, ratio_limit, max)
    costs = (cost, ratio * base if ratio is not None and base is not None else None)
    return BudgetRegion(
        most_cost=min((cost for cost in costs if cost is not None), default=None),
        least_value=_accuracy(report),
    )


def _accuracy(report: Report) -> float | None:
    """The lowest allowed accuracy; None for a metric of which less is better."""
    baseline = report.baseline.accuracy if report.baseline else None
    drop = _loosest(report, "max-accuracy-drop", max)
    if baseline and not baseline.higher_is_better:
        return None
    below = baseline.value - drop if drop is not None and baseline else None
    limits = [v for v in (_loosest(report, "min-accuracy", min), below) if v is not None]
    return max(limits, default=None)


def _loosest(report: Report, limit: str, of: Callable[[list[float]], float]) -> float | None:
    """The loosest value of a limit; None where some model does not have that limit."""
    findings = report.verdict.findings if report.verdict else ()
    named = [f for f in findings if f.limit == limit]
    allowed = [f.allowed for f in named if isinstance(f.allowed, float | int)]
    is_general = {f.model for f in named} == {f.model for f in findings}
    return of(allowed) if allowed and is_general else None


# Vega places labels only with a canvas, which vl-convert does not have.
_CELL = 7.4  # The width of a character at the size that labels have, on the wide side.
_LINE = 15.0
_MARK = 6.0
_MOST_CELLS = 26
# Above and below come first: horizontal lines cross many points.
_UPRIGHT = (-90, -50, -130, 90, 50, 130)
_SIDEWAYS = (0, 180, -20, 20, 160, 200)
_NEAR = (14, 21)
_FAR = (30, 42, 56, 72, 90, 110, 135, 160)
_PLACES = (
    *((ring, angle) for angle in _UPRIGHT for ring in _NEAR),
    *((ring, angle) for angle in _SIDEWAYS for ring in _NEAR),
    *((ring, angle) for ring in _FAR for angle in (*_UPRIGHT, *_SIDEWAYS)),
)


@dataclass(frozen=True)
class Label:
    """A text centered at (x, y) of a plot, y downwards. If `is_far`, a line leads to its point."""

    text: str
    x: float
    y: float
    is_far: bool = False

    @property
    def half(self) -> tuple[float, float]:
        """Half of its width and height; without a text it is the mark of a point."""
        return (cell_len(self.text) * _CELL / 2, _LINE / 2) if self.text else (_MARK, _MARK)

    def meets(self, other: Label) -> bool:
        """Whether the two overlap."""
        (width, height), (its_width, its_height) = self.half, other.half
        return (
            abs(self.x - other.x) < width + its_width
            and abs(self.y - other.y) < height + its_height
        )

    def within(self, width: float, height: float) -> bool:
        """Whether all of it is inside a plot of this size."""
        across, up = self.half
        return across <= self.x <= width - across and up <= self.y <= height - up


def place_labels(
    points: Sequence[tuple[float, float]], texts: Sequence[str], width: float, height: float
) -> list[Label | None]:
    """A label for every point, in order; None if there is no room for one."""
    taken = [Label("", x, y) for x, y in points]
    labels: list[Label | None] = []
    for point, text in zip(points, texts, strict=True):
        places = (_near(point, fit_cells(text), ring, angle) for ring, angle in _PLACES)
        inside = (label for label in places if label.within(width, height))
        free = (label for label in inside if not any(map(label.meets, taken)))
        label = next(free, None)
        labels.append(label)
        taken += [label] if label else []
    return labels


def fit_cells(text: str, most_cells: int = _MOST_CELLS) -> str:
    """The text, with an ellipsis where it is wider than `most_cells`."""
    if cell_len(text) <= most_cells:
        return text
    return set_cell_size(text, most_cells - 1).rstrip() + "…"


def _near(point: tuple[float, float], text: str, ring: int, degrees: int) -> Label:
    # The center is so far away that the edge of the label touches the ring.
    x = point[0] + math.cos(math.radians(degrees)) * (ring - _MARK / 2 + Label(text, 0, 0).half[0])
    y = point[1] + math.sin(math.radians(degrees)) * ring
    return Label(text, round(x, 1), round(y, 1), is_far=ring in _FAR)


DOTS_A_ROW = 150
_MOST_DB = 200
_MOST_DRAWN = 1e12


def latency_plot(models: Sequence[tuple[str, Latency]]) -> Plot | None:
    """Invoke times of each model: dots, 5 to 95 %, 25 to 75 %, the median; None without samples."""
    kept = [(name, [_drawable(times) for times in latency.rounds_us]) for name, latency in models]
    shown = [(name, rounds) for name, rounds in kept if any(rounds)]
    rows = [_times(name, [*chain(*rounds)]) for name, rounds in shown]
    samples = [dot for row, (_, rounds) in enumerate(shown) for dot in _dots(row, rounds)]
    return _plot("latency", "Latency distributions", rows, samples=samples)


def start_plot(models: Sequence[tuple[str, Latency]]) -> Plot | None:
    """Load and first invoke of every process; None without any."""
    shown = [
        (name, starts)
        for name, latency in models
        if any(starts := [_drawable(latency.load_us), _drawable(latency.first_us)])
    ]
    rows = [
        {"label": name, "tip": f"{name}: load {_written(loads)}, first invoke {_written(firsts)}"}
        for name, (loads, firsts) in shown
    ]
    dots = [
        {"row": row, "kind": kind, "time": time, "tip": f"{name}: {kind} {units.duration(time)}"}
        for row, (name, starts) in enumerate(shown)
        for kind, times in zip(("load", "first invoke"), starts, strict=True)
        for time in times
    ]
    return _plot("starts", "Load and first invoke", rows, starts=dots)


def drop_plot(models: Sequence[tuple[str, Measurement]]) -> Plot | None:
    """The accuracy drop of every model, with its 95 % interval; None without any."""
    shown = [(name, model, ends) for name, model in models if (ends := _ends(model))]
    shares = bool(shown) and is_share(shown[0][1].accuracy)
    scale = 100 if shares else 1
    rows = [
        {
            "label": name,
            "tip": f"{name}: {_drop(model)}",
            **dict(zip(("drop", "low", "high"), (end * scale for end in ends), strict=False)),
            # Filled where the drop is beyond chance, hollow where chance may explain it.
            "kind": "beyond" if len(ends) > 1 and not ends[1] <= 0 <= ends[2] else "within",
        }
        for name, model, ends in shown
    ]
    unit = "percentage points" if shares else "in the metric's unit"
    return _plot("drops", "Drop from the baseline", rows, {"title": f"worse by, {unit} →"})


def snr_plot(models: Sequence[tuple[str, float | None]]) -> Plot | None:
    """The worst output's signal-to-noise ratio of every artifact; None if there is none."""
    finite = [v for _, v in models if v is not None and abs(v) < MAX_SNR_DB]
    least, most = max(min([0, *finite]), -_MOST_DB), min(max([60, *finite]), _MOST_DB)
    rows = [
        {"label": name, "tip": f"{name}: {units.decibels(value)}", **_bar(value, least, most)}
        for name, value in models
    ]
    return _plot(
        "closeness", "Closeness of the outputs", rows, {"scale": {"domain": [least, most]}}
    )


def _plot(
    chart: str, title: str, rows: list[Fields], x: Fields | None = None, **data: list[Fields]
) -> Plot | None:
    if not rows:
        return None
    return Plot(
        chart=chart,
        title=title,
        description="; ".join(row["tip"] for row in rows),
        data={"rows": [{"row": number, **row} for number, row in enumerate(rows)], **data},
        axes={"x": x or {}},
    )


def _times(name: str, samples: Sequence[float]) -> Fields:
    """The 5, 25, 50, 75 and 95 % quantiles."""
    cuts = quantiles(samples, n=20, method="inclusive") if len(samples) > 1 else [*samples] * 19
    p5, p25, p50, p75, p95 = (cuts[at] for at in (0, 4, 9, 14, 18))
    tip = f"{name}: median {units.duration(p50)}"
    return {"label": name, "tip": tip, "p5": p5, "p25": p25, "p50": p50, "p75": p75, "p95": p95}


def _dots(row: int, rounds: Sequence[Sequence[float]]) -> Iterator[Fields]:
    """At most about `DOTS_A_ROW` of the samples, each process on its own line.

    They are points of a line with a gap after each: the page has one element for all of them.
    """
    every = max(1, math.ceil(sum(map(len, rounds)) / DOTS_A_ROW))
    for number, samples in enumerate(rounds):
        process = number / (len(rounds) - 1) if len(rounds) > 1 else 0.5
        for time in samples[::every]:
            yield {"row": row, "process": process, "time": time}
            yield {"row": row, "process": process, "time": None}


def _bar(value: float | None, least: float, most: float) -> Fields:
    """A bar from 0, and the text next to it; an unknown value has no bar."""
    end = None if value is None or math.isnan(value) else min(max(value, least), most)
    kind = "exact" if value == MAX_SNR_DB else "negative" if (end or 0) < 0 else "noisy"
    written = units.decibels(value)
    return {"snr": end, "kind": kind, "end": max(end or 0, 0), "written": written}


def _ends(model: Measurement) -> tuple[float, ...]:
    if model.accuracy_drop is None or model.role == "baseline":
        return ()
    ends = (model.accuracy_drop, *(model.accuracy_drop_interval or ()))
    return ends if all(abs(end) < _MOST_DRAWN for end in ends) else ()


def _drop(model: Measurement) -> str:
    return units.with_interval(
        drop_value(model.accuracy_drop, model.accuracy),
        interval_value(model.accuracy_drop_interval, model.accuracy),
    )


def _drawable(times: Sequence[float]) -> list[float]:
    return [time for time in times if drawable(time)]


def _written(times: Sequence[float]) -> str:
    return ", ".join(map(units.duration, times)) or units.ABSENT


_MOST_EPOCH_DOTS = 30
_MOST_LAYER_DOTS = 120
_MOST_LAYER_DB = 100.0


def metric_plots(record: TrainingRecord | None) -> list[tuple[str, Plot]]:
    """Every metric of a training by name, with its plot; those without a number are left out.

    The line of the training samples is solid, the validation's dashed; the epoch that was
    kept has a large point.
    """
    if record is None:
        return []
    names = dict.fromkeys(name for e in record.epochs for name in (*e.metrics, *e.validation))
    plots = ((units.plain(name), _metric_plot(name, record)) for name in names)
    return [(name, plot) for name, plot in plots if plot]


def layer_plot(errors: Sequence[LayerError], name: str) -> Plot | None:
    """The signal-to-noise ratio of every layer, in the order of the graph; None without any.

    Ratios above 100 dB are drawn at 100 dB; NaN leaves a gap.
    """
    known = {n: e.snr_db for n, e in enumerate(errors, start=1) if not math.isnan(e.snr_db)}
    if not known:
        return None
    values: list[Fields] = [
        {
            "series": "layer",
            "number": number,
            "value": min(max(error.snr_db, -_MOST_LAYER_DB), _MOST_LAYER_DB)
            if number in known
            else None,
            "tip": f"{number}: {layer_name(error.layer)} ({units.plain(error.operator)}), "
            f"{units.decibels(error.snr_db)}",
        }
        for number, error in enumerate(errors, start=1)
    ]
    dots = [{**value, "size": 32} for value in values if value["number"] in known]
    worst = min(known, key=known.__getitem__)
    return Plot(
        chart="lines",
        title=f"{name}, layer by layer",
        description=f"The worst of {len(errors)} layers is number {worst}, "
        f"{layer_name(errors[worst - 1].layer)}: {units.decibels(known[worst])}.",
        data={"values": values, "dots": dots if len(dots) <= _MOST_LAYER_DOTS else []},
        axes={
            "x": {"title": "position in the graph →"},
            "y": {"title": "↑ signal to noise, dB", "scale": {"nice": 5}},
            "color": {"legend": None},
            "strokeDash": {"legend": None},
        },
    )


def _metric_plot(name: str, record: TrainingRecord) -> Plot | None:
    series = {
        "training": [epoch.metrics.get(name) for epoch in record.epochs],
        "validation": [epoch.validation.get(name) for epoch in record.epochs],
    }
    values = [value for kind, logged in series.items() for value in _values(kind, logged)]
    known = [value for value in values if value["value"] is not None]
    if not known:
        return None
    last = max(value["number"] for value in known)
    final = ", ".join(value["tip"].split(": ")[1] for value in known if value["number"] == last)
    kept = record.best_epoch
    legend = {"values": sorted({value["series"] for value in known})}
    dots = [
        {**value, "size": 78 if value["number"] == kept else 24}
        for value in known
        if value["number"] == kept or len(record.epochs) <= _MOST_EPOCH_DOTS
    ]
    return Plot(
        chart="lines",
        title=f"{units.plain(name)}, epoch by epoch",
        description=f"At epoch {last}: {final}.",
        data={"values": values, "dots": dots},
        axes={
            "x": {"title": "epoch →"},
            "y": {"title": units.plain(name), "scale": {"zero": False, "nice": 5}},
            "color": {"legend": legend},
            "strokeDash": {"legend": legend},
        },
    )


def _values(kind: str, logged: Sequence[float | None]) -> list[Fields]:
    """What was logged of one kind of samples, by epoch; empty where nothing can be drawn."""
    values = [v if v is not None and abs(v) < _MOST_DRAWN else None for v in logged]
    if values.count(None) == len(values):
        return []
    return [
        {"series": kind, "number": n, "value": v, "tip": f"epoch {n}: {kind} {metric(v)}"}
        for n, v in enumerate(values, start=1)
    ]
