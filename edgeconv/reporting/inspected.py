"""What inspect, scan and verify found in files that nothing ran, and what embed and build wrote."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from edgeconv.reporting import units
from edgeconv.reporting.pages import Block, Labeled, Page, notes
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Column, Table, table
from edgeconv.reporting.units import plain
from edgeconv.reporting.verdicts.machine import as_json, message, sarif_document, schema_of
from edgeconv.types import (
    Built,
    Embedded,
    Evidence,
    Inspection,
    Link,
    LinkState,
    OldestRuntime,
    OperatorCount,
    RuntimeNeed,
    Scan,
    ScanFinding,
    Signature,
    TensorSpec,
)

_KIND_NAMES = {
    "saved_model": "SavedModel",
    "keras": "Keras file",
    "hdf5": "Keras HDF5 file",
    "tflite": ".tflite file",
}
_KERAS = ("keras", "hdf5")


def inspection_page(inspection: Inspection) -> Page:
    """Facts about the file, then each signature, then the operators or layers."""
    model = inspection.model
    page: list[Block] = [Labeled(list(_facts(inspection)))]
    for signature in model.signatures:
        key = (
            units.plain(signature.key)
            or "(none in the file: inputs and outputs of the first graph)"
        )
        page += _signature(f"signature {key}", signature)
    if inspection.declared:
        page += _signature("signature, as its config declares it", inspection.declared)
    if inspection.operators:
        heading = "layers" if model.kind in _KERAS else "operators"
        page += ["", Text(heading, style="bold"), _operators(inspection)]
    return page


def embedded_page(embedded: Embedded, *, heading: str = "") -> Page:
    """The files of an embedding, and what there is to say of it."""
    files = units.counted(len(embedded.files), "file")
    return [
        heading or plain(f"{embedded.name} for {embedded.target}: {files}"),
        *(plain(f"  {file.path}") for file in embedded.files),
        *notes(embedded.notes),
    ]


def built_page(built: Built) -> Page:
    """What a build did for a model."""
    word = "built" if built.is_new else "up to date:"
    files = units.counted(len(built.embedded.files), "file")
    where = f"{built.name} for {built.embedded.target} in {built.directory}"
    return [plain(f"{word} {where}: {files}"), *notes(built.notes)]


def _signature(heading: str, signature: Signature) -> list[Block]:
    specs = [("input", t) for t in signature.inputs] + [("output", t) for t in signature.outputs]
    is_quantized = any(tensor.scale for _, tensor in specs)
    columns = _TENSORS if is_quantized else _TENSORS[:-2]
    return ["", Text(heading, style="bold"), table(columns, specs)]


def _operators(inspection: Inspection) -> Table:
    has_versions = any(operator.version for operator in inspection.operators)
    name, version, count = _OPERATORS
    return table((name, *([version] * has_versions), count), inspection.operators)


def _facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    model = inspection.model
    yield "model", f"{units.plain(model.name)}, a {_KIND_NAMES[model.kind]}"
    yield "path", units.plain(model.path)
    yield "size", f"{model.size_bytes:,} bytes"
    yield "sha256", model.sha256
    if inspection.description:
        yield "description", units.plain(inspection.description)
    if model.kind in _KERAS:
        yield "layers", f"{sum(layer.count for layer in inspection.operators):,}"
    if inspection.parameters is not None:
        yield "parameters", f"{inspection.parameters:,}"
    yield from _weight_facts(inspection)
    if inspection.float_operators is not None:
        yield "computes on float", _listed(inspection.float_operators)
    if inspection.custom_operators:
        yield "custom operators", _listed(inspection.custom_operators)
    yield from _runtime_facts(inspection.oldest_runtime)
    if inspection.missing_in_micro is not None:
        missing = inspection.missing_in_micro
        yield (
            "microcontroller",
            (f"not with tflite-micro: {_listed(missing)}" if missing else "runs with tflite-micro"),
        )
    if inspection.unknown_classes:
        yield "unknown classes", _listed(inspection.unknown_classes)
        yield "", "give convert the module that has them: --custom-objects MODULE"
    if len(inspection.tag_sets) > 1 or inspection.tag_sets not in ((), (("serve",),)):
        yield "tags of its graphs", "; ".join(map(units.plain, map(",".join, inspection.tag_sets)))
    yield from (("note", units.plain(note)) for note in model.notes)


def _weight_facts(inspection: Inspection) -> Iterator[tuple[str, str]]:
    if inspection.weight_bytes is None:
        return
    quantized = inspection.quantized_weight_share or 0.0
    float16 = inspection.float16_weight_share or 0.0
    yield "weights", f"{inspection.weight_bytes:,} bytes as stored"
    yield "", f"{quantized:.1%} in 8 bits or less, {float16:.1%} in float16"


def _runtime_facts(oldest: OldestRuntime | None) -> Iterator[tuple[str, str]]:
    if oldest is None:
        return
    if oldest.version:
        deciding = ", ".join(map(_need_text, oldest.operators))
        yield "oldest runtime", f"TensorFlow Lite {oldest.version} ({deciding})"
    if oldest.unknown:
        unknown = ", ".join(map(_need_text, oldest.unknown))
        yield "" if oldest.version else "oldest runtime", f"not known for {unknown}"


def _need_text(need: RuntimeNeed) -> str:
    text = f"{units.plain(need.operator)} version {need.version}"
    if need.version != need.declared:
        text += f" by its tensors, {need.declared} in the file"
    return f"{text}, with {need.note}" if need.note else text


def _one_or_range(values: tuple[float, ...] | tuple[int, ...]) -> str:
    if len(values) > 1:
        return f"{min(values):.6g} to {max(values):.6g} ({len(values)} channels)"
    return "".join(f"{value:.6g}" for value in values)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(units.plain, names)) or "nothing"


_TENSORS: tuple[Column[tuple[str, TensorSpec]], ...] = (
    Column("", lambda spec: spec[0], is_text=True),
    Column("name", lambda spec: units.plain(spec[1].name), is_text=True, wraps=True),
    Column("shape", lambda spec: spec[1].shape_text, is_text=True),
    Column("type", lambda spec: spec[1].dtype, is_text=True, beneath=True),
    Column("scale", lambda spec: _one_or_range(spec[1].scale), is_text=True),
    Column(
        "zero point", lambda spec: _one_or_range(spec[1].zero_point), is_text=True, beneath=True
    ),
)
_OPERATORS: tuple[Column[OperatorCount], ...] = (
    Column("name", lambda each: units.plain(each.name), is_text=True, wraps=True),
    Column("version", lambda each: str(each.version)),
    Column("count", lambda each: str(each.count)),
)


_LEVELS = {"error": "error", "warn": "warning"}
_RULES = {
    "operator": "An operator that may do more than compute",
    "path": "A file that the model names",
    "asset": "A file that the model reads as an asset",
    "checkpoint": "A checkpoint at a path that the model chooses",
    "device": "A device on another machine",
    "function": "A function that the model calls by name",
    "class": "A class or function that is not Keras's",
    "structure": "A structure that no tool writes",
}


def render_scan_text(scans: Sequence[Scan]) -> str:
    """The page of each model."""
    return "".join(f"{line}\n" for scan in scans for line in scan_page(scan))


def scan_page(scan: Scan) -> list[str]:
    """A model with its findings: what, why it matters, and where."""
    outcome = "refused" if scan.is_refused else "nothing that reaches outside of the model"
    lines = [f"{plain(scan.path)}: {outcome}", f"  sha256 {scan.sha256}"]
    for finding in scan.findings:
        word = "FAIL" if finding.severity == "error" else "warn"
        places = f" and {finding.count - 1} more places" if finding.count > 1 else ""
        lines.append(f"  {word}  {plain(finding.what)}: {finding.why}")
        lines.append(f"        at {plain(finding.where)}{places}")
    return lines


def render_scan_json(scans: Sequence[Scan]) -> str:
    """A JSON list of the scans."""
    return as_json(msgspec.to_builtins(list(scans)))


def render_scan_sarif(scans: Sequence[Scan]) -> str:
    """One run of SARIF 2.1.0; a result for each finding, and a rule for each kind of finding."""
    kinds = [kind for kind in _RULES if any(f.kind == kind for s in scans for f in s.findings)]
    rules = [
        {
            "id": f"scan/{kind}",
            "shortDescription": {"text": _RULES[kind]},
            "defaultConfiguration": {"level": "error"},
        }
        for kind in kinds
    ]
    results = [_result(scan, finding, kinds) for scan in scans for finding in scan.findings]
    exit_code = 1 if any(scan.is_refused for scan in scans) else 0
    return sarif_document(rules, "edgeconv/scan/", exit_code, results)


def _result(scan: Scan, finding: ScanFinding, kinds: list[str]) -> dict[str, Any]:
    identity = "\0".join((finding.kind, finding.where, finding.what))
    digest = hashlib.sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()
    return {
        "ruleId": f"scan/{finding.kind}",
        "ruleIndex": kinds.index(finding.kind),
        "level": _LEVELS[finding.severity],
        "message": {"text": message(f"{finding.what}: {finding.why} ({finding.where})")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": _location(scan)},
                "logicalLocations": [{"fullyQualifiedName": plain(finding.where)}],
            }
        ],
        "partialFingerprints": {"finding/v1": digest},
        "properties": {"sha256": scan.sha256, "count": finding.count},
    }


def _location(scan: Scan) -> dict[str, str]:
    path = Path(scan.path) / ("saved_model.pb" if scan.kind == "saved_model" else "")
    try:
        relative = path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return {"uri": "file://" + quote(str(path).encode("utf-8", "surrogateescape"))}
    uri = quote(relative.encode("utf-8", "surrogateescape"))
    return {"uri": uri, "uriBaseId": "%SRCROOT%"}


_WORDS: dict[LinkState, str] = {"verified": "ok", "failed": "FAIL", "unchecked": "not checked"}


def render_evidence_text(evidence: Evidence) -> str:
    """The page as text."""
    return "".join(f"{line}\n" for line in evidence_page(evidence))


def render_evidence_json(evidence: Evidence) -> str:
    """The evidence as one JSON document."""
    return as_json(msgspec.to_builtins(evidence))


def evidence_schema() -> bytes:
    """What docs/schemas/evidence.json holds."""
    return schema_of(Evidence, "edgeconv evidence")


def evidence_page(evidence: Evidence) -> list[str]:
    """Each link with what was checked against what, and what could not be checked."""
    width = max((len(link.link) for link in evidence.links), default=0)
    lines = []
    for file in dict.fromkeys(link.file for link in evidence.links):
        lines.append(plain(file) or "(all)")
        own = (link for link in evidence.links if link.file == file)
        lines += [_line(link, width) for link in own]
    counts = Counter(link.state for link in evidence.links)
    totals = [f"{counts[state]} {word}" for state, word in _WORDS.items() if counts[state]]
    return [*lines, f"{evidence.outcome}: {', '.join(totals) or 'nothing was checked'}"]


def _line(link: Link, width: int) -> str:
    against = f" ({plain(link.against)})" if link.against else ""
    return f"  {_WORDS[link.state]:11}  {link.link:{width}}  {plain(link.text)}{against}"
