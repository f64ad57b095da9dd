"""The requests of `check` and `build`, which are about the models of a configuration."""

from __future__ import annotations

from typing import Annotated

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET, ExecutionOverrides, RunForAll, Sandboxed
from edgeconv.requests.texts import NAMED_PATH, PATH, TEXT, TRACKER, VERSIONS
from edgeconv.types import Budget, GateStatistics, Report, RuntimeVersions

Tested = Annotated[
    GateStatistics,
    Within(
        confidence=Option(
            "Quality",
            "Confidence of each bound of an accuracy drop.",
            least=0.5,
            is_above=True,
            most=1,
            is_below=True,
            is_common=True,
        ),
        method=Option("Quality", "How the bounds of a drop are computed."),
        seed=Option("Quality", "Seed of the bootstrap."),
        resamples=Option("Quality", "Resamples of the bootstrap.", least=100),
        inconclusive=Option(
            "Quality", "Whether too few test samples to decide are an error or a warning."
        ),
    ),
]


class ConfigRequest(Request, frozen=True, kw_only=True):
    """The base of requests about the models of a configuration.

    `config`: its file, None for that of the current directory. `allow` and `any_code`: what it may
    name outside its project, as in `--allow` and `--allow-code`. `by_table`: fields that are not
    given come from the configuration's table of the verb.
    """

    config: str | None = None
    allow: tuple[str, ...] = ()
    any_code: bool = False
    by_table: bool = True


class CheckRequest(ConfigRequest, frozen=True, kw_only=True):
    """The models of a configuration to convert, measure and check; or a report to check.

    `report`: one that was measured before, or its file, or the sweep.json of a sweep; it is checked
    against `budget`, None for the sweep's own, or the configuration's. `names`: the models, none
    for all. With `update` the state is accepted into `lock` (None: edgeconv.lock next to the
    configuration), where it keeps the budget and lost nothing against the lock except
    `accept_drops`, as NAME[:RECIPE]. `versions`: those of a runtime in which every artifact must be
    right, None for those of the table [bench], if any. `execution` replaces what the tables of each
    model say of how to run.
    """

    report: Annotated[
        Report | str | None, Option(is_argument=True, text=PATH, metavar="[REPORT]")
    ] = None
    budget: Budget | None = None
    names: Annotated[
        tuple[str, ...],
        Option(
            "Input",
            "Check this model of the configuration only. Repeatable. [default: all]",
            name="model",
            text=TEXT,
            several=True,
            metavar="NAME",
            is_common=True,
        ),
    ] = ()
    update: Annotated[
        bool,
        Option(
            "Input",
            "Accept the models as they are: write the lock. They must keep the budget and must not "
            "have lost anything against the lock.",
            is_typed=True,
            is_common=True,
        ),
    ] = False
    accept_drops: Annotated[
        tuple[str, ...],
        Option(
            "Input",
            "With --update, accept what this model has lost against the lock. NAME:int8, "
            "NAME:trained, or all of NAME. The lock records it. Repeatable.",
            name="accept-drop",
            text=TEXT,
            several=True,
            is_typed=True,
            metavar="NAME[:RECIPE]",
            is_common=True,
        ),
    ] = ()
    lock: Annotated[
        str | None,
        Option(
            "Input",
            "The accepted state. [default: edgeconv.lock next to the configuration]",
            text=PATH,
            metavar="FILE",
            is_common=True,
        ),
    ] = None
    versions: Annotated[
        RuntimeVersions | None,
        Option(
            "Quality",
            "Also run every artifact in each version of a runtime that pip can install here, such "
            "as 'litert>=2.0'. Fails with the first version that is wrong, fails or crashes. "
            "[default: that of bench]",
            name="runtimes",
            text=VERSIONS,
            metavar="SPECIFIER",
            is_common=True,
        ),
    ] = None
    statistics: Tested = GateStatistics()
    outputs: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "Output",
            "Write the verdict to a file too. FORMAT: text, json, junit, sarif, "
            "github-annotations, github-summary, github-comment, gitlab-codequality, "
            "gitlab-metrics. Repeatable. A job of GitHub Actions always gets its annotations and "
            "summary.",
            name="output",
            text=NAMED_PATH,
            several=True,
            is_output=True,
            metavar="FORMAT=FILE",
            is_common=True,
        ),
    ] = ()
    trackers: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "Output",
            "Log the measurements: mlflow:URI, tensorboard:DIRECTORY, csv:FILE. Repeatable.",
            name="track",
            text=TRACKER,
            several=True,
            is_output=True,
            metavar="KIND:PLACE",
            is_common=True,
        ),
    ] = ()
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None


class BuildRequest(ConfigRequest, frozen=True, kw_only=True):
    """The models of a configuration to convert and embed where anything changed.

    `names`: the models, none for all that have an [embed] table. `execution` replaces what the
    tables of each model say of how to run.
    """

    names: Annotated[
        tuple[str, ...],
        Option(
            "Input",
            "Build this model of the configuration only. Repeatable. [default: all with [embed]]",
            name="model",
            text=TEXT,
            several=True,
            metavar="NAME",
        ),
    ] = ()
    depfile: Annotated[
        str | None,
        Option(
            "Output",
            "Write the dependencies of the files, as a rule for make and ninja.",
            text=PATH,
            is_output=True,
            metavar="FILE",
        ),
    ] = None
    depfile_target: Annotated[
        str,
        Option(
            "Output",
            "The target of that rule. [default: the record of the first model's files]",
            text=TEXT,
            metavar="TARGET",
        ),
    ] = ""
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None


class BuildPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv build` prints."""

    list_outputs: Annotated[
        bool, Option("Output", "Print the path of every file, one per line.")
    ] = False
    watch: Annotated[
        bool, Option("Output", "Build again whenever something changes, until Ctrl-C.")
    ] = False
    verbose: Annotated[bool, Option("Output", "Print the progress on stderr.")] = False
    quiet: QUIET = False
    as_json: JSON = False
