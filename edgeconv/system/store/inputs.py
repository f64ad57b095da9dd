"""What a verb reads, which it never replaces by what it writes.

`reading` holds for one verb; `also_reading` adds what is found later, such as the models of a
configuration. Every file that is published is compared; a verb with long work asks before it.
"""

from __future__ import annotations

import glob
import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_READ: ContextVar[list[Path] | None] = ContextVar("read", default=None)
# What a directory of samples has. Other files may be there too, such as an earlier report.
_SAMPLES = re.compile(r".*\.(bmp|gif|jpe?g|np[yz]|parquet|png|tfrecord|tiff?|wav|webp)")


@contextmanager
def reading(paths: Iterable[Path]) -> Iterator[None]:
    """For the block, the files, globs and directories that a verb reads."""
    token = _READ.set([*(_READ.get() or ()), *paths])
    try:
        yield
    finally:
        _READ.reset(token)


def also_reading(paths: Iterable[Path]) -> None:
    """Further ones, until the verb ends; outside of a verb nothing."""
    if (read := _READ.get()) is not None:
        read += [path for path in paths if path not in read]


def refuse_inputs(targets: Iterable[Path], further: Iterable[Path] = ()) -> None:
    """Raise `UsageError` if a target is a file that is read, under whichever name.

    `further` are read too. For a directory these are samples, and all files of a SavedModel.
    Devices and pipes are never inputs.
    """
    read = [*(_READ.get() or ()), *further]
    for target in targets:
        if found := next((path for path in read if _is_changed_by(target, path)), None):
            raise UsageError(
                f"writing {target} would change {found}, which is read", hint="choose another path"
            )


def _is_changed_by(target: Path, read: Path) -> bool:
    try:
        is_special = target.exists() and not target.is_file()
        return not is_special and _would_change(target, read)
    except (OSError, ValueError):
        # A name that the system does not take is of no file.
        return False


def _would_change(target: Path, read: Path) -> bool:
    real = Path(os.path.realpath(target))
    if read.is_dir():
        top = Path(os.path.realpath(read))
        folders = [each for each in real.parents if each == top or top in each.parents]
        is_of_model = any((each / "saved_model.pb").is_file() for each in folders)
        is_sample = bool(folders and _SAMPLES.fullmatch(real.name.lower()) and real.is_file())
        return is_of_model or is_sample
    if real.is_file() and (files := [*_files(read)]):
        return any(real.samefile(file) for file in files)
    return str(real) == os.path.realpath(read)


def _files(read: Path) -> Iterator[Path]:
    """The file, or those that match a glob."""
    names = [str(read)] if read.exists() else glob.glob(str(read))  # noqa: PTH207
    yield from (Path(name) for name in names if Path(name).is_file())
