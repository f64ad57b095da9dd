"""The requests of `check` and `build`, which are about the models of a configuration."""

from typing import Annotated

from msgspec import Meta, structs

from edgeconv.requests.request import Argument, Input, Output, Quality, Request, Within
from edgeconv.requests.shared import JSON, QUIET, ExecutionOverrides, RunForAll, Sandboxed
from edgeconv.requests.texts import NAMED_PATH, PATH, TEXT, TRACKER, VERSIONS, Reads
from edgeconv.types import Budget, GateStatistics, Report, RuntimeVersions

Tested = Annotated[
    GateStatistics,
    Within(
        confidence=Quality(
            "Confidence of each bound of an accuracy drop.", bounds=Meta(gt=0.5, lt=1)
        ),
        method=Quality("How the bounds of a drop are computed."),
        seed=Quality("Seed of the bootstrap."),
        resamples=Quality("Resamples of the bootstrap.", bounds=Meta(ge=100)),
        inconclusive=Quality("Whether too few test samples to decide are an error or a warning."),
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

    report: Annotated[Report | str | None, Argument(text=PATH, metavar="[REPORT]")] = None
    budget: Budget | None = None
    names: Annotated[
        tuple[str, ...],
        Input(
            "Check this model of the configuration only. Repeatable. [default: all]",
            name="model",
            text=TEXT,
            several=True,
            metavar="NAME",
        ),
    ] = ()
    update: Annotated[
        bool,
        Input(
            "Accept the models as they are: write the lock. They must keep the budget and must not "
            "have lost anything against the lock.",
            is_typed=True,
        ),
    ] = False
    accept_drops: Annotated[
        tuple[str, ...],
        Input(
            "With --update, accept what this model has lost against the lock. NAME:int8, "
            "NAME:trained, or all of NAME. The lock records it. Repeatable.",
            name="accept-drop",
            text=TEXT,
            several=True,
            is_typed=True,
            metavar="NAME[:RECIPE]",
        ),
    ] = ()
    lock: Annotated[
        str | None,
        Input(
            "The accepted state. [default: edgeconv.lock next to the configuration]",
            text=PATH,
            metavar="FILE",
        ),
    ] = None
    versions: Annotated[
        RuntimeVersions | None,
        Quality(
            "Also run every artifact in each version of a runtime that pip can install here, such "
            "as 'litert>=2.0'. Fails with the first version that is wrong, fails or crashes. "
            "[default: that of bench]",
            name="runtimes",
            text=VERSIONS,
        ),
    ] = None
    statistics: Tested = GateStatistics()
    outputs: Annotated[
        tuple[tuple[str, str], ...],
        Output(
            "Write the verdict to a file too. FORMAT: text, json, junit, sarif, "
            "github-annotations, github-summary, github-comment, gitlab-codequality, "
            "gitlab-metrics. Repeatable. A job of GitHub Actions always gets its annotations and "
            "summary.",
            name="output",
            text=NAMED_PATH,
            several=True,
            is_output=True,
        ),
    ] = ()
    trackers: Annotated[
        tuple[tuple[str, str], ...],
        Output(
            "Log the measurements: mlflow:URI, tensorboard:DIRECTORY, csv:FILE. Repeatable.",
            name="track",
            text=TRACKER,
            several=True,
            is_output=True,
        ),
    ] = ()
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None

    def inputs(self) -> Reads:
        """What is read. An update writes the lock."""
        return Request.inputs(structs.replace(self, lock=None) if self.update else self)


class BuildRequest(ConfigRequest, frozen=True, kw_only=True):
    """The models of a configuration to convert and embed where anything changed.

    `names`: the models, none for all that have an [embed] table. `execution` replaces what the
    tables of each model say of how to run.
    """

    names: Annotated[
        tuple[str, ...],
        Input(
            "Build this model of the configuration only. Repeatable. [default: all with [embed]]",
            name="model",
            text=TEXT,
            several=True,
            metavar="NAME",
        ),
    ] = ()
    depfile: Annotated[
        str | None,
        Output(
            "Write the dependencies of the files, as a rule for make and ninja.",
            text=PATH,
            is_output=True,
            metavar="FILE",
        ),
    ] = None
    depfile_target: Annotated[
        str,
        Output(
            "The target of that rule. [default: the record of the first model's files]",
            text=TEXT,
            metavar="TARGET",
        ),
    ] = ""
    execution: RunForAll = ExecutionOverrides()
    sandbox: Sandboxed = None


class BuildPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv build` prints."""

    list_outputs: Annotated[bool, Output("Print the path of every file, one per line.")] = False
    watch: Annotated[bool, Output("Build again whenever something changes, until Ctrl-C.")] = False
    verbose: Annotated[bool, Output("Print the progress on stderr.")] = False
    quiet: QUIET = False
    as_json: JSON = False
