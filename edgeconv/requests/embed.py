"""What `embed` is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from edgeconv.errors import UsageError
from edgeconv.plugins import EMBED_TARGETS
from edgeconv.requests.option import Option
from edgeconv.requests.request import Request
from edgeconv.requests.shared import Allowed, Sandboxed
from edgeconv.requests.texts import PLACE, SOURCE, TEXT
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _named_values(texts: Sequence[str], _: Any) -> dict[str, str]:
    """The target's options. Raises `UsageError` for one without a value, or given twice."""
    given: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option {text}: not of the form NAME=VALUE")
        if name in given:
            raise UsageError(f"--option {name} is given twice")
        given[name] = value
    return given


def _said_values(values: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in values.items())


class EmbedRequest(Request, frozen=True, kw_only=True):
    """A published .tflite, and what is to be written of it into a directory of a project.

    `artifact` is the file, its manifest beside it, or the directory that it is in; `recipe` says
    which of several. `symbol` begins all generated names, "" for the model's name. `signature` is
    the one to be called, "" for the only one. `data` is a SOURCE that the golden vectors are taken
    from, "" for made-up ones; `vectors` says how many. `labels` is a file with the name of each
    class on a line, "" for those that `data` has. `options` are the target's own. `allow_code`:
    `data` may name a function. `require_check`: an artifact that `edgeconv check` never judged is
    refused too. `bom`: SYMBOL.cdx.json is written too, a bill of materials of CycloneDX; `report`
    is a report.json for its metrics, "" for the one beside the artifact, where that measured it.
    `remake`: the model is converted again first, for a microcontroller.
    """

    artifact: Annotated[str, Option(is_argument=True, is_subject=True, text=PLACE)]
    target: Annotated[
        str,
        Option(
            text=TEXT,
            group="Output",
            metavar="TARGET",
            words=tuple(EMBED_TARGETS),
            help=", ".join(EMBED_TARGETS) + ".",
        ),
    ]
    directory: Annotated[
        str,
        Option(
            name="out", short="o", group="Output", text=PLACE, is_written=True, help="Where to."
        ),
    ]
    recipe: Annotated[
        str,
        Option(
            text=TEXT,
            group="Input",
            metavar="RECIPE",
            help="Which one, where ARTIFACT is a directory with several: int8, float16, ….",
        ),
    ] = ""
    symbol: Annotated[
        str,
        Option(
            text=TEXT,
            group="Data",
            help="How all names begin. [default: the model's name]",
        ),
    ] = ""
    signature: Annotated[
        str,
        Option(
            text=TEXT,
            group="Input",
            help="The signature to call, if there are several.",
        ),
    ] = ""
    data: Annotated[
        str,
        Option(
            group="Data",
            text=SOURCE,
            metavar="SOURCE",
            help="Samples for the golden vectors of the self-test; see docs/data.md. [default: "
            "made up]",
        ),
    ] = ""
    vectors: Annotated[int, Option(group="Data", least=1, help="How many of them.")] = 2
    labels: Annotated[
        str,
        Option(
            group="Data",
            text=PLACE,
            metavar="FILE",
            help="The names of the classes, one a line, UTF-8.",
        ),
    ] = ""
    options: Annotated[
        dict[str, str],
        Option(
            text=TEXT,
            name="option",
            group="Data",
            several=True,
            make=_named_values,
            say=_said_values,
            metavar="NAME=VALUE",
            help="An option of the target, see below. Repeatable.",
        ),
    ] = {}
    depfile: Annotated[
        str | None,
        Option(
            group="Output",
            text=PLACE,
            is_written=True,
            help="Write what the result depends on, for make and ninja.",
        ),
    ] = None
    depfile_target: Annotated[
        str,
        Option(
            text=TEXT,
            group="Output",
            help="What to call the result in the depfile.",
        ),
    ] = ""
    require_check: Annotated[
        bool,
        Option(
            group="Input",
            help="Refuse what `edgeconv check` never judged. What it rejected is refused in any "
            "case.",
        ),
    ] = False
    bom: Annotated[
        bool,
        Option(
            group="Data",
            help="Write SYMBOL.cdx.json too, a bill of materials (CycloneDX) with a card of the "
            "model.",
        ),
    ] = False
    report: Annotated[
        str,
        Option(
            group="Data",
            text=PLACE,
            metavar="FILE",
            help="A report.json, for the metrics in it. [default: the one beside ARTIFACT, if it "
            "is there]",
        ),
    ] = ""
    remake: Annotated[
        bool,
        Option(
            group="Input",
            help="For microcontrollers: convert the model again first, from its manifest, with a "
            "batch of 1 and integer inputs and outputs, embed that, and say what it saves.",
        ),
    ] = False
    allowance: Allowed = Allowance(timeout_s=600.0)
    allow_code: bool = False
    sandbox: Sandboxed = None
