"""Reading a data set in a child process: the functions that `edgeconv.data.reader` calls there.

The child stays (`edgeconv.processes.persistent`), and so does the data set that it has opened. Each
function writes its arrays into the directory of its call, from which the parent maps them.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import msgspec
import numpy as np

from edgeconv.data.handover import write_samples
from edgeconv.data.kinds.function import Returned
from edgeconv.data.load import open_samples
from edgeconv.data.memory import limit_to
from edgeconv.data.samples import SamplesHash
from edgeconv.errors import InputRefused
from edgeconv.processes.tasks import task_directory
from edgeconv.types import DataSource, Preprocessing, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.data.samples import Samples
    from edgeconv.data.source import LocalDataSet

_P = ParamSpec("_P")
_R = TypeVar("_R")


class OpenJob(msgspec.Struct, frozen=True, kw_only=True):
    """What `load.open_samples` is called with, in the parent's `directory`.

    `memory_bytes` is what the process may use, 0 for no limit.
    """

    directory: str
    source: DataSource
    inputs: tuple[TensorSpec, ...]
    preprocessing: dict[str, Preprocessing]
    only_classes: bool
    memory_bytes: int
    returned: Returned | None


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the opened data set; the labels are in labels.npy."""

    count: int
    is_text: bool
    class_names: tuple[str, ...]


class Indices(msgspec.Struct, frozen=True):
    """Samples by their indices."""

    indices: list[int]


class PassJob(msgspec.Struct, frozen=True, kw_only=True):
    """Begin pass `number` over the samples at these indices, `size` at a time."""

    number: int
    indices: list[int]
    size: int
    hashes: bool


class ChunkJob(msgspec.Struct, frozen=True):
    """The next chunk of the pass `number`."""

    number: int


class ArraysWritten(msgspec.Struct, frozen=True):
    """Whether there were arrays to write; `sha256` is that of a whole pass, at its end."""

    has_arrays: bool = True
    sha256: str = ""


_data_sets: list[LocalDataSet] = []
_passes: dict[int, tuple[Iterator[Samples], SamplesHash | None]] = {}


def _refusing(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a lack of memory or of disk space an `InputRefused`."""

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            raise InputRefused(
                f"the samples do not fit into memory: {error}", hint="give fewer or smaller samples"
            ) from error
        except OSError as error:
            raise InputRefused(
                f"the samples cannot be handed over: {error.strerror or error}",
                hint="free some space, or choose another temporary directory with TMPDIR",
            ) from error

    return wrapped


@_refusing
def open_data_set(job: OpenJob) -> Opened:
    """Open the SOURCE, for all calls that follow. Raises as `load.open_samples`."""
    limit_to(job.memory_bytes)
    # The only directory that this process may write to.
    tempfile.tempdir = str(Path.cwd())
    os.chdir(job.directory)
    data_set = open_samples(
        job.source,
        job.inputs,
        preprocessing=job.preprocessing,
        # The parent has refused what is not allowed, and run what is.
        allow_code=True,
        only_classes=job.only_classes,
        returned=job.returned,
    )
    _data_sets.append(data_set)
    if data_set.labels is not None:
        np.save(task_directory() / "labels.npy", data_set.labels, allow_pickle=False)
    return Opened(count=data_set.count, is_text=data_set.is_text, class_names=data_set.class_names)


@_refusing
def take(job: Indices) -> ArraysWritten:
    """Write the samples at these indices, preprocessed."""
    write_samples(_data_sets[0].take(np.array(job.indices, np.intp)), task_directory())
    return ArraysWritten()


@_refusing
def begin_pass(job: PassJob) -> ArraysWritten:
    """Begin a pass, whose chunks `next_chunk` writes."""
    digest = SamplesHash() if job.hashes else None
    chunks = _data_sets[0].chunks(np.array(job.indices, np.intp), job.size, digest)
    _passes[job.number] = chunks, digest
    return ArraysWritten(has_arrays=False)


@_refusing
def next_chunk(job: ChunkJob) -> ArraysWritten:
    """Write the next chunk; after the last one, give the hash of the pass."""
    chunks, digest = _passes[job.number]
    samples = next(chunks, None)
    if samples is None:
        del _passes[job.number]
        return ArraysWritten(has_arrays=False, sha256=digest.hexdigest() if digest else "")
    write_samples(samples, task_directory())
    return ArraysWritten()


@_refusing
def write_stored(job: Indices) -> ArraysWritten:
    """Write the samples as they are stored: I.npy for input I, or I-N.npy for its sample N."""
    columns = _data_sets[0].stored(np.array(job.indices, np.intp))
    for position, column in enumerate(columns.values()):
        if isinstance(column, np.ndarray):
            np.save(task_directory() / f"{position}.npy", column, allow_pickle=False)
            continue
        for number, sample in enumerate(column):
            np.save(task_directory() / f"{position}-{number}.npy", sample, allow_pickle=False)
    return ArraysWritten()


@_refusing
def write_row_hashes(job: Indices) -> ArraysWritten:
    """Write the hash of each stored sample into 0.npy, where they can be had."""
    hashes = _data_sets[0].only(np.array(job.indices, np.intp)).row_hashes()
    if hashes is not None:
        np.save(task_directory() / "0.npy", hashes, allow_pickle=False)
    return ArraysWritten(has_arrays=hashes is not None)
