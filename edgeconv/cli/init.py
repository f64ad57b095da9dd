"""`edgeconv init`: a commented configuration, by looking at a model."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from edgeconv import data
from edgeconv.cli.command import sandbox_option
from edgeconv.cli.printing import echo
from edgeconv.data.location import located, parse_source, refuse_absent
from edgeconv.requests.config.reach import FILE_NAME, NOTHING_GRANTED, find_config, refusal
from edgeconv.requests.texts import Reach, source_reach, source_within
from edgeconv.system.store import publish_new, sweep_unfinished
from edgeconv.types import DataSource, Preprocessing, Signature, SourceModel
from edgeconv.types.errors import EdgeconvError, InputRefused, OutputRefused
from edgeconv.types.words import listed


@click.command("init")
@click.argument("model", required=False, type=click.Path(path_type=Path))
@click.option(
    "--data",
    "data_source",
    metavar="SOURCE",
    help="Labeled samples to measure accuracy on; the budget then limits its drop.",
)
@click.option(
    "--calibration",
    metavar="SOURCE",
    help="Samples to calibrate with; int8 is then among the recipes.",
)
@click.option(
    "-o",
    "--out",
    "target",
    type=click.Path(path_type=Path),
    default=Path("edgeconv.toml"),
    show_default=True,
    help="The file to write, which must not exist.",
)
@sandbox_option
def init(
    model: Path | None, data_source: str | None, calibration: str | None, target: Path
) -> None:
    """Write a commented edgeconv.toml for MODEL, without running it.

    MODEL is a SavedModel directory (or the directory of its versions), a .keras or .h5 file, or a
    float .tflite. The default is the only model in the current directory. Nothing is overwritten.
    """
    from edgeconv.gate.init_config import Start, config_text
    from edgeconv.model.source import distinct_signatures, inspect_model, refuse_quantized

    _refuse_existing(target)
    samples, calibrating = _source(data_source), _source(calibration)
    path = model or _only_model(Path())
    inspection = inspect_model(path, count=False)
    source = inspection.model
    refuse_quantized(source)
    folder = target.parent
    signatures = (
        distinct_signatures(source)
        if source.kind in _WITH_SIGNATURES
        else tuple(filter(None, [inspection.declared]))
    )
    start = Start(
        inspection=inspection,
        signatures=signatures,
        source=_from(folder, path),
        checkpoint=_checkpoint(folder, path, source),
        data=_source_from(folder, samples),
        samples=_samples(samples, signatures),
        calibration=_source_from(folder, calibrating),
    )
    publish_new(config_text(start).encode(), target)
    echo(f"configuration: {target}")
    _print_refused(target, path, samples, calibrating)
    echo(_NEXT if samples else _NEXT_WITHOUT_DATA)


_WITH_SIGNATURES = ("saved_model", "tflite")
_MOST_ENTRIES = 1000
# The ending of the directories that `edgeconv convert` publishes in.
_PUBLISHED = ".tflites"
_NEXT = "next: review its budget, and run edgeconv check"
_NEXT_WITHOUT_DATA = "next: add labeled samples, as data of [bench], and run edgeconv check"


def _print_refused(target: Path, model: Path, *sources: DataSource | None) -> None:
    """Print what the new configuration may not name, how to allow it, and what is not there."""
    named = [each for source in sources if source for each in source_reach(source)]
    for reach in (Reach("path", str(model)), *named):
        if refused := refusal(reach, target, NOTHING_GRANTED):
            echo(f"note: {target} {refused.message}; that is refused unless you allow it", err=True)
            echo(f"  next: {refused.hint}", err=True)
    for source in filter(None, sources):
        try:
            refuse_absent(source)
        except InputRefused as absent:
            echo(f"note: {absent.message}\n  next: {absent.hint}", err=True)


def _refuse_existing(target: Path) -> None:
    """Raise `OutputRefused` if there is a configuration already."""
    sweep_unfinished(target.parent)
    existing = find_config(target.parent) if target.name == FILE_NAME else None
    if target.exists() or target.is_symlink():
        existing = target
    if existing is not None:
        raise OutputRefused(
            f"there is a configuration already: {existing}",
            hint="`edgeconv config show` prints it; -o names another file",
        )


def _only_model(directory: Path) -> Path:
    """The one model in a directory or its folders. Raises `InputRefused`."""
    models = list(_models_in(directory, depth=2))
    if len(models) == 1:
        return models[0]
    raise InputRefused(
        f"there are {len(models)} models here: {listed(models, 10)}"
        if models
        else "there is no model here",
        hint="name it: edgeconv init MODEL",
    )


def _models_in(directory: Path, depth: int) -> Iterator[Path]:
    """The models in a directory and in its folders that are not models."""
    from edgeconv.model.source.kinds import find_model

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
    """The Keras file that `edgeconv train` writes next to a version of a SavedModel."""
    file = path.with_name(f"{path.name}.keras")
    is_version = model.kind == "saved_model" and path.name.isdecimal()
    return _from(folder, file) if is_version and file.is_file() else ""


def _from(folder: Path, path: Path) -> str:
    """A path as a file in `folder` writes it."""
    return str(path) if path.is_absolute() else os.path.relpath(path, folder)


def _source(text: str | None) -> DataSource | None:
    """The SOURCE of a text. Raises `UsageError` or `InputRefused`, also without its data."""
    return located(parse_source(text)) if text else None


def _source_from(folder: Path, source: DataSource | None) -> str:
    """A SOURCE as a file in `folder` writes it."""
    return str(source_within(source, Path(os.path.relpath(Path(), folder)))) if source else ""


def _samples(source: DataSource | None, signatures: Sequence[Signature]) -> int:
    """The samples that a SOURCE has for the model; 0 where they need preprocessing or code."""
    if not source or len(signatures) != 1:
        return 0
    # With steps, even empty ones, samples can be opened that do not fit the model as stored.
    for steps in ({}, {"": Preprocessing()}):
        try:
            with data.opened_samples(source, signatures[0].inputs, preprocessing=steps) as opened:
                return opened.count
        except EdgeconvError:
            continue  # `check` reports it, once the file has the preprocessing.
    return 0
