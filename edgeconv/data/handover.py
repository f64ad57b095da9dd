"""Arrays handed over to another process: as files, samples whole or part by part.

They are written once, mapped by the reader, and read when needed: neither side has all of them in
memory. A part is a directory, named by its number, which its reader removes: only a few are on the
disk.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from edgeconv.data.arrays import read_header
from edgeconv.data.samples import Array, Samples
from edgeconv.errors import InputRefused, OutputRefused
from edgeconv.store.files import read_noun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


_POLL_S = 0.005


class SamplesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """samples.json: `names[i]` is the input that `i.npy` holds (count, *sample_shape) for."""

    names: tuple[str, ...]
    source: str
    count: int


def write_samples(samples: Samples, directory: Path) -> None:
    """Write samples.json, 0.npy, 1.npy … and, with labels, labels.npy into a directory.

    Raises `OutputRefused`.
    """
    index = SamplesFile(names=tuple(samples.arrays), source=samples.source, count=samples.count)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_arrays(samples.arrays.values(), directory)
        if samples.labels is None:
            (directory / "labels.npy").unlink(missing_ok=True)
        else:
            np.save(directory / "labels.npy", samples.labels, allow_pickle=False)
        (directory / "samples.json").write_bytes(msgspec.json.encode(index))
    except OSError as error:
        raise OutputRefused(
            f"cannot write samples to {directory}: {error.strerror or error}",
            hint="free some space, or choose another temporary directory with TMPDIR",
        ) from error


def write_arrays(arrays: Iterable[Array], directory: Path) -> None:
    """Write 0.npy, 1.npy …, of any shapes, into a directory that is there. Raises `OSError`."""
    for position, array in enumerate(arrays):
        np.save(directory / f"{position}.npy", array, allow_pickle=False)


def mapped_arrays(directory: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays, of any shapes, of `write_arrays` by name, mapped; see `mapped`."""
    return {name: mapped(directory / f"{index}.npy") for index, name in enumerate(names)}


def sample_files(directory: Path) -> dict[str, Path]:
    """The .npy file of each input that `write_samples` wrote. Raises `InputRefused`."""
    names = _index(directory).names
    return {name: directory / f"{position}.npy" for position, name in enumerate(names)}


def _index(directory: Path) -> SamplesFile:
    return read_noun(directory / "samples.json", SamplesFile, what="list of samples")


def read_samples(directory: Path) -> Samples:
    """The samples that `write_samples` wrote, mapped from the files and not read yet.

    Raises `InputRefused` where a file is missing.
    """
    index = _index(directory)
    arrays, labels = mapped_samples(directory, index.names, index.count)
    return Samples(arrays, labels, index.source)


def mapped_samples(
    directory: Path, names: Sequence[str], count: int | None = None
) -> tuple[dict[str, Array], Array | None]:
    """The arrays (n, ...) of `write_samples` for the inputs `names`, and the labels if any.

    All have `count` rows, or those of the first. Raises `InputRefused` where they do not.
    """
    arrays: dict[str, Array] = {}
    for position, name in enumerate(names):
        arrays[name] = mapped(directory / f"{position}.npy", count)
        count = len(arrays[name])
    labels = directory / "labels.npy"
    return arrays, mapped(labels, count) if labels.exists() else None


def mapped(path: Path, count: int | None = None) -> Array:
    """The array of a .npy file, mapped and not read yet: of shape (count, ...) with a `count`.

    A child wrote it: a link, which could lead anywhere, is not followed. Raises `InputRefused`
    where it is anything else.
    """
    try:
        with open(path, "rb", opener=_without_links) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputRefused(f"{path} is not a file")
            shape, dtype, in_order = read_header(file, str(path), status.st_size)
            order: Literal["C", "F"] = "C" if in_order else "F"
            array: Array = np.memmap(file, dtype, "r", file.tell(), shape, order)
    except (OSError, ValueError) as error:
        raise InputRefused(f"{path} cannot be read: {error}") from error
    if count is not None and array.shape[:1] != (count,):
        raise InputRefused(f"{path} has shape {array.shape}, and {count} samples were written")
    return np.asarray(array)


def _without_links(path: str, flags: int) -> int:
    # And without waiting, as for the other end of a pipe.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def put_part(samples: Samples, directory: Path, number: int) -> None:
    """Hand over part `number`, counted from 0. Raises `OutputRefused`."""
    unfinished = directory / f"{number}.part"
    write_samples(samples, unfinished)
    unfinished.rename(directory / str(number))


def waiting_parts(directory: Path) -> int:
    """How many parts have been handed over and not been taken."""
    return sum(entry.suffix != ".part" for entry in directory.iterdir())


def take_parts(directory: Path, count: int) -> Iterator[Samples]:
    """The parts in order, waiting for each, until there are `count` samples; each is removed."""
    taken, number = 0, 0
    while taken < count:
        part = directory / str(number)
        while not part.exists():
            time.sleep(_POLL_S)
        samples = read_samples(part)
        yield samples
        taken += samples.count
        number += 1
        shutil.rmtree(part)
