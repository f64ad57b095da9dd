"""What the verbs are asked that look at models and reports: debug, doctor, inspect and others."""

from __future__ import annotations

from typing import Annotated, Literal

from edgeconv.requests.convert import Improved, Ranged, Ruled
from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import JSON, QUIET, TAG, Executed, Opened, Sandboxed
from edgeconv.requests.texts import PLACE, SOURCE, STEPS, TEXT
from edgeconv.types import Budget, Execution, Opening, Recipe, Steps

Format = Literal["html", "text", "markdown", "json", "csv"]


class DebugRequest(Request, frozen=True, kw_only=True):
    """A model to quantize by one recipe, to see what each layer loses and which rules help.

    `to`: the name of a recipe that quantizes, or a recipe as it is. `calibration`, `samples` and
    `preprocess` are as in `convert`; up to 32 of the samples measure too. `signature`: the one to
    debug, if there are several.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    calibration: Annotated[
        str,
        Option(
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples to calibrate and measure with: a file, a directory or KIND:PLACE; see "
            "docs/data.md.",
        ),
    ]
    to: Annotated[
        str | Recipe,
        Option(
            text=TEXT,
            group="Recipes",
            metavar="RECIPE",
            help="One recipe that quantises: float16, dynamic, weight-only-int8, int8, int16x8, "
            "weight-only-int4 or int8x4.",
        ),
    ] = "int8"
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
    samples: Annotated[
        int | None,
        Option(group="Data", help="How many samples calibrate. [default: all but up to 8]"),
    ] = None
    signature: Annotated[
        str | None,
        Option(
            group="Input",
            text=TEXT,
            metavar="KEY",
            help="The signature to debug, if there are several.",
        ),
    ] = None
    calibration_range: Ranged = "minmax"
    methods: Improved = None
    layers: Ruled = ()
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class DebugPrinting(Request, frozen=True, kw_only=True):
    """How `edgeconv debug` says what it does, and what came of it."""

    top: Annotated[
        int,
        Option(
            group="Output",
            least=1,
            help="How many layers to show, the costliest first. --json has all.",
        ),
    ] = 20
    quiet: QUIET = False
    as_json: JSON = False


class DoctorRequest(Request, frozen=True, kw_only=True):
    """A model, and labelled samples to find out with which preprocessing it was trained.

    `model`: of any kind that `inspect` takes, with one float input and an output of class scores.
    `preprocess`: what is done to each stored sample now (None: what the manifest beside a .tflite
    says, else nothing); what it does to the shape is kept, and its scale, mean, std and order of
    colors are what is questioned. `samples`: how many, by a fixed seed; None takes 48, or all where
    there are fewer.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    data: Annotated[str, Option(is_argument=True, text=SOURCE, metavar="DATA")]
    preprocess: Annotated[
        Steps | None,
        Option(
            group="Data",
            text=STEPS,
            metavar="STEPS",
            help="What is done to each stored sample now; its shapes are kept. [default: what the "
            "manifest says, else nothing]",
        ),
    ] = None
    samples: Annotated[
        int | None,
        Option(
            group="Data",
            help="How many samples, by a fixed seed, in equal shares of the labels. [default: 48]",
        ),
    ] = None
    signature: Annotated[
        str | None,
        Option(group="Input", text=TEXT, help="The signature to run, if there are several."),
    ] = None
    output: Annotated[
        str | None,
        Option(
            group="Data",
            text=TEXT,
            help="The output that the labels are for, if there are several.",
        ),
    ] = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class InspectRequest(Request, frozen=True, kw_only=True):
    """A model to look into without running it; `opening` has the tags of a SavedModel's graph."""

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    opening: Annotated[Opening, Within(tags=TAG)] = Opening()
    sandbox: Sandboxed = None


class InspectPrinting(Request, frozen=True, kw_only=True):
    """How `edgeconv inspect` says what it found."""

    as_json: Annotated[
        bool, Option(name="json", group="Output", help="Print all of it as one JSON document.")
    ] = False


class CompareRequest(Request, frozen=True, kw_only=True):
    """Two reports of `bench`, or two .tflite files, to see what changed between them."""

    before: Annotated[str, Option(is_argument=True, text=PLACE)]
    after: Annotated[str, Option(is_argument=True, text=PLACE)]


class ComparePrinting(Request, frozen=True, kw_only=True):
    """How `edgeconv compare` says what changed."""

    everything: Annotated[
        bool, Option(name="all", group="Output", help="Every tensor and flip, not the first.")
    ] = False
    as_json: Annotated[
        bool, Option(name="json", group="Output", help="Print all of it as one JSON document.")
    ] = False


class ReportRequest(Request, frozen=True, kw_only=True):
    """Reports of `bench` to render together; `budget`, where there is one, judges them.

    With `side_by_side` those that do not compare are shown each for itself. In `directory` goes a
    file of each of `formats`, html without any.
    """

    files: Annotated[tuple[str, ...], Option(is_argument=True, several=True, text=PLACE)] = ()
    directory: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Directory for report.html and the like. [default: one format goes to the "
            "terminal]",
        ),
    ] = None
    formats: Annotated[
        tuple[Format, ...],
        Option(
            name="format",
            group="Output",
            several=True,
            help="What to make; may be given several times. [default: html with -o, else text]",
        ),
    ] = ()
    side_by_side: Annotated[
        bool,
        Option(
            group="Output",
            help="Show reports that do not compare, such as of two machines, each for itself.",
        ),
    ] = False
    title: Annotated[
        str,
        Option(
            text=TEXT,
            group="Output",
            help="The title. [default: those of the reports]",
        ),
    ] = ""
    budget: Budget | None = None


class ReportPrinting(Request, frozen=True, kw_only=True):
    """What else `edgeconv report` prints."""

    schema: Annotated[
        bool,
        Option(group="Output", help="Print the JSON Schema of report.json, and no more."),
    ] = False


class DemoRequest(Request, frozen=True, kw_only=True):
    """Where the whole job on a small model is to leave all that it makes."""

    directory: Annotated[
        str,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Where to write.",
        ),
    ] = "edgeconv-demo"
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class VisualizeRequest(Request, frozen=True, kw_only=True):
    """A .tflite to open with the error of each layer on its graph."""

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    report_file: Annotated[
        str | None,
        Option(
            name="report",
            group="Input",
            text=PLACE,
            metavar="FILE",
            help="The report.json with the errors or times of this model's layers.",
        ),
    ] = None
    shown: Annotated[
        Literal["errors", "times"],
        Option(name="show", group="Output", help="What colours the layers."),
    ] = "errors"
    viewer: Annotated[
        Literal["model-explorer", "netron"] | None,
        Option(
            group="Output",
            help="What to open it with. [default: the first that is installed]",
        ),
    ] = None
    target: Annotated[
        str | None,
        Option(
            name="out",
            short="o",
            group="Output",
            text=PLACE,
            is_written=True,
            help="Write Model Explorer's node data to this file, and open nothing.",
        ),
    ] = None
