"""What the texts of options are: places, SOURCEs, lists of names, programs.

The command line takes each as it is typed. A configuration says it relative to its own folder,
lists as arrays. What it names outside of its project, and code, only its user can allow: `reaches`
says of a text what that is, and edgeconv/config/reach.py what is allowed. `value` is what the text
means, and `said` the text of such a value.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.requests.places import (
    Reach,
    place_reach,
    place_within,
    source_reach,
    source_within,
    steps_within,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Reads(NamedTuple):
    """What a request reads: paths (files, directories, patterns), and SOURCEs."""

    places: tuple[Path, ...] = ()
    sources: tuple[str, ...] = ()


class Text:
    """A text that names nothing outside of the model and the command: a name, a title, a shape."""

    form = ""
    # Whether a configuration may write it as an array, which is joined with commas.
    is_list = False
    # Whether a text of this sort may name code.
    may_run_code = False
    # Whether the shell is to complete it with the names of files.
    is_file = False
    # Whether it is where something is: what is there counts, and not where that is.
    is_place = False

    def within(self, text: str, folder: Path) -> str:  # noqa: ARG002
        """The text of a configuration in `folder`, as the command line would have it."""
        return text

    def reaches(self, text: str) -> Iterable[Reach]:  # noqa: ARG002
        """What the text names that a project may not choose freely. Raises `UsageError`."""
        return ()

    def value(self, text: str) -> Any:
        """What the text means. Raises `UsageError` or `InputRefused`."""
        return text

    def said(self, value: Any) -> str:
        """The text that `value` gives this value for."""
        return str(value)

    def reads(self, value: Any) -> Reads:  # noqa: ARG002
        """What is read of a value."""
        return Reads()


class _Names(Text):
    form = "One text with commas, or an array of texts."
    is_list = True

    def value(self, text: str) -> tuple[str, ...]:
        return tuple(comma_list(text))

    def said(self, value: Any) -> str:
        return ",".join(map(str, value))


class _Place(Text):
    is_file = True
    is_place = True
    form = "A path, from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        return place_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        return place_reach(text)

    def reads(self, value: Any) -> Reads:
        return Reads(places=(Path(value),)) if value else Reads()


class _Tree(_Place):
    """A path that counts with the links in it: what is read or written there goes into folders."""

    def reaches(self, text: str) -> Iterable[Reach]:
        return place_reach(text, "tree")


class _NamedPlace(Text):
    form = "NAME=PATH, the path from the folder of this file."
    is_place = True

    def within(self, text: str, folder: Path) -> str:
        name, place = self.value(text)
        return f"{name}={place_within(place, folder)}"

    def reaches(self, text: str) -> Iterable[Reach]:
        return place_reach(self.value(text)[1])

    def value(self, text: str) -> tuple[str, str]:
        from edgeconv.errors import UsageError, unknown_name
        from edgeconv.reporting.verdicts import FORMATS

        name, equals, place = text.partition("=")
        if not equals or not place:
            raise UsageError(
                f"--output {text}: not of the form FORMAT=FILE", hint="as in junit=build/junit.xml"
            )
        if name not in FORMATS:
            raise unknown_name("--output format", name, FORMATS)
        return name, place

    def said(self, value: Any) -> str:
        return "=".join(value)


class _Tracker(Text):
    form = "KIND:PLACE, a path from the folder of this file or a URI, which has to be allowed."
    is_place = True

    def within(self, text: str, folder: Path) -> str:
        kind, place = self.value(text)
        return f"{kind}:{place_within(place, folder)}"

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.plugins import tracker

        kind, place = self.value(text)
        # Others than those of files talk to what the place names, or do what is stored there.
        is_files = getattr(tracker(kind), "WRITES_FILES_ONLY", False)
        return place_reach(place) if is_files else (Reach("tracker", text),)

    def value(self, text: str) -> tuple[str, str]:
        from edgeconv.errors import UsageError
        from edgeconv.plugins import tracker

        kind, _, place = text.partition(":")
        tracker(kind)
        if not place:
            raise UsageError(
                f"--track {text}: not of the form KIND:PLACE", hint="as in csv:accuracy.csv"
            )
        return kind, place

    def said(self, value: Any) -> str:
        return ":".join(value)


class _Source(Text):
    is_file = True
    is_place = True
    form = "A SOURCE, its paths from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        return source_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        return source_reach(text)

    def reads(self, value: Any) -> Reads:
        return Reads(sources=(value,)) if value else Reads()


class _KeyedSource(_Source):
    form = "[KEY=]SOURCE, its paths from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        key, source = _keyed(text, folder)
        return key + super().within(source, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        key, equals, source = text.partition("=")
        if not (equals and key.isidentifier()):
            return super().reaches(text)
        # Whether what is called so is meant is known only with the signatures.
        whole = text.partition("?")[0]
        is_there = os.path.lexists(whole)
        return (*super().reaches(source), *(place_reach(whole, "tree") if is_there else ()))

    def reads(self, value: Any) -> Reads:
        return Reads(sources=tuple(value.values()))


class _Steps(Text):
    is_file = True
    form = "Steps, or a .toml file from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        return steps_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        return place_reach(text) if text.endswith(".toml") else ()

    def value(self, text: str) -> Any:
        from edgeconv.data.preprocessing import parse_preprocessing
        from edgeconv.types import Steps

        return Steps(by_input=parse_preprocessing(text), file=text if _is_steps_file(text) else "")

    def said(self, value: Any) -> str:
        from edgeconv.data.preprocessing import describe

        return describe(value.by_input)

    def reads(self, value: Any) -> Reads:
        return Reads(places=(Path(value.file),)) if value and value.file else Reads()


class _Metric(Text):
    may_run_code = True

    def reaches(self, text: str) -> Iterable[Reach]:
        return (Reach("code", text),) if ":" in text else ()


class _CustomObjects(Text):
    form = "MODULE or MODULE:NAME; a path to a file from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.data.custom import is_path

        return place_within(text, folder) if is_path(text) else text

    def reaches(self, text: str) -> Iterable[Reach]:
        return (Reach("code", text),) if text else ()

    def reads(self, value: Any) -> Reads:
        from edgeconv.data.custom import custom_files
        from edgeconv.errors import InputRefused, UsageError

        try:
            return Reads(places=tuple(custom_files(value, str(Path.cwd()))))
        except (InputRefused, UsageError):
            # One that is not there is refused when it is converted.
            return Reads()


class _Program(Text):
    is_file = True
    form = "A program, named as on the command line."
    may_run_code = True

    def reaches(self, text: str) -> Iterable[Reach]:
        return (Reach("program", text),) if text else ()


class _Runtime(Text):
    form = "One that is not this machine's own has to be allowed; see docs/security.md."

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.runtimes.choice import files_named, runs_here_alone

        if runs_here_alone(text):
            return ()
        return (Reach("runtime", text), *(Reach("file", file) for file in files_named(text)))


class _Address(Text):
    form = "It has to be allowed; see docs/security.md."

    def reaches(self, text: str) -> Iterable[Reach]:
        return (Reach("address", text),) if text else ()


class _SandboxMode(Text):
    form = 'Only "required" can stand here: a project takes no sandbox away.'

    def within(self, text: str, folder: Path) -> str:  # noqa: ARG002
        from edgeconv.errors import UsageError

        if text in ("auto", "off"):
            raise UsageError(
                f"a configuration cannot make the sandbox {text}",
                hint='write "required", or remove the line; --sandbox works on the command line',
            )
        return text


class _Sha256(Text):
    def value(self, text: str) -> str:
        from edgeconv.errors import UsageError
        from edgeconv.store.hashes import is_sha256

        if not is_sha256(text):
            raise UsageError(f"{text!r} is not a sha256: 64 digits, as `edgeconv scan` shows it")
        return text


class _TargetRuntime(Text):
    def value(self, text: str) -> Any:
        from edgeconv.runtimes.choice import parse_target_runtime

        return parse_target_runtime(text)

    def said(self, value: Any) -> str:
        from edgeconv.runtimes.choice import runtime_text

        return runtime_text(value)


class _LayerRule(Text):
    def value(self, text: str) -> Any:
        from edgeconv.quantize.rules import parse_rule

        return parse_rule(text)

    def said(self, value: Any) -> str:
        return f"{value.pattern}={value.precision}"


TEXT = Text()
NAMES = _Names()
PLACE = _Place()
TREE = _Tree()
NAMED_PLACE = _NamedPlace()
TRACKER = _Tracker()
SOURCE = _Source()
KEYED_SOURCE = _KeyedSource()
STEPS = _Steps()
METRIC = _Metric()
CUSTOM_OBJECTS = _CustomObjects()
PROGRAM = _Program()
RUNTIME = _Runtime()
TARGET_RUNTIME = _TargetRuntime()
ADDRESS = _Address()
LAYER_RULE = _LayerRule()
SANDBOX_MODE = _SandboxMode()
SHA256 = _Sha256()


def comma_list(text: str) -> list[str]:
    """The parts of a comma-separated text."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_steps_file(text: str) -> bool:
    return text.endswith(".toml")


def _keyed(text: str, folder: Path) -> tuple[str, str]:
    """`KEY=` and the SOURCE after it; a file that is called so has no key."""
    key, equals, source = text.partition("=")
    if not (equals and key.isidentifier()) or (folder / text).exists():
        return "", text
    return f"{key}=", source
