"""What the texts of options are: places, SOURCEs, lists of names, programs.

The command line takes each as it is typed. A configuration says it relative to its own folder,
lists as arrays, and may name code only where that was allowed on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from click.shell_completion import CompletionItem


class Text(StringParamType):
    """A text that stays as it is."""

    form = ""
    # Whether a configuration may write it as an array, which is joined with commas.
    is_list = False
    # Whether a text of this sort may name code; `runs_code` says it of one.
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

    def runs_code(self, text: str) -> bool:  # noqa: ARG002
        """Whether code that the text names is run. Raises `UsageError`."""
        return False


class _Names(Text):
    form = "One text with commas, or an array of texts."
    is_list = True


class _Place(Text):
    is_file = True
    form = "A path, from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.config.sources import place_within

        return place_within(text, folder)


class _NamedPlace(Text):
    form = "NAME=PATH, the path from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.cli.outputs import parse_outputs
        from edgeconv.config.sources import place_within

        parse_outputs([text])
        name, mark, place = text.partition("=")
        return f"{name}{mark}{place_within(place, folder)}"


class _Tracker(Text):
    form = "KIND:PLACE, a path from the folder of this file or a URI."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.cli.outputs import parse_trackers
        from edgeconv.config.sources import place_within

        parse_trackers([text])
        kind, mark, place = text.partition(":")
        return f"{kind}{mark}{place_within(place, folder)}"


class _Source(Text):
    is_file = True
    form = "A SOURCE, its paths from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.config.sources import source_within

        return source_within(text, folder)

    def runs_code(self, text: str) -> bool:
        from edgeconv.data.location import runs_code

        return runs_code(text)


class _KeyedSource(_Source):
    form = "[KEY=]SOURCE, its paths from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        key, source = _keyed(text, folder)
        return key + super().within(source, folder)

    def runs_code(self, text: str) -> bool:
        # What begins with KEY= names code only after it, also where a file is called so.
        key, equals, source = text.partition("=")
        return super().runs_code(source if equals and key.isidentifier() else text)


class _Steps(Text):
    is_file = True
    form = "Steps, or a .toml file from the folder of this file."

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.config.sources import steps_within

        return steps_within(text, folder)


class _Metric(Text):
    may_run_code = True

    def runs_code(self, text: str) -> bool:
        from edgeconv.config.sources import metric_runs_code

        return metric_runs_code(text)


class _CustomObjects(Text):
    form = "MODULE or MODULE:NAME; a path to a file from the folder of this file."
    may_run_code = True

    def within(self, text: str, folder: Path) -> str:
        from edgeconv.config.sources import place_within
        from edgeconv.data.custom import is_path

        return place_within(text, folder) if is_path(text) else text

    def runs_code(self, text: str) -> bool:
        return bool(text)


class _Program(Text):
    is_file = True
    form = "A program, named as on the command line."
    may_run_code = True

    def runs_code(self, text: str) -> bool:
        return bool(text)


NAMES = _Names()
PLACE = _Place()
NAMED_PLACE = _NamedPlace()
TRACKER = _Tracker()
SOURCE = _Source()
KEYED_SOURCE = _KeyedSource()
STEPS = _Steps()
METRIC = _Metric()
CUSTOM_OBJECTS = _CustomObjects()
PROGRAM = _Program()


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
    """How the texts of an option's type are treated; those of `click.Path` are places."""
    if isinstance(kind, Text):
        return kind
    return PLACE if isinstance(kind, click.Path) else Text()


def _keyed(text: str, folder: Path) -> tuple[str, str]:
    """`KEY=` and the SOURCE after it; a file that is called so has no key."""
    key, equals, source = text.partition("=")
    if not (equals and key.isidentifier()) or (folder / text).exists():
        return "", text
    return f"{key}=", source
