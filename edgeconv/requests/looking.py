"""The requests of the verbs that look at models and reports: debug, doctor, inspect and others."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import structs

from edgeconv.requests.option import Option, Within
from edgeconv.requests.request import Request
from edgeconv.requests.shared import (
    CUSTOM,
    JSON,
    QUIET,
    TAG,
    Executed,
    Improved,
    Opened,
    Preprocessed,
    Ranged,
    Ruled,
    Sandboxed,
)
from edgeconv.requests.texts import PATH, SOURCE, STEPS, TEXT
from edgeconv.types import Budget, DataSource, Execution, Opening, Recipe, Steps

Format = Literal["html", "text", "markdown", "json", "csv"]


class DebugRequest(Request, frozen=True, kw_only=True):
    """A model to quantize by one recipe, to see what each layer loses and which rules help.

    `to`: the name of a recipe that quantizes, or a ready recipe. `calibration`, `samples` and
    `preprocess` are as in `convert`; up to 32 of the samples measure too. `signature`: the one to
    debug, if there are several.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    calibration: Annotated[
        DataSource,
        Option(
            "Data",
            "Samples to calibrate and measure with: a file, a directory or KIND:PLACE. See "
            "docs/data.md.",
            text=SOURCE,
            metavar="SOURCE",
        ),
    ]
    to: Annotated[
        str | Recipe,
        Option(
            "Recipes",
            "A recipe that quantizes: float16, dynamic, weight-only-int8, int8, int16x8, "
            "weight-only-int4 or int8x4.",
            text=TEXT,
            metavar="RECIPE",
        ),
    ] = "int8"
    preprocess: Preprocessed = Steps()
    samples: Annotated[
        int | None,
        Option("Data", "How many samples to calibrate with. [default: all but at most 8]"),
    ] = None
    signature: Annotated[
        str | None,
        Option("Input", "The signature to debug, if there are several.", text=TEXT, metavar="KEY"),
    ] = None
    calibration_range: Ranged = None
    methods: Improved = None
    layers: Ruled = ()
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class DebugPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv debug` prints."""

    top: Annotated[
        int,
        Option(
            "Output", "How many layers to show, the costliest first. --json shows all.", least=1
        ),
    ] = 20
    quiet: QUIET = False
    as_json: JSON = False


class DoctorRequest(Request, frozen=True, kw_only=True):
    """A model, and labeled samples to find the preprocessing that it was trained with.

    `model`: of any kind that `inspect` takes, with one float input and an output of class scores.
    `preprocess`: the current preprocessing (None: that of the manifest next to a .tflite, else
    none). Its changes of shape are kept; its scale, mean, std and order of colors are tested.
    `samples`: how many, by a fixed seed; None takes 48, or all where there are fewer.
    """

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    data: Annotated[DataSource, Option(is_argument=True, text=SOURCE, metavar="DATA")]
    preprocess: Annotated[
        Steps | None,
        Option(
            "Data",
            "The current preprocessing of each sample; its shapes are kept. [default: that of the "
            "manifest, else none]",
            text=STEPS,
            metavar="STEPS",
        ),
    ] = None
    samples: Annotated[
        int | None,
        Option(
            "Data",
            "How many samples, by a fixed seed, with equal shares of the labels. [default: 48]",
        ),
    ] = None
    signature: Annotated[
        str | None, Option("Input", "The signature to run, if there are several.", text=TEXT)
    ] = None
    output: Annotated[
        str | None,
        Option("Data", "The output that the labels are for, if there are several.", text=TEXT),
    ] = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class InspectRequest(Request, frozen=True, kw_only=True):
    """A model to look into without running it; `opening` has the tags of a SavedModel's graph."""

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    opening: Annotated[Opening, Within(tags=TAG)] = Opening()
    sandbox: Sandboxed = None


class ScanRequest(Request, frozen=True, kw_only=True):
    """A model to scan for what it would access outside of itself, without loading it.

    `custom_objects`: the modules of classes that a Keras file may have; they are not imported.
    `reads_layers`: also what tf_keras would build of a SavedModel's layers, to train them.
    """

    path: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    custom_objects: Annotated[
        tuple[str, ...],
        structs.replace(
            CUSTOM,
            help="A module whose layers and functions a Keras file may use, by dotted name or as "
            "./FILE.py; with :NAME, only that one. It is not imported. Repeatable.",
        ),
    ] = ()
    reads_layers: Annotated[
        bool,
        Option(
            "Input",
            "Also scan what tf_keras builds from a SavedModel's layers, to train them.",
        ),
    ] = False
    sandbox: Sandboxed = None


class ScanPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv scan` prints, and further models to scan."""

    further: Annotated[
        tuple[str, ...], Option(is_argument=True, several=True, text=PATH, metavar="[PATH]...")
    ] = ()
    format: Annotated[
        Literal["text", "json", "sarif"],
        Option("Output", "The format of the output; sarif is for code scanning."),
    ] = "text"
    as_json: Annotated[bool, Option("Output", "The same as --format json.", name="json")] = False


class JsonPrinting(Request, frozen=True, kw_only=True):
    """What a command prints that has no progress."""

    as_json: JSON = False


class CompareRequest(Request, frozen=True, kw_only=True):
    """Two reports of `bench`, or two .tflite files, to see what changed between them."""

    before: Annotated[str, Option(is_argument=True, text=PATH)]
    after: Annotated[str, Option(is_argument=True, text=PATH)]


class ComparePrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv compare` prints."""

    everything: Annotated[
        bool, Option("Output", "Show every tensor and flip, not only the first ones.", name="all")
    ] = False
    as_json: JSON = False


class ReportRequest(Request, frozen=True, kw_only=True):
    """Reports of `bench` to render together, with their verdict on a `budget`, if there is one.

    With `side_by_side` reports that do not compare are shown separately. `directory` gets a file in
    each of `formats`, html without any.
    """

    files: Annotated[tuple[str, ...], Option(is_argument=True, several=True, text=PATH)] = ()
    directory: Annotated[
        str | None,
        Option(
            "Output",
            "Directory for report.html and the other formats. [default: one format, to the "
            "terminal]",
            name="out",
            short="o",
            text=PATH,
            is_output=True,
        ),
    ] = None
    formats: Annotated[
        tuple[Format, ...],
        Option(
            "Output",
            "The format; can be given several times. [default: html with -o, else text]",
            name="format",
            several=True,
        ),
    ] = ()
    side_by_side: Annotated[
        bool,
        Option(
            "Output",
            "Show reports that cannot be compared, such as those of two machines, separately.",
        ),
    ] = False
    title: Annotated[
        str, Option("Output", "The title. [default: those of the reports]", text=TEXT)
    ] = ""
    budget: Budget | None = None


class ReportPrinting(Request, frozen=True, kw_only=True):
    """What else `edgeconv report` prints."""

    schema: Annotated[
        bool, Option("Output", "Print the JSON Schema of report.json, and nothing else.")
    ] = False


class DemoRequest(Request, frozen=True, kw_only=True):
    """Where the whole job on a small model writes all its files."""

    directory: Annotated[
        str, Option("Output", "Where to write.", name="out", short="o", text=PATH, is_output=True)
    ] = "edgeconv-demo"
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class VisualizeRequest(Request, frozen=True, kw_only=True):
    """A .tflite to open with the error of each layer on its graph."""

    model: Annotated[str, Option(is_argument=True, is_subject=True, text=PATH)]
    report_file: Annotated[
        str | None,
        Option(
            "Input",
            "The report.json with the errors or times of this model's layers.",
            name="report",
            text=PATH,
            metavar="FILE",
        ),
    ] = None
    shown: Annotated[
        Literal["errors", "times"], Option("Output", "What colors the layers.", name="show")
    ] = "errors"
    viewer: Annotated[
        Literal["model-explorer", "netron"] | None,
        Option("Output", "The viewer. [default: the first that is installed]"),
    ] = None
    target: Annotated[
        str | None,
        Option(
            "Output",
            "Write Model Explorer's node data to this file, and open nothing.",
            name="out",
            short="o",
            text=PATH,
            is_output=True,
        ),
    ] = None
