"""Every verb by name: its request, what its command prints, and the function that does it.

`edgeconv.NAME` is a `Verb`, which the command of that name calls too.
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from edgeconv.requests.request import Request, called, parsed
from edgeconv.requests.shared import JSON, QUIET, VERBOSE
from edgeconv.system.store.inputs import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.types.execution import SandboxMode

Result = TypeVar("Result")


class Printing(Request, frozen=True, kw_only=True):
    """What a command prints of its progress and its result."""

    quiet: QUIET = False
    as_json: JSON = False


class DetailedPrinting(Printing, frozen=True, kw_only=True):
    """What a command prints whose result has more than most users need."""

    verbose: VERBOSE = False


_DETAILED = "edgeconv.requests.table:DetailedPrinting"


class VerbEntry(NamedTuple):
    """A verb, each of its parts as MODULE:NAME, imported when it is first used.

    `shown` has the options about what the verb's command prints. `tells`: the function takes
    `on_progress`. Without `has_table` no configuration changes it.
    """

    request: str
    function: str
    shown: str = "edgeconv.requests.table:Printing"
    tells: bool = True
    has_table: bool = True

    @property
    def kind(self) -> type[Request]:
        """The verb's request."""
        kind: type[Request] = named(self.request)
        return kind

    @property
    def printing(self) -> type[Request]:
        """The options about what its command prints."""
        kind: type[Request] = named(self.shown)
        return kind


def named(text: str) -> Any:
    """What MODULE:NAME names."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)


_LOOKING = "edgeconv.requests.looking"
# In the order of the commands; those with a table have one of their name in edgeconv.toml.
VERBS = {
    "demo": VerbEntry(f"{_LOOKING}:DemoRequest", "edgeconv.gate.demo:demonstrate"),
    "train": VerbEntry(
        "edgeconv.requests.training:TrainRequest", "edgeconv.training.baseline:train"
    ),
    "convert": VerbEntry(
        "edgeconv.requests.convert:ConvertRequest",
        "edgeconv.conversion.convert:convert",
        _DETAILED,
    ),
    "tune": VerbEntry(
        "edgeconv.requests.tune:TuneRequest", "edgeconv.plugins.scale.tuning.flow:tune"
    ),
    "bench": VerbEntry("edgeconv.requests.bench:BenchRequest", "edgeconv.measure.bench:bench"),
    "sweep": VerbEntry(
        "edgeconv.requests.tune:SweepRequest", "edgeconv.plugins.scale.sweeping.flow:sweep"
    ),
    "report": VerbEntry(
        f"{_LOOKING}:ReportRequest",
        "edgeconv.gate.report:report",
        f"{_LOOKING}:ReportPrinting",
        tells=False,
    ),
    "compare": VerbEntry(
        f"{_LOOKING}:CompareRequest",
        "edgeconv.measure.compare:compare",
        f"{_LOOKING}:ComparePrinting",
        tells=False,
    ),
    "check": VerbEntry(
        "edgeconv.requests.check:CheckRequest", "edgeconv.gate.check:check", _DETAILED
    ),
    "embed": VerbEntry(
        "edgeconv.requests.embed:EmbedRequest", "edgeconv.embedding.embedding:embed"
    ),
    "build": VerbEntry(
        "edgeconv.requests.check:BuildRequest",
        "edgeconv.embedding.building.build:build",
        "edgeconv.requests.check:BuildPrinting",
    ),
    "doctor": VerbEntry(
        f"{_LOOKING}:DoctorRequest", "edgeconv.measure.preprocessing_search.doctor:doctor"
    ),
    "debug": VerbEntry(
        f"{_LOOKING}:DebugRequest",
        "edgeconv.measure.layers.debug:debug",
        f"{_LOOKING}:DebugPrinting",
    ),
    "inspect": VerbEntry(
        f"{_LOOKING}:InspectRequest",
        "edgeconv.model.source.loading:inspect",
        f"{_LOOKING}:JsonPrinting",
        tells=False,
    ),
    "scan": VerbEntry(
        f"{_LOOKING}:ScanRequest",
        "edgeconv.model.source.scanning:scan",
        f"{_LOOKING}:ScanPrinting",
        tells=False,
        has_table=False,
    ),
    "verify": VerbEntry(
        f"{_LOOKING}:VerifyRequest",
        "edgeconv.plugins.evidence:verify",
        f"{_LOOKING}:VerifyPrinting",
        tells=False,
        has_table=False,
    ),
    "visualize": VerbEntry(
        f"{_LOOKING}:VisualizeRequest",
        "edgeconv.measure.layers.visualize:visualize",
        "edgeconv.requests.request:Nothing",
    ),
}
# Those that a configuration has a table for.
TABLES = {name: entry for name, entry in VERBS.items() if entry.has_table}


class Verb(Generic[Result]):
    """A verb. Its arguments are the fields of its request, in their order or by name.

    A text means what it means on a command line, and None is the default. A single argument may be
    the request. `on_progress` is called with a line for each step.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._entry = VERBS[name]

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{named(self._entry.function).__doc__}\n\n{self._entry.kind.__doc__}"

    @property
    def __signature__(self) -> inspect.Signature:
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        fields = self._entry.kind.__struct_fields__
        on_progress = inspect.Parameter("on_progress", inspect.Parameter.KEYWORD_ONLY)
        parameters = [inspect.Parameter(each, either) for each in fields]
        return inspect.Signature([*parameters, on_progress])

    def __repr__(self) -> str:
        return f"edgeconv.{self.__name__}"

    def __call__(
        self, *fields: Any, on_progress: Callable[[str], None] = lambda _: None, **by_name: Any
    ) -> Result:
        """The verb's result. Raises an `EdgeconvError`."""
        kind = self._entry.kind
        is_request = len(fields) == 1 and not by_name and isinstance(fields[0], kind)
        request: Any = parsed(fields[0]) if is_request else called(kind, fields, by_name)
        progress = {"on_progress": on_progress} if self._entry.tells else {}
        with sandboxed(getattr(request, "sandbox", None)), reading(request.roots()):
            result: Result = named(self._entry.function)(request, **progress)
        return result


def sandboxed(mode: SandboxMode | None) -> AbstractContextManager[None]:
    """For the block, the sandbox of children; None takes the user's configuration."""
    from edgeconv.system.processes.sandbox import using
    from edgeconv.system.store.user import read_user_config

    if mode is None and (mode := read_user_config().sandbox) == "auto":
        return nullcontext()
    return using(mode)
