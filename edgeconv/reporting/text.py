"""The pages of conversions, trainings, reports and verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from edgeconv.processes.escaping import shell_line
from edgeconv.reporting import units
from edgeconv.reporting.closeness import comparison_lines, error_lines, span
from edgeconv.reporting.layers import layer_name
from edgeconv.reporting.layout import Grid, GridColumn, Labeled, Page, Row
from edgeconv.reporting.limits import closing_line, word_of_verdict
from edgeconv.reporting.matrix import COLUMNS, matrix_cells, matrix_lines
from edgeconv.reporting.npu import NPU_COLUMNS, npu_cells, npu_lines, npu_rows
from edgeconv.reporting.rows import (
    SAME_SPEED,
    ModelRow,
    accuracy_heading,
    difference_lines,
    io_types,
    model_rows,
    weights,
)
from edgeconv.reporting.training import (
    circumstance_facts,
    epoch_table,
    outcome_facts,
    place_facts,
    qat_remarks,
)
from edgeconv.reporting.verdicts.terminal import finding_grids, word
from edgeconv.types import Distance
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edgeconv.types import (
        Artifact,
        Conversion,
        Failure,
        MethodTrial,
        PostTraining,
        Report,
        SharedScale,
        TrainingRecord,
        Verdict,
    )

_STYLES = {
    "ok": "green",
    "over": "bold red",
    **dict.fromkeys(("warn", "not measured", "?"), "yellow"),
}

_CONVERSION = (
    GridColumn("recipe", right=False, wraps=True),
    GridColumn("file", right=False, beneath=True),
    GridColumn("size"),
    GridColumn("ratio", beneath=True),
    GridColumn("weights"),
    GridColumn("engine", beneath=True),
    GridColumn("state", right=False),
    GridColumn("I/O", right=False, beneath=True),
)

# Each with the name of its field in a row.
_REPORT = {
    "size": GridColumn("size"),
    "size_ratio": GridColumn("ratio", beneath=True),
    "gzip": GridColumn("gzip", beneath=True),
    "p50": GridColumn("p50"),
    "p90": GridColumn("p90", beneath=True),
    "p99": GridColumn("p99", beneath=True),
    "paced": GridColumn("paced p50"),
    "cold": GridColumn("cold p50"),
    "speed_up": GridColumn("speed-up"),
    "memory": GridColumn("memory", beneath=True),
    "arena": GridColumn("arena", beneath=True),
    "accuracy": GridColumn("accuracy"),
    "drop": GridColumn("drop", beneath=True),
    "drop_interval": GridColumn("95 % interval", beneath=True),
    "flips": GridColumn("flips"),
    "gpu": GridColumn("GPU"),
    "kernel_flips": GridColumn("CPU flips", beneath=True),
    "training": GridColumn("training", beneath=True),
}
# Methods that were chosen faster are not worth a word about it.
_NOTED_S = 1.0
# Left out where no model has them.
_TIMED = ("p50", "p90", "p99", "paced", "cold", "speed_up", "memory")
_ON_GPU = ("gpu", "kernel_flips")
_RARE = frozenset({"gzip", "arena", "drop_interval", "training", *_TIMED, *_ON_GPU})


def conversion_page(conversion: Conversion) -> Page:
    """One row an artifact, then one a failure, then a line that counts them."""
    base = next((a.size_bytes for a in conversion.artifacts if a.recipe.name == "float32"), None)
    shared = _shared(conversion.artifacts)
    rows = [_artifact_row(a, base, conversion.reused, shared) for a in conversion.artifacts]
    rows += map(_failure_row, conversion.failures)
    table = [Grid(_CONVERSION, rows)] if rows else []
    remarks = [Text(f"all: {remark}", style) for remark, style in shared.items()]
    remarks += [Text(line, "dim") for line in comparison_lines(conversion.artifacts)]
    return [*table, *remarks, _conversion_summary(conversion)]


def _shared(artifacts: Sequence[Artifact]) -> dict[str, str]:
    if len(artifacts) < 2:
        return {}
    each = [_remarks(artifact) for artifact in artifacts]
    return {r: style for r, style in each[0].items() if all(r in other for other in each)}


def training_page(record: TrainingRecord) -> Page:
    """One row an epoch, then the results, the files, and how it was trained."""
    table = epoch_table(record)
    columns = [
        GridColumn(heading, right=i > 0, beneath=beneath, wraps=i == 0)
        for i, (heading, beneath) in enumerate(zip(table.headings, table.is_beneath, strict=True))
    ]
    rows = [Row(tuple(Text(cell) for cell in row)) for row in table.rows]
    facts = [*outcome_facts(record), *place_facts(record), *circumstance_facts(record)]
    pairs = [(fact.label, fact.text) for fact in facts]
    return [Grid(tuple(columns), rows), Text(), Labeled(pairs)]


def report_page(report: Report) -> Page:
    """The title, the machine and data, and one row a model, the baseline first."""
    models = model_rows(report)
    shown = [name for name in _REPORT if name not in _RARE or _is_there(name, models)]
    accuracy = accuracy_heading(report)
    has_runtime = _is_there("oldest_runtime", models)
    columns = (
        GridColumn("model", right=False, wraps=True),
        *(GridColumn(accuracy) if name == "accuracy" else _REPORT[name] for name in shown),
        GridColumn("budget", right=False),
        *([GridColumn("runs from", right=False, beneath=True)] if has_runtime else []),
    )
    notes = [f"note: {units.plain(note)}" for note in report.notes]
    if _is_there("flips", models):
        notes.insert(0, "flips: samples that became right (+) or wrong (−), against the baseline")
    if _is_there("kernel_flips", models):
        notes.insert(0, "CPU flips: samples with another answer than from the same file on the CPU")
    if any(row.speed_up == SAME_SPEED for row in models):
        notes.insert(0, f"speed-up: {SAME_SPEED} is as fast as float32, within noise")
    return [
        Text(units.plain(report.title), style="bold"),
        *(Text(line, style="dim") for line in _circumstances(report)),
        Text(),
        Grid(columns, [_measured_row(row, shown, has_runtime) for row in models]),
        *_matrix(report),
        *_npu(report),
        *(Text(line) for line in difference_lines(report)),
        *(Text(note, style="dim") for note in notes),
    ]


def _matrix(report: Report) -> Page:
    """Every file in every version, and the first bad version."""
    if not report.matrix:
        return []
    columns = tuple(
        GridColumn(name.lower(), right=name in ("Flipped", "SNR"), wraps=name == "Why")
        for name in COLUMNS
    )
    rows = [Row(tuple(map(Text, matrix_cells(each)))) for each in report.matrix]
    return [Text(), Grid(columns, rows), *map(Text, matrix_lines(report))]


def _npu(report: Report) -> Page:
    """The estimates for NPUs, and what they are."""
    if not (rows := npu_rows(report)):
        return []
    columns = tuple(
        GridColumn(name.lower() if name != "NPU" else name, right=is_number, wraps=not is_number)
        for name, is_number in NPU_COLUMNS.items()
    )
    lines = [Row(tuple(map(Text, npu_cells(*each)))) for each in rows]
    return [Text(), Grid(columns, lines), *(Text(line, style="dim") for line in npu_lines(report))]


def verdict_page(verdict: Verdict, *, below_table: bool = False) -> Page:
    """One row a finding, and a last line with the outcome and the reason.

    `below_table`: the table of the report is above, which has the intervals.
    """
    which = "PASS" if verdict.ok else word_of_verdict(verdict)
    closing = Text.assemble(word(which), " ", closing_line(verdict))
    return [*finding_grids(verdict.findings, below_table=below_table), closing]


def _artifact_row(
    artifact: Artifact, base: int | None, reused: Sequence[str], shared: Mapping[str, str]
) -> Row:
    cells = (
        artifact.recipe.name,
        units.plain(artifact.file),
        units.size(artifact.size_bytes),
        units.times(artifact.size_bytes / base if base else None),
        weights(artifact),
        artifact.engine,
        "up to date" if artifact.recipe.name in reused else "new",
        io_types(artifact.signature),
    )
    own = {r: style for r, style in _remarks(artifact).items() if r not in shared}
    checked = artifact.verification
    lines = [Text(line) for line in error_lines(checked.outputs, checked.samples)]
    return Row(tuple(Text(cell) for cell in cells), (*lines, *(Text(r, s) for r, s in own.items())))


def _remarks(artifact: Artifact) -> dict[str, str]:
    remarks = {f"warning: {w}": "yellow" for w in artifact.verification.warnings}
    for step in artifact.ladder:
        failure = f"failed, {step.attempt}: {units.first_line(step.failed)}"
        remarks[failure if step.failed else f"good, {step.attempt}"] = "dim"
    if artifact.target:
        cost = f": {artifact.target.cost}" if artifact.target.cost else ""
        remarks[f"runs on {artifact.target.runtime}{cost}"] = "dim"
    if artifact.qat:
        remarks |= dict.fromkeys(qat_remarks(artifact.qat), "dim")
    remarks |= dict.fromkeys(post_training_remarks(artifact), "dim")
    for record in artifact.calibration:
        if record.inputs:
            ranges = "; ".join(each.text for each in record.inputs)
            remarks[f"calibrated on {units.counted(record.samples, 'sample')}: {ranges}"] = "dim"
    for shared in artifact.shared_scales:
        remarks[shared_scale_line(shared)] = "dim" if shared.applied else "yellow"
    remarks |= {f"note: {note}": "dim" for note in artifact.notes}
    return {units.plain(remark): style for remark, style in remarks.items()}


def _failure_row(failure: Failure) -> Row:
    blank = [Text()] * (len(_CONVERSION) - 3)
    message = f"{units.plain(failure.error)}: {units.first_line(failure.message)}"
    cells = (Text(failure.recipe), *blank, Text("failed", style="bold red"), Text())
    return Row(cells, (Text(message, style="red"),))


def _conversion_summary(conversion: Conversion) -> Text:
    files = units.counted(len(conversion.artifacts), "file")
    parts = [f"{files} in {units.plain(conversion.directory)}"]
    if conversion.reused:
        parts.append(f"{len(conversion.reused)} up to date")
    if conversion.failures:
        parts.append(f"{len(conversion.failures)} failed")
    if conversion.choosing_s >= _NOTED_S:
        parts.append(f"methods chosen in {conversion.choosing_s:.1f} s")
    return Text(", ".join(parts))


def _circumstances(report: Report) -> list[str]:
    env, data = report.environment, report.data
    lines = [units.plain(f"on {env.machine}: {env.cpu}, {env.cores} cores, {env.system}")]
    if data:
        steps = f", {data.preprocessing}" if data.preprocessing else ""
        lines.append(units.plain(f"data {data.source}{steps}: {data.samples} samples"))
    return lines


def _is_there(name: str, models: Sequence[ModelRow]) -> bool:
    return any(getattr(row, name) != units.ABSENT for row in models)


def _measured_row(row: ModelRow, shown: Sequence[str], has_runtime: bool) -> Row:
    name = Text(row.name)
    if row.is_baseline and row.name != "baseline":
        name.append(" (baseline)", style="dim")
    numbers = (Text(getattr(row, field)) for field in shown)
    mark = Text(row.mark, style=_STYLES.get(row.mark, ""))
    runtime = (Text(row.oldest_runtime, style="dim"),) if has_runtime else ()
    error = (Text(f"did not run: {row.error}", style="red"),) if row.error else ()
    remarks = tuple(Text(remark, style="dim") for remark in (*_measured_remarks(row), *row.remarks))
    return Row((name, *numbers, mark, *runtime), (*error, *remarks))


def _measured_remarks(row: ModelRow) -> tuple[str, ...]:
    """The pace and the further metrics; without an accuracy, the agreement of the outputs too."""
    metrics = ", ".join(f"{name} {value}" for name, value in row.metrics.items())
    return (
        *row.pace,
        *([metrics] if metrics else []),
        *(row.agreement if row.accuracy == units.ABSENT else ()),
    )


def shared_scale_line(shared: SharedScale) -> str:
    """The parts of an output that share a scale, their errors, and the rules that help."""
    parts = (
        Distance(output=shared.output, snr_db=part.snr_db, span=part.span) for part in shared.parts
    )
    spans = " and ".join(map(span, parts))
    together = _each_snr(part.snr_db for part in shared.parts)
    line = f"{shared.output}: its parts of {spans} share one scale, SNR {together}"
    if not shared.rules:
        return f"{line}; float outputs, int16x8 or separate outputs would keep them apart"
    rules = " ".join(
        f"--layer {shell_line([f'{rule.pattern}={rule.precision}'])}" for rule in shared.rules
    )
    apart = f"{rules} gives each its own, SNR {_each_snr(part.own_snr_db for part in shared.parts)}"
    if not shared.applied:
        return f"{line}; {apart}"
    return f"{shared.output}: {apart}; sharing one, its parts of {spans} have {together}"


def _each_snr(values_db: Iterable[float | None]) -> str:
    return " and ".join(units.decibels(value) for value in values_db)


def post_training_remarks(artifact: Artifact) -> list[str]:
    """Layer rules and post-training methods, and how they were chosen; [] for a plain artifact."""
    remarks = []
    if artifact.recipe.layers:
        rules = (f"{rule.pattern} {rule.precision}" for rule in artifact.recipe.layers)
        remarks.append(f"layer rules: {units.plain(', '.join(rules))}")
    record = artifact.post_training
    if record is None:
        return remarks
    ranges = f"; ranges: {record.calibration_range}" if artifact.recipe.has_ranges else ""
    if record.methods or not record.trials or record.calibration_range != "minmax":
        remarks.append(f"post-training methods: {', '.join(record.methods) or 'none'}{ranges}")
    if record.eight_bit:
        names = listed(map(layer_name, record.eight_bit), 3)
        remarks.append(
            f"weights of 8 bits in {units.counted(len(record.eight_bit), 'layer')}, which costs "
            f"next to nothing: {names}"
        )
    if record.trials:
        remarks.append(_chosen(record))
        remarks += (_failed(trial) for trial in record.trials if trial.failed)
    return remarks


def _chosen(record: PostTraining) -> str:
    """What the choice among the trials gained over the first, and what it cost."""
    first, settings = record.trials[0], (record.calibration_range, record.methods)
    best = next(t for t in record.trials if (t.calibration_range, t.methods) == settings)
    samples = f"{units.counted(record.held_back, 'sample')} held back from calibration"
    borderline = ", which is borderline" if record.closeness == "borderline" else ""
    if best is not first:
        gained = units.decibels(best.snr_db - first.snr_db)
        trials = units.counted(len(record.trials), "trial")
        return (
            f"gained {gained}, from {_closeness(first)} to {_closeness(best)} on {samples}"
            f"{borderline}; {trials}"
        )
    if record.closeness == "coarse" and len(record.trials) == 1:
        why = "the outputs are about as small as a step of their integers"
        return f"{why}: {_closeness(first)} on {samples}"
    if record.closeness == "close":
        return f"close to float without methods: {_closeness(first)} on {samples}"
    others = ", ".join(dict.fromkeys(_what(trial) for trial in record.trials[1:]))
    tried = f"{others} gained nothing beyond noise" if others else "no method applies"
    return f"{tried}: {_closeness(first)} on {samples}{borderline}"


def _closeness(trial: MethodTrial) -> str:
    agreement = (
        "" if trial.agreement is None else f"agreement {units.percent(trial.agreement, 1)}, "
    )
    return f"{agreement}SNR {units.decibels(trial.snr_db)}"


def _failed(trial: MethodTrial) -> str:
    return f"{_what(trial)} failed: {units.plain(trial.failed)}"


def _what(trial: MethodTrial) -> str:
    return " with ".join(trial.methods[::-1]) or trial.calibration_range
