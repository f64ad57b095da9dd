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

from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.requests.paths import (
    Reach,
    path_reach,
    path_within,
    source_reach,
    source_within,
    steps_within,
    tree_reach,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Reads(NamedTuple):
    """What a request reads: paths (files, directories, patterns), and SOURCEs."""

    paths: tuple[Path, ...] = ()
    sources: tuple[str, ...] = ()


def _reads_nothing(_: Any) -> Reads:
    return Reads()


def _same(text: str, _: Any = None) -> str:
    return text


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
    # The text of a configuration in a folder, as the command line would have it.
    within: Callable[[str, Path], str] = _same
    # What the text names that a project may not choose freely. Raises `UsageError`.
    reaches: Callable[[str], Iterable[Reach]] = lambda _: ()
    # What the text means. Raises `UsageError` or `InputRefused`.
    value: Callable[[str], Any] = _same
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
    from edgeconv.reporting.verdicts import FORMATS

    name, path = _split_pair(text, "=", "--output", "FORMAT=FILE", "junit=build/junit.xml")
    if name not in FORMATS:
        raise unknown_name("--output format", name, FORMATS)
    return name, path


def _output_within(text: str, folder: Path) -> str:
    name, path = _output(text)
    return f"{name}={path_within(path, folder)}"


def _tracker(text: str) -> tuple[str, str]:
    from edgeconv.plugins import tracker

    tracker(text.partition(":")[0])
    return _split_pair(text, ":", "--track", "KIND:PLACE", "csv:accuracy.csv")


def _tracker_within(text: str, folder: Path) -> str:
    kind, path = _tracker(text)
    return f"{kind}:{path_within(path, folder)}"


def _tracker_reach(text: str) -> tuple[Reach, ...]:
    from edgeconv.plugins import tracker

    kind, path = _tracker(text)
    # Others than those of files talk to what the path names, or run what is stored there.
    is_files = getattr(tracker(kind), "WRITES_FILES_ONLY", False)
    return path_reach(path) if is_files else (Reach("tracker", text),)


def _keyed_within(text: str, folder: Path) -> str:
    key, equals, source = text.partition("=")
    # A file of this name has no key.
    if not (equals and key.isidentifier()) or (folder / text).exists():
        return source_within(text, folder)
    return f"{key}={source_within(source, folder)}"


def _keyed_reach(text: str) -> tuple[Reach, ...]:
    key, equals, source = text.partition("=")
    if not (equals and key.isidentifier()):
        return source_reach(text)
    # Whether it is a key or the name of a file is known only with the signatures.
    whole = text.partition("?")[0]
    return (*source_reach(source), *(tree_reach(whole) if os.path.lexists(whole) else ()))


def _steps(text: str) -> Any:
    from edgeconv.data.preprocessing import parse_preprocessing
    from edgeconv.types import Steps

    return Steps(by_input=parse_preprocessing(text), file=text if text.endswith(".toml") else "")


def _steps_text(steps: Any) -> str:
    from edgeconv.data.preprocessing import describe

    return describe(steps.by_input)


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


def _runtime_reach(text: str) -> tuple[Reach, ...]:
    from edgeconv.runtimes.choice import files_named, runs_here_alone

    if runs_here_alone(text):
        return ()
    return (Reach("runtime", text), *(Reach("file", file) for file in files_named(text)))


def _sandbox_within(text: str, _: Path) -> str:
    if text in ("auto", "off"):
        raise UsageError(
            f"a configuration cannot set the sandbox to {text!r}",
            hint='write "required", or remove the line; --sandbox works on the command line',
        )
    return text


def _sha256(text: str) -> str:
    from edgeconv.store.hashes import is_sha256

    if not is_sha256(text):
        raise UsageError(f"{text!r} is not a sha256: 64 digits, as `edgeconv scan` shows it")
    return text


def _target_runtime(text: str) -> Any:
    from edgeconv.runtimes.choice import parse_target_runtime

    return parse_target_runtime(text)


def _target_runtime_text(runtime: Any) -> str:
    from edgeconv.runtimes.choice import runtime_text

    return runtime_text(runtime)


def _layer_rule(text: str) -> Any:
    from edgeconv.quantize.rules import parse_rule

    return parse_rule(text)


TEXT = TextKind()
NAMES = TextKind(
    "One text with commas, or an array of texts.",
    is_list=True,
    value=lambda text: tuple(comma_list(text)),
    text_of=lambda names: ",".join(map(str, names)),
)
PATH = TextKind(
    "A path, from the folder of this file.",
    is_file=True,
    is_path=True,
    within=path_within,
    reaches=path_reach,
    reads=_path_reads,
)
# A path that counts with the links in it: what is read or written there is in folders.
TREE = replace(PATH, reaches=tree_reach)
NAMED_PATH = TextKind(
    "NAME=PATH, the path from the folder of this file.",
    is_path=True,
    within=_output_within,
    reaches=lambda text: path_reach(_output(text)[1]),
    value=_output,
    text_of="=".join,
)
TRACKER = TextKind(
    "KIND:PLACE, a path from the folder of this file or a URI, which has to be allowed.",
    is_path=True,
    within=_tracker_within,
    reaches=_tracker_reach,
    value=_tracker,
    text_of=":".join,
)
SOURCE = TextKind(
    "A SOURCE, its paths from the folder of this file.",
    is_file=True,
    is_path=True,
    may_run_code=True,
    within=source_within,
    reaches=source_reach,
    reads=lambda source: Reads(sources=(source,)) if source else Reads(),
)
KEYED_SOURCE = replace(
    SOURCE,
    form="[KEY=]SOURCE, its paths from the folder of this file.",
    within=_keyed_within,
    reaches=_keyed_reach,
    reads=lambda by_key: Reads(sources=tuple(by_key.values())),
)
STEPS = TextKind(
    "Steps, or a .toml file from the folder of this file.",
    is_file=True,
    within=steps_within,
    reaches=lambda text: path_reach(text) if text.endswith(".toml") else (),
    value=_steps,
    text_of=_steps_text,
    reads=lambda steps: _path_reads(steps.file) if steps else Reads(),
)
METRIC = TextKind(
    may_run_code=True, reaches=lambda text: (Reach("code", text),) if ":" in text else ()
)
CUSTOM_OBJECTS = TextKind(
    "MODULE or MODULE:NAME; a path to a file from the folder of this file.",
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
    reaches=_runtime_reach,
)
TARGET_RUNTIME = TextKind(value=_target_runtime, text_of=_target_runtime_text)
ADDRESS = TextKind("It has to be allowed; see docs/security.md.", reaches=_reaches_as("address"))
LAYER_RULE = TextKind(value=_layer_rule, text_of=lambda rule: f"{rule.pattern}={rule.precision}")
SANDBOX_MODE = TextKind(
    'Only "required": a project cannot weaken the sandbox.', within=_sandbox_within
)
SHA256 = TextKind(value=_sha256)
