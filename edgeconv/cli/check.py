"""edgeconv check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from edgeconv.cli.configured import Configured, origin_of
from edgeconv.cli.options import execution_options
from edgeconv.cli.printing import echo
from edgeconv.cli.progress import progress
from edgeconv.cli.values import NAMED_PLACE, PLACE, TEXT, TRACKER, UserOption
from edgeconv.errors import EdgeconvError, OutputRefused
from edgeconv.types import Judging, Method, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edgeconv.cli.jobs import Jobs
    from edgeconv.config import Config
    from edgeconv.gate.flow import Checking
    from edgeconv.gate.jobs import Job
    from edgeconv.types import Check, Checked, Finding, Report

_DEFAULT = Judging()
_FOR_MODELS = {
    "names": "--model",
    "update": "--update",
    "accept_drops": "--accept-drop",
    "trackers": "--track",
}


@click.command("check", cls=Configured)
@click.argument("report", required=False, type=click.Path(path_type=Path))
@click.option(
    "--model",
    "names",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Check this model of the configuration only. Repeatable. [default: all]",
)
@click.option(
    "--update",
    cls=UserOption,
    is_flag=True,
    help="Accept the models as they are, where they keep the budget and lost nothing beside the "
    "lock: write the lock.",
)
@click.option(
    "--accept-drop",
    "accept_drops",
    cls=UserOption,
    type=TEXT,
    multiple=True,
    metavar="NAME[:RECIPE]",
    help="With --update, accept what this model has lost beside the lock: NAME:int8, NAME:trained, "
    "or all of NAME. The lock notes it. Repeatable.",
)
@click.option(
    "--lock",
    type=PLACE,
    metavar="FILE",
    help="What was accepted. [default: edgeconv.lock beside the configuration]",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 1, min_open=True, max_open=True),
    default=_DEFAULT.confidence,
    show_default=True,
    help="Of each bound that a drop is judged by.",
)
@click.option(
    "--method",
    type=click.Choice(get_args(Method)),
    default=_DEFAULT.method,
    show_default=True,
    help="How the bounds of a drop are found.",
)
@click.option("--seed", type=int, default=_DEFAULT.seed, show_default=True, help="Of bootstrap.")
@click.option(
    "--resamples",
    type=click.IntRange(100),
    default=_DEFAULT.resamples,
    show_default=True,
    help="Of bootstrap.",
)
@click.option(
    "--inconclusive",
    type=click.Choice(get_args(Severity)),
    default=_DEFAULT.inconclusive,
    show_default=True,
    help="What it is when there are too few test samples to tell.",
)
@click.option(
    "--output",
    "outputs",
    type=NAMED_PLACE,
    multiple=True,
    metavar="FORMAT=FILE",
    help="Write the verdict there too: text, json, junit, sarif, github-annotations, "
    "github-summary, github-comment, gitlab-codequality, gitlab-metrics. Repeatable. A job of "
    "GitHub Actions gets its annotations and summary anyway.",
)
@click.option(
    "--track",
    "trackers",
    type=TRACKER,
    multiple=True,
    metavar="KIND:PLACE",
    help="Log what was measured: mlflow:URI, tensorboard:DIRECTORY, csv:FILE. Repeatable.",
)
@execution_options
@click.pass_context
def command(ctx: click.Context, /, report: Path | None, **options: Any) -> None:
    """Convert, measure and judge every model of edgeconv.toml, and compare with the lock.

    With REPORT, the report.json of `edgeconv bench`, nothing is run: it is held against the
    budget. Exit code 0 when every limit holds; 1 when one is broken, when what it needs was not
    measured, or when it cannot be told. Nothing is accepted without --update, and nothing is
    measured again that did not change.
    """
    from edgeconv.cli.outputs import (
        announce,
        parse_outputs,
        parse_trackers,
        publish,
        refuse_unwritable,
    )

    outputs = parse_outputs(options["outputs"])
    refuse_unwritable(outputs)
    trackers = parse_trackers(options["trackers"])
    for tracker, place in trackers:
        tracker.refuse(place)
    reports: dict[str, Report] = {}
    errors: list[EdgeconvError] = []
    if report is None:
        with progress(quiet=options["quiet"]) as on_progress:
            checked = _check_models(ctx, on_progress, reports, errors)
    else:
        checked = _check_report(ctx, report)
    announce(checked, as_json=options["as_json"])
    publish(checked, outputs)
    # Last: a server that does not answer must not keep the verdict back.
    for tracker, place in trackers:
        tracker.track(checked, reports, place)
    if errors:
        raise errors[0]
    ctx.exit(0 if checked.ok else 1)


def _check_report(ctx: click.Context, path: Path) -> Checked:
    """A report held against the budget of the configuration."""
    from edgeconv.cli.chosen import Chosen
    from edgeconv.cli.jobs import judging_of
    from edgeconv.config import limited
    from edgeconv.errors import UsageError
    from edgeconv.gate.flow import check_report
    from edgeconv.reporting.files import read_report
    from edgeconv.types import Checked

    _refuse_without_models(ctx.params)
    config = origin_of(ctx).config
    if config is None:
        raise UsageError(
            f"there is no budget to hold {path} against",
            hint="--config FILE with a [budget], or an edgeconv.toml here",
        )
    report = read_report(path)
    check = check_report(report, limited(config), judging_of(ctx))
    folders = [path.parent, *Chosen(ctx).published()]
    # It was not held beside the lock, so that it rejects a file and clears none.
    _note_down(check, dict(_found_files(report, folders)), clears=False, report=path)
    return Checked(config=str(config.path), checks=(_in_place(check, config),))


def _found_files(report: Report, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """The files that were measured, where they are published as they were."""
    from edgeconv.store import sha256_file

    for artifact in report.artifacts:
        for folder in folders:
            file = folder / artifact.file
            if file.is_file() and sha256_file(file) == artifact.sha256:
                yield file, artifact.sha256


def _refuse_without_models(options: dict[str, Any]) -> None:
    from edgeconv.errors import UsageError

    for name, option in _FOR_MODELS.items():
        if options[name]:
            raise UsageError(
                f"{option} is for the models of a configuration", hint="leave REPORT away"
            )


def _check_models(
    ctx: click.Context,
    on_progress: Callable[[str], None],
    reports: dict[str, Report],
    errors: list[EdgeconvError],
) -> Checked:
    """Every model of the configuration, or those named; accepted, where that is asked for.

    `reports` gets what was measured of each, where it is to be tracked. One of several models
    that cannot be checked keeps the verdict of the others from nobody: its error is in `errors`.
    """
    from edgeconv.cli.accepting import accept_state
    from edgeconv.cli.jobs import Jobs, checking_of
    from edgeconv.types import Checked

    options = ctx.params
    jobs = Jobs(ctx, on_progress)
    chosen = jobs.named(options["names"])
    checking, place = checking_of(ctx, jobs, on_progress)
    checks = tuple(_named(checking, job, jobs, errors) for job in chosen)
    if len(errors) == len(chosen):
        raise errors[0]
    checked = Checked(config=str(jobs.config.path), checks=checks)
    if options["update"]:
        accept_state(checking, chosen, checked, place, jobs.config.models, options)
    if options["trackers"]:
        measured = (job for job, check in zip(chosen, checks, strict=True) if check.stages)
        reports.update((job.name, checking.report(job)) for job in measured)
    return checked


def _named(checking: Checking, job: Job, jobs: Jobs, errors: list[EdgeconvError]) -> Check:
    """The check of a model, or why there is none; an error says of which of several it is."""
    from edgeconv.gate.flow import unchecked

    try:
        return _in_place(_check(checking, job, jobs), jobs.config, job.name)
    except EdgeconvError as error:
        if len(jobs.config.models) > 1:
            error.message = f"model {job.name!r}: {error.message}"
        errors.append(error)
        return _in_place(unchecked(job.name, error.message), jobs.config, job.name)


def _in_place(check: Check, config: Config, model: str = "") -> Check:
    """The check with the line of each limit in the configuration.

    It is no part of what is kept of a check: a comment above a limit moves it.
    """
    import msgspec

    from edgeconv.types import NOT_CHECKED, Verdict

    def placed(finding: Finding) -> Finding:
        if finding.limit == NOT_CHECKED:
            line = config.line("model", model)
        else:
            line = config.limit_line(finding.limit, model=model, recipe=finding.recipe)
        return msgspec.structs.replace(finding, line=line)

    verdict = Verdict(findings=tuple(map(placed, check.verdict.findings)))
    return msgspec.structs.replace(check, verdict=verdict)


def _check(checking: Checking, job: Job, jobs: Jobs) -> Check:
    """The check of a model; its report is written where [bench] says so."""
    import msgspec

    check = checking.check(job)
    done = checking.published(job)
    files = {Path(done.directory, one.file): one.sha256 for one in done.artifacts}
    directory = jobs.report_directory(job.name)
    written = directory.absolute() / "report.json" if directory else None
    if written and not (check.reused and _is_judged(written, files)):
        from edgeconv.reporting.files import write_report
        from edgeconv.store import writable_directory

        writable_directory(written.parent)
        report = msgspec.structs.replace(checking.report(job), verdict=check.verdict)
        write_report(report, written.parent)
    _note_down(check, files, report=written)
    return check


def _is_judged(report: Path, files: Mapping[Path, str]) -> bool:
    """Whether it is the report that the verdicts beside the files name."""
    from edgeconv.reporting.last_check import judged_report
    from edgeconv.store import sha256_file

    named = {judged_report(file, sha256) for file, sha256 in files.items()}
    return report.is_file() and named == {sha256_file(report)}


def _note_down(
    check: Check, files: Mapping[Path, str], *, clears: bool = True, report: Path | None = None
) -> None:
    """The verdict beside each published file, for those who ship it; said where it cannot be."""
    from edgeconv.reporting.last_check import write_last_check
    from edgeconv.store import sha256_file

    judged = sha256_file(report) if report else ""
    for file, sha256 in files.items():
        try:
            write_last_check(check, file, sha256, clears=clears, report_sha256=judged)
        except OutputRefused as error:
            echo(f"note: {file} will count as not checked: {error.message}", err=True)
