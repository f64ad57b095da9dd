"""The request of `bench`."""

from __future__ import annotations

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import Executed, Opened, Placed, Sandboxed
from edgeconv.requests.texts import (
    METRIC,
    NPU,
    PATH,
    PERIOD,
    PROGRAM,
    RUNTIME,
    SOURCE,
    STEPS,
    TEXT,
    TREE,
    VERSIONS,
)
from edgeconv.types import DataSource, Execution, Measuring, Opening, Steps

Measured = Annotated[
    Measuring,
    Within(
        runtimes=Option(
            "Quality",
            "Where to measure: litert, tflite-runtime==VERSION, tensorflow==VERSION, arm64, "
            "ssh:USER@HOST, adb:SERIAL, web. tfserving:URL serves the baseline. Repeatable. "
            "[default: litert]",
            name="runtime",
            text=RUNTIME,
            several=True,
            metavar="NAME",
            is_common=True,
        ),
        versions=Option(
            "Quality",
            "Also run every file in each version of a runtime that pip can install here, such as "
            "'litert>=2.0'. Names the first version that is wrong, fails or crashes.",
            name="runtimes",
            text=VERSIONS,
            metavar="SPECIFIER",
        ),
        npus=Option(
            "Quality",
            "Estimate with Arm's compiler Vela which part of each file runs on this NPU, such as "
            "ethos-u55-128, or ethos-u65-256?system=NAME&memory=NAME for a chip. Nothing is run on "
            "it. Repeatable.",
            name="npu",
            text=NPU,
            several=True,
            metavar="NAME",
        ),
        accelerator=Option(
            "Quality",
            "LiteRT's interpreter, or its CompiledModel; webgpu: the GPU of --runtime web.",
        ),
        threads=Option(
            "Quality",
            "Threads of the interpreter that is measured.",
            name="interpreter-threads",
            least=1,
            is_common=True,
        ),
        python=Option(
            "Quality",
            "The Python that has the runtime, on the machine that measures. [default: the usual "
            "one]",
            text=PROGRAM,
            metavar="FILE",
        ),
        binary=Option(
            "Quality",
            "The benchmark_model that is copied to an Android device.",
            text=PROGRAM,
            metavar="FILE",
        ),
        rounds=Option(
            "Quality", "Fresh processes per model, taking turns.", least=1, is_common=True
        ),
        timing=Within(
            warmup=Option("Quality", "Warm-up invokes, at least.", least=1),
            repeats=Option("Quality", "Timed invokes per round, at most.", least=1),
            seconds=Option(
                "Quality", "Timed seconds at most, per model and round.", least=0, is_above=True
            ),
            warmup_seconds=Option(
                "Quality", "Seconds of warm-up at most, until the times are stable.", least=0
            ),
        ),
        every=Option(
            "Quality",
            "Also time one invoke in each period, such as 10ms, with sleep in between, as in an "
            "app. The usual times are of invokes without pauses.",
            text=PERIOD,
            takes="text",
            metavar="PERIOD",
        ),
        cold=Option(
            "Quality",
            "Time N fresh processes too: load and first invoke together.",
            least=1,
            metavar="N",
        ),
        metrics=Option(
            "Quality",
            f"The accuracy metric, such as top1 or mae. One of {', '.join(METRICS)}, or "
            "module:function. Repeatable. [default: top1]",
            name="metric",
            text=METRIC,
            several=True,
            metavar="NAME",
            words=tuple(METRICS),
            is_common=True,
        ),
        output=Option(
            "Data", "The output that the labels are for, if there are several.", text=TEXT
        ),
        profile=Option("Quality", "Measure the time of each operator too.", is_common=True),
        layers=Option(
            "Quality", "Measure the error of each layer against float32 too.", is_common=True
        ),
        serving_warmup=Option(
            "Output",
            "Write N of the samples into the SavedModel as warm-up requests for TensorFlow "
            "Serving.",
            least=0,
            metavar="N",
            is_shown=False,
        ),
        title=Option("Output", "The report's title. [default: the directory's name]", text=TEXT),
    ),
]


class BenchRequest(Request, frozen=True, kw_only=True):
    """What to measure: .tflite files, or directories that `convert` published in.

    `data`: samples, with labels for accuracy; None: random ones. `preprocess`: the preprocessing of
    each stored sample, None for that of the manifests. `samples`: how many, by a fixed seed, None
    for all. `baseline`: the trained model, None for that of the manifests; `opening`: how it is
    opened; `training`: the file of its training record, None for the one next to it. report.json
    and report.html go into `directory`, None: nothing is written. `on` is the cluster that
    evaluates, None this machine, which measures times too.
    """

    models: Annotated[
        tuple[str, ...],
        Option(is_argument=True, is_subject=True, is_required=True, several=True, text=PATH),
    ]
    data: Annotated[
        DataSource | None,
        Option(
            "Data",
            "Samples to measure on, with labels for accuracy. Without it, random ones, and no "
            "accuracy.",
            name="data",
            text=SOURCE,
            metavar="SOURCE",
            is_common=True,
        ),
    ] = None
    preprocess: Annotated[
        Steps | None,
        Option(
            "Data",
            "Preprocessing of each stored sample. [default: that of the manifests]",
            text=STEPS,
            metavar="STEPS",
            is_common=True,
        ),
    ] = None
    samples: Annotated[
        int | None,
        Option(
            "Data",
            "How many samples, by a fixed seed. The labels have equal shares. [default: all]",
            is_common=True,
        ),
    ] = None
    baseline: Annotated[
        str | None,
        Option(
            "Input",
            "The trained model. [default: the one the manifests name]",
            text=TREE,
            is_common=True,
        ),
    ] = None
    opening: Opened = Opening()
    signature: Annotated[
        str | None, Option("Input", "The signature to run, if there are several.", text=TEXT)
    ] = None
    training: Annotated[
        str | None,
        Option(
            "Output",
            "The baseline's training record, to show in the report. [default: N.training.json next "
            "to it, if there is one]",
            text=PATH,
            metavar="FILE",
        ),
    ] = None
    directory: Annotated[
        str | None,
        Option(
            "Output",
            "Directory for report.json and report.html.",
            name="out",
            short="o",
            text=PATH,
            is_output=True,
            is_common=True,
        ),
    ] = None
    on: Placed = None
    measuring: Measured = Measuring()
    execution: Executed = Execution()
    sandbox: Sandboxed = None
