"""The chosen samples, and what every candidate makes of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv import data
from edgeconv.data.checks import as_written
from edgeconv.data.source import LocalDataSet
from edgeconv.errors import InputRefused
from edgeconv.measure.preprocessing_search.candidates import (
    PreprocessingCandidate,
    StoredSamples,
    fitted,
    plausible,
    without_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.data.source import Column, DataSet
    from edgeconv.types import Preprocessing, TensorSpec

Array = np.ndarray[Any, Any]

_SAMPLES = 48
# Of fewer, even nine in ten right say next to nothing.
LEAST_SAMPLES = 8
# All the attempts are in the memory of one process.
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, eq=False)
class CandidateSamples:
    """A candidate, the samples (n, *sample_shape) that it gives, and whether it is in use."""

    candidate: PreprocessingCandidate
    samples: Array
    is_current: bool = False


def picked(source: DataSet, count: int | None, batch: int) -> LocalDataSet:
    """So many samples by a fixed seed, read and as they are stored.

    A count of None takes 48, or all where there are fewer, in whole batches. Raises
    `InputRefused` for samples that say nothing: unlabelled, too few, or of one label.
    """
    labels = source.labels
    if labels is None:
        raise InputRefused(
            f"{source.text} has no labels, and without them nothing says which answer is right",
            hint="name them: data.npz?labels=ARRAY, or a directory with one folder a class",
        )
    if count is None:
        count = max(min(_SAMPLES, source.count) // batch, 1) * batch
    data.check_whole_batches("asked for", count, batch)
    if min(count, source.count) < LEAST_SAMPLES:
        raise InputRefused(
            f"{source.text} has {source.count} samples, of which {min(count, source.count)} would "
            f"be used: too few to tell anything (at least {LEAST_SAMPLES})",
            hint="give some dozens of labelled samples",
        )
    numbers = data.Samples({"": np.arange(source.count)}, labels, source.text)
    indices = data.seeded_choice(numbers, count).arrays[""]
    if len(np.unique(labels[indices])) < 2:
        raise InputRefused(
            f"{source.text}: every sample has the label {labels[indices][0]}, so that a model "
            "which always says the same would be right",
            hint="give samples of several classes",
        )
    stored = source.stored(indices)
    return LocalDataSet(
        text=source.text,
        inputs=source.inputs,
        columns={spec.name: _as_written(source, spec, stored[spec.name]) for spec in source.inputs},
        labels=labels[indices],
        is_text=source.is_text,
        preprocessing=source.preprocessing,
        class_names=source.class_names,
    )


def stored_of(source: LocalDataSet) -> StoredSamples:
    """What the samples of the only input look like. Raises `InputRefused` for no numbers."""
    (column,) = source.columns.values()
    samples = [column[index] for index in range(len(column))]
    dtype = samples[0].dtype
    if dtype.kind not in "biuf" or not all(sample.size for sample in samples):
        raise InputRefused(f"{source.text} has {dtype} samples of {samples[0].shape}: no numbers")
    return StoredSamples(samples, dtype)


def attempts(
    source: LocalDataSet, stored: StoredSamples, base: Preprocessing
) -> list[CandidateSamples]:
    """What is used now, and every other candidate that gives other values.

    `base` is what is used now. Raises an `EdgeconvError` where the samples do not fit the
    model whatever is done, or are too many.
    """
    (spec,) = source.inputs
    geometry = fitted(without_numbers(base), stored, spec)
    values = taken(source, geometry)
    candidates = plausible(geometry, stored, values, spec)
    _refuse_too_many(values.nbytes * (len(candidates) + 1), len(values))
    now = fitted(base, stored, spec)
    name = next((each.name for each in candidates if each.steps == now), "as given")
    made = [
        CandidateSamples(PreprocessingCandidate(name, now), taken(source, now), is_current=True)
    ]
    for candidate in candidates:
        samples = taken(source, candidate.steps)
        same = [i for i, other in enumerate(made) if _are_alike(samples, other.samples)]
        if not same:
            made.append(CandidateSamples(candidate, samples))
        elif made[same[0]].candidate.name == "as given":
            renamed = PreprocessingCandidate(candidate.name, now)
            made[same[0]] = dataclasses.replace(made[same[0]], candidate=renamed)
    return made


def taken(source: LocalDataSet, steps: Preprocessing) -> Array:
    """All the samples after `steps`, checked against the model's input."""
    (spec,) = source.inputs
    with_steps = dataclasses.replace(source, preprocessing={"": steps})
    return with_steps.take(np.arange(source.count)).arrays[spec.name]


def joined(tried: Sequence[CandidateSamples], source: LocalDataSet) -> data.Samples:
    """The samples of all the attempts, one after the other."""
    (spec,) = source.inputs
    arrays = {spec.name: np.concatenate([attempt.samples for attempt in tried])}
    return data.Samples(arrays, None, source.text)


def _as_written(source: DataSet, spec: TensorSpec, stored: Array | list[Array]) -> Column:
    if not source.is_text or not isinstance(stored, np.ndarray):
        return stored
    return as_written(f"{source.text}: input {spec.name!r}", stored, spec, has_steps=True)


def _refuse_too_many(size_bytes: int, samples: int) -> None:
    if size_bytes > _MOST_BYTES:
        fewer = max(LEAST_SAMPLES, samples * _MOST_BYTES // size_bytes)
        raise InputRefused(
            f"all that would be tried on {samples} samples is {size_bytes / 2**30:.1f} GiB",
            hint=f"--samples {fewer}",
        )


def _are_alike(one: Array, other: Array) -> bool:
    """Whether they differ by rounding alone; the first sample mostly tells already."""
    return all(
        np.allclose(a, b, rtol=1e-5, atol=1e-6 * max(1.0, float(np.abs(a).max())))
        for a, b in ((one[0], other[0]), (one, other))
    )
