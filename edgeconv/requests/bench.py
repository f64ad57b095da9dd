"""What `bench` is asked."""

from __future__ import annotations

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import Executed, Opened, Sandboxed
from edgeconv.requests.texts import METRIC, PLACE, PROGRAM, RUNTIME, SOURCE, STEPS, TEXT, TREE
from edgeconv.types import Execution, Measuring, Opening, Steps

_TIMING = Within(
    warmup=Option(group="Quality", least=1),
    repeats=Option(group="Quality", least=1),
    seconds=Option(
        group="Quality",
        least=0,
        is_above=True,
        help="Timed seconds at most, per model and round.",
    ),
    warmup_seconds=Option(
        group="Quality",
        least=0,
        help="Seconds of warm-up at most, until the times are stable.",
    ),
)
Measured = Annotated[
    Measuring,
    Within(
        runtimes=Option(
            name="runtime",
            group="Quality",
            text=RUNTIME,
            several=True,
            metavar="NAME",
            help="Where to measure: litert, tflite-runtime==VERSION, tensorflow==VERSION, "
            "ssh:USER@HOST, adb:SERIAL, web; tfserving:URL serves the baseline. Repeatable. "
            "[default: litert]",
        ),
        accelerator=Option(group="Quality", help="LiteRT's interpreter, or its CompiledModel."),
        threads=Option(
            name="interpreter-threads",
            group="Quality",
            least=1,
            help="Threads of the interpreter that is measured.",
        ),
        python=Option(
            group="Quality",
            text=PROGRAM,
            metavar="FILE",
            help="The Python that has the runtime, here or there. [default: the usual one]",
        ),
        binary=Option(
            group="Quality",
            text=PROGRAM,
            metavar="FILE",
            help="The benchmark_model that is put on an Android device.",
        ),
        rounds=Option(group="Quality", least=1),
        timing=_TIMING,
        metrics=Option(
            name="metric",
            group="Quality",
            text=METRIC,
            several=True,
            metavar="NAME",
            words=tuple(METRICS),
            help="What accuracy is: " + ", ".join(METRICS) + ", or module:function. Repeatable. "
            "[default: top1]",
        ),
        output=Option(
            text=TEXT,
            group="Data",
            help="The output that the labels are for, if there are several.",
        ),
        profile=Option(group="Quality", help="The time of each operator, too."),
        layers=Option(group="Quality", help="The error of each layer beside float32, too."),
        serving_warmup=Option(
            group="Output",
            least=0,
            metavar="N",
            is_shown=False,
            help="Write N of the samples into the SavedModel as TensorFlow Serving's warm-up "
            "requests.",
        ),
        title=Option(
            text=TEXT, group="Output", help="The report's title. [default: the directory's name]"
        ),
    ),
]


class BenchRequest(Request, frozen=True, kw_only=True):
    """What to measure: .tflite files, or directories that `convert` published in.

    `data`: samples, with labels for accuracy; without it made-up ones. `preprocess`: what is
    done to each stored sample, None what the manifests say. `samples`: how many, by a fixed seed,
    None all. `baseline`: the trained model, None that of the manifests; `opening`: how it is
    opened; `training`: the file of its record, None the one beside it. In `directory` go
    report.json and report.html, None: nothing is written.
    """

    models: Annotated[
        tuple[str, ...],
        Option(is_argument=True, is_subject=True, is_required=True, several=True, text=PLACE),
    ]
    data: Annotated[
        str | None,
        Option(
            name="data",
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples to measure on, with labels for accuracy. [default: made-up samples, no "
            "accuracy]",
        ),
    ] = None
    preprocess: Annotated[
        Steps | None,
        Option(
            group="Data",
            text=STEPS,
            metavar="STEPS",
            help="What is done to each stored sample. [default: what the manifests say]",
        ),
    ] = None
    samples: Annotated[
        int | None,
        Option(
            group="Data",
            help="How many samples, by a fixed seed, in equal shares of the labels. [default: all]",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        Option(
            group="Input",
            text=TREE,
            help="The trained model. [default: the one the manifests name]",
        ),
    ] = None
    opening: Opened = Opening()
    signature: Annotated[
        str | None,
        Option(
            text=TEXT,
            group="Input",
            help="The signature to run, if there are several.",
        ),
    ] = None
    training: Annotated[
        str | None,
        Option(
            group="Output",
            text=PLACE,
            metavar="FILE",
            help="The baseline's training record, to show in the report. [default: "
            "N.training.json beside it, if it is there]",
        ),
    ] = None
    directory: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Directory for report.json and report.html.",
        ),
    ] = None
    measuring: Measured = Measuring()
    execution: Executed = Execution()
    sandbox: Sandboxed = None
