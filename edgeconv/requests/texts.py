"""What the texts of options are: paths, SOURCEs, lists of names, programs.

The command line takes each as typed. A configuration writes paths relative to its folder, and lists
as arrays. What it names outside its project, and code, only the user can allow: see
edgeconv/config/reach.py.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgeconv.data.location import parse_source
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.plugins import METRIC_ALIASES, METRICS, tracker
from edgeconv.quantize.rules import parse_rule
from edgeconv.reporting.verdicts import FORMATS
from edgeconv.requests.durations import parse_period, period_text
from edgeconv.requests.paths import (
    Reach,
    path_reach,
    path_within,
    source_reach,
    source_within,
    tree_reach,
)
from edgeconv.runtimes.choice import (
    files_named,
    parse_choice,
    parse_target_runtime,
    runs_here_alone,
)
from edgeconv.runtimes.npu.choice import parse_npu
from edgeconv.runtimes.versions import parse_versions
from edgeconv.store.hashes import is_sha256
from edgeconv.types import MetricChoice, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edgeconv.types import DataSource, RuntimeChoice


class Reads(NamedTuple):
    """What a request reads: paths (files, directories, patterns), and SOURCEs."""

    paths: tuple[Path, ...] = ()
    sources: tuple[DataSource, ...] = ()


def _reads_nothing(_: Any) -> Reads:
    return Reads()


def _same(value: Any, _: Any = None) -> Any:
    return value


@dataclass(frozen=True)
class TextKind:
    """A kind of text. The default names nothing outside the model and the command.

    `form` describes it for the JSON Schema. A configuration may write an `is_list` as an array. The
    shell completes an `is_file`. Of an `is_path` the content counts, and not where it is.
    """

    form: str = ""
    is_list: bool = False
    may_run_code: bool = False
    is_file: bool = False
    is_path: bool = False
    # What the text means. Raises `UsageError`.
    parse: Callable[[str], Any] = _same
    # The value that a configuration in a folder has, as it is from here.
    within: Callable[[Any, Path], Any] = _same
    # What the value names that a project may not choose freely. Raises `UsageError`.
    reaches: Callable[[Any], Iterable[Reach]] = lambda _: ()
    # The value with what is in the file that it names. Raises `UsageError` or `InputRefused`.
    load: Callable[[Any], Any] = _same
    # The value of a text that Python gives for a key.
    of_key: Callable[[str], Any] = _same
    # The text of a value.
    text_of: Callable[[Any], str] = str
    # What is read for a value.
    reads: Callable[[Any], Reads] = _reads_nothing


def comma_list(text: str) -> list[str]:
    """The parts of a comma-separated text."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _reaches_as(sort: Any) -> Callable[[str], tuple[Reach, ...]]:
    return lambda text: (Reach(sort, text),) if text else ()


def _path_reads(path: str) -> Reads:
    return Reads(paths=(Path(path),)) if path else Reads()


def _split_pair(text: str, mark: str, option: str, form: str, example: str) -> tuple[str, str]:
    name, _, rest = text.partition(mark)
    if not rest:
        raise UsageError(f"{option} {text}: not of the form {form}", hint=f"for example {example}")
    return name, rest


def _output(text: str) -> tuple[str, str]:
    name, path = _split_pair(text, "=", "--output", "FORMAT=FILE", "junit=build/junit.xml")
    if name not in FORMATS:
        raise unknown_name("--output format", name, FORMATS)
    return name, path


def _named_within(named: tuple[str, str], folder: Path) -> tuple[str, str]:
    return named[0], path_within(named[1], folder)


def _tracker(text: str) -> tuple[str, str]:
    tracker(text.partition(":")[0])
    return _split_pair(text, ":", "--track", "KIND:PLACE", "csv:accuracy.csv")


def _tracker_reach(named: tuple[str, str]) -> tuple[Reach, ...]:
    kind, path = named
    # Others than those of files talk to what the path names, or run what is stored there.
    is_files = getattr(tracker(kind), "WRITES_FILES_ONLY", False)
    return path_reach(path) if is_files else (Reach("tracker", ":".join(named)),)


class KeyedSource(NamedTuple):
    """The text [KEY=]SOURCE: the SOURCE of `key`, and the one that the `whole` text names.

    Only with the signatures is it known whether KEY is one, or belongs to the name of a file.
    """

    key: str
    source: DataSource
    whole: DataSource

    def __str__(self) -> str:
        return f"{self.key}={self.source}" if self.key else str(self.whole)


def _keyed(text: str) -> KeyedSource:
    whole = parse_source(text)
    key, _, source = text.partition("=")
    if source and key.isidentifier():
        return KeyedSource(key, parse_source(source), whole)
    return KeyedSource("", whole, whole)


def _keyed_within(keyed: KeyedSource, folder: Path) -> KeyedSource:
    whole = source_within(keyed.whole, folder)
    # A file of this name has no key.
    if not keyed.key or Path(whole.location).exists():
        return KeyedSource("", whole, whole)
    return KeyedSource(keyed.key, source_within(keyed.source, folder), whole)


def _keyed_reach(keyed: KeyedSource) -> tuple[Reach, ...]:
    whole = keyed.whole.location
    is_file = bool(keyed.key) and os.path.lexists(whole)
    return (*source_reach(keyed.source), *(tree_reach(whole) if is_file else ()))


def _parsed_steps(text: str) -> Steps:
    is_file = text.endswith(".toml")
    return Steps(file=text) if is_file else Steps(by_input=parse_preprocessing(text))


def _steps_within(steps: Steps, folder: Path) -> Steps:
    return msgspec.structs.replace(steps, file=path_within(steps.file, folder))


def _loaded_steps(steps: Steps) -> Steps:
    if steps.by_input or not steps.file:
        return steps
    return msgspec.structs.replace(steps, by_input=parse_preprocessing(steps.file))


def _steps_text(steps: Steps) -> str:
    return describe(steps.by_input) if steps.by_input or not steps.file else steps.file


def _custom_within(text: str, folder: Path) -> str:
    from edgeconv.data.custom import is_path

    return path_within(text, folder) if is_path(text) else text


def _custom_reads(text: str) -> Reads:
    from edgeconv.data.custom import custom_files

    try:
        return Reads(paths=tuple(custom_files(text, str(Path.cwd()))))
    except (InputRefused, UsageError):
        # One that is missing is refused when the model is converted.
        return Reads()


def _runtime_reach(choice: RuntimeChoice) -> tuple[Reach, ...]:
    if runs_here_alone(choice):
        return ()
    return (Reach("runtime", str(choice)), *(Reach("file", file) for file in files_named(choice)))


def parse_metric(text: str) -> MetricChoice:
    """The metric of a name, or the function of module:function. Raises `UsageError`."""
    module, colon, function = text.partition(":")
    if not colon:
        name = METRIC_ALIASES.get(text, text)
        if name not in METRICS:
            raise unknown_name("metric", name, METRICS)
        return MetricChoice(name)
    if not (module and function):
        raise UsageError(
            f"the metric {text!r} does not name a function", hint="package.module:function"
        )
    return MetricChoice(function, module)


def _sandbox_within(text: str, _: Path) -> str:
    if text in ("auto", "off"):
        raise UsageError(
            f"a configuration cannot set the sandbox to {text!r}",
            hint='write "required", or remove the line; --sandbox works on the command line',
        )
    return text


def _sha256(text: str) -> str:
    if not is_sha256(text):
        raise UsageError(f"{text!r} is not a sha256: 64 digits, as `edgeconv scan` shows it")
    return text


TEXT = TextKind()
NAMES = TextKind(
    "One text with commas, or an array of texts.",
    is_list=True,
    parse=lambda text: tuple(comma_list(text)),
    text_of=lambda names: ",".join(map(str, names)),
)
PATH = TextKind(
    "A path, relative to this file's folder.",
    is_file=True,
    is_path=True,
    within=path_within,
    reaches=path_reach,
    reads=_path_reads,
)
# A path that counts with the links in it: what is read or written there is in folders.
TREE = replace(PATH, reaches=tree_reach)
NAMED_PATH = TextKind(
    "NAME=PATH, the path relative to this file's folder.",
    is_path=True,
    parse=_output,
    within=_named_within,
    reaches=lambda named: path_reach(named[1]),
    text_of="=".join,
)
TRACKER = TextKind(
    "KIND:PLACE, a path relative to this file's folder or a URI, which has to be allowed.",
    is_path=True,
    parse=_tracker,
    within=_named_within,
    reaches=_tracker_reach,
    text_of=":".join,
)
SOURCE = TextKind(
    "A SOURCE, its paths relative to this file's folder.",
    is_file=True,
    is_path=True,
    may_run_code=True,
    parse=parse_source,
    within=source_within,
    reaches=source_reach,
    reads=lambda source: Reads(sources=(source,)),
)
KEYED_SOURCE = replace(
    SOURCE,
    form="[KEY=]SOURCE, its paths relative to this file's folder.",
    parse=_keyed,
    within=_keyed_within,
    reaches=_keyed_reach,
    of_key=parse_source,
    reads=lambda by_key: Reads(sources=tuple(by_key.values())),
)
STEPS = TextKind(
    "Steps, or a .toml file, relative to this file's folder.",
    is_file=True,
    parse=_parsed_steps,
    within=_steps_within,
    reaches=lambda steps: path_reach(steps.file),
    load=_loaded_steps,
    text_of=_steps_text,
    reads=lambda steps: _path_reads(steps.file) if steps else Reads(),
)
METRIC = TextKind(
    may_run_code=True,
    parse=parse_metric,
    reaches=lambda metric: (Reach("code", str(metric)),) if metric.module else (),
)
CUSTOM_OBJECTS = TextKind(
    "MODULE or MODULE:NAME; a path to a file is relative to this file's folder.",
    may_run_code=True,
    within=_custom_within,
    reaches=_reaches_as("code"),
    reads=_custom_reads,
)
PROGRAM = TextKind(
    "A program, named as on the command line.",
    is_file=True,
    may_run_code=True,
    reaches=_reaches_as("program"),
)
RUNTIME = TextKind(
    "A runtime outside this machine has to be allowed; see docs/security.md.",
    parse=parse_choice,
    reaches=_runtime_reach,
)
DEVICES = TextKind(
    "One text with commas, or an array of texts.",
    is_list=True,
    parse=lambda text: tuple(map(parse_choice, comma_list(text))),
    text_of=lambda choices: ",".join(map(str, choices)),
)
PERIOD = TextKind(
    "A duration with its unit, such as 10ms.", parse=parse_period, text_of=period_text
)
VERSIONS = TextKind("A runtime and a PEP 440 specifier, such as litert>=2.0.", parse=parse_versions)
NPU = TextKind(
    "An NPU that Vela compiles for, such as ethos-u55-128, with ?system=NAME&memory=NAME for a "
    "chip.",
    parse=parse_npu,
)
TARGET_RUNTIME = TextKind(parse=parse_target_runtime)
ADDRESS = TextKind("It has to be allowed; see docs/security.md.", reaches=_reaches_as("address"))
LAYER_RULE = TextKind(parse=parse_rule, text_of=lambda rule: f"{rule.pattern}={rule.precision}")
SANDBOX_MODE = TextKind(
    'Only "required": a project cannot weaken the sandbox.', within=_sandbox_within
)
SHA256 = TextKind(parse=_sha256)
