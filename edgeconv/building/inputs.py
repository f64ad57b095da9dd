"""The input files of a build step, as its configuration names them.

The manifest may name those of another checkout, because the cache is shared.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.data.location import NO_FILES, located, roots_of
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeconv.types import DataSource


class Inputs(NamedTuple):
    """Absolute files, globs and directories, which may be missing.

    `are_all`: with the options and tools, they determine the result of the step.
    """

    roots: tuple[Path, ...]
    are_all: bool

    def files(self) -> tuple[Path, ...]:
        """The files and directories at and below the roots, sorted."""
        return tuple(sorted({file for root in self.roots for file in _with_content(root)}))


def inputs(paths: Iterable[Path], sources: Iterable[DataSource]) -> Inputs:
    """The paths, and those that the SOURCEs read. A wrong SOURCE is refused when it is read."""
    chosen = [_located(source) for source in sources]
    roots = [*paths, *(root for source in chosen for root in roots_of(source))]
    are_all = not any(source.kind in NO_FILES for source in chosen)
    return Inputs(roots=tuple(dict.fromkeys(map(Path.absolute, roots))), are_all=are_all)


def _located(source: DataSource) -> DataSource:
    try:
        return located(source)
    except (InputRefused, UsageError):
        return source


def _with_content(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from _below(root, frozenset())
    elif root.exists() or not glob.has_magic(str(root)):
        yield root
    else:
        # A glob, and the directory where a new file may match it.
        yield from (Path(name) for name in glob.glob(str(root)))  # noqa: PTH207
        fixed = [each for each in root.parents if not glob.has_magic(str(each))]
        yield fixed[0]


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """A directory and its content, also behind links, except those to a directory above."""
    real = directory.resolve()
    if real in above:
        return
    yield directory
    for path in directory.iterdir():
        if path.is_dir():
            yield from _below(path, above | {real})
        elif path.is_file():
            yield path
