"""The requests of the searches, `tune` and `sweep`."""

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.request import (
    ABOVE_ZERO,
    NOT_BELOW_ZERO,
    POSITIVE,
    Argument,
    Data,
    Input,
    Quality,
    Recipes,
    Request,
    Running,
    Within,
    out,
)
from edgeconv.requests.shared import (
    EXECUTED,
    LABELED_OUTPUT,
    Batched,
    Executed,
    OnlyIntegers,
    Opened,
    Placed,
    Preprocessed,
    Sandboxed,
    Suspected,
)
from edgeconv.requests.texts import METRIC, NAMES, NPU, PATH, RUNTIME, SOURCE, SUBJECT, TEXT
from edgeconv.types import (
    DataSource,
    Execution,
    MetricChoice,
    NpuChoice,
    Objective,
    Opening,
    RuntimeChoice,
    Steps,
)


class TuneRequest(Request, frozen=True, kw_only=True):
    """A model, samples and a budget, to find the cheapest artifact for.

    One half of `data` searches; the other, which the search never sees, confirms. Without labels
    the budget applies to the agreement with the float32 model. The artifact is published in
    `directory` (None: NAME.tuned in the current one) with its recipe as a file for `edgeconv
    convert --config` and all the trials. `recipes` are those to choose from, none for all;
    `samples` of the data are used, None for all. `metric` None is top1, or the
    agreement where there are no labels. `full_integer` refuses
    operators in float; `allow_suspect_calibration` allows samples that cannot be right. The search
    stops after `trials`, or `time_limit_s`.
    """

    model: Annotated[str, Argument(text=SUBJECT)]
    data: Annotated[
        DataSource,
        Data(
            "Samples, with labels for accuracy. One half searches. The other, which the search "
            "never sees, confirms the result.",
            name="data",
            text=SOURCE,
        ),
    ]
    max_drop: Annotated[
        float,
        Quality(
            "Largest loss against float32, in the metric's unit. 0.005 is half a "
            "point of accuracy.",
            bounds=NOT_BELOW_ZERO,
            metavar="DROP",
        ),
    ]
    directory: Annotated[str | None, out("Directory to publish in. [default: NAME.tuned]")] = None
    calibration: Annotated[
        DataSource | None,
        Data(
            "Samples to calibrate with. Without it, up to 500 of the half of --data that searches, "
            "without their labels.",
            text=SOURCE,
        ),
    ] = None
    preprocess: Preprocessed = Steps()
    objective: Annotated[
        Objective,
        Quality("Minimize the file's size, the time of an invoke, or its estimated time on --npu."),
    ] = "size"
    npu: Annotated[
        NpuChoice | None,
        Quality("The NPU of the objective npu-latency, as in `edgeconv bench --npu`.", text=NPU),
    ] = None
    recipes: Annotated[
        tuple[str, ...],
        Recipes(
            "The recipes to choose from, comma-separated. [default: all; float32 for latency only]",
            name="to",
            text=NAMES,
            metavar="RECIPES",
        ),
    ] = ()
    metric: Annotated[
        MetricChoice | None,
        Quality(
            f"The metric to keep, such as top1 or mae. One of {', '.join(METRICS)}, or "
            "module:function. Without it: top1, or, if there are no labels, the agreement with the "
            "float32 model.",
            text=METRIC,
        ),
    ] = None
    output: Annotated[str, LABELED_OUTPUT] = ""
    runtime: Annotated[
        RuntimeChoice,
        Recipes(
            "Where the files run, as in `edgeconv bench --runtime`.",
            text=RUNTIME,
            metavar="RUNTIME",
        ),
    ] = RuntimeChoice(name="litert")
    signature: Annotated[str, Input("The signature to tune, if there are several.", text=TEXT)] = ""
    batch: Batched = None
    samples: Annotated[
        int | None,
        Data(
            "How many samples of --data, by a fixed seed. The labels have equal shares. [default: "
            "all]",
            bounds=POSITIVE,
        ),
    ] = None
    full_integer: OnlyIntegers = False
    trials: Annotated[int, Quality("Recipes to try, at most.", bounds=POSITIVE)] = 40
    time_limit_s: Annotated[
        float,
        Quality(
            "Seconds that the search may take. Confirming and publishing take extra time.",
            bounds=ABOVE_ZERO,
        ),
    ] = 480.0
    allow_suspect_calibration: Suspected = False
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


_THREADS = Running("Threads of each process.", bounds=POSITIVE)


class SweepRequest(Request, frozen=True, kw_only=True):
    """The file of a sweep: models, recipes, runtimes and data, combined to cells.

    What `directory` (None: NAME.sweep in the current one) has of an earlier run is kept; a cell
    that failed is repeated only with `retry_failed`, and with `resume` a run without any earlier
    result is refused. Up to `jobs` processes work at once, None: as cores and memory allow; `on` is
    the cluster, None: processes of this machine. With `status` nothing runs. `allow` and
    `any_code`: what the file may name outside its project, as in `--allow` and `--allow-code`.
    """

    file: Annotated[str, Argument(text=PATH, metavar="FILE")]
    directory: Annotated[
        str | None,
        out("Directory for the results, which a later run continues. [default: NAME.sweep]"),
    ] = None
    jobs: Annotated[
        int | None,
        Running(
            "Processes at once, at most. [default: as cores and memory allow]", bounds=POSITIVE
        ),
    ] = None
    on: Placed = None
    status: Annotated[
        bool, Input("Show which cells are done, failed and missing. Nothing runs.", is_typed=True)
    ] = False
    resume: Annotated[
        bool,
        Input(
            "Continue an earlier run, as a sweep always does, but refuse if it left no result.",
            is_typed=True,
        ),
    ] = False
    retry_failed: Annotated[bool, Input("Run the cells that failed again.", is_typed=True)] = False
    allow: tuple[str, ...] = ()
    any_code: bool = False
    execution: Annotated[Execution, Within(**{**EXECUTED.options, "threads": _THREADS})] = (
        Execution(threads=1)
    )
    sandbox: Sandboxed = None
