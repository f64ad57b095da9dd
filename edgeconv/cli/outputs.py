"""A verdict to where people look: the terminal, files, and the pages of the CI that runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.cli.options import terminal
from edgeconv.cli.printing import ANNOTATIONS, COLORS, echo_text
from edgeconv.errors import OutputRefused, UsageError, unknown_name
from edgeconv.reporting.verdicts import FORMATS, render
from edgeconv.store import is_device, publish_bytes, writable_directory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from edgeconv.types import Checked


def parse_outputs(texts: Sequence[str]) -> dict[Path, str]:
    """The format of each file. Raises `UsageError`: better before the work than after."""
    outputs: dict[Path, str] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not place:
            raise UsageError(
                f"--output {text}: not of the form FORMAT=FILE", hint="as in junit=build/junit.xml"
            )
        if name not in FORMATS:
            raise unknown_name("--output format", name, FORMATS)
        if Path(place) in outputs:
            raise UsageError(f"--output writes {place} twice", hint="give each format a file")
        outputs[Path(place)] = name
    return outputs


def parse_trackers(texts: Sequence[str]) -> list[tuple[ModuleType, str]]:
    """Each tracker with its place. Raises `UsageError`: better before the work than after."""
    from edgeconv.plugins import tracker

    found = []
    for text in texts:
        kind, _, place = text.partition(":")
        module = tracker(kind)
        if not place:
            raise UsageError(
                f"--track {text}: not of the form KIND:PLACE", hint="as in csv:accuracy.csv"
            )
        found.append((module, place))
    return found


def refuse_unwritable(outputs: dict[Path, str]) -> None:
    """Raise `OutputRefused` where a file could not be written: before the work, not after."""
    for path in outputs:
        if is_device(path):
            continue
        writable_directory(path.absolute().parent)
        if path.is_dir():
            raise OutputRefused(f"cannot write {path}: it is a directory", hint="name a file")


def announce(checked: Checked, *, as_json: bool) -> None:
    """Print the verdict; in a job of GitHub Actions, annotate what it is about too."""
    if as_json:
        echo_text(render(checked, "json"))
        return
    echo_text(render(checked, "text", **terminal()), own=COLORS)
    if _is_github():
        echo_text(render(checked, "github-annotations"), own=ANNOTATIONS)


def publish(checked: Checked, outputs: dict[Path, str]) -> None:
    """Write every format asked for, and the summary of a job of GitHub Actions.

    Raises `OutputRefused` for a file that cannot be written, after all the others are.
    """
    refused = []
    for path, name in outputs.items():
        try:
            publish_bytes(render(checked, name).encode(), path)
        except OutputRefused as error:
            refused.append(error)
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if _is_github() and summary:
        try:
            _append(render(checked, "github-summary"), Path(summary))
        except OutputRefused as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _is_github() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def _append(text: str, path: Path) -> None:
    """Add to a file that belongs to others too. Raises `OutputRefused`."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OutputRefused(
            f"cannot write the job's summary {path}: {error.strerror}",
            hint="GITHUB_STEP_SUMMARY must name a file that can be written",
        ) from error
