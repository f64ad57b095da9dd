"""A bill of materials of a published model: CycloneDX 1.6, with a card of the model.

Specification: https://cyclonedx.org/docs/1.6/json/. The library of that project
(cyclonedx-python-lib 11) has no model cards; the tests validate by its schema. Equal models,
verdicts and reports give equal bytes: it has no time and no path.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edgeconv
from edgeconv.errors import InputRefused
from edgeconv.reporting.files import read_report
from edgeconv.reporting.last_check import last_check
from edgeconv.store import sha256_file
from edgeconv.store.hashes import is_sha256
from edgeconv.tflite.metadata import license_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.embedding.published import Published
    from edgeconv.types import Accuracy, Artifact, DataIdentity, LastCheck, Measurement, Report

_REPORT_FILE = "report.json"


def bom(published: Published, report: str | Path = "") -> bytes:
    """The bill of materials of a published model, as a document of CycloneDX.

    `report` is a report.json of the model, "" for the one next to it, if that measured it.
    Raises `InputRefused` for a report that did not measure the model or cannot be read.
    """
    measured = _measured(published, Path(report) if report else None)
    artifact = published.artifact
    verdict = last_check(published.model, artifact.sha256)
    component = _component(published, verdict, measured)
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "",
        "version": 1,
        "metadata": {"tools": {"components": list(_tools(artifact))}, "component": component},
    }
    # Unique for its content.
    content = hashlib.sha256(_text(document)).hexdigest()
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}"
    return _text(document)


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _measured(published: Published, named: Path | None) -> tuple[Report, Measurement, str] | None:
    """The report, its row of the model, and its hash; None without one."""
    file = named or published.model.with_name(_REPORT_FILE)
    if named is None and not file.is_file():
        return None
    report = read_report(file)
    sha256 = published.artifact.sha256
    row = next((row for row in report.measurements if row.sha256 == sha256), None)
    if row is not None:
        return report, row, sha256_file(file)
    if named is None:
        return None
    raise InputRefused(
        f"{file} did not measure {published.model.name}",
        hint="measure it with edgeconv bench -o, or remove --report",
    )


def _component(
    published: Published,
    verdict: LastCheck | None,
    measured: tuple[Report, Measurement, str] | None,
) -> dict[str, Any]:
    artifact = published.artifact
    component: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"sha256:{artifact.sha256}",
        "name": artifact.name,
        "version": artifact.recipe.name,
        "hashes": [_hash(artifact.sha256)],
    }
    if license_ := license_of(published.model.read_bytes()):
        component["licenses"] = [{"license": {"name": license_}}]
    if artifact.key:
        component["pedigree"] = {"ancestors": [_source(artifact)]}
    component["modelCard"] = _card(artifact, measured)
    facts = {"file": artifact.file, "size-bytes": artifact.size_bytes, **_verdict(verdict)}
    if measured:
        facts["report-sha256"] = measured[2]
    return {**component, "properties": _properties(facts)}


def _source(artifact: Artifact) -> dict[str, Any]:
    """The trained model. The hash of a directory is not that of a file, and is left out."""
    source: dict[str, Any] = {
        "type": "machine-learning-model",
        "bom-ref": f"source-sha256:{artifact.source_sha256}",
        "name": artifact.name,
    }
    # A manifest may have any text there; the schema allows only a hash.
    if artifact.source_kind != "saved_model" and is_sha256(artifact.source_sha256):
        source["hashes"] = [_hash(artifact.source_sha256)]
    facts = {"kind": artifact.source_kind, "sha256": artifact.source_sha256}
    return {**source, "properties": _properties(facts)}


def _card(artifact: Artifact, measured: tuple[Report, Measurement, str] | None) -> dict[str, Any]:
    data = measured[0].data if measured else None
    parameters: dict[str, Any] = {
        "inputs": [{"format": text} for text in _formats(artifact, "inputs")],
        "outputs": [{"format": text} for text in _formats(artifact, "outputs")],
    }
    if datasets := list(_datasets(artifact, data)):
        parameters["datasets"] = datasets
    card: dict[str, Any] = {"modelParameters": parameters}
    if measured and (metrics := list(_metrics(measured[1]))):
        card["quantitativeAnalysis"] = {"performanceMetrics": metrics}
    return {**card, "properties": _properties(_quantization(artifact))}


def _formats(artifact: Artifact, ends: str) -> Iterator[str]:
    for signature in artifact.signatures:
        for spec in getattr(signature, ends):
            yield f"{spec.name}: {spec.dtype} {spec.shape_text}"


def _quantization(artifact: Artifact) -> dict[str, Any]:
    recipe = artifact.recipe
    facts: dict[str, Any] = {
        "recipe": recipe.name,
        "engine": artifact.engine,
        "quantized-weight-share": artifact.quantized_weight_share,
        "float16-weight-share": artifact.float16_weight_share,
    }
    if artifact.post_training:
        facts["calibration-range"] = artifact.post_training.calibration_range
        facts["methods"] = " ".join(artifact.post_training.methods)
    elif artifact.calibration and recipe.has_ranges:
        facts["calibration-range"] = artifact.calibration[0].range
    for output in artifact.verification.outputs:
        facts[f"snr-db:{output.output}"] = output.snr_db
    return facts


def _datasets(artifact: Artifact, test: DataIdentity | None) -> Iterator[dict[str, Any]]:
    """The calibration and evaluation sets, by content, without their paths."""
    datasets = [("calibration", record.sha256, record.samples) for record in artifact.calibration]
    datasets += [("test", test.sha256, test.samples)] if test else []
    for name, sha256, samples in dict.fromkeys(datasets):
        facts = {"sha256": sha256, "samples": samples}
        yield {"type": "dataset", "name": name, "contents": {"properties": _properties(facts)}}


def _metrics(row: Measurement) -> Iterator[dict[str, Any]]:
    accuracies = (row.accuracy, *row.metrics) if row.accuracy else row.metrics
    for accuracy in accuracies:
        yield _metric(accuracy.metric, accuracy.value, _interval(accuracy))
    if row.accuracy and row.accuracy_drop is not None:
        name = f"{row.accuracy.metric} drop from the trained model"
        yield _metric(name, row.accuracy_drop, row.accuracy_drop_interval)
    if row.latency:
        yield _metric("latency p50 us", row.latency.p50_us, row.latency.p50_interval_us)
    if row.peak_memory_bytes is not None:
        yield _metric("peak memory bytes", row.peak_memory_bytes, None)


def _interval(accuracy: Accuracy) -> tuple[float, float] | None:
    from edgeconv.statistics.proportion import share_interval

    right = accuracy.correct.count("1")
    return share_interval(right, accuracy.samples) if accuracy.correct else None


def _metric(name: str, value: float, interval: tuple[float, float] | None) -> dict[str, Any]:
    metric: dict[str, Any] = {"type": name, "value": str(value)}
    if interval is not None:
        low, high = map(str, interval)
        metric["confidenceInterval"] = {"lowerBound": low, "upperBound": high}
    return metric


def _verdict(verdict: LastCheck | None) -> dict[str, Any]:
    if verdict is None:
        return {"check": "none"}
    facts = {"check": verdict.outcome, "check-date": verdict.date}
    for finding in verdict.passed + verdict.findings:
        suffix = f":{finding.reference}" if finding.reference else ""
        facts[f"limit:{finding.limit}{suffix}"] = (
            f"{finding.outcome}: {finding.actual} of {finding.allowed}"
        )
    return facts


def _tools(artifact: Artifact) -> Iterator[dict[str, str]]:
    """The tools that made the model; edgeconv for a model that it did not make."""
    for name, version in (artifact.tools or {"edgeconv": edgeconv.__version__}).items():
        yield {"type": "application", "name": name, "version": version}


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}


def _properties(facts: dict[str, Any]) -> list[dict[str, str]]:
    return [{"name": f"edgeconv:{name}", "value": str(value)} for name, value in facts.items()]
