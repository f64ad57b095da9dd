"""The samples of one search: opened, parted, and some of them put into files."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeconv import data
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.requests.places import source_within
from edgeconv.store import publish_all
from edgeconv.tuning.parts import Parts, archive_of, parted, refuse_shared
from edgeconv.types import DataIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.tuning.asked import Wanted
    from edgeconv.types import Execution, TensorSpec

# The order of the layers by sensitivity hardly changes with more.
_RANKING = 128


@dataclass(frozen=True, eq=False)
class Samples:
    """The parts to search and to confirm with, and what calibrates.

    `calibration` is a SOURCE of `calibration_count` samples from here, `calibration_there` the
    same as from the folder of the recipe. `stored` is where some of them are, as the model takes
    them. `preprocess` are the steps, without any file.
    """

    parts: Parts
    batch: int
    calibration: str
    calibration_there: str
    calibration_count: int
    calibration_identity: DataIdentity
    stored: Path
    preprocess: str


@contextlib.contextmanager
def samples_of(
    source: str,
    inputs: tuple[TensorSpec, ...],
    wanted: Wanted,
    kept: Path,
    place: Path,
    execution: Execution,
) -> Iterator[Samples]:
    """The samples of a SOURCE for these inputs, to be read within the block.

    Those that calibrate are the user's, or of the part that searches: then they go into
    the file `kept`, for the recipe to name. What is stored for children goes into `place`.
    Raises as `data.opened_samples` and `parted` do.
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
        parts = parted(opened, wanted.samples, wanted.max_drop, batch)
        calibration, there = wanted.calibration, source_within(wanted.calibration, Path.cwd())
        if not calibration:
            publish_all({kept: archive_of(parts.search, batch)})
            calibration, there = f"npz:{kept}", kept.name
        with opening(calibration) as own:
            if wanted.calibration:
                refuse_shared(own, parts.fresh)
            count = min(own.count, max(_RANKING, batch)) // batch * batch
            indices = np.linspace(0, own.count - 1, count).astype(np.intp)
            stored = place / "ranking"
            data.write_samples(own.take(np.unique(indices)), stored)
        yield Samples(
            parts=parts,
            batch=batch,
            calibration=calibration,
            calibration_there=there,
            calibration_count=own.count,
            calibration_identity=DataIdentity(
                source=wanted.calibration or there,
                samples=own.count,
                sha256=data.identity(calibration, allow_code=execution.allow_code),
                preprocessing=describe(steps),
            ),
            stored=stored,
            preprocess=describe(steps),
        )
