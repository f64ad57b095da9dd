"""The requests of the verbs that look at models and reports: debug, doctor, verify and others."""

from typing import Annotated, Literal

from msgspec import structs

from edgeconv.reporting.files import Format
from edgeconv.requests.request import (
    POSITIVE,
    Argument,
    Data,
    Input,
    Option,
    Output,
    Recipes,
    Request,
    Within,
    out,
)
from edgeconv.requests.shared import (
    CUSTOM,
    JSON,
    LABELED_OUTPUT,
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
from edgeconv.requests.texts import PATH, SOURCE, STEPS, SUBJECT, TEXT
from edgeconv.types import Budget, DataSource, Execution, LinkName, Opening, Recipe, Report, Steps


class DebugRequest(Request, frozen=True, kw_only=True):
    """A model to quantize by one recipe, to see what each layer loses and which rules help.

    `to`: the name of a recipe that quantizes, or a ready recipe. `calibration`, `samples` and
    `preprocess` are as in `convert`; up to 32 of the samples measure too. `signature`: the one to
    debug, if there are several.
    """

    model: Annotated[str, Argument(text=SUBJECT)]
    calibration: Annotated[
        DataSource,
        Data(
            "Samples to calibrate and measure with: a file, a directory or KIND:PLACE. See "
            "docs/data.md.",
            text=SOURCE,
        ),
    ]
    to: Annotated[
        str | Recipe,
        Recipes(
            "A recipe that quantizes: float16, dynamic, weight-only-int8, int8, int16x8, "
            "weight-only-int4 or int8x4.",
            text=TEXT,
            metavar="RECIPE",
        ),
    ] = "int8"
    preprocess: Preprocessed = Steps()
    samples: Annotated[
        int | None,
        Data("How many samples to calibrate with. [default: all but at most 8]", bounds=POSITIVE),
    ] = None
    signature: Annotated[
        str | None, Input("The signature to debug, if there are several.", text=TEXT, metavar="KEY")
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
        Output("How many layers to show, the costliest first. --json shows all.", bounds=POSITIVE),
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

    model: Annotated[str, Argument(text=SUBJECT)]
    data: Annotated[DataSource, Argument(text=SOURCE, metavar="DATA")]
    preprocess: Annotated[
        Steps | None,
        Data(
            "The current preprocessing of each sample; its shapes are kept. [default: that of the "
            "manifest, else none]",
            text=STEPS,
        ),
    ] = None
    samples: Annotated[
        int | None,
        Data("How many samples, by a fixed seed, with equal shares of the labels. [default: 48]"),
    ] = None
    signature: Annotated[
        str | None, Input("The signature to run, if there are several.", text=TEXT)
    ] = None
    output: Annotated[str | None, LABELED_OUTPUT] = None
    opening: Opened = Opening()
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class InspectRequest(Request, frozen=True, kw_only=True):
    """A model to look into without running it; `opening` has the tags of a SavedModel's graph."""

    model: Annotated[str, Argument(text=SUBJECT)]
    opening: Annotated[Opening, Within(tags=TAG)] = Opening()
    sandbox: Sandboxed = None


class ScanRequest(Request, frozen=True, kw_only=True):
    """A model to scan for what it would access outside of itself, without loading it.

    `custom_objects`: the modules of classes that a Keras file may have; they are not imported.
    `reads_layers`: also what tf_keras would build of a SavedModel's layers, to train them.
    """

    path: Annotated[str, Argument(text=SUBJECT)]
    custom_objects: Annotated[
        tuple[str, ...],
        structs.replace(
            CUSTOM,
            help="A module whose layers and functions a Keras file may use, by dotted name or as "
            "./FILE.py; with :NAME, only that one. It is not imported. Repeatable.",
        ),
    ] = ()
    reads_layers: Annotated[
        bool, Input("Also scan what tf_keras builds from a SavedModel's layers, to train them.")
    ] = False
    sandbox: Sandboxed = None


class ScanPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv scan` prints, and further models to scan."""

    further: Annotated[tuple[str, ...], Argument(several=True, text=PATH, metavar="[PATH]...")] = ()
    format: Annotated[
        Literal["text", "json", "sarif"],
        Output("The format of the output; sarif is for code scanning."),
    ] = "text"
    as_json: Annotated[bool, Output("The same as --format json.", name="json")] = False


class JsonPrinting(Request, frozen=True, kw_only=True):
    """What a command prints that has no progress."""

    as_json: JSON = False


class CompareRequest(Request, frozen=True, kw_only=True):
    """Two reports of `bench`, or two .tflite files, to see what changed between them."""

    before: Annotated[Report | str, Argument(text=PATH)]
    after: Annotated[Report | str, Argument(text=PATH)]


class ComparePrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv compare` prints."""

    everything: Annotated[
        bool, Output("Show every tensor and flip, not only the first ones.", name="all")
    ] = False
    as_json: JSON = False


class ReportRequest(Request, frozen=True, kw_only=True):
    """Reports of `bench` to render together, with their verdict on a `budget`, if there is one.

    With `side_by_side` reports that do not compare are shown separately. `directory` gets a file in
    each of `formats`, html without any.
    """

    files: Annotated[tuple[str, ...], Argument(several=True, text=PATH)] = ()
    directory: Annotated[
        str | None,
        out(
            "Directory for report.html and the other formats. [default: one format, to the "
            "terminal]"
        ),
    ] = None
    formats: Annotated[
        tuple[Format, ...],
        Output(
            "The format; can be given several times. [default: html with -o, else text]",
            name="format",
            several=True,
        ),
    ] = ()
    side_by_side: Annotated[
        bool,
        Output("Show reports that cannot be compared, such as those of two machines, separately."),
    ] = False
    title: Annotated[str, Output("The title. [default: those of the reports]", text=TEXT)] = ""
    budget: Budget | None = None


class ReportPrinting(Request, frozen=True, kw_only=True):
    """What else `edgeconv report` prints."""

    schema: Annotated[bool, Output("Print the JSON Schema of report.json, and nothing else.")] = (
        False
    )


class DemoRequest(Request, frozen=True, kw_only=True):
    """Where the whole job on a small model writes all its files."""

    directory: Annotated[str, out("Where to write.")] = "edgeconv-demo"
    execution: Executed = Execution()
    sandbox: Sandboxed = None


class VisualizeRequest(Request, frozen=True, kw_only=True):
    """A .tflite to open with the error of each layer on its graph."""

    model: Annotated[str, Argument(text=SUBJECT)]
    report_file: Annotated[
        str | None,
        Input(
            "The report.json with the errors or times of this model's layers.",
            name="report",
            text=PATH,
            metavar="FILE",
        ),
    ] = None
    shown: Annotated[Literal["errors", "times"], Output("What colors the layers.", name="show")] = (
        "errors"
    )
    viewer: Annotated[
        Literal["model-explorer", "netron"] | None,
        Output("The viewer. [default: the first that is installed]"),
    ] = None
    target: Annotated[
        str | None, out("Write Model Explorer's node data to this file, and open nothing.")
    ] = None


class VerifyRequest(Request, frozen=True, kw_only=True):
    """What to verify together: folders that `convert`, `bench`, `check` or `embed` wrote, or files.

    `source`: the trained model, "" for the one that the manifests name. `require`: links that must
    be verified wherever they are possible.
    """

    paths: Annotated[tuple[str, ...], Argument(takes_rest=True, several=True, text=PATH)] = ()
    source: Annotated[
        str,
        Option(
            help="The trained model. [default: the one that the manifests name, if available]",
            text=PATH,
        ),
    ] = ""
    require: Annotated[
        tuple[LinkName, ...],
        Option(help="Fail if this link could not be checked. Repeatable.", several=True),
    ] = ()


class VerifyPrinting(Request, frozen=True, kw_only=True):
    """What `edgeconv verify` prints."""

    as_json: JSON = False
    schema: Annotated[
        bool, Output("Print the JSON Schema of the --json output, and nothing else.")
    ] = False
