"""A verdict to where it is asked for: files, trackers, and the summary of a CI job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import OutputRefused, UsageError
from edgeconv.plugins import tracker
from edgeconv.reporting.verdicts import render
from edgeconv.store import is_device, publish_bytes, writable_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from edgeconv.requests.check import CheckRequest
    from edgeconv.types import Checked, Report


class Destinations(NamedTuple):
    """The format of each file to write, and each tracker with its place."""

    outputs: Mapping[Path, str]
    trackers: Sequence[tuple[ModuleType, str]]


def parse_destinations(asked: CheckRequest) -> Destinations:
    """Where a verdict is to go. Raises what is wrong with it before the work, and not after."""
    outputs: dict[Path, str] = {}
    for name, place in asked.outputs:
        path = Path(place)
        if path in outputs:
            raise UsageError(f"--output writes {place} twice", hint="give each format a file")
        outputs[path] = name
        if is_device(path):
            continue
        writable_directory(path.absolute().parent)
        if path.is_dir():
            raise OutputRefused(f"cannot write {path}: it is a directory", hint="name a file")
    trackers = [(tracker(kind), place) for kind, place in asked.trackers]
    for module, place in trackers:
        module.refuse(place)
    return Destinations(outputs, trackers)


def publish(checked: Checked, outputs: Mapping[Path, str]) -> None:
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
    if is_github() and summary:
        try:
            _append(render(checked, "github-summary"), Path(summary))
        except OutputRefused as error:
            refused.append(error)
    if refused:
        raise refused[0]


def track(checked: Checked, reports: Mapping[str, Report], places: Destinations) -> None:
    """Log what was measured. Raises an `EdgeconvError` for a tracker that does not take it."""
    for module, place in places.trackers:
        module.track(checked, reports, place)


def is_github() -> bool:
    """Whether this is a job of GitHub Actions."""
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
