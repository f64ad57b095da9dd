"""What the texts of options are: places, SOURCEs, lists of names, programs.

The command line takes each as it is typed. A configuration says it relative to its own folder,
lists as arrays. What it names outside of its project, and code, only its user can allow: `reaches`
says of a text what that is, and edgeconv/config/reach.py what is allowed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from edgeconv.requests.places import Reach


class Text(StringParamType):
    """A text that names nothing outside of the model and the command: a name, a title, a shape."""

    form = ""
    # Whether a configuration may write it as an array, which is joined with commas.
    is_list = False
    # Whether a text of this sort may name code.
    may_run_code = False
    # Whether the shell is to complete it with the names of files.
    is_file = False

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What the shell may offer for the begun text."""
        if not self.is_file:
            return super().shell_complete(ctx, param, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]

    def within(self, text: str, folder: Path) -> str:  # noqa: ARG002
        """The text of a configuration in `folder`, as the command line would have it."""
        return text

    def reaches(self, text: str) -> Iterable[Reach]:  # noqa: ARG002
        """What the text names that a project may not choose freely. Raises `UsageError`."""
        return ()


class _Names(Text):
    form = "One text with commas, or an array of texts."
    is_list = True


class _Place(Text):
    is_file = True
    form = "A path, from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.requests.places import place_within

        return place_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import place_reach

        return place_reach(text)


class _Tree(_Place):
    """A path that counts with the links in it: what is read or written there goes into folders."""

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import place_reach

        return place_reach(text, "tree")


class _NamedPlace(Text):
    form = "NAME=PATH, the path from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.cli.outputs import parse_outputs
        from edgeconv.requests.places import place_within

        parse_outputs([text])
        name, mark, place = text.partition("=")
        return f"{name}{mark}{place_within(place, folder)}"

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import place_reach

        return place_reach(text.partition("=")[2])


class _Tracker(Text):
    form = "KIND:PLACE, a path from the folder of this file or a URI, which has to be allowed."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.cli.outputs import parse_trackers
        from edgeconv.requests.places import place_within

        parse_trackers([text])
        kind, mark, place = text.partition(":")
        return f"{kind}{mark}{place_within(place, folder)}"

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.plugins import tracker
        from edgeconv.requests.places import Reach, place_reach

        kind, _, place = text.partition(":")
        # Others than those of files talk to what the place names, or do what is stored there.
        is_files = getattr(tracker(kind), "WRITES_FILES_ONLY", False)
        return place_reach(place) if is_files else (Reach("tracker", text),)


class _Source(Text):
    is_file = True
    form = "A SOURCE, its paths from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.requests.places import source_within

        return source_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import source_reach

        return source_reach(text)


class _KeyedSource(_Source):
    form = "[KEY=]SOURCE, its paths from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        key, source = _keyed(text, folder)
        return key + super().within(source, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        key, equals, source = text.partition("=")
        if not (equals and key.isidentifier()):
            return super().reaches(text)
        from edgeconv.requests.places import place_reach

        # Whether what is called so is meant is known only with the signatures.
        whole = text.partition("?")[0]
        is_there = os.path.lexists(whole)
        return (*super().reaches(source), *(place_reach(whole, "tree") if is_there else ()))


class _Steps(Text):
    is_file = True
    form = "Steps, or a .toml file from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.requests.places import steps_within

        return steps_within(text, folder)

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import place_reach

        return place_reach(text) if text.endswith(".toml") else ()


class _Metric(Text):
    may_run_code = True

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import Reach

        return (Reach("code", text),) if ":" in text else ()


class _CustomObjects(Text):
    form = "MODULE or MODULE:NAME; a path to a file from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.data.custom import is_path
        from edgeconv.requests.places import place_within

        return place_within(text, folder) if is_path(text) else text

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import Reach

        return (Reach("code", text),) if text else ()


class _Program(Text):
    is_file = True
    form = "A program, named as on the command line."
    may_run_code = True

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import Reach

        return (Reach("program", text),) if text else ()


class _Runtime(Text):
    form = "One that is not this machine's own has to be allowed; see docs/security.md."

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import Reach
        from edgeconv.runtimes.choice import files_named, runs_here_alone

        if runs_here_alone(text):
            return ()
        return (Reach("runtime", text), *(Reach("file", file) for file in files_named(text)))


class _Address(Text):
    form = "It has to be allowed; see docs/security.md."

    def reaches(self, text: str) -> Iterable[Reach]:
        from edgeconv.requests.places import Reach

        return (Reach("address", text),) if text else ()


class UserOption(click.Option):
    """An option that no project can give: it is typed, or in the user's own configuration."""


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
ADDRESS = _Address()
# What cannot name anything: numbers, truth values, words of a list.
_HARMLESS = (
    *(click.types.IntParamType, click.types.FloatParamType, click.types.BoolParamType),
    click.Choice,
)


def one_of(
    words: Iterable[str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What completes an option that takes these words, or several of them with commas."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in words if word.startswith(begun)]

    return complete


class _SandboxMode(Text):
    name = "MODE"
    form = 'Only "required" can stand here: a project takes no sandbox away.'

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(click.Choice(("auto", "required", "off")).convert(value, param, ctx))

    def within(self, text: str, folder: Path) -> str:  # noqa: ARG002
        from edgeconv.errors import UsageError

        if text in ("auto", "off"):
            raise UsageError(
                f"a configuration cannot make the sandbox {text}",
                hint='write "required", or remove the line; --sandbox works on the command line',
            )
        return text


SANDBOX_MODE = _SandboxMode()


def text_of(kind: click.ParamType[Any]) -> Text:
    """How the texts of an option's type are treated; those of `click.Path` are places.

    Raises `TypeError` for a type that does not say what its texts may name: an option that a
    project can give must.
    """
    if isinstance(kind, Text):
        return kind
    if isinstance(kind, click.Path):
        return PLACE
    if isinstance(kind, _HARMLESS):
        return TEXT
    raise TypeError(f"{kind!r}: give the option a type of edgeconv.cli.values, such as TEXT")


def _keyed(text: str, folder: Path) -> tuple[str, str]:
    """`KEY=` and the SOURCE after it; a file that is called so has no key."""
    key, equals, source = text.partition("=")
    if not (equals and key.isidentifier()) or (folder / text).exists():
        return "", text
    return f"{key}=", source
