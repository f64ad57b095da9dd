"""What `check` and `build` are asked: the models of a configuration."""

from __future__ import annotations

from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET, ExecutionOverrides, RunForAll, Sandboxed
from edgeconv.requests.texts import NAMED_PLACE, PLACE, TEXT, TRACKER
from edgeconv.types import Budget, GateStatistics, Report

Judged = Annotated[
    GateStatistics,
    Within(
        confidence=Option(
            group="Quality",
            least=0.5,
            is_above=True,
            most=1,
            is_below=True,
            help="Of each bound that a drop is judged by.",
        ),
        method=Option(group="Quality", help="How the bounds of a drop are found."),
        seed=Option(group="Quality", help="Of bootstrap."),
        resamples=Option(group="Quality", least=100, help="Of bootstrap."),
        inconclusive=Option(
            group="Quality", help="What it is when there are too few test samples to tell."
        ),
    ),
]


class ConfigRequest(Request, frozen=True, kw_only=True):
    """What is asked of the models of a configuration.

    `config`: its file, None for that of the current directory. `allow` and `any_code` are what it
    may name beyond its project, as `--allow` and `--allow-code` say it. `by_table`: what is not
    given is what the configuration's own table of the verb says.
    """

    config: str | None = None
    allow: tuple[str, ...] = ()
    any_code: bool = False
    by_table: bool = True


class CheckRequest(ConfigRequest, frozen=True, kw_only=True):
    """The models of a configuration to convert, measure and judge; or a report to be judged.

    `report`: one that was measured before, or its file; it is held against `budget`, None for the
    configuration's. `names`: the models, none for all. With `update` the state is accepted into
    `lock`, where it keeps the budget and lost nothing beside the lock but `accept_drops`, as
    NAME[:RECIPE]. `lock` of None is edgeconv.lock beside the configuration. `execution`: what is
    said of how to run, in place of what each model's tables say.
    """

    report: Annotated[
        Report | str | None, Option(is_argument=True, text=PLACE, metavar="[REPORT]")
    ] = None
    budget: Budget | None = None
    names: Annotated[
        tuple[str, ...],
        Option(
            text=TEXT,
            name="model",
            group="Input",
            several=True,
            metavar="NAME",
            help="Check this model of the configuration only. Repeatable. [default: all]",
        ),
    ] = ()
    update: Annotated[
        bool,
        Option(
            group="Input",
            is_typed=True,
            help="Accept the models as they are, where they keep the budget and lost nothing "
            "beside the lock: write the lock.",
        ),
    ] = False
    accept_drops: Annotated[
        tuple[str, ...],
        Option(
            text=TEXT,
            name="accept-drop",
            group="Input",
            several=True,
            is_typed=True,
            metavar="NAME[:RECIPE]",
            help="With --update, accept what this model has lost beside the lock: NAME:int8, "
            "NAME:trained, or all of NAME. The lock notes it. Repeatable.",
        ),
    ] = ()
    lock: Annotated[
        str | None,
        Option(
            group="Input",
            text=PLACE,
            metavar="FILE",
            help="What was accepted. [default: edgeconv.lock beside the configuration]",
        ),
    ] = None
    statistics: Judged = GateStatistics()
    outputs: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            name="output",
            group="Output",
            text=NAMED_PLACE,
            several=True,
            is_written=True,
            metavar="FORMAT=FILE",
            help="Write the verdict there too: text, json, junit, sarif, github-annotations, "
            "github-summary, github-comment, gitlab-codequality, gitlab-metrics. Repeatable. A "
            "job of GitHub Actions gets its annotations and summary anyway.",
        ),
    ] = ()
    trackers: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            name="track",
            group="Output",
            text=TRACKER,
            several=True,
            is_written=True,
            metavar="KIND:PLACE",
            help="Log what was measured: mlflow:URI, tensorboard:DIRECTORY, csv:FILE. Repeatable.",
        ),
    ] = ()
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None


class BuildRequest(ConfigRequest, frozen=True, kw_only=True):
    """The models of a configuration to convert and embed where anything changed.

    `names`: the models, none for all that have an [embed] table. `execution`: what is said of how
    to run, in place of what each model's tables say.
    """

    names: Annotated[
        tuple[str, ...],
        Option(
            text=TEXT,
            name="model",
            group="Input",
            several=True,
            metavar="NAME",
            help="Build this model of the configuration only. Repeatable. [default: all with "
            "[embed]]",
        ),
    ] = ()
    depfile: Annotated[
        str | None,
        Option(
            group="Output",
            text=PLACE,
            is_written=True,
            metavar="FILE",
            help="Write what the files were made from, as a rule for make and ninja.",
        ),
    ] = None
    depfile_target: Annotated[
        str,
        Option(
            text=TEXT,
            group="Output",
            metavar="TARGET",
            help="What the rule is for. [default: the record of the first model's files]",
        ),
    ] = ""
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None


class BuildPrinting(Request, frozen=True, kw_only=True):
    """How `edgeconv build` says what it does, and what came of it."""

    list_outputs: Annotated[
        bool, Option(group="Output", help="Print every file that was made, a line each.")
    ] = False
    watch: Annotated[
        bool,
        Option(group="Output", help="Build again whenever something changes, until Ctrl-C."),
    ] = False
    verbose: Annotated[bool, Option(group="Output", help="Say what is being done, on stderr.")] = (
        False
    )
    quiet: QUIET = False
    as_json: JSON = False
