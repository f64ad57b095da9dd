"""Reports as one HTML file, without network, with its own script and style."""

import base64
import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edgeconv.data.preprocessing import describe
from edgeconv.reporting import units
from edgeconv.reporting.closeness import (
    difference_lines,
    floats_line,
    grade_line,
    io_types,
    snr,
    span,
    weights,
    worst_outputs,
)
from edgeconv.reporting.columns import ModelRow, all_models, first_accuracy, model_rows
from edgeconv.reporting.drawing import Plot, draw_svg
from edgeconv.reporting.facts import (
    agreement_table,
    batched_line,
    command_line,
    epoch_table,
    hash_table,
    latency_table,
    machine_facts,
    models_table,
    qat_facts,
    training_facts,
    version_facts,
)
from edgeconv.reporting.layers import layer_tables, models_with_layers, profile_tables
from edgeconv.reporting.limits import (
    closing_line,
    explanation,
    in_words,
    name_of,
    word_of,
    word_of_verdict,
)
from edgeconv.reporting.plots import (
    DOTS_A_ROW,
    Point,
    Worth,
    accuracy_plot,
    drop_plot,
    latency_plot,
    latency_region,
    layer_plot,
    metric_plots,
    size_region,
    snr_plot,
    start_plot,
)
from edgeconv.reporting.sections import flip_tables, matrix_table, npu_table
from edgeconv.reporting.units import is_share
from edgeconv.statistics.comparison import is_faster, is_more_accurate, pareto_front
from edgeconv.types import Measurement, Report, TensorSpec, TrainingRecord
from edgeconv.types.words import listed

_MOST_CHANNELS = 4


def render_html(report: Report, *others: Report) -> str:
    """The whole page. No text of a report becomes markup, script or style in it.

    `others` are shown below the first and are not compared with it.
    """
    environment = page_environment()
    reports = (report, *others)
    prefixes = [f"g{i}-" if others else "" for i in range(1, len(reports) + 1)]
    groups = [
        Markup(
            environment.get_template("group.html.j2").render(
                **sections(each, prefix), g=prefix, level=3 if others else 2
            )
        )
        for each, prefix in zip(reports, prefixes, strict=True)
    ]
    return environment.get_template("report.html.j2").render(
        title=f"{len(reports)} reports side by side" if others else report.title,
        word="Not compared with each other" if others else outcome(report)[1],
        reports=reports,
        groups=list(zip(prefixes, reports, groups, strict=True)),
        **page_script("script.js.j2"),
    )


def page_script(*names: str) -> dict[str, str]:
    """The one script of a page, and the hash by which the page's security policy allows it."""
    environment = page_environment()
    assert environment.loader is not None
    script = "".join(environment.loader.get_source(environment, name)[0] for name in names)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "script_hash": f"sha256-{digest}"}


@cache
def page_environment() -> Environment:
    """The templates of pages, which escape all that is not markup."""
    environment = Environment(
        loader=PackageLoader("edgeconv", "reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(_FILTERS)
    return environment


def _epochs_caption(record: TrainingRecord) -> str:
    sentences = ["What was logged in each epoch."]
    if record.validation_samples:
        sentences.append("“val” is on the validation samples.")
    if record.best_epoch:
        sentences.append("* is the epoch that was kept.")
    return " ".join(sentences)


def _shown(value: Any) -> Any:
    """What the template writes for a value: markup unchanged, all else made harmless."""
    if isinstance(value, Markup):
        return value
    return units.ABSENT if value is None else units.plain(str(value))


def _shape(tensor: TensorSpec) -> str:
    if not tensor.rank_known:
        return "any"
    return " × ".join("?" if length < 0 else str(length) for length in tensor.shape) or "scalar"


def _few(values: Sequence[float]) -> str:
    if not values:
        return units.ABSENT
    first = ", ".join(f"{value:.6g}" for value in values[:_MOST_CHANNELS])
    return first if len(values) <= _MOST_CHANNELS else f"{first}, … ({len(values)} channels)"


_ENGINES = {"litert": "litert-quantizer", "tflite": "TFLiteConverter"}
# The style class and the word.
_WORDS = {
    "PASS": ("ok", "pass"),
    "WARN": ("warn", "warning"),
    "FAIL": ("over", "fail"),
    "–": ("unknown", "not measured"),
    "?": ("unknown", "?"),
}
_FILTERS = {
    "size": units.size,
    "duration": units.duration,
    "percent": units.percent,
    "decibels": units.decibels,
    "significant": units.significant,
    "in_words": in_words,
    "name_of": name_of,
    "explanation": partial(explanation, below_table=True),
    "word_of": lambda finding: _WORDS[word_of(finding)],
    "io_types": io_types,
    "steps": lambda artifact: describe(artifact.preprocessing),
    "weights": weights,
    "shape": _shape,
    "few": _few,
    "snr": snr,
    "span": span,
    "step": lambda step: units.ABSENT if step is None else units.significant(step),
    "grade_line": grade_line,
    "floats_line": floats_line,
    "engine_name": lambda artifact: _ENGINES[artifact.engine],
    "training_facts": training_facts,
    "epoch_table": epoch_table,
    "epochs_caption": _epochs_caption,
    "number_heading": lambda column: (column.heading, False),
    "qat_facts": qat_facts,
    "capitalized": lambda text: text[:1].upper() + text[1:],
}


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
        "matrix": matrix.for_page if (matrix := matrix_table(report)) else None,
        "npu": npu.for_page if (npu := npu_table(report)) else None,
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
    if first is None or first.title == "top1":
        return Worth()
    name = units.plain(first.title)
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


_MOST_NAMES = 3


def highlights(report: Report, rows: Sequence[ModelRow]) -> list[tuple[str, str, str]]:
    """The best artifacts within budget: heading, models and figure.

    Models that are equal to the best within noise are named together, the smallest first.
    """
    allowed = {"–"} if report.verdict is None else {"ok", "warn"}
    candidates = [
        row for row in rows if not row.is_baseline and not row.error and row.mark in allowed
    ]
    if not candidates:
        return []
    candidates.sort(key=lambda row: row.model.size_bytes)
    first = candidates[0]
    smallest = [row for row in candidates if row.model.size_bytes == first.model.size_bytes]
    ratio = first.text("ratio")
    figure = first.text("size") + (f", {ratio} the baseline" if ratio != units.ABSENT else "")
    best = [("Smallest", _names(smallest), figure)]
    if timed := [row for row in candidates if _p50(row.model) < math.inf]:
        best.append(_fastest(timed))
    if evaluated := [row for row in candidates if _goodness(row.model) > -math.inf]:
        best.append(_most_accurate(evaluated))
    return best


def unbeaten_by_size(report: Report) -> list[Measurement]:
    """The artifacts that no other beats in accuracy and size, beyond chance."""
    return _pareto_front(report.measurements, lambda a, b: a.size_bytes < b.size_bytes)


def unbeaten_by_latency(report: Report) -> list[Measurement]:
    """The same of accuracy and latency."""
    return _pareto_front([m for m in report.measurements if _p50(m) < math.inf], _is_faster)


def _fastest(timed: Sequence[ModelRow]) -> tuple[str, str, str]:
    first = min((row.model for row in timed), key=_p50)
    alike = [row for row in timed if not _is_faster(first, row.model)]
    if len(alike) == 1:
        row = alike[0]
        speed_up = row.with_interval("speed-up")
        ratio = f", {speed_up} as fast as float32" if row.text("speed-up") != units.ABSENT else ""
        return "Fastest", row.name, f"{row.text('p50')}{ratio}"
    times = [row.text("p50") for row in sorted(alike, key=lambda row: _p50(row.model))]
    figure = f"{times[0]} to {times[-1]}, equal within noise"
    if len(alike) == len(timed):
        return "Fastest", "none beyond noise", figure
    return "Fastest", _names(alike), figure


def _most_accurate(evaluated: Sequence[ModelRow]) -> tuple[str, str, str]:
    first = max((row.model for row in evaluated), key=_goodness)
    alike = [row for row in evaluated if not _is_better(first, row.model)]
    if len(alike) == 1:
        row = alike[0]
        drop = f", drop {row.text('drop')}" if row.text("drop") != units.ABSENT else ""
        return "Most accurate", row.name, f"{row.text('accuracy')}{drop}"
    values = [row.text("accuracy") for row in sorted(alike, key=lambda row: _goodness(row.model))]
    least, most = values[0], values[-1]
    figure = f"{least}, equal" if least == most else f"{least} to {most}, equal within chance"
    if len(alike) == len(evaluated):
        return "Most accurate", "none beyond chance", figure
    return "Most accurate", _names(alike), figure


def _names(rows: Sequence[ModelRow]) -> str:
    return listed((row.name for row in rows), _MOST_NAMES)


def _pareto_front(
    rows: Sequence[Measurement], is_cheaper: Callable[[Measurement, Measurement], bool]
) -> list[Measurement]:
    evaluated = [model for model in rows if not model.error and _goodness(model) > -math.inf]
    best = pareto_front(evaluated, is_cheaper, _is_better)
    return [model for model, is_best in zip(evaluated, best, strict=True) if is_best]


def _p50(model: Measurement) -> float:
    p50_us = model.latency.p50_us if model.latency else math.inf
    return p50_us if p50_us > 0 else math.inf


def _is_faster(a: Measurement, b: Measurement) -> bool:
    return a.latency is not None and b.latency is not None and is_faster(a.latency, b.latency)


def _is_better(a: Measurement, b: Measurement) -> bool:
    return bool(a.accuracy and b.accuracy and is_more_accurate(a.accuracy, b.accuracy))


def _goodness(model: Measurement) -> float:
    if model.accuracy is None or math.isnan(model.accuracy.value):
        return -math.inf
    return model.accuracy.value * (1 if model.accuracy.higher_is_better else -1)
