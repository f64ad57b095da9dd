"""What the texts of options are: paths, SOURCEs, lists of names, programs.

The command line takes each as typed. A configuration writes paths relative to its folder, and lists
as arrays. What it names outside its project, and code, only the user can allow: see
edgeconv/requests/config/reach.py.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from edgeconv.data.location import PATH_OPTIONS, parse_source
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.plugins import METRIC_ALIASES, METRICS, tracker
from edgeconv.reporting.verdicts import FORMATS
from edgeconv.requests.recipes import parse_rule
from edgeconv.runtimes.choice import (
    files_named,
    parse_choice,
    parse_target_runtime,
    parse_versions,
    runs_here_alone,
)
from edgeconv.system.store.hashes import is_sha256
from edgeconv.types import DataSource, MetricChoice, RuntimeChoice, Steps
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.measuring import parse_npu

Sort = Literal["path", "tree", "address", "code", "program", "file", "runtime", "tracker"]


class Reads(NamedTuple):
    """What a request reads: paths (files, directories, patterns), and SOURCEs."""

    paths: tuple[Path, ...] = ()
    sources: tuple[DataSource, ...] = ()


class Reach(NamedTuple):
    """One thing that a value names, as it is from the current directory.

    `path`: read or written. `tree`: a path, a pattern, or a directory with its content.
    `address`: another machine, or a URL. `code`: a module. `program`: one that is started. `file`:
    read by a program or runtime that is allowed, and allowed with it unless it is in the project.
    `runtime` and `tracker`: such a text as a whole.
    """

    sort: Sort
    text: str


class TextKind:
    """A kind of text. This one names nothing outside the model and the command.

    `form` describes it for the JSON Schema, `metavar` is its word in --help, `meaning` parses it,
    and `written` is the inverse. `sort` is what it names. A configuration may write an `is_list` as
    an array. The shell completes an `is_file`. Where an `is_path` is does not count, only its
    content. An `is_subject` names a model. Python may give what it `holds` from memory.
    """

    is_list = is_file = is_path = is_subject = may_run_code = False
    holds: Literal["", "model", "samples"] = ""

    def __init__(
        self,
        form: str = "",
        metavar: str = "",
        meaning: Callable[[str], Any] = str,
        written: Callable[[Any], str] = str,
        sort: Sort | None = None,
    ) -> None:
        self.form = form
        self.metavar = metavar
        self._meaning = meaning
        self._written = written
        self._sort = sort

    @property
    def is_parsed(self) -> bool:
        """Whether a text means something other than itself."""
        return self._meaning is not str or type(self).parse is not TextKind.parse

    def parse(self, text: str) -> Any:
        """What the text means. Raises `UsageError`."""
        return self._meaning(text)

    def of_key(self, text: str) -> Any:
        """The value of a text that Python gives for a key."""
        return text

    def within(self, value: Any, folder: Path) -> Any:  # noqa: ARG002
        """The value that a configuration in `folder` has, as it is from here."""
        return value

    def reaches(self, value: Any) -> tuple[Reach, ...]:
        """What the value names that a project may not choose freely. Raises `UsageError`."""
        return (Reach(self._sort, value),) if self._sort and value else ()

    def load(self, value: Any) -> Any:
        """The value with what is in the file that it names. Raises an `EdgeconvError`."""
        return value

    def text_of(self, value: Any) -> str:
        """The text of a value."""
        return self._written(value)

    def reads(self, value: Any) -> Reads:  # noqa: ARG002
        """What is read for a value."""
        return Reads()


# Names


def comma_list(text: str) -> list[str]:
    """The parts of a comma-separated text."""
    return [part.strip() for part in text.split(",") if part.strip()]


class _Names(TextKind):
    is_list = True

    def parse(self, text: str) -> tuple[str, ...]:
        return tuple(comma_list(text))

    def text_of(self, value: Any) -> str:
        return ",".join(map(str, value))


class _SandboxMode(TextKind):
    def within(self, value: str, folder: Path) -> str:  # noqa: ARG002
        if value in ("auto", "off"):
            raise UsageError(
                f"a configuration cannot set the sandbox to {value!r}",
                hint='write "required", or remove the line; --sandbox works on the command line',
            )
        return value


def _sha256(text: str) -> str:
    if not is_sha256(text):
        raise UsageError(f"{text!r} is not a sha256: 64 digits, as `edgeconv scan` shows it")
    return text


# Durations

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = r"(?i)([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([^\d\s]*)"
# A request for more would run for minutes with nothing to see.
_LONGEST_S = 10.0


def parse_period(text: str) -> float:
    """The seconds of a period such as "10ms", above 0 and 10 s at most. Raises `UsageError`."""
    hint = f"a number and its unit, one of {', '.join(_SECONDS)}: as in 10ms or 0.5s"
    match = re.fullmatch(_DURATION, text.strip())
    number = finite(match[1]) if match else None
    if match is None or number is None:
        raise UsageError(f"the period {text!r} is not a duration", hint=hint)
    if not match[2]:
        raise UsageError(f"the period {text!r} has no unit", hint=hint)
    if match[2] not in _SECONDS:
        raise UsageError(f"the period {text!r} has an unknown unit, {match[2]!r}", hint=hint)
    seconds = number * _SECONDS[match[2]]
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"the period {text!r} is not above 0 and {_LONGEST_S:g}s at most", hint="as in 10ms"
        )
    return seconds


def period_text(seconds: float) -> str:
    """What is typed for a period: 0.01 is "10ms"."""
    unit = next((u for u in ("s", "ms") if seconds >= _SECONDS[u]), "us")
    return f"{seconds / _SECONDS[unit]:.12g}{unit}"


def finite(value: str | float) -> float | None:
    """A finite float; None for others, and for an integer that is too large."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# Paths

# Such as gs://bucket/models, which is not a path of this machine.
_REMOTE = r"[A-Za-z][A-Za-z0-9+.-]+://"
# With file:/home/me/x, which tools take for a URL too.
_URL = rf"(?i){_REMOTE}|file:"


def path_within(path: str, folder: Path) -> str:
    """A path that starts in `folder`, as it is from here; a remote one stays as it is."""
    if not path or re.match(_REMOTE, path) or folder == Path():
        return path
    return str(folder / path)


def _path_reach(path: str, sort: Sort = "path") -> tuple[Reach, ...]:
    """What a path names: a file or directory, or a URL."""
    if not path:
        return ()
    return (Reach("address" if re.match(_URL, path) else sort, path),)


def _path_reads(path: Any) -> Reads:
    # Python may give what is in the file.
    return Reads(paths=(Path(path),)) if path and isinstance(path, str | os.PathLike) else Reads()


class _Path(TextKind):
    is_file = is_path = True

    def within(self, value: str, folder: Path) -> str:
        return path_within(value, folder)

    def reaches(self, value: str) -> tuple[Reach, ...]:
        return _path_reach(value)

    def reads(self, value: Any) -> Reads:
        return _path_reads(value)


class _Subject(_Path):
    is_subject = True
    holds = "model"


class _Tree(_Path):
    """A path that counts with the links in it: what is read or written there is in folders."""

    def reaches(self, value: str) -> tuple[Reach, ...]:
        return _path_reach(value, "tree")


class _Trained(_Tree):
    holds = "model"


class _NamedPath(TextKind):
    """A name, a mark and a path, of `option`."""

    is_path = True
    mark, option, example = "=", "--output", "junit=build/junit.xml"

    def parse(self, text: str) -> tuple[str, str]:
        name, path = self._split(text)
        if name not in FORMATS:
            raise unknown_name(f"{self.option} format", name, FORMATS)
        return name, path

    def _split(self, text: str) -> tuple[str, str]:
        name, _, rest = text.partition(self.mark)
        if not rest:
            raise UsageError(
                f"{self.option} {text}: not of the form {self.metavar}",
                hint=f"for example {self.example}",
            )
        return name, rest

    def within(self, value: tuple[str, str], folder: Path) -> tuple[str, str]:
        return value[0], path_within(value[1], folder)

    def reaches(self, value: tuple[str, str]) -> tuple[Reach, ...]:
        return _path_reach(value[1])

    def text_of(self, value: tuple[str, str]) -> str:
        return self.mark.join(value)


class _Tracker(_NamedPath):
    mark, option, example = ":", "--track", "csv:accuracy.csv"

    def parse(self, text: str) -> tuple[str, str]:
        tracker(text.partition(":")[0])
        return self._split(text)

    def reaches(self, value: tuple[str, str]) -> tuple[Reach, ...]:
        # Trackers that do more than write files contact a server, or run what is stored there.
        is_files = getattr(tracker(value[0]), "WRITES_FILES_ONLY", False)
        return super().reaches(value) if is_files else (Reach("tracker", self.text_of(value)),)


# SOURCEs

# The kinds whose location is not simply a path.
NAMED_KINDS = frozenset({"function", "sklearn", "tfds"})


def source_within(source: DataSource, folder: Path) -> DataSource:
    """A SOURCE whose paths start in `folder`, as it is from here. Raises `UsageError`."""
    if folder == Path():
        return source
    location, kind = source.location, source.kind
    if kind not in NAMED_KINDS or (kind == "tfds" and (folder / location).is_dir()):
        location = path_within(location, folder)
    option = _path_option(source)
    options = {
        name: path_within(text, folder) if name == option else text
        for name, text in source.options.items()
    }
    moved = replace(source, location=location, options=options)
    if moved != source and {"?", "&"} & {*str(folder)}:
        raise UsageError(f"{folder} has a ? or & in it, which SOURCEs cannot have")
    return moved


def source_reach(source: DataSource) -> tuple[Reach, ...]:
    """What a SOURCE names: files, directories, code."""
    kind, path = source.kind, source.location
    if kind == "function":
        return (Reach("code", path),)
    option, options = _path_option(source), source.options
    # The content of a directory may make another option the path.
    paths = [text for name, text in options.items() if name == option or os.path.lexists(text)]
    # The name of a data set, which may be below `dir`, or else is where its tool puts it.
    is_path = Path(path).exists() or Path(path).is_absolute() or ".." in Path(path).parts
    if kind == "tfds" and not is_path:
        path = str(Path(options["dir"], path)) if options.get("dir") else ""
    if kind != "sklearn":
        paths.append(path)
    return tuple(reach for each in paths for reach in _path_reach(each, "tree"))


def _path_option(source: DataSource) -> str:
    """The option of a SOURCE that is a path; directories of sounds and of images have the same."""
    return PATH_OPTIONS.get(source.kind or "images", "")


class _Source(TextKind):
    is_file = is_path = may_run_code = True
    holds = "samples"

    def parse(self, text: str) -> Any:
        return parse_source(text)

    def within(self, value: Any, folder: Path) -> Any:
        return source_within(value, folder)

    def reaches(self, value: Any) -> tuple[Reach, ...]:
        return source_reach(value)

    def reads(self, value: Any) -> Reads:
        return Reads(sources=(value,))


class KeyedSource(NamedTuple):
    """The text [KEY=]SOURCE: the SOURCE of `key`, and the one that the `whole` text names.

    Only with the signatures is it known whether KEY is one, or belongs to the name of a file.
    """

    key: str
    source: DataSource
    whole: DataSource

    def __str__(self) -> str:
        return f"{self.key}={self.source}" if self.key else str(self.whole)


def by_signature(
    keyed: Sequence[KeyedSource], values: Mapping[tuple[str, ...], Any]
) -> dict[str, DataSource]:
    """The SOURCE of each signature, "" for all that are not named. Raises `UsageError`.

    A name before a = is a signature only where it is one of several to convert: a path may have
    a = in it.
    """
    keys = values.get(("signature",), ())
    sources: dict[str, DataSource] = {}
    for each in keyed:
        is_named = bool(each.key) and (each.key in keys or "all" in keys)
        name = each.key if is_named else ""
        if name in sources:
            what = f"signature {name!r}" if name else "every signature"
            raise UsageError(
                f"--calibration gives {what} two sources",
                hint="give --calibration KEY=SOURCE for each",
            )
        sources[name] = each.source if is_named else each.whole
    return sources


class _KeyedSource(_Source):
    def parse(self, text: str) -> KeyedSource:
        whole = parse_source(text)
        key, _, source = text.partition("=")
        if source and key.isidentifier():
            return KeyedSource(key, parse_source(source), whole)
        return KeyedSource("", whole, whole)

    def of_key(self, text: str) -> DataSource:
        return parse_source(text)

    def within(self, value: KeyedSource, folder: Path) -> KeyedSource:
        whole = source_within(value.whole, folder)
        # A file of this name has no key.
        if not value.key or Path(whole.location).exists():
            return KeyedSource("", whole, whole)
        return KeyedSource(value.key, source_within(value.source, folder), whole)

    def reaches(self, value: KeyedSource) -> tuple[Reach, ...]:
        whole = value.whole.location
        is_file = bool(value.key) and os.path.lexists(whole)
        return (*source_reach(value.source), *(_path_reach(whole, "tree") if is_file else ()))

    def reads(self, value: dict[str, DataSource]) -> Reads:
        return Reads(sources=tuple(value.values()))


class _Steps(TextKind):
    is_file = True

    def parse(self, text: str) -> Steps:
        is_file = text.endswith(".toml")
        return Steps(file=text) if is_file else Steps(by_input=parse_preprocessing(text))

    def within(self, value: Steps, folder: Path) -> Steps:
        return replace(value, file=path_within(value.file, folder))

    def reaches(self, value: Steps) -> tuple[Reach, ...]:
        return _path_reach(value.file)

    def load(self, value: Steps) -> Steps:
        if value.by_input or not value.file:
            return value
        return replace(value, by_input=parse_preprocessing(value.file))

    def text_of(self, value: Steps) -> str:
        return describe(value.by_input) if value.by_input or not value.file else value.file

    def reads(self, value: Steps) -> Reads:
        return _path_reads(value.file) if value else Reads()


# Code, programs, other machines


class _Program(TextKind):
    is_file = may_run_code = True


class _CustomObjects(TextKind):
    may_run_code = True

    def within(self, value: str, folder: Path) -> str:
        from edgeconv.data.code import is_path

        return path_within(value, folder) if is_path(value) else value

    def reads(self, value: str) -> Reads:
        from edgeconv.data.code import custom_files

        try:
            return Reads(paths=tuple(custom_files(value, str(Path.cwd()))))
        except (InputRefused, UsageError):
            # One that is missing is refused when the model is converted.
            return Reads()


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


class _Metric(TextKind):
    may_run_code = True

    def reaches(self, value: MetricChoice) -> tuple[Reach, ...]:
        return (Reach("code", str(value)),) if value.module else ()


class _Runtime(TextKind):
    def reaches(self, value: RuntimeChoice) -> tuple[Reach, ...]:
        if runs_here_alone(value):
            return ()
        return (Reach("runtime", str(value)), *(Reach("file", file) for file in files_named(value)))


# The kinds, as the options name them

_PATH = "A path, relative to this file's folder."
TEXT = TextKind()
NAMES = _Names("One text with commas, or an array of texts.")
PATH = _Path(_PATH)
TREE = _Tree(_PATH)
TRAINED = _Trained(_PATH)
SUBJECT = _Subject(_PATH)
NAMED_PATH = _NamedPath("NAME=PATH, the path relative to this file's folder.", "FORMAT=FILE")
TRACKER = _Tracker(
    "KIND:PLACE, a path relative to this file's folder or a URI, which has to be allowed.",
    "KIND:PLACE",
)
SOURCE = _Source("A SOURCE, its paths relative to this file's folder.", "SOURCE")
KEYED_SOURCE = _KeyedSource(
    "[KEY=]SOURCE, its paths relative to this file's folder.", "[KEY=]SOURCE"
)
STEPS = _Steps("Steps, or a .toml file, relative to this file's folder.", "STEPS")
METRIC = _Metric("", "NAME", parse_metric)
CUSTOM_OBJECTS = _CustomObjects(
    "MODULE or MODULE:NAME; a path to a file is relative to this file's folder.",
    "MODULE[:NAME]",
    sort="code",
)
PROGRAM = _Program("A program, named as on the command line.", "FILE", sort="program")
RUNTIME = _Runtime(
    "A runtime outside this machine has to be allowed; see docs/security.md.", "NAME", parse_choice
)
PERIOD = TextKind("A duration with its unit, such as 10ms.", "PERIOD", parse_period, period_text)
VERSIONS = TextKind(
    "A runtime and a PEP 440 specifier, such as litert>=2.0.", "SPECIFIER", parse_versions
)
NPU = TextKind(
    "An NPU that Vela compiles for, such as ethos-u55-128, with ?system=NAME&memory=NAME for a "
    "chip.",
    "NAME",
    parse_npu,
)
TARGET_RUNTIME = TextKind("", "RUNTIME", parse_target_runtime)
ADDRESS = TextKind("It has to be allowed; see docs/security.md.", "NAME", sort="address")
LAYER_RULE = TextKind(
    "", "PATTERN=PRECISION", parse_rule, lambda rule: f"{rule.pattern}={rule.precision}"
)
SANDBOX_MODE = _SandboxMode(
    'Only "required": a project cannot weaken the sandbox.', "[auto|required|off]"
)
SHA256 = TextKind("", "SHA256", _sha256)
