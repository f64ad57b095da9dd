"""Reports as one HTML page that needs nothing else: no network, no font, one script of its own."""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edgeconv.data.preprocessing import describe
from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, span
from edgeconv.reporting.limits import explanation, in_words, name_of, word_of
from edgeconv.reporting.qat import qat_facts
from edgeconv.reporting.rows import io_types, weights
from edgeconv.reporting.sections import outcome, sections
from edgeconv.reporting.training import epoch_table, training_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Artifact, Report, TensorSpec, TrainingRecord

_MOST_CHANNELS = 4


def render_html(report: Report, *others: Report) -> str:
    """The whole page. Nothing in a report can become markup, script or style in it.

    `others` are shown below the first, each for itself, with nothing held against the other.
    """
    environment = _environment()
    reports = (report, *others)
    prefixes = [f"g{i}-" if others else "" for i in range(1, len(reports) + 1)]
    script = _script(environment)
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
        word="Not held against each other" if others else outcome(report)[1],
        reports=reports,
        groups=list(zip(prefixes, reports, groups, strict=True)),
        script=script,
        script_hash=_hash_of(script),
    )


def _environment() -> Environment:
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


def _script(environment: Environment) -> Markup:
    """The page's script as it is: the file has nothing of a template in it."""
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, "script.js.j2")
    return Markup(source)


def _hash_of(script: str) -> str:
    """What the page's security policy knows its one script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _epochs_caption(record: TrainingRecord) -> str:
    said = ["What was logged at each epoch."]
    if record.validation_samples:
        said.append("“val” is on the samples kept apart.")
    if record.best_epoch:
        said.append("* is the epoch that was kept.")
    return " ".join(said)


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


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


def _made_by(artifact: Artifact) -> str:
    return {"litert": "ai-edge-quantizer", "tflite": "TFLiteConverter"}[artifact.engine]


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
    "explanation": partial(explanation, beside_table=True),
    "word_of": lambda finding: _WORDS[word_of(finding)],
    "io_types": io_types,
    "steps": lambda artifact: describe(artifact.preprocessing),
    "weights": weights,
    "shape": _shape,
    "few": _few,
    "snr": snr,
    "span": span,
    "step": lambda step: units.ABSENT if step is None else units.significant(step),
    "made_by": _made_by,
    "training_facts": training_facts,
    "epoch_table": epoch_table,
    "epochs_caption": _epochs_caption,
    "qat_facts": qat_facts,
    "capitalized": _capitalized,
    "pair": lambda heading: (heading, False),
}
