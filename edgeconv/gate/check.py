"""The verb `check`: every model of a configuration, or a report, held to its budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.config import limited
from edgeconv.config.chosen import Chosen, NoConfig, settled
from edgeconv.errors import EdgeconvError, OutputRefused, UsageError
from edgeconv.gate.flow import check_report, unchecked
from edgeconv.gate.project import Project
from edgeconv.gate.updating import accept_state
from edgeconv.reporting.last_check import checked_report, write_last_check
from edgeconv.store import sha256_file, writable_directory
from edgeconv.types import NOT_CHECKED, Check, Checked, Report, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edgeconv.config import Config
    from edgeconv.gate.jobs import ModelJob
    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Finding

_FOR_MODELS = {
    "names": "--model",
    "update": "--update",
    "accept_drops": "--accept-drop",
    "trackers": "--track",
}


class CheckRun(NamedTuple):
    """A check that is done.

    `reports` is what was measured of each model, where it is to be tracked. `errors` are those of
    models that could not be checked, which keep the verdict of the others from nobody. `told` is
    what else there is to say.
    """

    checked: Checked
    reports: Mapping[str, Report] = {}
    errors: Sequence[EdgeconvError] = ()
    told: Sequence[str] = ()


def check(asked: CheckRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Checked:
    """Convert, measure and judge models, and compare with the lock; or judge a report.

    A limit that is broken is an answer and no error: `Checked.ok` says it. A model of several
    that cannot be checked does not pass. What `outputs` and `trackers` ask for is written.
    Raises an `EdgeconvError` where nothing could be checked.
    """
    from edgeconv.gate.destinations import parse_destinations, publish, track

    asked = settled(asked, "check")
    places = parse_destinations(asked)
    done = checked(asked, on_progress)
    for line in done.told:
        on_progress(line)
    publish(done.checked, places.outputs)
    track(done.checked, done.reports, places)
    return done.checked


def checked(asked: CheckRequest, on_progress: Callable[[str], None]) -> CheckRun:
    """What `check` gives, before it is written anywhere. Raises an `EdgeconvError`."""
    if asked.report is not None:
        return _report_checked(asked, asked.report)
    project = Project(asked, on_progress)
    jobs = project.jobs(asked.names)
    errors: list[EdgeconvError] = []
    told: list[str] = []
    checks = tuple(_named(project, job, errors, told) for job in jobs)
    if len(errors) == len(jobs):
        raise errors[0]
    answer = Checked(config=str(project.config.path), checks=checks)
    if asked.update:
        told += accept_state(project, jobs, answer, asked)
    measured = (job for job, one in zip(jobs, checks, strict=True) if one.stages)
    tracked = measured if asked.trackers else ()
    reports = {job.name: project.checking.report(job) for job in tracked}
    return CheckRun(answer, reports, tuple(errors), tuple(told))


def _report_checked(asked: CheckRequest, given: Report | str) -> CheckRun:
    """A report held against a budget: the one that is given, or the configuration's."""
    from edgeconv.reporting.files import read_report

    for name, option in _FOR_MODELS.items():
        if getattr(asked, name):
            raise UsageError(f"{option} is for the models of a configuration", hint="remove REPORT")
    path = Path(given) if isinstance(given, str) else None
    if asked.budget is not None:
        report = given if isinstance(given, Report) else read_report(Path(given))
        answer = check_report(report, asked.budget, asked.statistics)
        return CheckRun(Checked(checks=(answer,)))
    try:
        chosen = Chosen(asked)
    except NoConfig as error:
        raise UsageError(
            f"there is no budget to hold {path or 'the report'} against",
            hint="--config FILE with a [budget], or an edgeconv.toml here",
        ) from error
    report = given if isinstance(given, Report) else read_report(Path(given))
    answer = check_report(report, limited(chosen.config), asked.statistics)
    folders = [*([path.parent] if path else []), *chosen.published()]
    # It was not held beside the lock, so that it rejects a file and clears none.
    told = _note_down(answer, dict(_found_files(report, folders)), clears=False, report=path)
    answer = _in_place(answer, chosen.config)
    return CheckRun(Checked(config=str(chosen.config.path), checks=(answer,)), told=told)


def _found_files(report: Report, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The files that were measured, where they are published as they were."""
    for artifact in report.artifacts:
        for folder in folders:
            file = folder / artifact.file
            if file.is_file() and sha256_file(file) == artifact.sha256:
                yield file, artifact.sha256


def _named(project: Project, job: ModelJob, errors: list[EdgeconvError], told: list[str]) -> Check:
    """The check of a model, or why there is none; an error says of which of several it is."""
    try:
        return _in_place(_check(project, job, told), project.config, job.name)
    except EdgeconvError as error:
        if len(project.config.models) > 1:
            error.message = f"model {job.name!r}: {error.message}"
        errors.append(error)
        return _in_place(unchecked(job.name, error.message), project.config, job.name)


def _in_place(check: Check, config: Config, model: str = "") -> Check:
    """The check with the line of each limit in the configuration.

    It is no part of what is kept of a check: a comment above a limit moves it.
    """

    def placed(finding: Finding) -> Finding:
        if finding.limit == NOT_CHECKED:
            line = config.line("model", model)
        else:
            line = config.limit_line(finding.limit, model=model, recipe=finding.recipe)
        return msgspec.structs.replace(finding, line=line)

    verdict = Verdict(findings=tuple(map(placed, check.verdict.findings)))
    return msgspec.structs.replace(check, verdict=verdict)


def _check(project: Project, job: ModelJob, told: list[str]) -> Check:
    """The check of a model; its report is written where [bench] says so."""
    check = project.checking.check(job)
    done = project.checking.published(job)
    files = {Path(done.directory, one.file): one.sha256 for one in done.artifacts}
    directory = job.report_directory
    written = directory.absolute() / "report.json" if directory else None
    if written and not (check.reused and _is_judged(written, files)):
        from edgeconv.reporting.files import write_report

        writable_directory(written.parent)
        report = msgspec.structs.replace(project.checking.report(job), verdict=check.verdict)
        write_report(report, written.parent)
    told += _note_down(check, files, report=written)
    return check


def _is_judged(report: Path, files: Mapping[Path, str]) -> bool:
    """Whether it is the report that the verdicts beside the files name."""
    named = {checked_report(file, sha256) for file, sha256 in files.items()}
    return report.is_file() and named == {sha256_file(report)}


def _note_down(
    check: Check, files: Mapping[Path, str], *, clears: bool = True, report: Path | None = None
) -> list[str]:
    """The verdict beside each published file, for those who ship it; what could not be written."""
    judged = sha256_file(report) if report else ""
    told = []
    for file, sha256 in files.items():
        try:
            write_last_check(check, file, sha256, clears=clears, report_sha256=judged)
        except OutputRefused as error:
            told.append(f"note: {file} will count as not checked: {error.message}")
    return told
