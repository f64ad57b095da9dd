"""What every model of a bench shares: the evaluation set, read a part at a time, and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeconv import data
from edgeconv.runtimes.interface import RuntimeSettings

if TYPE_CHECKING:
    from edgeconv.data.samples import Array
    from edgeconv.data.source import DataSet
    from edgeconv.types import Execution, Measuring

# Small parts wake a process often, which then finds less of the model in its caches. Memory for
# larger arrays comes from the system each time.
_PART_BYTES = 16 << 20
_TOGETHER_BYTES = 512 << 20
_MOST = 1024
# How many samples are `first`, rounded to whole batches.
_FIRST = 64


class EvaluationSet:
    """Chosen samples of a data set, or synthetic samples.

    `indices`, ascending, are those in the source. `sha256` is the hash of the samples before any
    preprocessing, which the first pass over all parts computes.
    """

    def __init__(self, source: DataSet | data.Samples, count: int | None, batch: int) -> None:
        """`count` of None takes all. Raises as `data.seeded_choice` does."""
        self._source = source
        self.batch = batch
        self.indices = data.chosen_indices(source, source.count if count is None else count)
        data.check_whole_batches("the request is for", self.count, batch)
        self.text = source.source if isinstance(source, data.Samples) else source.text
        self.labels: Array | None = None
        if source.labels is not None:
            self.labels = source.labels[self.indices]
        self._sha256 = ""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.indices)

    @property
    def is_made_up(self) -> bool:
        """Whether the samples are synthetic."""
        return isinstance(self._source, data.Samples)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the labels 0, 1, …, where they are known."""
        return () if isinstance(self._source, data.Samples) else self._source.class_names

    @property
    def sha256(self) -> str:
        """The hash of the stored samples and their labels, as `data.SamplesHash` has it."""
        if not self._sha256:
            for _ in self.parts(self.part_size()):
                pass
        return self._sha256

    @cached_property
    def first(self) -> data.Samples:
        """The first 64, or all where there are fewer, in whole batches."""
        count = max(_FIRST // self.batch, 1) * self.batch
        return self._source.take(self.indices[:count])

    def part_size(self, unit: int = 1, workers: int = 1) -> int:
        """How many samples make a part: a multiple of `unit` and of the batch, some megabytes."""
        size = sum(array[:1].nbytes for array in self.first.arrays.values())
        part_bytes = min(_PART_BYTES, _TOGETHER_BYTES // workers)
        most = min(part_bytes // max(1, size), _MOST, -(-self.count // (8 * workers)))
        whole = int(np.lcm(unit, self.batch))
        return max(1, most // whole) * whole

    def parts(self, size: int) -> Iterator[data.Samples]:
        """All of them, `size` at a time, read when needed; see `DataSet.chunks`."""
        if self._sha256:
            yield from self._chunks(size)
            return
        digest = data.SamplesHash()
        yield from self._chunks(size, digest)
        self._sha256 = digest.hexdigest()

    def _chunks(self, size: int, digest: data.SamplesHash | None = None) -> Iterator[data.Samples]:
        if not isinstance(self._source, data.Samples):
            yield from self._source.chunks(self.indices, size, digest)
            return
        for start in range(0, self.count, size):
            part = self._source.take(self.indices[start : start + size])
            if digest:
                digest.update(part)
            yield part


@dataclass(frozen=True)
class BenchRun:
    """One bench: the evaluation set, what to measure, and how.

    `reads` are directories of models that one process is to run one after the other.
    """

    samples: EvaluationSet
    measuring: Measuring
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]
    reads: tuple[Path, ...] = ()

    def settings(self) -> RuntimeSettings:
        """The settings of the runtimes."""
        return RuntimeSettings(
            scratch=self.scratch,
            threads=self.measuring.threads,
            accelerator=self.measuring.accelerator,
            python=self.measuring.python,
            binary=self.measuring.binary,
            allowance=self.execution.allowance,
            reads=self.reads,
            on_progress=self.on_progress,
        )
