"""Pictures of one row a model: the drop with its interval, and what comes before the first run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from edgeconv.reporting import units
from edgeconv.reporting.axes import Axis, drawable, linear_axis, log_axis
from edgeconv.reporting.plots import line, picture, verticals, words
from edgeconv.reporting.strips import LEFT, RIGHT, ROW, TOP, row_label
from edgeconv.reporting.values import drop_value, interval_value, is_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Latency, Measurement

_MOST = 1e12


def drop_picture(rows: Sequence[tuple[str, Measurement]], key: str) -> Markup | None:
    """How much worse every model is than the baseline, with its 95 % interval; None of nothing."""
    shown = [(label, model, ends) for label, model in rows if (ends := _ends(model)) is not None]
    if not shown:
        return None
    values = [value for _, _, ends in shown for value in ends]
    axis = linear_axis([0.0, *values], LEFT, RIGHT, least=-math.inf, most=math.inf)
    bottom = TOP + ROW * len(shown)
    share = is_share(shown[0][1].accuracy)
    parts = [
        verticals(axis, TOP, bottom, lambda tick, _: _tick(tick, share)),
        line(axis.at(0), TOP, axis.at(0), bottom, "reference"),
    ]
    for i, (label, model, ends) in enumerate(shown):
        middle = TOP + ROW * i + ROW / 2
        parts += [row_label(label, middle), _whisker(model, ends, axis, middle)]
    unit = "percentage points" if share else "in the metric's unit"
    parts.append(words((LEFT + RIGHT) / 2, bottom + 36, f"worse by, {unit} →", "axis"))
    said = "; ".join(f"{label}: {_said(model)}" for label, model, _ in shown)
    return picture(Markup().join(parts), bottom + 42, key, "Drop beside the baseline", said)


def start_picture(rows: Sequence[tuple[str, Latency]], key: str) -> Markup | None:
    """Load and first invoke of every process, one above the other; None of nothing."""
    shown = [
        (label, kept)
        for label, latency in rows
        if any(kept := [_drawable(latency.load_us), _drawable(latency.first_us)])
    ]
    if not shown:
        return None
    values = [v for _, kept in shown for times in kept for v in times]
    axis = log_axis(values, LEFT, RIGHT)
    bottom = TOP + ROW * len(shown)
    parts = [verticals(axis, TOP, bottom, units.duration)]
    for i, (label, kept) in enumerate(shown):
        middle = TOP + ROW * i + ROW / 2
        parts.append(row_label(label, middle))
        for times, kind, what, y in zip(
            kept, ("other", "best"), ("load", "first invoke"), (middle - 6, middle + 6), strict=True
        ):
            parts += [
                _start(axis.at(t), y, kind, f"{label}: {what} {units.duration(t)}") for t in times
            ]
    parts.append(words((LEFT + RIGHT) / 2, bottom + 36, "time →", "axis"))
    said = "; ".join(
        f"{label}: load {_written(load)}, first invoke {_written(first)}"
        for label, (load, first) in shown
    )
    return picture(Markup().join(parts), bottom + 42, key, "Load and first invoke", said)


def _ends(model: Measurement) -> tuple[float, ...] | None:
    """The drop and the ends of its interval, where all of them can be drawn."""
    if model.accuracy_drop is None or model.role == "baseline":
        return None
    ends = (model.accuracy_drop, *(model.accuracy_drop_interval or ()))
    return ends if all(abs(end) < _MOST for end in ends) else None


def _tick(value: float, share: bool) -> str:
    return f"{value * 100 if share else value:g}".replace("-", "−")


def _said(model: Measurement) -> str:
    drop = drop_value(model.accuracy_drop, model.accuracy)
    interval = interval_value(model.accuracy_drop_interval, model.accuracy)
    return drop if interval == units.ABSENT else f"{drop} {interval}"


def _whisker(model: Measurement, ends: tuple[float, ...], axis: Axis, middle: float) -> Markup:
    low, high = axis.at(min(ends)), axis.at(max(ends))
    bar = Markup()
    if len(ends) > 1:
        caps = [line(x, middle - 5, x, middle + 5, "whisker") for x in (low, high)]
        bar = Markup().join([line(low, middle, high, middle, "whisker"), *caps])
    # Beyond chance is filled; what chance may explain is hollow.
    beyond = len(ends) > 1 and not ends[1] <= 0 <= ends[2]
    dot = Markup('<circle class="{}" cx="{:g}" cy="{:g}" r="5"><title>{}</title></circle>')
    kind = "best" if beyond else "other"
    return bar + dot.format(kind, axis.at(ends[0]), middle, _said(model))


def _drawable(times: Sequence[float]) -> list[float]:
    return [time for time in times if drawable(time)]


def _start(x: float, y: float, kind: str, title: str) -> Markup:
    dot = Markup('<circle class="{}" cx="{:g}" cy="{:g}" r="3.4"><title>{}</title></circle>')
    return dot.format(kind, x, y, title)


def _written(times: Sequence[float]) -> str:
    return ", ".join(units.duration(time) for time in times) or units.ABSENT
