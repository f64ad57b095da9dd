"""The sections of the page of one report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edgeconv.reporting import units
from edgeconv.reporting.closeness import worst_outputs
from edgeconv.reporting.curves import layer_plot, metric_plots
from edgeconv.reporting.drawing import Plot, draw_svg
from edgeconv.reporting.facts import (
    agreement_table,
    batched_line,
    command_line,
    hash_table,
    latency_table,
    machine_facts,
    version_facts,
)
from edgeconv.reporting.flips import flip_tables
from edgeconv.reporting.highlights import highlights, unbeaten_by_latency, unbeaten_by_size
from edgeconv.reporting.layers import layer_tables, models_with_layers, profile_tables
from edgeconv.reporting.limits import closing_line, word_of_verdict
from edgeconv.reporting.matrix import matrix_table
from edgeconv.reporting.npu import npu_table
from edgeconv.reporting.plots import Point, Worth, accuracy_plot, latency_region, size_region
from edgeconv.reporting.rows import all_models, difference_lines, first_accuracy, model_rows
from edgeconv.reporting.strips import DOTS_A_ROW, drop_plot, latency_plot, snr_plot, start_plot
from edgeconv.reporting.tables import models_table
from edgeconv.reporting.units import is_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Measurement, Report


def sections(report: Report, prefix: str) -> dict[str, Any]:
    """All that the template of a report needs; `prefix` makes its ids unique on the page."""
    rows = model_rows(report)
    pictures = {
        name: draw_svg(plot, f"{prefix}plot-{name}") for name, plot in _plots(report).items()
    }
    layers = []
    for (name, worst, table), model in zip(
        layer_tables(report), models_with_layers(report), strict=True
    ):
        plot = draw_svg(layer_plot(model.layer_errors, name), f"{prefix}trace-{table.name}")
        layers.append((name, worst, table, plot))
    curves = [
        (name, draw_svg(plot, f"{prefix}metric-{number}"))
        for number, (name, plot) in enumerate(metric_plots(report.training))
    ]
    parts = {
        "report": report,
        "models": models_table(report),
        "differences": [_sentence(line) for line in difference_lines(report)],
        "outcome": outcome(report),
        "closing": closing_line(report.verdict),
        "highlights": highlights(report, rows),
        "pictures": pictures,
        "is_shaded": size_region(report).is_limited or latency_region(report).is_limited,
        "latencies": latency_table(report),
        "matrix": matrix_table(report),
        "npu": npu_table(report),
        "batched": batched_line(report.baseline),
        "dots_a_row": DOTS_A_ROW,
        "flips": flip_tables(report),
        "agreement": agreement_table(report),
        "pictured_against": worst_outputs(report, _labelled(report))[1],
        "layers": layers,
        "profiles": profile_tables(report),
        "curves": curves,
        "machine": machine_facts(report),
        "versions": version_facts(report),
        "command": command_line(report),
        "hashes": hash_table(report),
    }
    return {**parts, "contents": _contents(parts)}


def outcome(report: Report) -> tuple[str, str]:
    """The style class and the word of the verdict."""
    if report.verdict is None:
        return "none", "No budget"
    word = word_of_verdict(report.verdict)
    kind = "ok" if report.verdict.ok else "over" if word == "FAIL" else "none"
    return kind, ("Pass" if report.verdict.ok else word.capitalize())


def _contents(parts: dict[str, Any]) -> list[tuple[str, str]]:
    """The sections that have content: id and title."""
    report: Report = parts["report"]
    pictures = parts["pictures"]
    titles = {
        ("models", "Models"): True,
        ("pictures", "Trade-off"): any(pictures[name] for name in ("size", "latency", "snr")),
        ("latencies", "Latency"): parts["latencies"],
        ("matrix", "Versions"): parts["matrix"],
        ("npu", "NPU"): parts["npu"],
        ("budget", "Budget"): report.verdict and report.verdict.findings,
        ("flips", "Flips"): parts["flips"],
        ("closeness", "Closeness"): parts["agreement"] or parts["layers"],
        ("profiles", "Profile"): parts["profiles"],
        ("artifacts", "Artifacts"): report.artifacts,
        ("training", "Training"): report.training,
        ("environment", "Machine"): True,
        ("reproduce", "Reproduce"): True,
        ("notes", "Notes"): report.notes,
    }
    return [title for title, content in titles.items() if content]


def _plots(report: Report) -> dict[str, Plot | None]:
    models = _labelled(report)
    timed = [(name, model.latency) for name, model in models if model.latency]
    small, fast = unbeaten_by_size(report), unbeaten_by_latency(report)
    sizes = [_point(i, name, m, m.size_bytes, small) for i, (name, m) in enumerate(models)]
    times = [
        _point(i, name, m, m.latency.p50_us, fast)
        for i, (name, m) in enumerate(models)
        if m.latency
    ]
    worth = _worth(report)
    closeness, _ = worst_outputs(report, models)
    return {
        "size": accuracy_plot(
            sizes, cost="size on disk", unit="bytes", worth=worth, region=size_region(report)
        ),
        "latency": accuracy_plot(
            times,
            cost="latency p50",
            unit="microseconds",
            worth=worth,
            region=latency_region(report),
        ),
        "drops": drop_plot(models),
        "samples": latency_plot(timed),
        "starts": start_plot(timed),
        "snr": snr_plot(closeness),
    }


def _worth(report: Report) -> Worth:
    first = first_accuracy(report)
    if first is None or first.metric == "top1":
        return Worth()
    name = units.plain(first.metric)
    return Worth(name, is_share(first), first.higher_is_better)


def _labelled(report: Report) -> list[tuple[str, Measurement]]:
    """Each model with a label: its recipe, or its name where two have the same recipe."""
    models = all_models(report)
    recipes = [model.recipe for model in models]

    def label(model: Measurement) -> str:
        if model.role == "baseline":
            return "baseline"
        is_alone = model.recipe and recipes.count(model.recipe) == 1
        return (model.recipe if is_alone else None) or units.plain(model.name)

    return [(label(model), model) for model in models]


def _point(
    number: int, label: str, model: Measurement, cost: float, best: Sequence[Measurement]
) -> Point:
    accuracy = model.accuracy.value if model.accuracy else math.nan
    is_best = any(model is each for each in best)
    return Point(label, cost, accuracy, model.role == "baseline", number, is_best)


def _sentence(line: str) -> str:
    """A line of text as a sentence; the name of a model keeps its first letter."""
    return f"D{line[1:]}." if line.startswith("drop: ") else f"{line}."
