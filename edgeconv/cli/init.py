"""`edgeconv init`: a commented configuration, by looking at a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgeconv.cli.command import sandbox_option
from edgeconv.cli.printing import echo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import Signature, SourceModel


@click.command("init")
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "--data",
    "data_source",
    metavar="SOURCE",
    help="Labelled samples to measure accuracy on, so that the budget limits its drop.",
)
@click.option(
    "--calibration",
    metavar="SOURCE",
    help="Samples to calibrate with, so that int8 is among the recipes.",
)
@click.option(
    "-o",
    "--out",
    "target",
    type=click.Path(path_type=Path),
    default=Path("edgeconv.toml"),
    show_default=True,
    help="The file to write. It must not be there yet.",
)
@sandbox_option
def command(
    model: Path | None, data_source: str | None, calibration: str | None, target: Path
) -> None:
    """Write a commented edgeconv.toml for MODEL, by looking at it without running it.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras or .h5 file, or
    a float .tflite. Without it, the one model in the current directory is taken. Nothing is
    overwritten.
    """
    from edgeconv.gate.init_config import Start, config_text
    from edgeconv.source import distinct_signatures, inspect_model, refuse_quantized
    from edgeconv.store import publish_new

    _refuse_existing(target)
    path = model or _only_model(Path())
    inspection = inspect_model(path)
    found = inspection.model
    refuse_quantized(found)
    folder = target.parent
    signatures = distinct_signatures(found) if found.kind in _WITH_SIGNATURES else ()
    start = Start(
        inspection=inspection,
        signatures=signatures,
        source=_from(folder, path),
        checkpoint=_checkpoint(folder, path, found),
        data=_source_from(folder, data_source),
        samples=_samples(data_source, signatures),
        calibration=_source_from(folder, calibration),
    )
    publish_new(config_text(start).encode(), target)
    echo(f"configuration: {target}")
    _say_refused(target, path, data_source, calibration)
    echo(_NEXT if data_source else _NEXT_WITHOUT_DATA)


_WITH_SIGNATURES = ("saved_model", "tflite")
_MOST_ENTRIES = 1000
# Where `edgeconv convert` puts what it made.
_PUBLISHED = ".tflites"
_NEXT = "next: look at its budget, and run edgeconv check"
_NEXT_WITHOUT_DATA = "next: give it labelled samples, as data of [bench], and run edgeconv check"


def _say_refused(target: Path, model: Path, *sources: str | None) -> None:
    """Say what of the new configuration its project may not name, and how that is allowed."""
    from edgeconv.config.reach import NOTHING_GRANTED, refusal
    from edgeconv.requests.paths import Reach, source_reach

    named = [each for source in sources if source for each in source_reach(source)]
    for reach in (Reach("path", str(model)), *named):
        if found := refusal(reach, target, NOTHING_GRANTED):
            echo(f"note: {target} {found.message}; that is refused unless you allow it", err=True)
            echo(f"  next: {found.hint}", err=True)


def _refuse_existing(target: Path) -> None:
    """Raise `OutputRefused` where there is a configuration already."""
    from edgeconv.config import FILE_NAME, find_config
    from edgeconv.errors import OutputRefused
    from edgeconv.store import sweep_unfinished

    sweep_unfinished(target.parent)
    found = find_config(target.parent) if target.name == FILE_NAME else None
    if target.exists() or target.is_symlink():
        found = target
    if found is not None:
        raise OutputRefused(
            f"there is a configuration already: {found}",
            hint="`edgeconv config show` prints it; -o names another file",
        )


def _only_model(directory: Path) -> Path:
    """The one model in a directory or its folders. Raises `InputRefused`."""
    from edgeconv.errors import InputRefused

    found = list(_models_in(directory, depth=2))
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(path) for path in found[:10])
    raise InputRefused(
        f"there are {len(found)} models here: {names}" if found else "there is no model here",
        hint="name it: edgeconv init MODEL",
    )


def _models_in(directory: Path, depth: int) -> Iterator[Path]:
    """The models in a directory and, where a folder is none itself, in its folders."""
    from edgeconv.errors import InputRefused
    from edgeconv.source.kinds import find_model

    for entry in sorted(directory.iterdir())[:_MOST_ENTRIES]:
        if entry.name.startswith(".") or entry.suffix == _PUBLISHED:
            continue
        try:
            find_model(entry)
            yield entry
        except InputRefused:
            if depth > 1 and entry.is_dir():
                yield from _models_in(entry, depth - 1)


def _checkpoint(folder: Path, path: Path, model: SourceModel) -> str:
    """The Keras file that `edgeconv train` puts beside a version of a SavedModel."""
    file = path.with_name(f"{path.name}.keras")
    is_version = model.kind == "saved_model" and path.name.isdecimal()
    return _from(folder, file) if is_version and file.is_file() else ""


def _from(folder: Path, path: Path) -> str:
    """A path as a file in `folder` writes it."""
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)


def _source_from(folder: Path, source: str | None) -> str:
    """A SOURCE as a file in `folder` writes it. Raises `UsageError` where it is none."""
    from edgeconv.data.location import parse_location
    from edgeconv.requests.paths import source_within

    if not source:
        return ""
    parse_location(source)
    return source_within(source, Path(os.path.relpath(Path(), folder)))


def _samples(source: str | None, signatures: Sequence[Signature]) -> int:
    """How many samples a SOURCE has for the model; 0 where that takes preprocessing, or code."""
    from edgeconv import data
    from edgeconv.errors import EdgeconvError

    if not source or len(signatures) != 1:
        return 0
    try:
        with data.opened_samples(source, signatures[0].inputs) as opened:
            return opened.count
    except EdgeconvError:
        # `check` says what is wrong, once the file says what is done to the samples.
        return 0
