"""The samples of a conversion: those that calibrate, and those that are held back to verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.errors import UsageError
from edgeconv.store import hash_of
from edgeconv.types import CalibrationRecord
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.conversion.plan import Plan
    from edgeconv.conversion.run import Run
    from edgeconv.data import Samples
    from edgeconv.data.source import DataSet
    from edgeconv.types import DataSource, Signature

_SYNTHETIC_SAMPLES = 4
_SYNTHETIC_SEED = 20240


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The stored samples: those to calibrate with (None: none were given), and the held-back.

    `sha256` is the hash of the held-back ones, `held_back_count` their number, `batch` the leading
    dimension that the model takes.
    """

    calibration: Path | None
    held_back: Path
    held_back_count: int
    sha256: str
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
    request = run.plan.request
    source = source_of(run.plan, signature.key)
    if source is None:
        _refuse_without_samples(run.plan, signature)
        batch = request.batch or data.batch_size(signature.inputs)
        count = _SYNTHETIC_SAMPLES * batch
        made_up = data.synthetic_samples(signature.inputs, count, _SYNTHETIC_SEED, words)
        return Split(
            calibration=None,
            held_back=_store(run, made_up, signature, "held-back"),
            held_back_count=made_up.count,
            sha256=data.sha256_samples(made_up),
            record=None,
            batch=batch,
        )
    with data.opened_samples(
        source,
        signature.inputs,
        preprocessing=request.preprocess.by_input,
        allow_code=run.execution.allow_code,
        allowance=run.execution.allowance,
    ) as opened:
        return split_opened(run, signature, opened)


def split_opened(run: Run, signature: Signature, opened: DataSet) -> Split:
    """Check, split and store the samples of a data set for a signature's inputs."""
    batch = run.plan.request.batch or data.batch_size(signature.inputs)
    calibration, held_back = data.split_calibration(opened, run.plan.request.samples, batch=batch)
    overlap = calibration.count + held_back.count > opened.count
    note = "verified on calibration samples: the source has no others to hold back"
    return Split(
        calibration=_store(run, calibration, signature, "calibration"),
        held_back=_store(run, held_back, signature, "held-back"),
        held_back_count=held_back.count,
        sha256=data.sha256_samples(held_back),
        record=CalibrationRecord(
            signature=signature.key,
            source=opened.text,
            samples=calibration.count,
            sha256=data.sha256_samples(calibration),
            range="minmax",
            inputs=data.input_ranges(calibration),
            suspicions=data.set_suspicions(calibration),
        ),
        batch=batch,
        notes=(note,) if overlap else (),
    )


def inputs_key(signature: Signature) -> str:
    """A key of the samples that a signature takes: those of an equal key serve both."""
    # One sample at a time goes into a dynamic batch as well as into one of 1.
    inputs = [
        (s.name, s.dtype, [abs(size) for size in s.shape[:1]], s.shape[1:])
        for s in signature.inputs
    ]
    return hash_of(signature.key, sorted(inputs))[:16]


def source_of(plan: Plan, key: str) -> DataSource | None:
    """The SOURCE that the plan names for a signature; None where there is none."""
    sources = plan.request.sources
    return sources.get(key, sources.get(""))


def _refuse_without_samples(plan: Plan, signature: Signature) -> None:
    integer = [recipe.name for recipe in plan.recipes if recipe.needs_samples]
    if integer:
        raise UsageError(
            f"calibration samples for signature {signature.key!r} are needed for "
            f"{' and '.join(integer)}",
            hint=f"add --calibration {signature.key}=SOURCE: samples with the inputs "
            f"{quoted(spec.name for spec in signature.inputs)}",
        )


def _store(run: Run, samples: Samples, signature: Signature, name: str) -> Path:
    directory = run.samples / inputs_key(signature) / name
    data.write_samples(samples, directory)
    return directory
