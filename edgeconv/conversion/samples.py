"""The samples of a conversion: those that calibrate, and those that are held back to verify."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.conversion.states import find_states
from edgeconv.system.store import hash_of
from edgeconv.types import CalibrationRecord
from edgeconv.types.conversion import OVERLAPPING
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from edgeconv.conversion.plan import Plan
    from edgeconv.conversion.run import Run
    from edgeconv.data import Samples
    from edgeconv.data.source import DataSet
    from edgeconv.types import DataSource, Signature, TensorSpec

_SYNTHETIC_SAMPLES = 4
_SYNTHETIC_SEED = 20240


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The stored samples: those to calibrate with (None: none were given), and the held-back.

    `sha256` is the hash of the held-back ones, `held_back_count` their number, `batch` the leading
    dimension that the model takes. `stacked` names the inputs without a batch dimension: their
    samples are stacked on a new first axis, and taken one at a time. `states` has the
    output that is fed back to an input with the next sample, by input: samples are in their order.
    """

    calibration: Path | None
    held_back: Path
    held_back_count: int
    sha256: str
    record: CalibrationRecord | None
    batch: int
    stacked: frozenset[str] = frozenset()
    states: dict[str, str] = {}
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
        inputs = data.synthetic_inputs(signature.inputs)
        batch = request.batch or data.batch_size(inputs)
        count = _SYNTHETIC_SAMPLES * batch
        made_up = data.synthetic_samples(inputs, count, _SYNTHETIC_SEED, words)
        states = find_states(signature, request.states)
        for name in states:
            made_up.arrays[name][...] = 0
        directory = _directory(run, signature, "held-back")
        data.write_samples(made_up, directory)
        return Split(
            calibration=None,
            held_back=directory,
            held_back_count=made_up.count,
            sha256=data.sha256_samples(made_up),
            record=None,
            batch=batch,
            stacked=_stacked(signature, inputs),
            states=states,
        )
    opening = functools.partial(
        data.opened_samples,
        source,
        preprocessing=request.preprocess.by_input,
        allow_code=run.execution.allow_code,
        labels=data.LabelUse(
            needs="if classes", outputs=tuple(spec.name for spec in signature.outputs)
        ),
        allowance=run.execution.allowance,
    )
    states = find_states(signature, request.states)
    inputs = _given_inputs(opening, signature, states) if states else signature.inputs
    with opening(inputs=inputs) as opened:
        return split_opened(run, signature, opened)


def _given_inputs(
    opening: Callable[..., AbstractContextManager[DataSet]],
    signature: Signature,
    states: Mapping[str, str],
) -> tuple[TensorSpec, ...]:
    """The inputs that the source has samples for: maybe those without the states.

    Raises the `InputRefused` for all inputs where there are no samples for these either.
    """
    try:
        with opening(inputs=signature.inputs):
            return signature.inputs
    except InputRefused:
        others = tuple(spec for spec in signature.inputs if spec.name not in states)
        with contextlib.suppress(InputRefused), opening(inputs=others):
            return others
        raise


def _without(samples: Samples, states: Mapping[str, str]) -> Samples:
    """The samples without states, which the model gives itself."""
    arrays = {name: array for name, array in samples.arrays.items() if name not in states}
    return data.Samples(arrays, samples.labels, samples.source)


def _write_with_states(samples: Samples, signature: Signature, directory: Path) -> Samples:
    """Write the samples with zeros for the states that the source has none for."""
    import numpy as np

    from edgeconv.data.checks import input_dtype

    arrays = {
        spec.name: samples.arrays[spec.name]
        if spec.name in samples.arrays
        else np.zeros((samples.count, *map(abs, spec.shape[1:])), input_dtype(spec))
        for spec in signature.inputs
    }
    samples = data.Samples(arrays, samples.labels, samples.source)
    data.write_samples(samples, directory)
    return samples


def split_opened(run: Run, signature: Signature, opened: DataSet) -> Split:
    """Check, split and store the samples of a data set for a signature's inputs."""
    batch = run.plan.request.batch or data.batch_size(opened.inputs)
    states = find_states(signature, run.plan.request.states)
    split = data.split_calibration(
        opened, run.plan.request.samples, batch=batch, consecutive=bool(states)
    )
    directories = [_directory(run, signature, name) for name in ("calibration", "held-back")]
    calibration, held_back = (
        _write_with_states(opened.take(indices), signature, directory)
        if states
        else opened.write(indices, directory)
        for indices, directory in zip(split, directories, strict=True)
    )
    overlap = calibration.count + held_back.count > opened.count
    return Split(
        states=states,
        calibration=directories[0],
        held_back=directories[1],
        held_back_count=held_back.count,
        sha256=data.sha256_samples(held_back),
        record=CalibrationRecord(
            signature=signature.key,
            source=opened.text,
            samples=calibration.count,
            sha256=data.sha256_samples(calibration),
            range="minmax",
            inputs=data.input_ranges(calibration),
            suspicions=data.set_suspicions(_without(calibration, states)),
        ),
        batch=batch,
        stacked=_stacked(signature, opened.inputs),
        notes=(OVERLAPPING,) if overlap else (),
    )


def _stacked(signature: Signature, inputs: tuple[TensorSpec, ...]) -> frozenset[str]:
    """The inputs whose samples have one dimension more than the model takes."""
    ranks = {spec.name: len(spec.shape) for spec in signature.inputs}
    return frozenset(spec.name for spec in inputs if len(spec.shape) > ranks[spec.name])


def inputs_key(run: Run, signature: Signature) -> str:
    """A key of the samples that a signature takes: those of an equal key serve both."""
    # One sample at a time goes into a dynamic batch as well as into one of 1.
    inputs = [
        (s.name, s.dtype, [abs(size) for size in s.shape[:1]], s.shape[1:])
        for s in signature.inputs
    ]
    states = find_states(signature, run.plan.request.states)
    return hash_of(signature.key, sorted(inputs), sorted(states.items()))[:16]


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


def _directory(run: Run, signature: Signature, name: str) -> Path:
    return run.samples / inputs_key(run, signature) / name
