"""The verb `check`: every model of a configuration, or a report, checked against its budget."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from edgeconv.gate.accepting import accept_state, parse_accepted
from edgeconv.gate.flow import Checking, check_report, unchecked
from edgeconv.gate.jobs import ModelJob
from edgeconv.model.source import artifact_of_file
from edgeconv.plugins import tracker
from edgeconv.reporting.files import checked_report, read_report, write_last_check
from edgeconv.reporting.verdicts import render
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.check import CheckRequest
from edgeconv.requests.config import lock
from edgeconv.requests.config.chosen import Chosen, NoConfig, settled
from edgeconv.requests.config.file import Config, ModelTable, limited
from edgeconv.requests.config.lock import FILE_NAME
from edgeconv.system.store import (
    also_reading,
    is_device,
    publish_bytes,
    read_noun,
    refuse_inputs,
    sha256_file,
    writable_directory,
)
from edgeconv.system.store.notes import in_project
from edgeconv.types import (
    IN_VERSIONS,
    NOT_CHECKED,
    Budget,
    Check,
    Checked,
    Conversion,
    Finding,
    Report,
    SweepGate,
    Swept,
    Verdict,
)
from edgeconv.types.errors import EdgeconvError, InputRefused, OutputRefused, UsageError

_FOR_MODELS = {
    "names": "--model",
    "update": "--update",
    "accept_drops": "--accept-drop",
    "trackers": "--track",
}
_VERSIONS_KEYS = (("check", "runtimes"), ("bench", "runtimes"))


# Each with its location.
Trackers = Sequence[tuple[ModuleType, str]]


class CheckRun(NamedTuple):
    """A finished check, before it is written anywhere.

    `reports` are the measurements to track, by model. `errors` has one for each model that
    could not be checked; the others have their verdicts. `notices` are for the user.
    """

    checked: Checked
    reports: Mapping[str, Report] = {}
    errors: Sequence[EdgeconvError] = ()
    notices: Sequence[str] = ()

    @property
    def has_verdict(self) -> bool:
        """Whether any model could be checked."""
        return len(self.errors) < len(self.checked.checks)


def check(request: CheckRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Checked:
    """Convert, measure and check models against budget and lock; or check a report.

    A broken limit is a result, not an error: see `Checked.ok`. If only some models cannot be
    checked, they do not pass. Writes `outputs` and logs to `trackers`. Raises an `EdgeconvError`
    where no model could be checked; the outputs then say why.
    """
    request = settled(request, "check")
    outputs, trackers = parse_destinations(request)
    run = run_check(request, on_progress)
    for notice in run.notices:
        on_progress(notice)
    publish(run.checked, outputs)
    if not run.has_verdict:
        raise run.errors[0]
    track(run, trackers)
    return run.checked


def run_check(request: CheckRequest, on_progress: Callable[[str], None]) -> CheckRun:
    """What `check` does, without writing outputs and logging. Raises an `EdgeconvError`."""
    if request.report is not None:
        return _check_report(request, request.report)
    project = Project(request, on_progress)
    jobs = project.jobs(request.names)
    written = [Path(file) for _, file in (*request.outputs, *request.trackers)]
    made = [path for job in jobs for path in _with_manifests(job.published_before())]
    refuse_inputs(written, further=[project.lock, *made])
    refuse_inputs([project.lock] if request.update else [])
    errors: list[EdgeconvError] = []
    notices: list[str] = []
    checks = tuple(_check_or_error(project, job, errors, notices) for job in jobs)
    checked = Checked(config=str(project.config.path), checks=checks)
    if request.update and len(errors) < len(jobs):
        notices += accept_state(project, jobs, checked, request)
    measured = (job for job, each in zip(jobs, checks, strict=True) if each.stages)
    tracked = measured if request.trackers else ()
    reports = {job.name: project.checking.report(job) for job in tracked}
    return CheckRun(checked, reports, tuple(errors), tuple(notices))


def parse_destinations(request: CheckRequest) -> tuple[dict[Path, str], Trackers]:
    """The format of each file to write, and the trackers. Raises what is wrong before any work."""
    outputs: dict[Path, str] = {}
    for name, file in request.outputs:
        path = Path(file)
        if path in outputs:
            raise UsageError(f"--output writes {file} twice", hint="give each format a file")
        outputs[path] = name
        if is_device(path):
            continue
        writable_directory(path.absolute().parent)
        if path.is_dir():
            raise OutputRefused(f"cannot write {path}: it is a directory", hint="name a file")
    trackers = [(tracker(kind), location) for kind, location in request.trackers]
    for module, location in trackers:
        module.refuse(location)
    return outputs, trackers


def publish(checked: Checked, outputs: Mapping[Path, str]) -> None:
    """Write every output, and the summary of a job of GitHub Actions.

    Raises `OutputRefused` for a file that cannot be written, after all the others are.
    """
    refused = []
    for path, name in outputs.items():
        try:
            publish_bytes(render(in_project(checked, path.absolute()), name).encode(), path)
        except OutputRefused as error:
            refused.append(error)
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if is_github() and summary:
        try:
            _append(render(checked, "github-summary"), Path(summary))
        except OutputRefused as error:
            refused.append(error)
    if refused:
        raise refused[0]


def track(run: CheckRun, trackers: Trackers) -> None:
    """Log the measurements. Raises an `EdgeconvError` for a tracker that refuses them."""
    for module, location in trackers:
        checked = in_project(run.checked, Path(run.checked.config).absolute())
        module.track(checked, run.reports, location)


def is_github() -> bool:
    """Whether this is a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _append(text: str, path: Path) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputRefused(
            f"cannot write the job's summary {path}: {error.strerror}",
            hint="GITHUB_STEP_SUMMARY must name a file that can be written",
        ) from error


def _check_report(request: CheckRequest, source: Report | str) -> CheckRun:
    """A report checked against the budget of the request, or of the configuration."""
    for name, option in _FOR_MODELS.items():
        if getattr(request, name):
            raise UsageError(f"{option} is for the models of a configuration", hint="remove REPORT")
    path = Path(source) if isinstance(source, str) else None
    if path is not None and (swept := read_swept(path)) is not None:
        checked, by_file = check_swept(swept, request)
        return CheckRun(checked, notices=_write_of_sweep(swept, by_file, path))
    report = source if isinstance(source, Report) else read_report(Path(source))
    if request.budget is not None:
        result = check_report(report, request.budget, request.statistics, versions=request.versions)
        return CheckRun(Checked(checks=(result,)))
    try:
        chosen = Chosen(request)
    except NoConfig as error:
        raise UsageError(
            f"there is no budget to check {path or 'the report'} against",
            hint="--config FILE with a [budget], or an edgeconv.toml here",
        ) from error
    limits = limited(chosen.config)
    result = check_report(report, limits, request.statistics, versions=request.versions)
    folders = [*([path.parent] if path else []), *chosen.published()]
    # Without the lock, a file can fail here, but an earlier failure is not cleared.
    files = dict(_published_files(report, folders))
    notices = _write_verdicts(result, files, clears=False, report=path)
    result = _with_lines(result, chosen.config)
    return CheckRun(Checked(config=str(chosen.config.path), checks=(result,)), notices=notices)


def _write_of_sweep(swept: Swept, by_file: Mapping[str, Check], sweep_json: Path) -> list[str]:
    """Write the verdict next to each file of a sweep that is there; returns notices."""
    hashes = {cell.file: cell.sha256 for cell in swept.cells}
    notices = []
    for name, check in by_file.items():
        file = sweep_json.parent / name
        if file.is_file() and sha256_file(file) == hashes[name]:
            notices += _write_verdicts(check, {file: hashes[name]}, report=sweep_json)
    return notices


def _published_files(report: Report, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The published files with the bytes that were measured."""
    for artifact in report.artifacts:
        for folder in folders:
            file = folder / artifact.file
            if file.is_file() and sha256_file(file) == artifact.sha256:
                yield file, artifact.sha256


def _check_or_error(
    project: Project, job: ModelJob, errors: list[EdgeconvError], notices: list[str]
) -> Check:
    try:
        result = _check_model(project, job, notices)
    except EdgeconvError as error:
        if len(project.config.models) > 1:
            error.message = f"model {job.name!r}: {error.message}"
        errors.append(error)
        result = unchecked(job.name, error.message)
    return _with_lines(result, project.config, job.name)


def _with_lines(check: Check, config: Config, model: str = "") -> Check:
    """The check with the line of each limit in the configuration.

    The cached check has none: a comment above a limit moves it.
    """

    def with_line(finding: Finding) -> Finding:
        if finding.limit == NOT_CHECKED:
            line = config.line("model", model)
        elif finding.limit == IN_VERSIONS:
            keys = [config.key(*key, model=model) for key in _VERSIONS_KEYS]
            written = next((key for key in keys if config.written.has(*key)), ("model", model))
            line = config.line(*written)
        else:
            line = config.limit_line(
                finding.limit, model=model, recipe=finding.recipe, runtime=finding.runtime
            )
        return msgspec.structs.replace(finding, line=line)

    verdict = Verdict(findings=tuple(map(with_line, check.verdict.findings)))
    return msgspec.structs.replace(check, verdict=verdict)


def _check_model(project: Project, job: ModelJob, notices: list[str]) -> Check:
    """The check of a model; its report is written where [bench] has a directory."""
    check = project.checking.check(job)
    conversion = project.checking.published(job)
    files = {Path(conversion.directory, a.file): a.sha256 for a in conversion.artifacts}
    also_reading(_with_manifests(files))
    directory = job.report_directory
    written = directory.absolute() / "report.json" if directory else None
    if written and not (check.reused and _is_report_of(written, files)):
        from edgeconv.reporting.files import write_report

        writable_directory(written.parent)
        report = msgspec.structs.replace(project.checking.report(job), verdict=check.verdict)
        write_report(report, written.parent)
    notices += _write_verdicts(check, files, report=written)
    # What stands there is of an earlier conversion, and was not checked now.
    for failure in conversion.failures:
        for file in Path(conversion.directory).glob(f"*.{failure.recipe}.tflite"):
            notices += _write_verdicts(check, {file: sha256_file(file)}, recipe=failure.recipe)
    return check


def _with_manifests(files: Iterable[Path]) -> Iterator[Path]:
    for file in files:
        yield from (file, file.with_suffix(".json"))


def _is_report_of(report: Path, files: Mapping[Path, str]) -> bool:
    hashes = {checked_report(file, sha256) for file, sha256 in files.items()}
    return report.is_file() and hashes == {sha256_file(report)}


def _write_verdicts(
    check: Check,
    files: Mapping[Path, str],
    *,
    clears: bool = True,
    report: Path | None = None,
    recipe: str = "",
) -> list[str]:
    """Write the verdict next to each published file; returns a notice for each that failed.

    `recipe` is set for files that could not be made anew.
    """
    report_sha256 = sha256_file(report) if report else ""
    notices = []
    for file, sha256 in files.items():
        try:
            write_last_check(
                check, file, sha256, clears=clears, report_sha256=report_sha256, recipe=recipe
            )
        except OutputRefused as error:
            notices.append(f"note: {file} will count as not checked: {error.message}")
    return notices


class _Kind(msgspec.Struct):
    sweep: int | None = None


def read_swept(path: Path) -> Swept | None:
    """The sweep in a sweep.json; None for another file. Raises `InputRefused`."""
    try:
        kind = read_noun(path, _Kind, what="report")
    except InputRefused:
        # The reader of reports gives the reason.
        return None
    return None if kind.sweep is None else read_noun(path, Swept, what="sweep")


def check_swept(swept: Swept, request: CheckRequest) -> tuple[Checked, dict[str, Check]]:
    """A check for each model and data set; and of each file by its path, of all its cells.

    What failed or has not run does not pass, unless one cell of each model is enough. Raises
    `UsageError` without a budget.
    """
    budgets, config = _budgets(swept, request)
    if not swept.reports:
        nothing = unchecked(swept.title, "the sweep has no cell")
        return Checked(config=config, checks=(nothing,)), {}
    every = [
        check_report(report, budget, request.statistics)
        for report, budget in zip(swept.reports, budgets, strict=True)
    ]
    pairs = zip(swept.reports, every, strict=True)
    checks = tuple(_gated(report, check, swept.gate) for report, check in pairs)
    return Checked(config=config, checks=checks), _by_file(swept, every)


def _by_file(swept: Swept, checks: Sequence[Check]) -> dict[str, Check]:
    """All findings on each file, which may be measured on several data sets."""
    by_file = {}
    for file, sha256 in {cell.file: cell.sha256 for cell in swept.cells if cell.file}.items():
        own = [
            check
            for report, check in zip(swept.reports, checks, strict=True)
            if any(row.sha256 == sha256 for row in report.measurements)
        ]
        by_file[file] = msgspec.structs.replace(
            own[0],
            verdict=Verdict(findings=sum((check.verdict.findings for check in own), ())),
            stages=sum((check.stages for check in own), ()),
        )
    return by_file


def _budgets(swept: Swept, request: CheckRequest) -> tuple[list[Budget], str]:
    """The budget of each report, and the configuration that all are from, if any."""
    if request.budget is not None:
        return [request.budget] * len(swept.reports), ""
    if swept.budget != Budget() or swept.budgets:
        titles = [report.title for report in swept.reports]
        budgets = [swept.budgets.get(title, swept.budget) for title in titles]
        if Budget() in budgets:
            unlimited = titles[budgets.index(Budget())]
            raise UsageError(
                f"there is no limit for {unlimited}, while other models have some",
                hint="add a [budget] to the file of the sweep, or a [model.PATTERN.budget], and "
                "run `edgeconv sweep` again",
            )
        return budgets, ""
    try:
        config = Chosen(request).config
    except NoConfig as error:
        raise UsageError(
            "there is no budget to check the sweep against",
            hint="add a [budget] to its file and run `edgeconv sweep` again, or --config FILE",
        ) from error
    return [limited(config)] * len(swept.reports), str(config.path)


def _gated(report: Report, check: Check, gate: SweepGate) -> Check:
    if gate == "every-cell":
        return check
    by_cell = [
        tuple(finding for finding in check.verdict.findings if finding.model == row.name)
        for row in report.measurements
    ]
    passing = [each for each in by_cell if each and Verdict(findings=each).ok]
    # Where no cell keeps the budget, all reasons are shown.
    verdict = Verdict(findings=sum(passing, ())) if passing else check.verdict
    return msgspec.structs.replace(check, verdict=verdict)


class Project:
    """The models of a configuration, how they are checked, and the path of the lock.

    Raises `InputRefused` for a lock that cannot be read, `UsageError` for a wrong configuration or
    unknown losses to accept.
    """

    def __init__(self, request: CheckRequest, on_progress: Callable[[str], None]) -> None:
        self._chosen = Chosen(request)
        self.config: Config = self._chosen.config
        self._versions = request.versions
        accepted_drops = parse_accepted(
            request.accept_drops, self.config.models, updates=request.update
        )
        default = self.config.folder / FILE_NAME
        self.lock = (
            Path(request.lock) if request.lock else self._chosen.within_project(default, "the lock")
        )
        if not request.update:
            also_reading([self.lock])
        is_there = self.lock.exists() or self.lock.is_symlink()
        accepted = lock.read(self.lock) if is_there else None
        self.checking = Checking(
            statistics=request.statistics,
            execution=request.execution.execution,
            locked=accepted.models if accepted else {},
            has_lock=accepted is not None,
            accepting=request.update,
            accepted_drops=accepted_drops,
            on_progress=on_progress,
        )

    def jobs(self, names: Sequence[str]) -> tuple[ModelJob, ...]:
        """The jobs of these models, of all models without names. Raises `UsageError`."""
        return tuple(self._job(model) for model in self._chosen.models(names))

    def _job(self, model: ModelTable) -> ModelJob:
        ready = self._ready_made(model)
        # The job replaces these models by the converted files.
        measuring = {"models": (model.source,)}
        request = self._chosen.request(BenchRequest, "bench", model, measuring)
        return ModelJob(
            name=model.name,
            source=model.source,
            budget=_budget_of(model.budget, ready) if ready else model.budget,
            converting=None if ready else self._chosen.converting(model),
            ready=ready,
            measuring=request,
            versions=self._versions or request.measuring.versions,
            checkpoint=model.checkpoint,
            slices=model.slices,
            report_directory=self._chosen.directory(model, "bench"),
        )

    def _ready_made(self, model: ModelTable) -> Conversion | None:
        """The source of a model, where it is a quantized .tflite; else None.

        Raises `UsageError` for options that would convert it.
        """
        if not model.source.lower().endswith(".tflite"):
            return None
        try:
            artifact = artifact_of_file(model.source)
        except InputRefused:
            return None  # The conversion refuses it, with the reason.
        if artifact.recipe.name in ("float32", "float16"):
            return None
        table = ("model", model.name, "convert")
        if self.config.written.has(*table):
            raise self.config.written.error(
                table,
                f"model {model.name!r} is quantized already, so it is not converted",
                "remove this table, or name the float model as its source",
            )
        return Conversion(directory=str(Path(model.source).parent), artifacts=(artifact,))


def _budget_of(budget: Budget, ready: Conversion) -> Budget:
    recipes = {artifact.recipe.name for artifact in ready.artifacts}
    fitting = {name: limits for name, limits in budget.recipe.items() if name in recipes}
    return replace(budget, recipe=fitting)
