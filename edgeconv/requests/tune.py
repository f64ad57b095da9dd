"""What `tune` is asked."""

from __future__ import annotations

from typing import Annotated

from edgeconv.plugins import METRICS
from edgeconv.requests.option import Option
from edgeconv.requests.request import Request
from edgeconv.requests.shared import Executed, Opened, Sandboxed
from edgeconv.requests.texts import METRIC, NAMES, PLACE, RUNTIME, SOURCE, STEPS, TEXT
from edgeconv.types import Execution, Objective, Opening, Steps


class TuneRequest(Request, frozen=True, kw_only=True):
    """A model, samples and a budget, to find the cheapest artifact for.

    One half of `data` searches; the other, which nothing of the search sees, confirms.
    Without labels the budget is of the agreement with the float32 model. The artifact is published
    in `directory` (None: NAME.tuned in the current one) with its recipe as a file for `edgeconv
    convert --config` and all the trials. `recipes` are those to choose from, none for all;
    `samples` of the data are used, None for all. `metric` is a name or module:function, "" for
    top1, or for the agreement where there are no labels. `allow_float` names the operators that may
    stay in float. The search ends after `trials`, or `time_limit_s`.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    data: Annotated[
        str,
        Option(
            name="data",
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples, with labels for accuracy. One half searches; the other confirms the "
            "result, and nothing of the search sees it.",
        ),
    ]
    max_drop: Annotated[
        float,
        Option(
            group="Quality",
            metavar="DROP",
            help="What may be lost to the float32 model, in the unit of the metric: 0.005 is half "
            "a point of accuracy.",
        ),
    ]
    directory: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Directory to publish in. [default: NAME.tuned]",
        ),
    ] = None
    calibration: Annotated[
        str,
        Option(
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples to calibrate with, others than those of --data. [default: up to 500 of "
            "the half that searches, their labels unused]",
        ),
    ] = ""
    preprocess: Annotated[
        Steps,
        Option(
            group="Data",
            text=STEPS,
            metavar="STEPS",
            is_shown=False,
            help="What is done to each stored sample; see docs/data.md.",
        ),
    ] = Steps()
    objective: Annotated[
        Objective,
        Option(
            group="Quality",
            help="What is to be as small as possible: the file, or the time of an invoke.",
        ),
    ] = "size"
    recipes: Annotated[
        tuple[str, ...],
        Option(
            name="to",
            group="Recipes",
            text=NAMES,
            metavar="RECIPES",
            help="The recipes to choose from, comma-separated. [default: all; float32 for latency "
            "only]",
        ),
    ] = ()
    metric: Annotated[
        str,
        Option(
            group="Quality",
            text=METRIC,
            metavar="NAME",
            help=f"What is to be kept: {', '.join(METRICS)}, or module:function. [default: top1, "
            "without labels the agreement with the float32 model]",
        ),
    ] = ""
    output: Annotated[
        str,
        Option(
            text=TEXT,
            group="Data",
            help="The output that the labels are for, if there are several.",
        ),
    ] = ""
    runtime: Annotated[
        str,
        Option(
            group="Recipes",
            text=RUNTIME,
            metavar="RUNTIME",
            help="Where the files run; as for `bench`.",
        ),
    ] = "litert"
    signature: Annotated[
        str,
        Option(
            text=TEXT,
            group="Input",
            help="The signature to tune, if there are several.",
        ),
    ] = ""
    batch: Annotated[
        int | None, Option(group="Input", help="Fix a dynamic batch dimension to this.")
    ] = None
    samples: Annotated[
        int | None,
        Option(
            group="Data",
            help="How many samples of --data, by a fixed seed, in equal shares of the labels. "
            "[default: all]",
        ),
    ] = None
    allow_float: Annotated[
        tuple[str, ...],
        Option(
            group="Recipes",
            text=NAMES,
            metavar="OPERATORS",
            help="Operators that a full-integer recipe may leave in float, comma-separated; * for "
            "any.",
        ),
    ] = ("*",)
    trials: Annotated[int, Option(group="Quality", help="How many recipes are tried at most.")] = 40
    time_limit_s: Annotated[
        float,
        Option(
            group="Quality",
            help="How long the search may take, in seconds; to confirm and publish comes on top.",
        ),
    ] = 480.0
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None
