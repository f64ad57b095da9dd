"""The request of `bench`."""

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.request import (
    ABOVE_ZERO,
    NOT_BELOW_ZERO,
    POSITIVE,
    Argument,
    Data,
    Input,
    Output,
    Quality,
    Request,
    Within,
    out,
)
from edgeconv.requests.shared import LABELED_OUTPUT, Executed, Opened, Sandboxed
from edgeconv.requests.texts import (
    METRIC,
    NPU,
    PATH,
    PERIOD,
    PROGRAM,
    RUNTIME,
    SOURCE,
    STEPS,
    SUBJECT,
    TEXT,
    TRAINED,
    VERSIONS,
)
from edgeconv.types import DataSource, Execution, Measuring, Opening, Steps

Measured = Annotated[
    Measuring,
    Within(
        runtimes=Quality(
            "Where to measure: litert, tflite-runtime==VERSION, tensorflow==VERSION, arm64, "
            "ssh:USER@HOST, adb:SERIAL, web. tfserving:URL serves the baseline. Repeatable. "
            "[default: litert]",
            name="runtime",
            text=RUNTIME,
            several=True,
        ),
        versions=Quality(
            "Also run every file in each version of a runtime that pip can install here, such as "
            "'litert>=2.0'. Names the first version that is wrong, fails or crashes.",
            name="runtimes",
            text=VERSIONS,
        ),
        npus=Quality(
            "Estimate with Arm's compiler Vela which part of each file runs on this NPU, such as "
            "ethos-u55-128, or ethos-u65-256?system=NAME&memory=NAME for a chip. Nothing is run on "
            "it. Repeatable.",
            name="npu",
            text=NPU,
            several=True,
        ),
        accelerator=Quality(
            "LiteRT's interpreter, or its CompiledModel; webgpu: the GPU of --runtime web."
        ),
        threads=Quality(
            "Threads of the interpreter that is measured.",
            name="interpreter-threads",
            bounds=POSITIVE,
        ),
        python=Quality(
            "The Python that has the runtime, on the machine that measures. [default: the usual "
            "one]",
            text=PROGRAM,
        ),
        binary=Quality("The benchmark_model that is copied to an Android device.", text=PROGRAM),
        rounds=Quality("Fresh processes per model, taking turns.", bounds=POSITIVE),
        timing=Within(
            warmup=Quality("Warm-up invokes, at least.", bounds=POSITIVE),
            repeats=Quality("Timed invokes per round, at most.", bounds=POSITIVE),
            seconds=Quality("Timed seconds at most, per model and round.", bounds=ABOVE_ZERO),
            warmup_seconds=Quality(
                "Seconds of warm-up at most, until the times are stable.", bounds=NOT_BELOW_ZERO
            ),
        ),
        every=Quality(
            "Also time one invoke in each period, such as 10ms, with sleep in between, as in an "
            "app. The usual times are of invokes without pauses.",
            text=PERIOD,
            takes="text",
        ),
        cold=Quality(
            "Time N fresh processes too: load and first invoke together.",
            bounds=POSITIVE,
            metavar="N",
        ),
        metrics=Quality(
            f"The accuracy metric, such as top1 or mae. One of {', '.join(METRICS)}, or "
            "module:function. Repeatable. [default: top1]",
            name="metric",
            text=METRIC,
            several=True,
            words=tuple(METRICS),
        ),
        output=LABELED_OUTPUT,
        profile=Quality("Measure the time of each operator too."),
        layers=Quality("Measure the error of each layer against float32 too."),
        title=Output("The report's title. [default: the directory's name]", text=TEXT),
    ),
]


class BenchRequest(Request, frozen=True, kw_only=True):
    """What to measure: .tflite files, or directories that `convert` published in.

    `data`: samples, with labels for accuracy; None: random ones. `preprocess`: the preprocessing of
    each stored sample, None for that of the manifests. `samples`: how many, by a fixed seed, None
    for all. `baseline`: the trained model, None for that of the manifests; `opening`: how it is
    opened; `training`: the file of its training record, None for the one next to it. report.json
    and report.html go into `directory`, None: nothing is written.
    """

    models: Annotated[tuple[str, ...], Argument(several=True, text=SUBJECT)]
    data: Annotated[
        DataSource | None,
        Data(
            "Samples to measure on, with labels for accuracy. Without it, random ones, and no "
            "accuracy.",
            name="data",
            text=SOURCE,
        ),
    ] = None
    preprocess: Annotated[
        Steps | None,
        Data("Preprocessing of each stored sample. [default: that of the manifests]", text=STEPS),
    ] = None
    samples: Annotated[
        int | None,
        Data(
            "How many samples, by a fixed seed. The labels have equal shares. [default: all]",
            bounds=POSITIVE,
        ),
    ] = None
    baseline: Annotated[
        str | None, Input("The trained model. [default: the one the manifests name]", text=TRAINED)
    ] = None
    opening: Opened = Opening()
    signature: Annotated[
        str | None, Input("The signature to run, if there are several.", text=TEXT)
    ] = None
    training: Annotated[
        str | None,
        Output(
            "The baseline's training record, to show in the report. [default: N.training.json next "
            "to it, if there is one]",
            text=PATH,
            metavar="FILE",
        ),
    ] = None
    directory: Annotated[str | None, out("Directory for report.json and report.html.")] = None
    measuring: Measured = Measuring()
    execution: Executed = Execution()
    sandbox: Sandboxed = None
