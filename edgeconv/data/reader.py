"""Data sets read in a child process: decoders and parsers of foreign bytes never run here.

`edgeconv.data.reading` is what the child runs. The arrays that it writes are mapped into memory,
and their files removed at once; they take disk space until the arrays are gone.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from edgeconv.data import reading
from edgeconv.data.handover import mapped, mapped_samples
from edgeconv.data.location import kind_module, located, readable_of
from edgeconv.data.samples import Samples
from edgeconv.data.tfds_layout import data_directory
from edgeconv.errors import InputRefused, WorkerCrashed, WorkerKilled
from edgeconv.processes.persistent import PersistentChild
from edgeconv.processes.sandbox import Access
from edgeconv.store import scratch_directory
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import msgspec

    from edgeconv.data.samples import Array, SamplesHash
    from edgeconv.data.source import DataSet, Indices
    from edgeconv.processes.persistent import PendingCall
    from edgeconv.types import DataSource, Preprocessing, TensorSpec

Answer = TypeVar("Answer")

# Their indices alone are 16 GiB.
_MOST_SAMPLES = 1 << 31


@contextlib.contextmanager
def opened_samples(
    source: DataSource,
    inputs: tuple[TensorSpec, ...],
    *,
    preprocessing: Mapping[str, Preprocessing] | None = None,
    allow_code: bool = False,
    only_classes: bool = True,
    allowance: Allowance = Allowance(),
) -> Iterator[DataSet]:
    """The samples (n, *sample_shape) of a SOURCE, read in a child that ends with the block.

    The arguments, and the errors, are those of `load.open_samples`; the methods of the data set
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
        job = reading.OpenJob(
            directory=str(Path.cwd()),
            source=source,
            inputs=inputs,
            preprocessing=dict(preprocessing or {}),
            only_classes=only_classes,
            memory_bytes=allowance.memory_bytes,
            returned=returned,
        )
        yield _opened(reader, job)


def _opened(reader: Reader, job: reading.OpenJob) -> ChildDataSet:
    with reader.answered(reader.child.start(reading.open_data_set, job)) as (opened, directory):
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
        inputs=job.inputs,
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
        except WorkerKilled:
            raise
        except WorkerCrashed as error:
            raise InputRefused(
                f"{self._source} cannot be read: {error.message}",
                hint="copy or write it again; it may be damaged",
            ) from error
        finally:
            shutil.rmtree(call.directory, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class ChildDataSet:
    """A `LocalDataSet` that is in a child: the same methods, and the same errors.

    `at` are the indices of its samples among those of the child.
    """

    reader: Reader
    text: str
    inputs: tuple[TensorSpec, ...]
    labels: Array | None
    is_text: bool
    preprocessing: Mapping[str, Preprocessing]
    class_names: tuple[str, ...]
    at: Indices

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.at)

    def take(self, indices: Indices) -> Samples:
        """The samples at `indices`; see `LocalDataSet.take`."""
        with self._answered(reading.take, reading.Indices(self._in_child(indices))) as answer:
            return self._samples(answer[1])

    def chunks(
        self, indices: Indices, size: int, digest: SamplesHash | None = None
    ) -> Iterator[Samples]:
        """The samples at `indices`, `size` at a time; see `LocalDataSet.chunks`.

        The next are read while these are used.
        """
        start, number = self.reader.child.start, next(self.reader.pass_numbers)
        job = reading.PassJob(
            number=number,
            indices=self._in_child(indices),
            size=size,
            hashes=digest is not None,
        )
        with self._answered(reading.begin_pass, job):
            pass
        call = start(reading.next_chunk, reading.ChunkJob(number))
        while True:
            with self.reader.answered(call) as (answer, directory):
                if not answer.has_arrays:
                    break
                call = start(reading.next_chunk, reading.ChunkJob(number))
                samples = self._samples(directory)
            yield samples
        if digest is not None:
            digest.take_over(answer.sha256)

    def only(self, indices: Indices) -> ChildDataSet:
        """The samples at `indices` as another data set."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, at=self.at[indices], labels=labels)

    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples as they are stored; see `LocalDataSet.stored`."""
        columns: dict[str, Array | list[Array]] = {}
        job = reading.Indices(self._in_child(indices))
        with self._answered(reading.write_stored, job) as (_, directory):
            for position, spec in enumerate(self.inputs):
                whole = directory / f"{position}.npy"
                files = (directory / f"{position}-{number}.npy" for number in range(len(indices)))
                columns[spec.name] = (
                    mapped(whole, len(indices)) if whole.exists() else [mapped(f) for f in files]
                )
        return columns

    def row_hashes(self) -> Array | None:
        """The hash of each stored sample; see `LocalDataSet.row_hashes`."""
        job = reading.Indices(self.at.tolist())
        with self._answered(reading.write_row_hashes, job) as (answer, directory):
            return mapped(directory / "0.npy", self.count) if answer.has_arrays else None

    def _in_child(self, indices: Indices) -> list[int]:
        chosen: list[int] = self.at[indices].tolist()
        return chosen

    def _answered(
        self, function: Callable[[Any], Answer], job: msgspec.Struct
    ) -> contextlib.AbstractContextManager[tuple[Answer, Path]]:
        return self.reader.answered(self.reader.child.start(function, job))

    def _samples(self, directory: Path) -> Samples:
        arrays, labels = mapped_samples(directory, [spec.name for spec in self.inputs])
        return Samples(arrays, labels, self.text)
