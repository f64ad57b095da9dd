"""Depfiles, the files that a result depends on, in the format of Make, Ninja and CMake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.data.location import located, parse_source
from edgeconv.embedding.plan import RECORD
from edgeconv.errors import InputRefused, UsageError
from edgeconv.reporting.last_check import verdict_file
from edgeconv.store import publish_bytes
from edgeconv.store.converted import was_converted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edgeconv.embedding.plan import EmbedPlan
    from edgeconv.types import DataSource

# Kinds of data that have no path.
_NO_FILES = frozenset({"function", "sklearn", "tfds"})


def dependencies(request: EmbedPlan) -> tuple[Path, ...]:
    """All existing files that an embedding depends on, absolute and sorted.

    They are the .tflite, its manifest, the verdict of its last check, the labels and the data. For
    a .tflite converted here, also the trained model and the calibration samples; another's manifest
    could name the whole disk.
    """
    artifact = request.published.artifact
    is_ours = was_converted(artifact.source_path, artifact.source_sha256)
    sources = [request.data] if request.data else []
    sources += [parse_source(record.source) for record in artifact.calibration if is_ours]
    model = request.published.model
    roots = [model, request.published.manifest, verdict_file(model)]
    roots += [Path(artifact.source_path)] if is_ours else []
    roots += [request.labels_file] if request.labels_file else []
    roots += [path for source in sources if (path := _data_path(source))]
    return tuple(sorted({file.absolute() for root in roots for file in _files(root)}))


def write_depfile(request: EmbedPlan, depfile: Path, result: str = "") -> None:
    """Write the rule for what is embedded, called `result`. Raises `OutputRefused`."""
    target = result or str((request.directory / RECORD).absolute())
    publish_bytes(make_rule(target, dependencies(request)), depfile)


def make_rule(target: str, files: Iterable[Path]) -> bytes:
    """The rule `target: files`, and an empty rule for each file, so that it may be deleted."""
    names = [_escaped(str(file)) for file in files]
    rule = f"{_escaped(target)}:" + "".join(f" \\\n  {name}" for name in names) + "\n"
    return (rule + "".join(f"\n{name}:\n" for name in names)).encode()


def _data_path(source: DataSource) -> Path | None:
    """The path of the data of a SOURCE, None without one."""
    try:
        kind = located(source).kind
    except (InputRefused, UsageError):
        return None  # It was deleted since the conversion.
    return None if kind in _NO_FILES else Path(source.location)


def _files(root: Path) -> list[Path]:
    """The file, or a directory with all files and directories in it."""
    if not root.is_dir():
        return [root] if root.exists() else []
    return [root, *(path for path in root.rglob("*") if path.exists())]


def _escaped(path: str) -> str:
    """A path as Make and Ninja read it."""
    if "\n" in path:
        raise UsageError(f"{path!r} has a newline, which a depfile cannot contain")
    escaped = path.replace("\\", "\\\\")
    for sign in (" ", "#"):
        escaped = escaped.replace(sign, "\\" + sign)
    return escaped.replace("$", "$$")
