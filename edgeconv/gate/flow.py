"""The whole check of one model: converted, measured, judged, and compared with what is locked.

Each step is answered from what it gave before where nothing that goes into it has changed: the
conversion by what is published, the report and the check by the stage cache. Then nothing here
loads numpy or TensorFlow.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from edgeconv import data, source
from edgeconv.errors import InputRefused, UsageError
from edgeconv.measure.environment import environment
from edgeconv.nouns import (
    NOT_CHECKED,
    Check,
    Conversion,
    Failure,
    Finding,
    LockedModel,
    Measurement,
    Report,
    Verdict,
)
from edgeconv.store import (
    Cache,
    cache_directory,
    hash_of,
    read_noun,
    refuse_pointer,
    scratch_directory,
    sha256_file,
    tool_versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edgeconv.nouns import Budget, Judging
    from edgeconv.stages import Execution

_LONGEST_SETTING = 64
_LONGEST_SLICE = 200
Kept = TypeVar("Kept", Report, Check)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model of a configuration, with all that is done to it.

    `convert` publishes its artifacts; `bench` measures these files beside the trained model, and
    `bench_checkpoint` the checkpoint, where there is one. `settings` are the options of both, by
    command, that are not at their defaults, as plain values. `calibration` and `training` are
    the SOURCEs that the conversion reads, `test` the one that is measured on, `slices` a file
    with the slice of each test sample on a line.
    """

    name: str
    source: str
    budget: Budget
    convert: Callable[[], Conversion]
    bench: Callable[[Sequence[Path]], Report]
    settings: Mapping[str, Any]
    bench_checkpoint: Callable[[Sequence[Path]], Report] | None = None
    checkpoint: str = ""
    baseline: str = ""
    calibration: tuple[str, ...] = ()
    training: str = ""
    test: str = ""
    slices: str = ""


@dataclass
class Checking:
    """Jobs at work: how they are judged and run, and what was found out already.

    `locked` is what was accepted; with `accepting` the present state is to take its place, and
    is held to the budget beside the trained baseline only.
    """

    judging: Judging
    execution: Execution
    locked: Mapping[str, LockedModel] = field(default_factory=dict)
    has_lock: bool = False
    accepting: bool = False
    on_progress: Callable[[str], None] = lambda _: None
    _done: dict[str, _Converted] = field(default_factory=dict)
    _reports: dict[str, Report] = field(default_factory=dict)

    def check(self, job: Job) -> Check:
        """What the gate says of the model. Raises an `EdgeconvError` where it cannot say."""
        done = self._converted(job)
        locked = self.locked.get(job.name)
        key = hash_of(done.key, job.budget, self.judging, locked, self.has_lock, self.accepting)
        if (found := self._kept("check", key, Check)) is not None:
            return msgspec.structs.replace(found, reused=True)
        report = self.report(job)
        check = self._judged(job, report, locked)
        if _is_sound(report):
            self._keep("check", key, check)
        return check

    def report(self, job: Job) -> Report:
        """What was measured of the model; measured now, if anything changed."""
        if job.name not in self._reports:
            done = self._converted(job)
            report = self._kept("report", done.key, Report)
            if report is None:
                report = _measured(job, done)
                # What changed meanwhile was measured as it was then, or as it is now.
                if _is_sound(report) and self._inputs(job) == done.inputs:
                    self._keep("report", done.key, report)
            self._reports[job.name] = report
        return self._reports[job.name]

    def accepted(self, job: Job) -> LockedModel:
        """The model as it is now, to be locked."""
        from edgeconv.gate.lock import locked_model

        return locked_model(job.name, self.report(job), self._converted(job).inputs)

    def _judged(self, job: Job, report: Report, locked: LockedModel | None) -> Check:
        beside = None if self.accepting else locked
        check = _check_of(report, job.budget, self.judging, beside, _slices(job, report))
        if locked is None:
            notes = () if self.accepting else (_unlocked(job, has_lock=self.has_lock),)
            return msgspec.structs.replace(check, name=job.name, notes=(*notes, *check.notes))
        from edgeconv.gate.stages import changes, stage_states
        from edgeconv.gate.summary import summary

        now = self.accepted(job)
        stages = stage_states(report, locked, self.judging)
        changed = changes(locked, now.inputs, now.tools)
        return msgspec.structs.replace(
            check,
            name=job.name,
            stages=stages,
            changes=changed,
            summary=summary(check.verdict, stages, changed),
            is_locked=True,
        )

    def _converted(self, job: Job) -> _Converted:
        if job.name not in self._done:
            # Before the conversion, which would speak of its own options.
            _refuse_job(job)
            self.on_progress(f"checking {job.name}")
            conversion = job.convert()
            if not conversion.artifacts:
                raise InputRefused(
                    f"nothing of model {job.name!r} could be converted: "
                    + "; ".join(one.message for one in conversion.failures)
                )
            self._done[job.name] = _Converted(job, conversion, self._inputs(job))
        return self._done[job.name]

    def _inputs(self, job: Job) -> dict[str, str]:
        return _inputs(job, allow_code=self.execution.allow_code)

    def _cache(self) -> Cache:
        return Cache(cache_directory() if self.execution.use_cache else None)

    def _kept(self, stage: str, key: str, kind: type[Kept]) -> Kept | None:
        found = self._cache().find(stage, key)
        return read_noun(found / f"{stage}.json", kind, what=stage) if found else None

    def _keep(self, stage: str, key: str, noun: Report | Check) -> None:
        with scratch_directory() as scratch:
            file = scratch / f"{stage}.json"
            file.write_bytes(msgspec.json.encode(noun))
            self._cache().keep(stage, key, {file.name: file})


def unchecked(name: str, reason: str) -> Check:
    """What the gate says of a model that could not be judged: it does not pass."""
    finding = Finding(
        model=name,
        limit=NOT_CHECKED,
        allowed="made",
        actual=None,
        outcome="missing",
        reason=reason,
    )
    return Check(name=name, verdict=Verdict(findings=(finding,)))


def check_report(report: Report, budget: Budget, judging: Judging) -> Check:
    """A report held against a budget. Raises as `edgeconv.gate.judge.check`."""
    return _check_of(report, budget, judging, None, ())


def _check_of(
    report: Report,
    budget: Budget,
    judging: Judging,
    locked: LockedModel | None,
    slices: Sequence[str],
) -> Check:
    from edgeconv.gate.judge import check, class_drops
    from edgeconv.gate.stages import stage_states
    from edgeconv.gate.summary import summary

    verdict = check(report, budget, judging=judging, locked=locked, slices=slices)
    stages = stage_states(report, locked, judging)
    return Check(
        name=report.title,
        verdict=verdict,
        judging=judging,
        stages=stages,
        classes=class_drops(report, judging=judging, locked=locked, slices=slices),
        summary=summary(verdict, stages, ()),
        notes=report.notes,
    )


class _Converted:
    """A conversion, the hashes of all that went into it, and the key of its measuring."""

    def __init__(self, job: Job, conversion: Conversion, inputs: dict[str, str]) -> None:
        self.conversion = conversion
        self.inputs = inputs
        here = environment()
        self.key = hash_of(
            job.name,
            inputs,
            [(one.name, one.recipe.name, one.sha256) for one in conversion.artifacts],
            conversion.failures,
            tool_versions(),
            (here.machine, here.cpu, here.cores),
        )

    @property
    def files(self) -> list[Path]:
        """The published files, in the order of their recipes."""
        return [Path(self.conversion.directory) / one.file for one in self.conversion.artifacts]


def _refuse_job(job: Job) -> None:
    """Raise `UsageError` where nothing could come of the check."""
    if not job.budget.every.given() and not job.budget.recipe:
        raise UsageError(
            f"the budget of model {job.name!r} sets no limit, so nothing would be checked",
            hint="add one to [budget], for example max-accuracy-drop = 0.01",
        )


def _inputs(job: Job, *, allow_code: bool) -> dict[str, str]:
    """All that goes into the conversion and the measuring, by name: hashes, and settings."""
    found = {
        f"{command} --{key}": _short(value)
        for command, options in job.settings.items()
        for key, value in options.items()
    }
    for name, path in (
        ("source", job.source),
        ("checkpoint", job.checkpoint),
        ("baseline", job.baseline),
    ):
        if path:
            found[name] = source.identify(path).sha256
    sources = {"training data": job.training, "test data": job.test}
    for number, text in enumerate(job.calibration):
        sources["calibration data" + (f" {number + 1}" if number else "")] = text
    found |= {
        name: data.identity(text, allow_code=allow_code) for name, text in sources.items() if text
    }
    if job.slices:
        found["slices"] = _file_hash(job)
    return dict(sorted(found.items()))


def _short(value: object) -> str:
    """A setting as text, or its hash where that is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_SETTING else hash_of(value)


def _measured(job: Job, done: _Converted) -> Report:
    """The report of all artifacts, of the recipes that failed, and of the checkpoint."""
    report = job.bench(done.files)
    failed = tuple(_failed(one) for one in done.conversion.failures)
    checkpoint = None
    if job.bench_checkpoint is not None:
        first = job.bench_checkpoint(done.files[:1]).baseline
        checkpoint = first and msgspec.structs.replace(first, name="checkpoint")
    return msgspec.structs.replace(
        report, measurements=(*report.measurements, *failed), checkpoint=checkpoint
    )


def _is_sound(report: Report) -> bool:
    """Whether every model ran: what failed may do better the next time."""
    return not any(row.error for row in report.measurements)


def _failed(failure: Failure) -> Measurement:
    """The row of a recipe that gave no file."""
    return Measurement(
        name=failure.recipe,
        role="artifact",
        recipe=failure.recipe,
        runtime="",
        sha256="",
        size_bytes=0,
        error=f"it could not be converted: {failure.message}",
    )


def _unlocked(job: Job, *, has_lock: bool) -> str:
    what = f"model {job.name!r} is not in the lock" if has_lock else "there is no lock"
    return f"{what}: only the trained baseline is compared with; --update accepts this state"


def _slices(job: Job, report: Report) -> tuple[str, ...]:
    """The slice of each measured sample. Raises `InputRefused` for another number of them."""
    if not job.slices:
        return ()
    lines = _slice_lines(job)
    if too_long := [n for n, name in enumerate(lines, 1) if len(name) > _LONGEST_SLICE]:
        raise InputRefused(
            f"{job.slices}, line {too_long[0]}: a slice has a name of {_LONGEST_SLICE} characters "
            "at most",
            hint="write the name of a slice on each line, and nothing else",
        )
    count = report.data.samples if report.data else 0
    if len(lines) != count:
        raise InputRefused(
            f"{job.slices} has {len(lines)} lines, and {count} test samples were measured",
            hint="write the name of each sample's slice on a line of its own, for all samples",
        )
    return lines


def _slice_lines(job: Job) -> tuple[str, ...]:
    with _reading(job):
        return tuple(Path(job.slices).read_text(encoding="utf-8").splitlines())


def _file_hash(job: Job) -> str:
    with _reading(job):
        refuse_pointer(Path(job.slices))
        return sha256_file(Path(job.slices))


@contextlib.contextmanager
def _reading(job: Job) -> Any:
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise InputRefused(
            f"the slices {job.slices} of model {job.name!r} cannot be read: {error}",
            hint="give a text file with the name of a slice on each line",
        ) from error
