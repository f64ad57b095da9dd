"""The samples of a conversion: those that calibrate, and those that are held back to verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.conversion.plan import refuse_changed_samples
from edgeconv.errors import UsageError
from edgeconv.store import hash_of
from edgeconv.types import CalibrationRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.conversion.plan import Plan
    from edgeconv.conversion.run import Run
    from edgeconv.data import Samples
    from edgeconv.types import Signature

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


def split_samples(run: Run, signature: Signature, words: Sequence[Sequence[bytes]] = ()) -> Split:
    """Read, check, split and store a signature's samples; made-up ones where none were given.

    `words` are the vocabularies that made-up strings are taken from.
    """
    plan, inputs = run.plan, signature.inputs
    asked = plan.asked
    batch = asked.batch or data.batch_size(inputs)
    named = signature.key if signature.key in asked.sources else ""
    source = asked.sources.get(named)
    if source is None:
        _refuse_without_samples(plan, signature)
        count = _SYNTHETIC_SAMPLES * batch
        made_up = data.synthetic_samples(inputs, count, _SYNTHETIC_SEED, words)
        held_back = _store(run, made_up, signature, "held-back")
        return Split(calibration=None, held_back=held_back, record=None, batch=batch)
    with data.opened_samples(
        source,
        inputs,
        preprocessing=asked.preprocess.by_input,
        allow_code=run.execution.allow_code,
        allowance=run.execution.allowance,
    ) as opened:
        calibration, held_back_samples = data.split_calibration(opened, asked.samples, batch=batch)
    record = CalibrationRecord(
        signature=signature.key,
        source=source,
        samples=calibration.count,
        sha256=data.sha256_samples(calibration),
        range=next((r.calibration_range for r in plan.recipes if r.has_ranges), "minmax"),
    )
    stored = [
        _store(run, samples, signature, name)
        for samples, name in ((calibration, "calibration"), (held_back_samples, "held-back"))
    ]
    refuse_changed_samples(
        source, plan.calibration_identity[named], allow_code=run.execution.allow_code
    )
    overlap = calibration.count + held_back_samples.count > opened.count
    note = "verified on calibration samples: the source has no others to hold back"
    return Split(
        calibration=stored[0],
        held_back=stored[1],
        record=record,
        batch=batch,
        notes=(note,) if overlap else (),
    )


def check_samples(run: Run, signature: Signature) -> None:
    """Raise what `split_samples` would, as far as a signature before its export tells.

    Its names and its fixed dimensions are those that the model is going to have. A SOURCE that
    runs code is not looked at: it may take long, and is run again.
    """
    asked = run.plan.asked
    named = signature.key if signature.key in asked.sources else ""
    source = asked.sources.get(named)
    if source and not data.runs_code(source):
        with data.opened_samples(
            source,
            signature.inputs,
            preprocessing=asked.preprocess.by_input,
            allowance=run.execution.allowance,
        ):
            pass


def _refuse_without_samples(plan: Plan, signature: Signature) -> None:
    integer = [recipe.name for recipe in plan.recipes if recipe.calibrates]
    if integer:
        raise UsageError(
            f"{' and '.join(integer)} need calibration samples for signature {signature.key!r}",
            hint=f"--calibration {signature.key}=SOURCE",
        )


def _store(run: Run, samples: Samples, signature: Signature, name: str) -> Path:
    directory = run.scratch / "samples" / hash_of(signature.key)[:16] / name
    data.write_samples(samples, directory)
    return directory
