"""The child that reads a data set: what it is asked, what it answers, and its loop.

`python -m edgeconv.data.reading` runs in its scratch directory. It is asked over its stdin and
answers on its stdout, a line of JSON each (see `edgeconv.processes.talk`); samples are handed over
as files in a directory of its scratch, which the parent maps into its memory and removes.
`edgeconv.data.reader` is the other end.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.kinds.function import Returned
from edgeconv.errors import EdgeconvError, InputRefused
from edgeconv.processes.failures import ChildFailure, report_faults
from edgeconv.types import Preprocessing, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.data.samples import Samples, SamplesHash
    from edgeconv.data.source import LocalDataSet

GREETING = b"edgeconv reader 1\n"


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """Open a SOURCE as `load.open_samples` does, in the parent's `directory`.

    `memory_bytes`: what the process may use, 0 for no limit. `returned`: what the function
    that the SOURCE names has returned already.
    """

    directory: str
    source: str
    inputs: tuple[TensorSpec, ...]
    preprocessing: dict[str, Preprocessing]
    only_classes: bool
    memory_bytes: int
    returned: Returned | None = None


class Take(msgspec.Struct, frozen=True, kw_only=True, tag="take"):
    """The samples at these places, in one part."""

    indices: list[int]


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Begin a pass over the samples at these places, `size` at a time; `number` names it."""

    number: int
    indices: list[int]
    size: int
    hashes: bool


class Next(msgspec.Struct, frozen=True, kw_only=True, tag="next"):
    """The next part of a pass."""

    number: int


class Stored(msgspec.Struct, frozen=True, kw_only=True, tag="stored"):
    """The samples at these places as they are stored."""

    indices: list[int]


class Rows(msgspec.Struct, frozen=True, kw_only=True, tag="rows"):
    """The hash of every stored sample at these places."""

    indices: list[int]


Question = Open | Take | Begin | Next | Stored | Rows


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a data set that was opened."""

    count: int
    is_text: bool
    class_names: tuple[str, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of it: `part` is the directory of the samples, "" where there are no more.

    At the end of a pass that hashes there is `sha256`, as `SamplesHash` has it.
    """

    part: str = ""
    sha256: str = ""
    opened: Opened | None = None
    failure: ChildFailure | None = None


class _Reading:
    """A data set at work: its answers."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._parts = 0
        self._source: LocalDataSet
        self._passes: dict[int, tuple[Iterator[Samples], SamplesHash | None]] = {}

    def answer(self, question: Question) -> Answer:
        match question:
            case Open():
                return self._open(question)
            case Take(indices=indices):
                return self._written(self._source.take(_array(indices)))
            case Begin():
                return self._begin(question)
            case Next(number=number):
                return self._next(number)
            case Stored(indices=indices):
                return self._stored(indices)
            case Rows(indices=indices):
                return self._rows(indices)

    def _open(self, job: Open) -> Answer:
        import numpy as np

        from edgeconv.data.load import open_samples
        from edgeconv.data.room import limit_to

        limit_to(job.memory_bytes)
        os.chdir(job.directory)
        self._source = open_samples(
            job.source,
            job.inputs,
            preprocessing=job.preprocessing,
            # The parent has refused what is not allowed, and run what is.
            allow_code=True,
            only_classes=job.only_classes,
            returned=job.returned,
        )
        part = self._new_part()
        if self._source.labels is not None:
            np.save(part / "labels.npy", self._source.labels, allow_pickle=False)
        opened = Opened(
            count=self._source.count,
            is_text=self._source.is_text,
            class_names=self._source.class_names,
        )
        return Answer(part=part.name, opened=opened)

    def _begin(self, job: Begin) -> Answer:
        from edgeconv.data.samples import SamplesHash

        digest = SamplesHash() if job.hashes else None
        chunks = self._source.chunks(_array(job.indices), job.size, digest)
        self._passes[job.number] = chunks, digest
        return Answer()

    def _next(self, number: int) -> Answer:
        chunks, digest = self._passes[number]
        samples = next(chunks, None)
        if samples is not None:
            return self._written(samples)
        del self._passes[number]
        return Answer(sha256=digest.hexdigest() if digest else "")

    def _stored(self, indices: list[int]) -> Answer:
        import numpy as np

        part = self._new_part()
        for position, column in enumerate(self._source.stored(_array(indices)).values()):
            if isinstance(column, np.ndarray):
                np.save(part / f"{position}.npy", column, allow_pickle=False)
                continue
            for number, sample in enumerate(column):
                np.save(part / f"{position}-{number}.npy", sample, allow_pickle=False)
        return Answer(part=part.name)

    def _rows(self, indices: list[int]) -> Answer:
        import numpy as np

        hashes = self._source.only(_array(indices)).row_hashes()
        if hashes is None:
            return Answer()
        part = self._new_part()
        np.save(part / "0.npy", hashes, allow_pickle=False)
        return Answer(part=part.name)

    def _written(self, samples: Samples) -> Answer:
        from edgeconv.data.handover import write_samples

        part = self._new_part()
        write_samples(samples, part)
        return Answer(part=part.name)

    def _new_part(self) -> Path:
        part = self._scratch / f"part-{self._parts}"
        part.mkdir()
        self._parts += 1
        return part


def main() -> None:
    """Answer until there are no more questions."""
    # What is printed, by anyone, goes to the log, and the questions are nobody else's to read.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    scratch = Path.cwd()
    tempfile.tempdir = str(scratch)
    report_faults()
    answers.write(GREETING)
    reading = _Reading(scratch)
    decoder = msgspec.json.Decoder(Question)
    for line in questions:
        answers.write(msgspec.json.encode(_answered(reading, decoder.decode(line))) + b"\n")


def _answered(reading: _Reading, question: Question) -> Answer:
    try:
        return reading.answer(question)
    except EdgeconvError as error:
        return Answer(failure=ChildFailure.of(error))
    except MemoryError as error:
        refused = InputRefused(
            f"the samples do not fit into memory: {error}", hint="give fewer or smaller samples"
        )
        return Answer(failure=ChildFailure.of(refused))
    except OSError as error:
        refused = InputRefused(
            f"the samples cannot be handed over: {error.strerror or error}",
            hint="free some space, or choose another temporary directory with TMPDIR",
        )
        return Answer(failure=ChildFailure.of(refused))


def _array(indices: list[int]) -> Any:
    import numpy as np

    return np.array(indices, np.intp)


if __name__ == "__main__":
    main()
