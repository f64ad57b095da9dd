"""Data sets read in a child process: decoders and parsers of foreign bytes never run here.

`edgeconv.data.reading` is the child. What it hands over lies in files, which are mapped into
memory and removed at once; they take room until the arrays are gone.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import tempfile
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.data import reading
from edgeconv.data.handover import mapped, mapped_samples
from edgeconv.data.location import kind_module, parse_location, readable_of
from edgeconv.data.samples import Samples
from edgeconv.data.tfds_layout import data_directory
from edgeconv.errors import InputRefused, ToolFailed, WorkerCrashed, WorkerKilled
from edgeconv.processes.sandbox import Access
from edgeconv.processes.talk import Talk
from edgeconv.processes.workers import Child
from edgeconv.store import scratch_directory
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.data.samples import Array, SamplesHash
    from edgeconv.data.source import DataSet, Indices
    from edgeconv.types import Preprocessing, TensorSpec

# Their places alone are 16 GiB.
_MOST_SAMPLES = 1 << 31
_PART = re.compile(r"part-\d+")


@contextlib.contextmanager
def opened_samples(
    source: str,
    inputs: tuple[TensorSpec, ...],
    *,
    preprocessing: Mapping[str, Preprocessing] | None = None,
    allow_code: bool = False,
    only_classes: bool = True,
    allowance: Allowance = Allowance(),
) -> Iterator[DataSet]:
    """What a SOURCE has for the model's inputs, read in a child that ends with the block.

    The arguments are those of `load.open_samples`, and what it raises is raised here, by the
    methods of the data set as well. Each answer of the child may take the time, and the child
    the memory, of `allowance`; it raises `WorkerTimedOut` or `WorkerOutOfMemory` beyond, and
    `InputRefused` where reading crashes it.
    """
    location = parse_location(source)
    module = kind_module(source, location.kind, allow_code=allow_code)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory())
        returned = None
        if hasattr(module, "returned"):
            returned = stack.enter_context(module.returned(location.place, allowance))
        paths = (Path(returned.directory),) if returned else readable_of(location)
        reads = tuple(path.absolute() for path in paths)
        reader = stack.enter_context(Reader(source, scratch, Access(reads=reads), allowance))
        job = reading.Open(
            directory=str(Path.cwd()),
            source=source,
            inputs=inputs,
            preprocessing=dict(preprocessing or {}),
            only_classes=only_classes,
            memory_bytes=allowance.memory_bytes,
            returned=returned,
        )
        yield _opened(reader, job)


def _opened(reader: Reader, job: reading.Open) -> ChildDataSet:
    answer = reader.ask(job).answer()
    if answer.opened is None or not 0 < answer.opened.count <= _MOST_SAMPLES:
        raise InputRefused(
            f"{job.source} has more than {_MOST_SAMPLES:,} samples", hint="give fewer, larger ones"
        )
    with reader.part(answer) as part:
        file = part / "labels.npy"
        labels = mapped(file, answer.opened.count) if file.exists() else None
    return ChildDataSet(
        reader=reader,
        text=job.source,
        inputs=job.inputs,
        labels=labels,
        is_text=answer.opened.is_text,
        preprocessing=job.preprocessing,
        class_names=answer.opened.class_names,
        at=np.arange(answer.opened.count),
    )


class Reader(Talk):
    """The child. Questions are answered in their order, each when its answer is wanted."""

    def __init__(self, source: str, scratch: Path, access: Access, allowance: Allowance) -> None:
        self._source = source
        self._directory = Path(tempfile.mkdtemp(prefix="reading-", dir=scratch))
        self._waiting: deque[Waiting] = deque()
        self._passes = 0
        child = Child(
            [sys.executable, "-m", "edgeconv.data.reading"],
            label=f"reading {source}",
            cwd=self._directory,
            access=access,
            allowance=allowance,
            environment={"TFDS_DATA_DIR": str(data_directory(None))},
            talks=True,
        )
        super().__init__(child, greeting=reading.GREETING)

    def ask(self, question: reading.Question) -> Waiting:
        """Send a question: the child works at it meanwhile."""
        with self._blamed(), self.waited_for():
            self.write(msgspec.json.encode(question) + b"\n")
        waiting = Waiting(self)
        self._waiting.append(waiting)
        return waiting

    def begin(self, indices: Indices, size: int, *, hashes: bool) -> int:
        """Begin a pass; its number."""
        self._passes += 1
        begin = reading.Begin(
            number=self._passes, indices=indices.tolist(), size=size, hashes=hashes
        )
        self.ask(begin).answer()
        return self._passes

    def receive(self) -> None:
        """Wait for the answer to the oldest question."""
        with self._blamed(), self.waited_for():
            line = self.line()
        try:
            answer = msgspec.json.decode(line, type=reading.Answer)
        except msgspec.DecodeError as error:
            raise ToolFailed(f"{self.label} answered what is no answer: {error}") from error
        self._waiting.popleft().given = answer

    @contextlib.contextmanager
    def part(self, answer: reading.Answer) -> Iterator[Path]:
        """The directory of an answer's files, which are gone after the block."""
        if not _PART.fullmatch(answer.part):
            raise InputRefused(f"{self._source}: reading it gave no files: {answer.part[:40]!r}")
        path = self._directory / answer.part
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def _blamed(self) -> Iterator[None]:
        """What a crash of the child in the block means."""
        try:
            yield
        except WorkerKilled:
            raise
        except WorkerCrashed as error:
            raise InputRefused(
                f"{self._source} cannot be read: {error.message}",
                hint="copy or write it again; it may be damaged",
            ) from error


@dataclass(eq=False)
class Waiting:
    """A question that was asked, and its answer once there is one."""

    reader: Reader
    given: reading.Answer | None = None

    def answer(self) -> reading.Answer:
        """Wait for it. Raises what the child said, or how it ended."""
        while self.given is None:
            self.reader.receive()
        if self.given.failure is not None:
            raise self.given.failure.error()
        return self.given


@dataclass(frozen=True, eq=False)
class ChildDataSet:
    """A `LocalDataSet` that is in a child: the same methods, and the same errors.

    `at` are its samples among those of the child.
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
        return self._samples(self._ask(reading.Take(indices=self.at[indices].tolist())))

    def chunks(
        self, indices: Indices, size: int, digest: SamplesHash | None = None
    ) -> Iterator[Samples]:
        """The samples at `indices`, `size` at a time; see `LocalDataSet.chunks`.

        The next are read while these are used.
        """
        number = self.reader.begin(self.at[indices], size, hashes=digest is not None)
        question = reading.Next(number=number)
        answer = self._ask(question)
        while answer.part:
            ahead = self.reader.ask(question)
            yield self._samples(answer)
            answer = ahead.answer()
        if digest is not None:
            digest.told(answer.sha256)

    def only(self, indices: Indices) -> ChildDataSet:
        """The samples at `indices` as a data set of their own."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, at=self.at[indices], labels=labels)

    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples as they are stored; see `LocalDataSet.stored`."""
        answer = self._ask(reading.Stored(indices=self.at[indices].tolist()))
        found: dict[str, Array | list[Array]] = {}
        with self.reader.part(answer) as part:
            for position, spec in enumerate(self.inputs):
                whole = part / f"{position}.npy"
                files = (part / f"{position}-{number}.npy" for number in range(len(indices)))
                found[spec.name] = (
                    mapped(whole, len(indices)) if whole.exists() else [mapped(f) for f in files]
                )
        return found

    def row_hashes(self) -> Array | None:
        """The hash of each stored sample; see `LocalDataSet.row_hashes`."""
        answer = self._ask(reading.Rows(indices=self.at.tolist()))
        if not answer.part:
            return None
        with self.reader.part(answer) as part:
            return mapped(part / "0.npy", self.count)

    def _ask(self, question: reading.Question) -> reading.Answer:
        return self.reader.ask(question).answer()

    def _samples(self, answer: reading.Answer) -> Samples:
        with self.reader.part(answer) as part:
            arrays, labels = mapped_samples(part, [spec.name for spec in self.inputs])
        return Samples(arrays, labels, self.text)
