"""The request of `embed`."""

from collections.abc import Sequence
from typing import Annotated

from edgeconv.plugins import EMBED_TARGETS
from edgeconv.requests.request import POSITIVE, Argument, Data, Input, Output, Request, out
from edgeconv.requests.shared import Allowed, Sandboxed
from edgeconv.requests.texts import PATH, SOURCE, SUBJECT, TEXT
from edgeconv.types import Allowance, DataSource
from edgeconv.types.errors import UsageError


def _named_values(texts: Sequence[str]) -> dict[str, str]:
    """The target's options. Raises `UsageError` for one without a value, or given twice."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text}: not of the form NAME=VALUE")
        if name in values:
            raise UsageError(f"--option {name} is given twice")
        values[name] = value
    return values


class EmbedRequest(Request, frozen=True, kw_only=True):
    """A published .tflite, and what to write of it into a directory of a project.

    `artifact` is the file, with its manifest next to it, or the directory that it is in; `recipe`
    selects one of several. All generated names begin with `symbol`, "" for the model's name.
    `signature` is the one to call, "" for the only one. `data` is the SOURCE of the golden vectors,
    None for random ones, and `vectors` their number. `labels` is a file with the name of a class on
    each line, "" for the names that `data` has. `options` are the target's. `allow_code`: `data`
    may name a function. `require_check`: refuse what `edgeconv check` has not checked. `remake`:
    convert the model again first, for a microcontroller.
    """

    artifact: Annotated[str, Argument(text=SUBJECT)]
    target: Annotated[
        str,
        Output(
            f"{', '.join(EMBED_TARGETS)}.", text=TEXT, metavar="TARGET", words=tuple(EMBED_TARGETS)
        ),
    ]
    directory: Annotated[str, out("Directory to write in.")]
    recipe: Annotated[
        str,
        Input(
            "The file to take, if ARTIFACT is a directory with several: int8, float16, …",
            text=TEXT,
            metavar="RECIPE",
        ),
    ] = ""
    symbol: Annotated[
        str, Output("The prefix of all generated names. [default: the model's name]", text=TEXT)
    ] = ""
    signature: Annotated[str, Input("The signature to call, if there are several.", text=TEXT)] = ""
    data: Annotated[
        DataSource | None,
        Data(
            "Samples for the golden vectors of the self-test; see docs/data.md. [default: random]",
            text=SOURCE,
        ),
    ] = None
    vectors: Annotated[int, Data("How many golden vectors.", bounds=POSITIVE)] = 2
    labels: Annotated[
        str, Data("The names of the classes, one per line, UTF-8.", text=PATH, metavar="FILE")
    ] = ""
    options: Annotated[
        dict[str, str],
        Output(
            "An option of the target; --help-all lists them. Repeatable.",
            name="option",
            text=TEXT,
            several=True,
            make=_named_values,
            to_raw=lambda values: tuple(f"{name}={value}" for name, value in values.items()),
            metavar="NAME=VALUE",
        ),
    ] = {}
    depfile: Annotated[
        str | None,
        Output(
            "Write the dependencies of the result, for make and ninja.", text=PATH, is_output=True
        ),
    ] = None
    depfile_target: Annotated[str, Output("What the depfile calls the result.", text=TEXT)] = ""
    require_check: Annotated[
        bool,
        Input(
            "Refuse a file that `edgeconv check` has not checked. One that it rejected is always "
            "refused."
        ),
    ] = False
    remake: Annotated[
        bool,
        Input(
            "For microcontrollers: convert the model again first. Uses its manifest, with a batch "
            "of 1 and integer inputs and outputs, and prints what that saves."
        ),
    ] = False
    allowance: Allowed = Allowance(timeout_s=600.0)
    allow_code: bool = False
    sandbox: Sandboxed = None
