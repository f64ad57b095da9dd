"""The check of one model: convert, measure, check against the budget, compare with the lock.

A step whose inputs did not change is not repeated: the published files, the cached report and the
cached check are taken. Then nothing here loads numpy or TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from edgeconv.data.location import refuse_absent
from edgeconv.gate.jobs import MeasurementScope, ModelJob, job_inputs, job_slices, refuse_job
from edgeconv.measure.machine import compiler_version, environment
from edgeconv.plugins import METRICS
from edgeconv.reporting.sections import first_bad, what_it_does
from edgeconv.reporting.units import counted
from edgeconv.system.store import (
    Cache,
    cache_directory,
    code_hash,
    hash_of,
    read_noun,
    scratch_directory,
    tool_versions,
)
from edgeconv.types import (
    IN_VERSIONS,
    LIMIT_KINDS,
    MAE,
    NOT_CHECKED,
    TOP1,
    Budget,
    Check,
    Conversion,
    Execution,
    Failure,
    Finding,
    GateStatistics,
    LockedModel,
    Measurement,
    Report,
    RuntimeVersions,
    Verdict,
    VersionResult,
)
from edgeconv.types.errors import InputRefused
from edgeconv.types.measurement import UNTIMED
from edgeconv.types.words import listed

Kept = TypeVar("Kept", Report, Check)
_MOST_NAMES = 4


@dataclass
class Checking:
    """How jobs are checked, and their results so far.

    `locked` are the models of the lock. With `accepting` they are to be replaced: the present state
    is checked against the budget and the trained baseline, and its losses against the lock fail,
    except in the stages in `accepted_drops` (by model), where they are warnings.
    """

    statistics: GateStatistics
    execution: Execution
    locked: Mapping[str, LockedModel] = field(default_factory=dict)
    has_lock: bool = False
    accepting: bool = False
    accepted_drops: Mapping[str, Collection[str]] = field(default_factory=dict)
    on_progress: Callable[[str], None] = lambda _: None
    _conversions: dict[str, _Converted] = field(default_factory=dict)
    _reports: dict[str, Report] = field(default_factory=dict)

    def check(self, job: ModelJob) -> Check:
        """The check of a model. Raises an `EdgeconvError` where it cannot be checked."""
        check = self._check(job)
        # Of this run, and so not kept with the check.
        return replace(check, notes=(*check.notes, *self.published(job).notes))

    def _check(self, job: ModelJob) -> Check:
        locked = self.locked.get(job.name)
        key = hash_of(
            *(self._report_key(job), job.budget, self.statistics, locked, self.has_lock),
            *(self.accepting, sorted(self.accepted_drops.get(job.name, ())), job.guards_trained),
            _version_names(job),
        )
        cached = self._cached("check", key, Check) or self._cached("check", _refused(key), Check)
        if cached is not None:
            return replace(cached, reused=True)
        report = self.report(job)
        check = self._new_check(job, report, locked)
        if _is_sound(report):
            self._keep("check", key if check.verdict.ok else _refused(key), check)
        return check

    def report(self, job: ModelJob) -> Report:
        """The measurements of the model; measured again where anything changed."""
        key = self._report_key(job)
        if key not in self._reports:
            converted = self._converted(job)
            report = self._cached("report", key, Report)
            if report is None:
                report = _measure(job, converted, self._scope(job), self.on_progress)
                # Inputs that changed meanwhile may have been measured in either state.
                if _is_sound(report) and self._inputs(job) == converted.inputs:
                    self._keep("report", key, report)
            matrix = self._matrix(job, converted)
            self._reports[key] = replace(report, matrix=matrix)
        return self._reports[key]

    def published(self, job: ModelJob) -> Conversion:
        """The conversion of the model, with its directory."""
        return self._converted(job).conversion

    def accepted(self, job: ModelJob) -> LockedModel:
        """The model as it is now, to be locked."""
        from edgeconv.requests.config.lock import locked_model

        return locked_model(job.name, self.report(job), self._converted(job).inputs)

    def _new_check(self, job: ModelJob, report: Report, locked: LockedModel | None) -> Check:
        from edgeconv.gate.accepting import without_unproven
        from edgeconv.gate.stages import stage_states
        from edgeconv.reporting.verdicts.words import changes, summary

        reference = None if self.accepting else locked
        slices = job_slices(job, report)
        check = check_report(
            report, job.budget, self.statistics, reference, slices, guards=job.guards_trained
        )
        if self.accepting or locked:
            verdict = without_unproven(check.verdict, reference)
            check = replace(check, verdict=verdict)
        if locked is None:
            missing = "not in the lock" if self.has_lock else "no lock"
            unlocked = "" if self.accepting else missing
            return replace(check, name=job.name, unlocked=unlocked)
        if self.accepting:
            check = self._with_losses(check, job, report, slices)
        now = self.accepted(job)
        stages = stage_states(report, locked, self.statistics)
        changed = changes(locked, now.inputs, now.tools)
        return replace(
            check,
            name=job.name,
            stages=stages,
            changes=changed,
            summary=summary(check.verdict, stages, changed),
            is_locked=True,
            accepted=() if self.accepting else locked.accepted,
        )

    def _with_losses(
        self, check: Check, job: ModelJob, report: Report, slices: Sequence[str]
    ) -> Check:
        from edgeconv.gate.accepting import accept_losses
        from edgeconv.gate.budget import losses

        lost = losses(
            report,
            job.budget,
            statistics=self.statistics,
            locked=self.locked[job.name],
            slices=slices,
        )
        findings = accept_losses(lost, self.accepted_drops.get(job.name, ()))
        verdict = Verdict(findings=(*check.verdict.findings, *findings))
        return replace(check, verdict=verdict)

    def _scope(self, job: ModelJob) -> MeasurementScope:
        locked, inputs = self.locked.get(job.name), self._converted(job).inputs
        is_timed = any(LIMIT_KINDS[name].needs_times for name in job.budget.names())
        data = inputs.get("test data")
        if locked is None or data is None or locked.inputs.get("test data") != data:
            return MeasurementScope(is_timed)
        metrics = {stage.accuracy.metric for stage in locked.stages if stage.accuracy}
        # What is measured anyway does not make another report of it.
        metrics -= {str(each) for each in job.measuring.measuring.metrics or (TOP1, MAE)}
        return MeasurementScope(is_timed, tuple(sorted(metrics & METRICS.keys())))

    def _matrix(self, job: ModelJob, converted: _Converted) -> tuple[VersionResult, ...]:
        """Every file in every version; the cache has the answers of files that did not change."""
        if job.versions is None:
            return ()
        from edgeconv.measure.bench import bench_versions

        request = job.versions_request(converted.files, job.versions)
        return bench_versions(request, on_progress=self.on_progress)

    def _report_key(self, job: ModelJob) -> str:
        return hash_of(self._converted(job).key, self._scope(job))

    def _converted(self, job: ModelJob) -> _Converted:
        if job.name not in self._conversions:
            # Before the conversion, which would complain about its options first.
            refuse_job(job)
            self.on_progress(f"checking {job.name}")
            if job.measuring.data:
                refuse_absent(job.measuring.data)
            conversion = job.ready or self._convert(job)
            if not conversion.artifacts:
                raise InputRefused(
                    "nothing could be converted: "
                    + "; ".join(failure.message for failure in conversion.failures),
                    hint=next(
                        (failure.hint for failure in conversion.failures if failure.hint), ""
                    ),
                )
            self._conversions[job.name] = _Converted(job, conversion, self._inputs(job))
        return self._conversions[job.name]

    def _convert(self, job: ModelJob) -> Conversion:
        from edgeconv.conversion.convert import convert

        assert job.converting is not None, "a source that is not ready is converted"
        return convert(job.converting, on_progress=self.on_progress)

    def _inputs(self, job: ModelJob) -> dict[str, str]:
        return job_inputs(job, self.execution)

    def _cache(self) -> Cache:
        return Cache(cache_directory() if self.execution.use_cache else None, self.on_progress)

    def _cached(self, stage: str, key: str, kind: type[Kept]) -> Kept | None:
        entry = self._cache().find(stage, key)
        return read_noun(entry / f"{stage}.json", kind, what=stage) if entry else None

    def _keep(self, stage: str, key: str, noun: Report | Check) -> None:
        with scratch_directory() as scratch:
            file = scratch / f"{stage}.json"
            file.write_bytes(msgspec.json.encode(noun))
            self._cache().keep(stage, key, {file.name: file})


def _refused(key: str) -> str:
    """The key of a verdict that does not pass: other code of edgeconv may judge otherwise."""
    return hash_of(key, code_hash())


def unchecked(name: str, reason: str) -> Check:
    """The check of a model that could not be checked, which does not pass."""
    finding = Finding(
        model=name, limit=NOT_CHECKED, allowed="made", actual=None, outcome="missing", reason=reason
    )
    return Check(name=name, verdict=Verdict(findings=(finding,)))


def check_report(
    report: Report,
    budget: Budget,
    statistics: GateStatistics,
    locked: LockedModel | None = None,
    slices: Sequence[str] = (),
    versions: RuntimeVersions | None = None,
    *,
    guards: bool = True,
) -> Check:
    """A report checked against a budget, and the files that it has in versions of a runtime.

    `guards`: a loss of the trained model against the lock fails without a limit on it too.
    Raises as `edgeconv.gate.budget.check`.
    """
    from edgeconv.gate.budget import check
    from edgeconv.gate.drops import class_drops
    from edgeconv.gate.stages import stage_states
    from edgeconv.reporting.verdicts.words import summary

    of_budget = check(
        report, budget, statistics=statistics, locked=locked, slices=slices, guards=guards
    )
    verdict = Verdict(findings=(*of_budget.findings, *version_findings(report, versions)))
    stages = stage_states(report, locked, statistics)
    return Check(
        name=report.title,
        verdict=verdict,
        statistics=statistics,
        stages=stages,
        classes=class_drops(report, statistics=statistics, locked=locked, slices=slices),
        summary=summary(verdict, stages, ()),
        notes=tuple(note for note in report.notes if note != UNTIMED),
        data=report.data,
    )


class _Converted:
    def __init__(self, job: ModelJob, conversion: Conversion, inputs: dict[str, str]) -> None:
        self.conversion = conversion
        self.inputs = inputs
        here = environment()
        self.key = hash_of(
            job.name,
            inputs,
            [(a.name, a.recipe.name, a.sha256) for a in conversion.artifacts],
            conversion.failures,
            tool_versions(),
            (here.machine, here.cpu, here.cores),
            compiler_version(job.measuring.measuring),
        )

    @property
    def files(self) -> list[Path]:
        """The published files, in the order of their recipes."""
        return [Path(self.conversion.directory) / a.file for a in self.conversion.artifacts]


def _measure(
    job: ModelJob,
    converted: _Converted,
    scope: MeasurementScope,
    on_progress: Callable[[str], None],
) -> Report:
    from edgeconv.measure.bench import bench

    report = bench(job.bench_request(converted.files, scope), on_progress=on_progress)
    failed = tuple(map(_failed, converted.conversion.failures))
    checkpoint = None
    if job.checkpoint:
        request = job.bench_request(converted.files[:1], scope, job.checkpoint)
        first = bench(request, on_progress=on_progress).baseline
        checkpoint = first and replace(first, name="checkpoint")
    return replace(report, measurements=(*report.measurements, *failed), checkpoint=checkpoint)


def _is_sound(report: Report) -> bool:
    """Whether every model ran; a failure may be temporary, and is not cached."""
    answered = all(each.state in ("right", "wrong") for each in report.matrix)
    failed = (
        row.error or any(estimate.error for estimate in row.npu) for row in report.measurements
    )
    return answered and not any(failed)


def _version_names(job: ModelJob) -> tuple[str, ...]:
    """The versions that a job's files run in. Raises `ToolFailed` where they are not known."""
    if job.versions is None:
        return ()
    from edgeconv.runtimes.choice import matching_versions

    return tuple(map(str, matching_versions(job.versions)))


def _failed(failure: Failure) -> Measurement:
    return Measurement(
        name=failure.recipe,
        role="artifact",
        recipe=failure.recipe,
        runtime="",
        sha256="",
        size_bytes=0,
        error=f"it could not be converted: {failure.message}",
    )


def version_findings(
    report: Report, versions: RuntimeVersions | None = None
) -> tuple[Finding, ...]:
    """One finding for each file that the report has in versions of a runtime.

    It fails with a version in which the file does not load, does not run, crashes or is wrong; a
    version that could not be installed is a missing number. Where `versions` were to be run and the
    report has none, that is missing too.
    """
    if versions is not None and not report.matrix:
        return (_not_run(report, versions),)
    names = dict.fromkeys(each.model for each in report.matrix)
    return tuple(
        _finding(name, [each for each in report.matrix if each.model == name]) for name in names
    )


def _finding(model: str, results: Sequence[VersionResult]) -> Finding:
    missing = [each for each in results if each.state == "not installable"]
    bad = first_bad(results)
    right = sum(each.state == "right" for each in results)
    actual = what_it_does(bad) if bad else f"right in {counted(right, 'version')}"
    return Finding(
        model=model,
        limit=IN_VERSIONS,
        allowed=f"right in {counted(len(results), 'version')}",
        actual=actual,
        outcome="failed" if bad else "missing" if missing else "passed",
        reason="; ".join((*_why(results, bad), *_not_installed(missing))),
    )


def _why(results: Sequence[VersionResult], bad: VersionResult | None) -> Iterator[str]:
    if bad is None:
        return
    others = [each for each in results if each.state not in ("right", "not installable")][1:]
    yield f"first bad version {bad.runtime}"
    if others:
        names = listed([each.runtime for each in others], _MOST_NAMES)
        yield f"bad too: {names}"
    if bad.detail:
        yield bad.detail.splitlines()[0]
    reference = next((each.runtime for each in results if each.is_reference), "")
    if bad.snr_db is not None:
        flips = "" if bad.flips is None else f", {counted(bad.flips, 'flip')}"
        yield f"{bad.snr_db:.1f} dB from {reference}{flips}"
    version = bad.runtime.partition("==")[2]
    yield (
        f"leave it out of the specifier (!={version}) if no app ships it, or convert with "
        f"--target-runtime {bad.runtime}"
    )


def _not_installed(missing: Sequence[VersionResult]) -> Iterator[str]:
    if missing:
        names = listed([each.runtime for each in missing], _MOST_NAMES)
        why = missing[0].detail.splitlines()[0] if missing[0].detail else "no reason is known"
        yield f"not installed: {names} ({why}); check that pip can install it, or leave it out"


def _not_run(report: Report, versions: RuntimeVersions) -> Finding:
    return Finding(
        model=report.title,
        limit=IN_VERSIONS,
        allowed=f"right in {versions}",
        actual=None,
        outcome="missing",
        reason=f"the report has no versions: measure it with `bench --runtimes '{versions}'`",
    )
