"""The samples of a conversion: those that calibrate, and those that are held back to verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.nouns import CalibrationRecord

if TYPE_CHECKING:
    from edgeconv.data import Samples
    from edgeconv.nouns import TensorSpec
    from edgeconv.stages import Run

_SYNTHETIC_SAMPLES = 4
_SYNTHETIC_SEED = 20240


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The stored samples: those to calibrate with (None: none were given), and the held-back.

    `batch` is the leading dimension that the model takes.
    """

    calibration: Path | None
    held_back: Path
    record: CalibrationRecord | None
    batch: int
    notes: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether the samples are made up."""
        return self.calibration is None


def split_samples(run: Run, inputs: tuple[TensorSpec, ...]) -> Split:
    """Read, check, split and store the samples; made-up ones where none were given."""
    plan = run.plan
    batch = plan.batch or data.batch_size(inputs)
    if plan.calibration is None:
        made_up = data.synthetic_samples(inputs, _SYNTHETIC_SAMPLES * batch, _SYNTHETIC_SEED)
        return Split(
            calibration=None, held_back=_store(run, made_up, "held-back"), record=None, batch=batch
        )
    samples = data.open_samples(
        plan.calibration,
        inputs,
        preprocessing={},
        allow_code=run.execution.allow_code,
    )
    calibration, held_back = data.split_calibration(samples, plan.samples, batch=batch)
    record = CalibrationRecord(
        source=plan.calibration,
        samples=calibration.count,
        sha256=data.sha256_samples(calibration),
        range=next((r.calibration_range for r in plan.recipes if r.full_integer), "minmax"),
    )
    overlap = calibration.count + held_back.count > samples.count
    note = "verified on calibration samples: the source has no others to hold back"
    return Split(
        calibration=_store(run, calibration, "calibration"),
        held_back=_store(run, held_back, "held-back"),
        record=record,
        batch=batch,
        notes=(note,) if overlap else (),
    )


def _store(run: Run, samples: Samples, name: str) -> Path:
    directory = run.scratch / name
    data.write_samples(samples, directory)
    return directory
