"""The page of a conversion."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from edgeconv.reporting import units
from edgeconv.reporting.closeness import (
    comparison_lines,
    error_lines,
    floats_line,
    grade_line,
    io_types,
    span,
    weights,
    worst_error,
)
from edgeconv.reporting.pages import Page, dim, notes
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, Row, table
from edgeconv.system.processes.escaping import shell_line
from edgeconv.types import (
    Artifact,
    Conversion,
    Distance,
    Failure,
    MethodTrial,
    PostTraining,
    SharedScale,
)
from edgeconv.types.words import listed

# Methods that were chosen faster are not worth a word about it.
_NOTED_S = 1.0
_NOTE, _OF_SAMPLES = "note: ", "warning: calibration samples: "


def conversion_page(
    conversion: Conversion, *, verbose: bool = False, tells_failures: bool = True
) -> Page:
    """One row an artifact, then one a failure, then a line that counts them.

    Below a row is only what needs attention; `verbose` adds how the file was made and each output.
    Without `tells_failures` the reason of a failure is said elsewhere.
    """
    base = next((a.size_bytes for a in conversion.artifacts if a.recipe.name == "float32"), None)
    each = [_remarks(artifact, verbose=verbose) for artifact in conversion.artifacts]
    shared = _shared(conversion.artifacts, each)
    below = {
        id(artifact): [
            *(error_lines(checked.outputs, checked.samples) if verbose else ()),
            *(Text(r, style) for r, style in remarks.items() if r not in shared),
        ]
        for artifact, remarks in zip(conversion.artifacts, each, strict=True)
        for checked in (artifact.verification,)
    }
    is_mixed = 0 < len(conversion.reused) < len(conversion.artifacts)
    columns = _artifact_columns(base, conversion.reused if is_mixed else (), verbose=verbose)
    made = table(columns, conversion.artifacts, lambda artifact: below[id(artifact)])
    failed = tuple(
        _failure_row(failure, columns, tells_failures) for failure in conversion.failures
    )
    rows = (*made.rows, *failed)
    return [
        *([replace(made, rows=rows)] if rows else []),
        *shared.values(),
        *notes(conversion.notes),
        *map(dim, comparison_lines(conversion.artifacts)),
        _conversion_summary(conversion),
    ]


def _shared(artifacts: Sequence[Artifact], remarks: Sequence[Mapping[str, str]]) -> dict[str, Text]:
    """Remarks of all files, notes and those on the samples of several, and how all were calibrated
    that were, each as it is said once.
    """
    having: dict[str, list[str]] = {}
    for artifact, each in zip(artifacts, remarks, strict=True):
        for remark in each:
            having.setdefault(remark, []).append(artifact.recipe.name)
    once = {}
    for remark, style in ((r, style) for each in remarks for r, style in each.items()):
        names = having[remark]
        if len(names) == len(artifacts) or (len(names) > 1 and remark.startswith(_OF_SAMPLES)):
            once[remark] = Text(remark, style)
        elif len(names) > 1 and remark.startswith(_NOTE):
            rest = remark.removeprefix(_NOTE)
            once[remark] = Text(f"{_NOTE}{listed(names)}: {rest}", style)
    texts = {text for text in map(_calibrated_on, artifacts) if text}
    return once | ({text: dim(text) for text in texts} if len(texts) == 1 else {})


def _artifact_columns(
    base: int | None, reused: Sequence[str], *, verbose: bool
) -> tuple[Column[Artifact], ...]:
    """The name first, the closest comparison last; `verbose` adds how a file is stored."""
    stored: tuple[Column[Artifact], ...] = (
        Column("file", lambda each: units.plain(each.file), is_text=True, beneath=True),
        Column("weights", weights),
        Column("engine", lambda each: each.engine, beneath=True),
        Column("I/O", lambda each: io_types(each.signature), is_text=True, beneath=True),
    )
    state: tuple[Column[Artifact], ...] = (
        Column(
            "state", lambda each: "up to date" if each.recipe.name in reused else "", is_text=True
        ),
    )
    ratio: tuple[Column[Artifact], ...] = (
        Column("ratio", lambda each: units.times(each.size_bytes / (base or 1)), beneath=True),
    )
    return (
        Column("recipe", lambda each: each.recipe.name, is_text=True, wraps=True),
        Column("size", lambda each: units.size(each.size_bytes)),
        *(ratio if base else ()),
        *(stored if verbose else ()),
        Column("compared", worst_error, is_text=True),
        *(state if reused else ()),
    )


def _remarks(artifact: Artifact, *, verbose: bool) -> dict[str, str]:
    """What needs attention with its style, and with `verbose` how the file was made."""
    remarks = {f"warning: {w}": "yellow" for w in artifact.verification.warnings}
    if grade := grade_line(artifact):
        poor = artifact.verification.grade == "poor"
        remarks[f"{'warning: ' * poor}{grade}"] = "yellow" if poor else "dim"
    # Notes, or whoever chose the rule, say what a rule keeps in float.
    by_rule = all(each.reason in ("rule", "neighbor") for each in artifact.left_in_float)
    if (verbose or not by_rule) and (floats := floats_line(artifact)):
        remarks[floats] = "dim"
    for shared in artifact.shared_scales:
        if verbose or not shared.applied:
            remarks[shared_scale_line(shared)] = "dim" if shared.applied else "yellow"
    if artifact.target and (verbose or artifact.target.cost):
        cost = f": {artifact.target.cost}" if artifact.target.cost else ""
        remarks[f"runs on {artifact.target.runtime}{cost}"] = "dim"
    remarks |= {f"note: {note}": "dim" for note in artifact.notes}
    # Whoever names methods wants to know where one does not apply.
    if verbose or artifact.recipe.methods != ("auto",):
        remarks |= {f"note: {detail}": "dim" for detail in artifact.details}
    if verbose:
        for step in artifact.ladder:
            failure = f"failed, {step.attempt}: {units.plain_line(step.failed)}"
            remarks[failure if step.failed else f"good, {step.attempt}"] = "dim"
        if artifact.qat:
            from edgeconv.reporting.facts import qat_remarks

            remarks |= dict.fromkeys(qat_remarks(artifact.qat), "dim")
        remarks |= dict.fromkeys(post_training_remarks(artifact), "dim")
    return {units.plain(remark): style for remark, style in remarks.items()}


def _calibrated_on(artifact: Artifact) -> str:
    """How many samples gave the ranges, and what is in them; "" for a file without."""
    return units.plain(
        "; ".join(
            f"calibrated on {units.counted(record.samples, 'sample')}: "
            + "; ".join(each.text for each in record.inputs)
            for record in artifact.calibration
            if record.inputs
        )
    )


def _failure_row(failure: Failure, columns: Sequence[Column[Artifact]], tells: bool) -> Row:
    message = f"{units.plain(failure.error)}: {units.plain_line(failure.message)}"
    below = [Text(message, style="red")]
    if failure.hint:
        below.append(dim(f"next: {units.plain(failure.hint)}"))
    at = next(i for i, column in enumerate(columns) if column.heading == "compared")
    cells = [Cell(failure.recipe), *[Cell("")] * (len(columns) - 1)]
    cells[at] = Cell("failed", style="bold red")
    return Row(tuple(cells), tuple(below if tells else ()))


def _conversion_summary(conversion: Conversion) -> str:
    files = units.counted(len(conversion.artifacts), "file")
    alike = {
        each.file.replace(f".{each.recipe.name}.", ".RECIPE.") for each in conversion.artifacts
    }
    pattern = f"/{alike.pop()}" if len(alike) == 1 and len(conversion.artifacts) > 1 else ""
    parts = [f"{files} in {units.plain(f'{conversion.directory}{pattern}')}"]
    if conversion.reused:
        parts.append(f"{len(conversion.reused)} up to date")
    if conversion.failures:
        parts.append(f"{len(conversion.failures)} failed")
    if conversion.choosing_s >= _NOTED_S:
        parts.append(f"methods chosen in {conversion.choosing_s:.1f} s")
    return ", ".join(parts)


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
        from edgeconv.reporting.layers import layer_name

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
    if record.is_less_sure:
        samples += " as if the model were less sure of them"
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
    if record.closeness == "close" and not record.spared:
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
