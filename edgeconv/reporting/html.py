"""Reports as one HTML file, without network, with its own script and style."""

from __future__ import annotations

import base64
import hashlib
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edgeconv.data.preprocessing import describe
from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, span
from edgeconv.reporting.limits import explanation, in_words, name_of, word_of
from edgeconv.reporting.rows import io_types, weights
from edgeconv.reporting.sections import outcome, sections
from edgeconv.reporting.training import epoch_table, qat_facts, training_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Report, TensorSpec, TrainingRecord

_MOST_CHANNELS = 4


def render_html(report: Report, *others: Report) -> str:
    """The whole page. No text of a report becomes markup, script or style in it.

    `others` are shown below the first and are not compared with it.
    """
    environment = page_environment()
    reports = (report, *others)
    prefixes = [f"g{i}-" if others else "" for i in range(1, len(reports) + 1)]
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, "script.js.j2")
    script = Markup(source)
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
        script=script,
        # By this the page's security policy allows its one script.
        script_hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
    )


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


_ENGINES = {"litert": "ai-edge-quantizer", "tflite": "TFLiteConverter"}
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
    "engine_name": lambda artifact: _ENGINES[artifact.engine],
    "training_facts": training_facts,
    "epoch_table": epoch_table,
    "epochs_caption": _epochs_caption,
    "qat_facts": qat_facts,
    "capitalized": lambda text: text[:1].upper() + text[1:],
    "pair": lambda heading: (heading, False),
}
