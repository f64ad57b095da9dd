"""Data sets read in a child process: decoders and parsers of foreign bytes run there alone.

The child stays (`PersistentChild`), and so does the data set that it has opened. The
arrays that it writes into the directory of a call are mapped into memory, and their files removed
at once or moved to where they are to stay.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec
import numpy as np

from edgeconv.data.arrays import limit_to
from edgeconv.data.checks import CLASSES, LabelUse
from edgeconv.data.kinds.function import Returned
from edgeconv.data.kinds.tfds import data_directory
from edgeconv.data.location import kind_module, located, readable_of
from edgeconv.data.samples import (
    Array,
    Indices,
    Samples,
    SamplesHash,
    mapped,
    mapped_samples,
    move_samples,
    write_samples,
)
from edgeconv.data.source import DataSet, LocalDataSet, ReadingPass, open_samples
from edgeconv.system.processes.failures import blames_input
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import PendingCall, PersistentChild, task_directory
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, DataSource, Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused, WorkerCrashed

Answer = TypeVar("Answer")
_P = ParamSpec("_P")
_R = TypeVar("_R")

# Their indices alone are 16 GiB.
_MOST_SAMPLES = 1 << 31


class OpenJob(msgspec.Struct, frozen=True, kw_only=True):
    """What `source.open_samples` is called with, in the parent's `directory`.

    `memory_bytes` is what the process may use, 0 for no limit.
    """

    directory: str
    source: DataSource
    inputs: tuple[TensorSpec, ...]
    preprocessing: dict[str, Preprocessing]
    labels: LabelUse
    memory_bytes: int
    returned: Returned | None


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the opened data set; the labels are in labels.npy.

    `inputs` are the model's as they take samples, see `LocalDataSet`.
    """

    count: int
    inputs: tuple[TensorSpec, ...]
    is_text: bool
    class_names: tuple[str, ...]


@contextlib.contextmanager
def opened_samples(
    source: DataSource,
    inputs: tuple[TensorSpec, ...],
    *,
    preprocessing: Mapping[str, Preprocessing] | None = None,
    allow_code: bool = False,
    labels: LabelUse = CLASSES,
    allowance: Allowance = Allowance(),
) -> Iterator[DataSet]:
    """The samples (n, *sample_shape) of a SOURCE, read in a child that ends with the block.

    The arguments, and the errors, are those of `source.open_samples`; the methods of the data set
    raise them too. Each answer of the child may take the time, and the child the memory, of
    `allowance`. Also raises `WorkerTimedOut`, `WorkerOutOfMemory`, and `InputRefused` where
    reading crashes the child.
    """
    source = located(source)
    module = kind_module(source, allow_code=allow_code)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        returned = None
        if hasattr(module, "returned"):
            returned = stack.enter_context(module.returned(source.location, allowance))
        paths = (Path(returned.directory),) if returned else readable_of(source)
        access = Access(reads=tuple(path.absolute() for path in paths))
        reader = Reader(str(source), scratch, access, allowance)
        stack.callback(reader.child.close)
        job = OpenJob(
            directory=str(Path.cwd()),
            source=source,
            inputs=inputs,
            preprocessing=dict(preprocessing or {}),
            labels=labels,
            memory_bytes=allowance.memory_bytes,
            returned=returned,
        )
        yield _opened(reader, job)


def _opened(reader: Reader, job: OpenJob) -> ChildDataSet:
    with reader.answered(reader.child.start(open_data_set, job)) as (opened, directory):
        if not 0 < opened.count <= _MOST_SAMPLES:
            raise InputRefused(
                f"{job.source} has more than {_MOST_SAMPLES:,} samples",
                hint="give fewer, larger samples",
            )
        file = directory / "labels.npy"
        labels = mapped(file, opened.count) if file.exists() else None
    return ChildDataSet(
        reader=reader,
        text=str(job.source),
        inputs=opened.inputs,
        labels=labels,
        is_text=opened.is_text,
        preprocessing=job.preprocessing,
        class_names=opened.class_names,
        at=np.arange(opened.count),
    )


class Reader:
    """The child that reads one SOURCE."""

    def __init__(self, source: str, scratch: Path, access: Access, allowance: Allowance) -> None:
        self._source = source
        self.pass_numbers = itertools.count()
        self.child = PersistentChild(
            label=f"reading {source}",
            scratch=scratch,
            access=access,
            allowance=allowance,
            environment={"TFDS_DATA_DIR": str(data_directory(None))},
        )

    @contextlib.contextmanager
    def answered(self, call: PendingCall[Answer]) -> Iterator[tuple[Answer, Path]]:
        """Wait for an answer, and the directory of its files, which are gone after the block.

        Raises what the child raised, or how it ended: `InputRefused` where reading crashed it.
        """
        try:
            yield call.result(), call.directory
        except WorkerCrashed as error:
            if not blames_input(error):
                raise
            raise InputRefused(
                f"{self._source} cannot be read: {error.message}",
                hint="copy or write it again; it may be damaged",
            ) from error
        finally:
            shutil.rmtree(call.directory, ignore_errors=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class ChildDataSet(DataSet):
    """A data set that the child has opened; `at` are indices of its samples."""

    reader: Reader

    def write(self, indices: Indices, directory: Path) -> Samples:
        """The samples at `indices`, whose files the child writes and `directory` keeps."""
        call = self._start(next(self.reader.pass_numbers), indices)
        with self.reader.answered(call) as (_, written):
            return move_samples(written, directory, self._names, self.text)

    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples at `indices` as they are stored."""
        columns: dict[str, Array | list[Array]] = {}
        with self.reader.answered(self._start(None, indices)) as (_, directory):
            for position, name in enumerate(self._names):
                whole = directory / f"{position}.npy"
                files = (directory / f"{position}-{number}.npy" for number in range(len(indices)))
                columns[name] = (
                    mapped(whole, len(indices)) if whole.exists() else [mapped(f) for f in files]
                )
        return columns

    def _parts(self, parts: Sequence[Indices], digest: SamplesHash | None) -> Iterator[Samples]:
        """The next part is read while one is used."""
        number, last = next(self.reader.pass_numbers), len(parts) - 1
        start = functools.partial(self._start, number, hashes=digest is not None)
        call = start(parts[0], is_last=not last)
        for index in range(len(parts)):
            with self.reader.answered(call) as (answer, directory):
                if index < last:
                    call = start(parts[index + 1], is_last=index + 1 == last)
                arrays, labels = mapped_samples(directory, self._names)
            if digest is not None and index == last:
                digest.take_over(answer.sha256)
            yield Samples(arrays, labels, self.text)

    @property
    def _names(self) -> list[str]:
        return [spec.name for spec in self.inputs]

    def _start(
        self, number: int | None, indices: Indices, *, is_last: bool = True, hashes: bool = False
    ) -> PendingCall[PartWritten]:
        job = PartJob(
            number=number, indices=self.at[indices].tolist(), is_last=is_last, hashes=hashes
        )
        return self.reader.child.start(write_part, job)


class PartJob(msgspec.Struct, frozen=True, kw_only=True):
    """The samples at these indices: the next part of pass `number`, or None as they are stored."""

    indices: list[int]
    number: int | None = None
    is_last: bool = True
    hashes: bool = False


class PartWritten(msgspec.Struct, frozen=True):
    """A part's files are there; `sha256` is the hash of the whole pass, after its last part."""

    sha256: str = ""


# What the child keeps from one call to the next.
_data_sets: list[LocalDataSet] = []
_passes: dict[int, ReadingPass] = {}


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
    """Open the SOURCE, for all calls that follow. Raises as `source.open_samples`."""
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
        labels=job.labels,
        returned=job.returned,
    )
    _data_sets.append(data_set)
    if data_set.labels is not None:
        np.save(task_directory() / "labels.npy", data_set.labels, allow_pickle=False)
    return Opened(
        count=data_set.count,
        inputs=data_set.inputs,
        is_text=data_set.is_text,
        class_names=data_set.class_names,
    )


@_refusing
def write_part(job: PartJob) -> PartWritten:
    """Write the next samples of a pass, preprocessed, or samples as they are stored."""
    data_set, indices = _data_sets[0], np.array(job.indices, np.intp)
    if job.number is None:
        _write_stored(data_set.stored(indices), task_directory())
        return PartWritten()
    reading = _passes.pop(job.number, None)
    if reading is None:
        reading = ReadingPass(data_set, SamplesHash() if job.hashes else None)
    write_samples(reading.read(indices), task_directory())
    if not job.is_last:
        _passes[job.number] = reading
        return PartWritten()
    return PartWritten(reading.digest.hexdigest() if reading.digest else "")


def _write_stored(columns: Mapping[str, Array | list[Array]], directory: Path) -> None:
    """I.npy for input I, or I-N.npy for its sample N."""
    for position, column in enumerate(columns.values()):
        if isinstance(column, np.ndarray):
            np.save(directory / f"{position}.npy", column, allow_pickle=False)
            continue
        for number, sample in enumerate(column):
            np.save(directory / f"{position}-{number}.npy", sample, allow_pickle=False)
