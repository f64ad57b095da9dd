"""A report as one HTML page that needs nothing else: no network, no script, no font."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edgeconv.data.preprocessing import describe
from edgeconv.report import units
from edgeconv.report.curves import metric_pictures
from edgeconv.report.differences import difference_lines
from edgeconv.report.limits import closing_line, in_words
from edgeconv.report.plots import Point, accuracy_plot
from edgeconv.report.qat import qat_facts
from edgeconv.report.rows import ModelRow, io_types, model_rows, weights, worst_snr_db
from edgeconv.report.strips import DOTS_A_ROW, latency_picture, snr_picture
from edgeconv.report.training import epoch_table, training_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.nouns import (
        Artifact,
        Measurement,
        OutputError,
        Report,
        TensorSpec,
        TrainingRecord,
    )

_MOST_CHANNELS = 4


def render_html(report: Report) -> str:
    """The whole page. Nothing in the report can become markup, script or style in it."""
    environment = Environment(
        loader=PackageLoader("edgeconv", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(_FILTERS)
    rows = model_rows(report)
    return environment.get_template("report.html.j2").render(
        report=report,
        rows=rows,
        has_training=_has(rows, "training"),
        models_caption=_caption(rows),
        models_columns=_columns(rows),
        differences=[_sentence(said) for said in difference_lines(report)],
        curves=metric_pictures(report.training, "metric") if report.training else [],
        models=_models(report),
        outcome=_outcome(report),
        closing=closing_line(report.verdict),
        highlights=_highlights(report, rows),
        pictures=_pictures(report),
        dots_a_row=DOTS_A_ROW,
    )


def _has(rows: Sequence[ModelRow], field: str) -> bool:
    return any(getattr(row, field) != units.ABSENT for row in rows)


def _columns(rows: Sequence[ModelRow]) -> list[tuple[str, bool]]:
    """The headings of the models' table, and whether each is of text."""
    headings = ["Size", "Ratio", "p50", "p90", "Speed-up", "Memory", "Accuracy", "Drop", "Flips"]
    headings += ["Training"] if _has(rows, "training") else []
    return [("Model", True), *((heading, False) for heading in headings), ("Budget", True)]


def _caption(rows: Sequence[ModelRow]) -> str:
    said = ["Flips are the samples that became right (+) and wrong (−) beside the baseline."]
    if _has(rows, "drop_interval"):
        said.append("Under a drop is its 95 % interval, from those flips.")
    if _has(rows, "gzip"):
        said.append("Gzip is about the size in a package.")
    if _has(rows, "training"):
        said.append("Training is the time that it took.")
    return " ".join(said)


def _outcome(report: Report) -> tuple[str, str]:
    """The style class and the word of the verdict."""
    if report.verdict is None:
        return "none", "Not judged"
    return ("ok", "Pass") if report.verdict.ok else ("over", "Fail")


def _models(report: Report) -> list[Measurement]:
    return [*([report.baseline] if report.baseline else []), *report.measurements]


def _highlights(report: Report, rows: Sequence[ModelRow]) -> list[tuple[str, str, str]]:
    """What the best artifacts are: heading, model and figure. Those over budget are left out."""
    allowed = {"–"} if report.verdict is None else {"ok"}
    made = [
        (model, row)
        for model, row in zip(_models(report), rows, strict=True)
        if not row.is_baseline and not row.error and row.mark in allowed
    ]
    if not made:
        return []
    _, row = min(made, key=lambda pair: pair[0].size_bytes)
    found = [("Smallest", row.name, f"{row.size}, {row.size_ratio} the baseline")]
    timed = [(m.latency.p50_us, row) for m, row in made if m.latency and m.latency.p50_us > 0]
    if timed:
        row = min(timed, key=lambda pair: pair[0])[1]
        found.append(("Fastest", row.name, f"{row.p50}, {row.speed_up} as fast as float32"))
    judged = [(m.accuracy.value, -m.size_bytes, row) for m, row in made if m.accuracy]
    if judged:
        row = max(judged, key=lambda triple: triple[:2])[2]
        found.append(("Most accurate", row.name, f"{row.accuracy}, drop {row.drop}"))
    return found


def _pictures(report: Report) -> dict[str, Markup | None]:
    names = _short_names(report)
    models = [(names[i], model) for i, model in enumerate(_models(report))]
    timed = [(name, model.latency) for name, model in models if model.latency]
    outputs = [(a, worst_snr_db(a.verification.outputs)) for a in report.artifacts]
    sizes = [_point(name, m, m.size_bytes) for name, m in models]
    times = [_point(name, m, m.latency.p50_us) for name, m in models if m.latency]
    return {
        "size": accuracy_plot(sizes, key="by-size", heading="size on disk", form=units.size),
        "latency": accuracy_plot(
            times, key="by-latency", heading="latency p50", form=units.duration
        ),
        "samples": latency_picture(timed, "samples"),
        "snr": snr_picture([(units.plain(a.recipe.name), snr) for a, snr in outputs], "snr"),
    }


def _short_names(report: Report) -> list[str]:
    """A label for each model: its recipe, or its name where two have the same recipe."""
    recipes = [model.recipe for model in _models(report)]
    return [
        "baseline"
        if model.role == "baseline"
        else model.recipe
        if model.recipe and recipes.count(model.recipe) == 1
        else units.plain(model.name)
        for model in _models(report)
    ]


def _point(label: str, model: Measurement, cost: float) -> Point:
    accuracy = model.accuracy.value if model.accuracy else math.nan
    return Point(label, cost, accuracy, model.role == "baseline")


def _epochs_caption(record: TrainingRecord) -> str:
    said = ["What was logged at each epoch."]
    if record.validation_samples:
        said.append("“val” is on the samples kept apart.")
    if record.best_epoch:
        said.append("* is the epoch that was kept.")
    return " ".join(said)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(said: str) -> str:
    """A line of text as one of the page's; the name of a model stays as it is."""
    return f"{_capitalized(said) if said.startswith('drop: ') else said}."


def _shown(value: Any) -> Any:
    """What the template writes for a value: markup as it is, all else made harmless."""
    if isinstance(value, Markup):
        return value
    return units.ABSENT if value is None else units.plain(str(value))


def _shape(tensor: TensorSpec) -> str:
    if not tensor.rank_known:
        return "any"
    return " × ".join("?" if length < 0 else str(length) for length in tensor.shape) or "scalar"


def _few(values: Sequence[float]) -> str:
    """The first of many numbers, and how many there are."""
    if not values:
        return units.ABSENT
    first = ", ".join(f"{value:.6g}" for value in values[:_MOST_CHANNELS])
    return first if len(values) <= _MOST_CHANNELS else f"{first}, … ({len(values)} channels)"


def _relative(output: OutputError) -> float | None:
    """The RMS error as a fraction of the reference's RMS; None where that is zero."""
    return output.rms_error / output.rms_reference if output.rms_reference else None


def _made_by(artifact: Artifact) -> str:
    return {"litert": "ai-edge-quantizer", "tflite": "TFLiteConverter"}[artifact.engine]


_FILTERS = {
    "size": units.size,
    "duration": units.duration,
    "percent": units.percent,
    "decibels": units.decibels,
    "significant": units.significant,
    "in_words": in_words,
    "io_types": io_types,
    "steps": lambda artifact: describe(artifact.preprocessing),
    "weights": weights,
    "shape": _shape,
    "few": _few,
    "relative": _relative,
    "made_by": _made_by,
    "training_facts": training_facts,
    "epoch_table": epoch_table,
    "epochs_caption": _epochs_caption,
    "qat_facts": qat_facts,
    "capitalized": _capitalized,
    "pair": lambda heading: (heading, False),
}
