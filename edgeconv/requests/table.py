"""Every verb by name: its request, what its command prints, and the function that does it.

`edgeconv.NAME` is a `Verb`, which the command of that name calls too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from edgeconv.requests.request import Request, called, parsed
from edgeconv.requests.shared import JSON, QUIET, VERBOSE
from edgeconv.system.store.files import reading
from edgeconv.types import QAT
from edgeconv.types.errors import UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Iterator, Mapping

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
    `on_progress`. Without `has_table` no configuration changes it. `out` is where it writes by
    default, with {} for the model's name, if its files name the model that they are made of.
    """

    request: str
    function: str
    shown: str = "edgeconv.requests.table:Printing"
    tells: bool = True
    has_table: bool = True
    out: str = ""

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
        out="{}.tflites",
    ),
    "tune": VerbEntry(
        "edgeconv.requests.tune:TuneRequest",
        "edgeconv.plugins.scale.tune:tune",
        out="{}.tuned",
    ),
    "bench": VerbEntry("edgeconv.requests.bench:BenchRequest", "edgeconv.measure.bench:bench"),
    "sweep": VerbEntry("edgeconv.requests.tune:SweepRequest", "edgeconv.plugins.scale.sweep:sweep"),
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
        "edgeconv.embedding.build:build",
        "edgeconv.requests.check:BuildPrinting",
    ),
    "doctor": VerbEntry(f"{_LOOKING}:DoctorRequest", "edgeconv.measure.doctor:doctor"),
    "debug": VerbEntry(
        f"{_LOOKING}:DebugRequest",
        "edgeconv.measure.debug:debug",
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
        "edgeconv.measure.visualize:visualize",
        "edgeconv.requests.request:Nothing",
    ),
}
# Those that a configuration has a table for.
TABLES = {name: entry for name, entry in VERBS.items() if entry.has_table}


class Verb(Generic[Result]):
    """A verb. Its arguments are the words of its command, - as _, and a text means the same.

    Models and samples may also be in memory; see docs/python.md. None is the default. Options that
    belong together may be one value, such as `execution=Execution(threads=1)`. A single argument
    may be the request. `on_progress` is called with a line for each step.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        # Quantization-aware training is a recipe of `convert`, with samples to train on.
        self._trains = name == QAT
        self._entry = VERBS["convert" if self._trains else name]

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        about = _ABOUT_QAT if self._trains else named(self._entry.function).__doc__
        return f"{about}\n\n{self._entry.kind.__doc__}"

    @property
    def __signature__(self) -> inspect.Signature:
        from edgeconv.requests.in_memory import signature_of

        needed = {"training": None, "to": QAT} if self._trains else {}
        return signature_of(self._entry.kind, needed)

    def __repr__(self) -> str:
        return f"edgeconv.{self.__name__}"

    def __call__(
        self, *fields: Any, on_progress: Callable[[str], None] = lambda _: None, **by_name: Any
    ) -> Result:
        """The verb's result. Raises an `EdgeconvError`."""
        kind, entry = self._entry.kind, self._entry
        progress = {"on_progress": on_progress} if entry.tells else {}
        with ExitStack() as stack:
            if len(fields) == 1 and not by_name and isinstance(fields[0], kind):
                request: Any = parsed(fields[0])
                shown: Callable[[Result], Result] = _unchanged
            else:
                in_python = self._called(fields, by_name, on_progress)
                request, shown = stack.enter_context(in_python)
            stack.enter_context(sandboxed(getattr(request, "sandbox", None)))
            stack.enter_context(reading(request.roots()))
            return shown(named(entry.function)(request, **progress))

    @contextmanager
    def _called(
        self,
        fields: tuple[Any, ...],
        by_name: Mapping[str, Any],
        on_progress: Callable[[str], None],
    ) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
        """The request of Python's arguments, of which those in memory are files in the block.

        And what gives the result their names.
        """
        from edgeconv.requests.in_memory import InMemory

        if self._trains:
            fields, by_name = _to_train(fields, by_name)
        with ExitStack() as stack:
            memory = InMemory(stack)
            with memory.named():
                request: Any = called(self._entry.kind, fields, by_name, memory.filed)
                request = memory.measured(request, on_progress)
                out = getattr(request, "directory", None) or self._entry.out.format(memory.name)
                with memory.beside(out if self._entry.out else "") as model:
                    yield replace(request, model=model) if model else request, memory.shown


def _unchanged(result: Result) -> Result:
    return result


_ABOUT_QAT = """Train a model on with quantization, and publish the int8 file that it becomes.

`convert` with the recipe qat, in addition to those of `to`. `training`: samples with labels."""


def _to_train(
    fields: tuple[Any, ...], by_name: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `convert` that mean what `qat` was given."""
    order = ("model", "training")
    if len(fields) > len(order) or set(order[: len(fields)]) & by_name.keys():
        raise UsageError(f"{QAT} takes {listed(order)} by position", hint="give the others by name")
    given = {**by_name, **dict(zip(order, fields, strict=False))}
    if given.get("training") is None:
        raise UsageError("missing argument training", hint="give samples with labels")
    to = given.get("to") or ()
    recipes = [*(to if isinstance(to, list | tuple) else (to,))]
    has_qat = any(QAT in (each, getattr(each, "name", "")) for each in recipes)
    return (), {**given, "to": recipes if has_qat else [*recipes, QAT]}


def sandboxed(mode: SandboxMode | None) -> AbstractContextManager[None]:
    """For the block, the sandbox of children; None takes the user's configuration."""
    from edgeconv.system.processes.sandbox import using
    from edgeconv.system.store.user import read_user_config

    if mode is None and (mode := read_user_config().sandbox) == "auto":
        return nullcontext()
    return using(mode)
