"""The files that a step of a build stands on, as its configuration names them.

Not as the manifest does: that may have been made in another checkout, from a shared cache.
"""

from __future__ import annotations

import glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.data.location import NO_FILES, Location, parse_location, roots_of
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Inputs(NamedTuple):
    """Files, globs and directories, absolute, also such as are not there.

    `are_all`: nothing else decides what the step makes, but the options and the tools.
    """

    roots: tuple[Path, ...]
    are_all: bool

    def files(self) -> tuple[Path, ...]:
        """The files and directories at the roots with all that is in them, sorted."""
        return tuple(sorted({file for root in self.roots for file in _with_content(root)}))


def inputs(places: Iterable[Path], sources: Iterable[str]) -> Inputs:
    """The places, and those that the SOURCEs read.

    Raises nothing: a SOURCE that is not understood is refused when it is read.
    """
    located = [location for source in sources if (location := _location(source))]
    roots = [*places, *(root for location in located for root in roots_of(location))]
    are_all = not any(location.kind in NO_FILES for location in located)
    return Inputs(roots=tuple(dict.fromkeys(map(Path.absolute, roots))), are_all=are_all)


def _location(source: str) -> Location | None:
    try:
        return parse_location(source)
    except (InputRefused, UsageError):
        place = source.partition("?")[0]
        return Location("", place, {}) if place else None


def _with_content(root: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from _below(root, frozenset())
    elif root.exists() or not glob.has_magic(str(root)):
        yield root
    else:
        # A glob, and where another file may come to match it.
        yield from (Path(name) for name in glob.glob(str(root)))  # noqa: PTH207
        fixed = [each for each in root.parents if not glob.has_magic(str(each))]
        yield fixed[0]


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """A directory and all in it, also where a link leads to; not a link back to one above."""
    real = directory.resolve()
    if real in above:
        return
    yield directory
    for path in directory.iterdir():
        if path.is_dir():
            yield from _below(path, above | {real})
        elif path.is_file():
            yield path
