"""The request of `tune`."""

from __future__ import annotations

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.option import Option
from edgeconv.requests.request import Request
from edgeconv.requests.shared import (
    AllowedFloat,
    Batched,
    Executed,
    Opened,
    Placed,
    Preprocessed,
    Sandboxed,
    Suspected,
)
from edgeconv.requests.texts import METRIC, NAMES, NPU, PATH, RUNTIME, SOURCE, TEXT
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
    agreement where there are no labels. `allow_float` names the operators that may
    stay in float, `allow_suspect_calibration` samples that cannot be right to calibrate. The search
    stops after `trials`, or `time_limit_s`. `on`: the cluster that the files are evaluated on.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    data: Annotated[
        DataSource,
        Option(
            "Data",
            "Samples, with labels for accuracy. One half searches. The other, which the search "
            "never sees, confirms the result.",
            name="data",
            text=SOURCE,
            metavar="SOURCE",
            is_common=True,
        ),
    ]
    max_drop: Annotated[
        float,
        Option(
            "Quality",
            "Largest loss against float32, in the metric's unit. 0.005 is half a "
            "point of accuracy.",
            metavar="DROP",
            is_common=True,
        ),
    ]
    directory: Annotated[
        str | None,
        Option(
            "Output",
            "Directory to publish in. [default: NAME.tuned]",
            name="out",
            short="o",
            text=PATH,
            is_output=True,
            is_common=True,
        ),
    ] = None
    calibration: Annotated[
        DataSource | None,
        Option(
            "Data",
            "Samples to calibrate with. Without it, up to 500 of the half of --data that searches, "
            "without their labels.",
            text=SOURCE,
            metavar="SOURCE",
            is_common=True,
        ),
    ] = None
    preprocess: Preprocessed = Steps()
    objective: Annotated[
        Objective,
        Option(
            "Quality",
            "Minimize the file's size, the time of an invoke, or its estimated time on --npu.",
            is_common=True,
        ),
    ] = "size"
    npu: Annotated[
        NpuChoice | None,
        Option(
            "Quality",
            "The NPU of the objective npu-latency, as in `edgeconv bench --npu`.",
            text=NPU,
            metavar="NAME",
        ),
    ] = None
    recipes: Annotated[
        tuple[str, ...],
        Option(
            "Recipes",
            "The recipes to choose from, comma-separated. [default: all; float32 for latency only]",
            name="to",
            text=NAMES,
            metavar="RECIPES",
            is_common=True,
        ),
    ] = ()
    metric: Annotated[
        MetricChoice | None,
        Option(
            "Quality",
            f"The metric to keep, such as top1 or mae. One of {', '.join(METRICS)}, or "
            "module:function. Without it: top1, or, if there are no labels, the agreement with the "
            "float32 model.",
            text=METRIC,
            metavar="NAME",
            is_common=True,
        ),
    ] = None
    output: Annotated[
        str, Option("Data", "The output that the labels are for, if there are several.", text=TEXT)
    ] = ""
    runtime: Annotated[
        RuntimeChoice,
        Option(
            "Recipes",
            "Where the files run, as in `edgeconv bench --runtime`.",
            text=RUNTIME,
            metavar="RUNTIME",
            is_common=True,
        ),
    ] = RuntimeChoice(name="litert")
    signature: Annotated[
        str, Option("Input", "The signature to tune, if there are several.", text=TEXT)
    ] = ""
    batch: Batched = None
    samples: Annotated[
        int | None,
        Option(
            "Data",
            "How many samples of --data, by a fixed seed. The labels have equal shares. [default: "
            "all]",
            is_common=True,
        ),
    ] = None
    allow_float: AllowedFloat = ("*",)
    trials: Annotated[int, Option("Quality", "Recipes to try, at most.", is_common=True)] = 40
    time_limit_s: Annotated[
        float,
        Option(
            "Quality",
            "Seconds that the search may take. Confirming and publishing take extra time.",
            is_common=True,
        ),
    ] = 480.0
    allow_suspect_calibration: Suspected = False
    on: Placed = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None
