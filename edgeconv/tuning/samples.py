"""The samples of one search: opened, parted, and some of them put into files."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv import data
from edgeconv.conversion.samples import split_opened
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.measure.model_files import float_inputs
from edgeconv.requests.places import source_within
from edgeconv.store import publish_all
from edgeconv.tuning.parts import SampleHalves, archive_of, refuse_shared, split_samples
from edgeconv.types import DataIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from edgeconv.conversion.run import Run
    from edgeconv.conversion.samples import Split
    from edgeconv.data.source import DataSet
    from edgeconv.tuning.asked import Wanted
    from edgeconv.tuning.question import TuneRun
    from edgeconv.types import Execution, Signature, TensorSpec


@dataclass(frozen=True, eq=False)
class Samples:
    """The parts to search and to confirm with, and what calibrates.

    `calibration` is the SOURCE of the samples `calibrating`, `calibration_there` the same as from
    the folder of the recipe. `preprocess` are the steps, without any file.
    """

    parts: SampleHalves
    batch: int
    calibrating: DataSet
    calibration: str
    calibration_there: str
    calibration_identity: DataIdentity
    preprocess: str


@contextlib.contextmanager
def samples_of(
    source: str,
    inputs: tuple[TensorSpec, ...],
    wanted: Wanted,
    kept: Path,
    execution: Execution,
) -> Iterator[Samples]:
    """The samples of a SOURCE for these inputs, to be read within the block.

    Those that calibrate are the user's, or of the part that searches: then they go into
    the file `kept`, for the recipe to name. Raises as `data.opened_samples` and `split_samples` do.
    """
    steps = parse_preprocessing(wanted.preprocess)
    batch = data.batch_size(inputs)
    opening = functools.partial(
        data.opened_samples,
        inputs=inputs,
        preprocessing=steps,
        allow_code=execution.allow_code,
        allowance=execution.allowance,
    )
    with opening(source, only_classes=not wanted.metric) as opened:
        parts = split_samples(opened, wanted.samples, wanted.max_drop, batch)
        calibration, there = wanted.calibration, source_within(wanted.calibration, Path.cwd())
        if not calibration:
            publish_all({kept: archive_of(parts.search, batch)})
            calibration, there = f"npz:{kept}", kept.name
        with opening(calibration) as own:
            if wanted.calibration:
                refuse_shared(own, parts.fresh)
            yield Samples(
                parts=parts,
                batch=batch,
                calibrating=own,
                calibration=calibration,
                calibration_there=there,
                calibration_identity=DataIdentity(
                    source=wanted.calibration or there,
                    samples=own.count,
                    sha256=data.identity(calibration, allow_code=execution.allow_code),
                    preprocessing=describe(steps),
                ),
                preprocess=describe(steps),
            )


class SearchSamples:
    """The samples of one search, opened once it is known what its model takes.

    Leaving it as a context manager closes them.
    """

    def __init__(self, run: TuneRun) -> None:
        self._run = run
        self._open = contextlib.ExitStack()
        self._samples: Samples | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def opened(self) -> Samples:
        """The samples, once they were read for a signature."""
        assert self._samples is not None, "a model has a signature"
        return self._samples

    def split(self, run: Run, signature: Signature, _: Sequence[Sequence[bytes]]) -> Split:
        """What calibrates and what is held back, for `conversion.run.Run`."""
        self._open.close()
        asked = self._run
        self._samples = self._open.enter_context(
            samples_of(
                asked.data,
                float_inputs(signature),
                asked.wanted,
                asked.calibration_file,
                asked.execution,
            )
        )
        return split_opened(run, signature, self._samples.calibrating)
