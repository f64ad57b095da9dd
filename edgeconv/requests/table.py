"""Every verb by name: its request, what its command prints, and the function that does it.

`edgeconv.NAME` is a `Verb`, which the command of that name calls too.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from edgeconv.requests.request import (
    ALLOW_CODE,
    Kind,
    Leaf,
    MissingOption,
    Refused,
    Request,
    code_path,
    leaves_of,
    put,
    spread,
    struct_of,
    value_at,
)
from edgeconv.requests.shared import JSON, QUIET, VERBOSE
from edgeconv.system.store.files import reading
from edgeconv.types import QAT
from edgeconv.types.errors import UsageError, unknown_name
from edgeconv.types.execution import SandboxMode
from edgeconv.types.words import listed

Result = TypeVar("Result")
_ANY_CODE = "any_code"
# What only commands set.
_UNSHOWN = {_ANY_CODE, "by_table"}


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
        "edgeconv.requests.tune:TuneRequest", "edgeconv.plugins.scale.tune:tune", out="{}.tuned"
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
        f"{_LOOKING}:DebugRequest", "edgeconv.measure.debug:debug", f"{_LOOKING}:DebugPrinting"
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
        kind = self._entry.kind
        return signature_of(kind, positional_words(kind), other_words(kind), needed)

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
                in_python = self._called(fields, by_name)
                request, shown = stack.enter_context(in_python)
            stack.enter_context(sandboxed(getattr(request, "sandbox", None)))
            stack.enter_context(reading(request.roots()))
            return shown(named(entry.function)(request, **progress))

    @contextmanager
    def _called(
        self, fields: tuple[Any, ...], by_name: Mapping[str, Any]
    ) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
        """The request of Python's arguments, of which those in memory are files in the block.

        And what gives the result their names.
        """
        from edgeconv.requests.in_memory import InMemory

        if self._trains:
            fields, by_name = _to_train(fields, by_name)
        with ExitStack() as stack:
            memory = InMemory(stack)
            with memory.named(leaves_of(self._entry.kind)):
                request: Any = called(self._entry.kind, fields, by_name, memory.filed)
                out = getattr(request, "directory", None) or self._entry.out.format(memory.name)
                with memory.beside(out if self._entry.out else "") as model:
                    yield replace(request, model=model) if model else request, memory.shown


def called(
    kind: type[Kind],
    positional: tuple[Any, ...],
    keywords: Mapping[str, Any],
    filed: Callable[[Leaf, Any, Mapping[str, Any]], Any] = lambda _leaf, value, _all: value,
) -> Kind:
    """The request of a call in Python, whose arguments are the words of the command line.

    A text means what it means there, and None is the default. Options that belong together may be
    one value, under the name of their field. `filed` puts what is in memory into files; it gets the
    option, its value and all the arguments. Raises `UsageError`.
    """
    leaves = {leaf.word: leaf for leaf in leaves_of(kind)}
    order = positional_words(kind)
    first = leaves[order[0]] if order else None
    if first and first.option.takes_rest and positional:
        is_list = isinstance(positional[0], list | tuple)
        positional = positional if is_list else (positional,)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    others = [name for name in other_words(kind) if name not in leaves]
    if len(positional) > len(order) or set(order[: len(positional)]) & keywords.keys():
        raise UsageError(
            f"too many arguments: {listed(order) or 'none'} are taken by position",
            hint="give the others by name",
        )
    arguments = {**dict(zip(order, positional, strict=False)), **keywords}
    for name in arguments:
        if name not in leaves and name not in others:
            raise unknown_name("argument", name, (*leaves, *others))
    arguments = {name: value for name, value in arguments.items() if value is not None}
    values: dict[tuple[str, ...], Any] = {}
    for name in (each for each in others if each in arguments):
        path = _allowing(kind) if name == ALLOW_CODE else (name,)
        values[path] = _plain(name, arguments[name], fields.get(name))
    for word, leaf in leaves.items():
        if word in arguments:
            try:
                value = leaf.from_python(filed(leaf, arguments[word], arguments), values)
                values |= spread(leaf, value)
            except Refused as error:
                raise UsageError(f"{word} {error.message}", hint=error.hint) from error
        elif leaf.is_required and leaf.path[:1] not in values:
            raise MissingOption(leaf, in_python=True)
    return parsed(put(kind, values))


def _plain(name: str, value: Any, field: msgspec.structs.FieldInfo | None) -> Any:
    """The value of a field that is no option. Raises `UsageError` for one of another type."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if name == "budget" and isinstance(value, Mapping):
        from edgeconv.requests.config.file import budget_of

        return budget_of(value)
    try:
        return msgspec.convert(value, bool if field is None else field.type)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}") from error


def positional_words(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """What Python takes by position: the arguments, and the options that must be given."""
    leaves = leaves_of(kind)
    arguments = [leaf.word for leaf in leaves if leaf.option.is_argument]
    needed = [leaf.word for leaf in leaves if leaf.is_required and not leaf.option.is_argument]
    return (*arguments, *needed)


def other_words(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Python's further arguments: values of several options, and fields that are none."""
    own = {leaf.path[0] for leaf in leaves_of(kind) if len(leaf.path) == 1}
    seconds = {leaf.option.also for leaf in leaves_of(kind)}
    names = [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.name not in own | seconds | _UNSHOWN and not _is_request(field.type)
    ]
    code = (ALLOW_CODE,) if _allowing(kind) and ALLOW_CODE not in names else ()
    return (*names, *code)


def _is_request(kind: Any) -> bool:
    """Whether a field's type is a request, whose words are the verb's too."""
    struct = struct_of(kind)
    return isinstance(struct, type) and issubclass(struct, Request)


def _allowing(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The field that Python's `allow_code` sets: of a configuration, for all that it names."""
    return (_ANY_CODE,) if _ANY_CODE in kind.__struct_fields__ else code_path(kind)


def parsed(request: Kind) -> Kind:
    """A request that Python gives, with its texts parsed and its numbers in range.

    Raises `UsageError`.
    """
    values = {}
    for leaf in leaves_of(type(request)):
        value = value_at(request, leaf.path)
        leaf.refuse_number(value)
        if leaf.text.is_parsed and (new := leaf.parsed(value)) is not value:
            values[leaf.path] = new
    return put(type(request), values, request) if values else request


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
    from edgeconv.system.store.user import read_user_config

    if mode is None and (mode := read_user_config().sandbox) == "auto":
        return nullcontext()
    from edgeconv.system.processes.sandbox import using

    return using(mode)
