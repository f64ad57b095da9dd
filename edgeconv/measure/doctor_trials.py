"""The candidates of a preprocessing search, and the samples preprocessed by each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from edgeconv import data
from edgeconv.data.checks import as_written
from edgeconv.data.preprocess import preprocess
from edgeconv.data.source import Column, DataSet, LocalDataSet
from edgeconv.data.suspects import COLORS, EVERYTHING, PIXELS, WAVES, Scaling
from edgeconv.measure.metrics.scoring import chosen_output, commonest_share, top1
from edgeconv.statistics.comparison import is_better
from edgeconv.statistics.estimate import LEVEL, chance_of, share_interval
from edgeconv.types import Accuracy, Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused

STANDARDIZED = "standardized"

# Above this number of values, they have one mean and deviation together.
_MOST_COLUMNS = 16
# How far a bicubic resize may overshoot.
_SLACK = 0.1


class PreprocessingCandidate(NamedTuple):
    """A preprocessing to try, and what it is called."""

    name: str
    steps: Preprocessing


@dataclass(frozen=True, eq=False)
class StoredSamples:
    """The chosen samples as they are stored: equal in dtype, maybe not in shape."""

    samples: Sequence[Array]
    dtype: np.dtype[Any]

    @property
    def shapes(self) -> frozenset[tuple[int, ...]]:
        """The shapes that occur."""
        return frozenset(sample.shape for sample in self.samples)

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest value that occur."""
        return (
            min(float(sample.min()) for sample in self.samples),
            max(float(sample.max()) for sample in self.samples),
        )


def fitted(base: Preprocessing, stored: StoredSamples, spec: TensorSpec) -> Preprocessing:
    """`base` and the steps that give the stored samples the shape and dtype of the input.

    Images are resized to it, with its number of channels. Samples that do not fit even so are
    refused when they are checked.
    """
    sample = spec.shape[1:]
    if _are_images(stored, sample) and base.mel_bins is None:
        channels = {shape[2] if len(shape) == 3 else 0 for shape in stored.shapes}
        if channels != {sample[2]} and base.channels is None and not base.add_channel:
            base = _with(base, channels="gray" if sample[2] == 1 else "rgb")
        sizes = {shape[:2] for shape in stored.shapes}
        if not (base.resize or base.crop) and sizes != {sample[:2]} and min(sample[:2]) > 0:
            base = _with(base, resize=sample[:2])
    dtype = preprocess(stored.samples[0][None].astype(stored.dtype), base, spec.name).dtype
    return base if dtype == spec.dtype else _with(base, dtype=spec.dtype)


def without_numbers(base: Preprocessing) -> Preprocessing:
    """`base` without the steps that change values: scale, order of colors, dtype."""
    channels = None if base.channels in {"rgb", "bgr"} else base.channels
    return _with(base, scale=None, mean=(), std=(), dtype=None, channels=channels)


def plausible(
    geometry: Preprocessing, stored: StoredSamples, values: Array, spec: TensorSpec
) -> tuple[PreprocessingCandidate, ...]:
    """The candidates, each with the steps of `geometry`, the stored values first.

    `values` are the samples (n, *sample_shape) after `geometry`. Raises `InputRefused` where
    they are all the same.
    """
    limits = stored.limits if geometry.mel_bins is None else _limits(values)
    if limits[0] == limits[1]:
        raise InputRefused(
            f"every value of the samples is {limits[0]:g}", hint="look at what the data holds"
        )
    # Computed values are float32 without a dtype.
    geometry = _with(geometry, dtype=None)
    is_image = values.ndim == 4 and values.shape[-1] in (1, 3)
    targets = _targets(stored.dtype, values.shape[-1], is_image=is_image)
    candidates = [
        PreprocessingCandidate("as stored", geometry),
        *(
            PreprocessingCandidate(target.name, _moved(geometry, target, low, high))
            for low, high in _ranges(stored.dtype, *limits)
            for target in targets
        ),
        PreprocessingCandidate(STANDARDIZED, _standardized(geometry, values)),
    ]
    if is_image and values.shape[-1] == 3:
        candidates += [_reversed(candidate) for candidate in candidates]
    return tuple(
        _each_once(PreprocessingCandidate(name, fitted(s, stored, spec)) for name, s in candidates)
    )


def _with(steps: Preprocessing, **changes: Any) -> Preprocessing:
    return msgspec.structs.replace(steps, **changes)


def _are_images(stored: StoredSamples, sample: tuple[int, ...]) -> bool:
    """Whether the model takes images with channels last, and the samples are pixels."""
    return (
        len(sample) == 3
        and sample[2] in (1, 3)
        and all(
            len(shape) == 2 or (len(shape) == 3 and 1 <= shape[2] <= 4) for shape in stored.shapes
        )
    )


def _limits(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _ranges(dtype: np.dtype[Any], low: float, high: float) -> Iterator[tuple[float, float]]:
    """The ranges that the stored values may be meant to fill."""
    if dtype == np.int16:
        yield -32768.0, 32768.0
    elif low >= -_SLACK and high <= 1 + _SLACK:
        yield 0.0, 1.0
    elif low >= -1 - _SLACK and high <= 1 + _SLACK:
        yield -1.0, 1.0
    elif low < 0 or high > 65535 or (high > 256 and dtype != np.uint16):
        yield _rounded(low), _rounded(high)
    else:
        full = 255.0 if high < 256 else 65535.0
        yield 0.0, full
        if high < full / 2:
            # Such as pixels in 17 levels of gray.
            yield 0.0, _rounded(high)


def _targets(dtype: np.dtype[Any], channels: int, *, is_image: bool) -> tuple[Scaling, ...]:
    if not is_image:
        return WAVES if dtype == np.int16 else EVERYTHING
    return COLORS if channels == 3 else PIXELS


def _moved(geometry: Preprocessing, target: Scaling, low: float, high: float) -> Preprocessing:
    """`geometry`, and then values of `low` to `high` as the target has them."""
    scale = target.span / (high - low)
    mean = tuple(round(value + scale * low, 6) for value in target.mean)
    return _with(
        geometry,
        scale=None if scale == 1 else scale,
        mean=mean if any(mean) else (),
        std=target.std,
    )


def _standardized(geometry: Preprocessing, values: Array) -> Preprocessing:
    """To mean 0 and deviation 1: of each channel, of each of a few columns, or of all values."""
    columns = values.shape[-1]
    each = columns <= (4 if values.ndim > 2 else _MOST_COLUMNS)
    flat = values.reshape(-1, columns if each else 1).astype(np.float64)
    std = flat.std(axis=0)
    return _with(
        geometry,
        mean=tuple(_rounded(float(value)) for value in flat.mean(axis=0)),
        # A column of a single value has no scale.
        std=tuple(_rounded(float(value)) if value > 1e-12 else 1.0 for value in std),
    )


def _reversed(candidate: PreprocessingCandidate) -> PreprocessingCandidate:
    steps = candidate.steps
    turned = _with(steps, channels="bgr", mean=steps.mean[::-1], std=steps.std[::-1])
    return PreprocessingCandidate(f"{candidate.name}, BGR", turned)


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _each_once(candidates: Iterator[PreprocessingCandidate]) -> Iterator[PreprocessingCandidate]:
    """The candidates, without those that repeat the steps of an earlier one."""
    earlier: list[Preprocessing] = []
    for candidate in candidates:
        if candidate.steps not in earlier:
            earlier.append(candidate.steps)
            yield candidate


Array = np.ndarray[Any, Any]

_SAMPLES = 48
# With fewer, even nine right answers in ten mean next to nothing.
LEAST_SAMPLES = 8
# The samples of all candidates are in the memory of one process.
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, eq=False)
class CandidateSamples:
    """A candidate, the samples (n, *sample_shape) that it gives, and whether it is in use now."""

    candidate: PreprocessingCandidate
    samples: Array
    is_current: bool = False


def pick_samples(source: DataSet, count: int | None, batch: int) -> LocalDataSet:
    """`count` samples by a fixed seed, read and as they are stored.

    None takes 48, or all where there are fewer, in whole batches. Raises `InputRefused` for too few
    samples, or all of one label.
    """
    labels = source.labels
    assert labels is not None
    if count is None:
        count = max(min(_SAMPLES, source.count) // batch, 1) * batch
    data.check_whole_batches("the request is for", count, batch)
    if min(count, source.count) < LEAST_SAMPLES:
        raise InputRefused(
            f"{source.text} has {source.count} samples, of which {min(count, source.count)} would "
            f"be used: too few for a result (at least {LEAST_SAMPLES})",
            hint="give some dozens of labeled samples",
        )
    indices = data.chosen_indices(source, count)
    if len(np.unique(labels[indices])) < 2:
        raise InputRefused(
            f"{source.text}: every sample has the label {labels[indices][0]}, so a model with a "
            "constant output would be right",
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
        at=np.arange(len(indices)),
    )


def stored_of(source: LocalDataSet) -> StoredSamples:
    """The samples of the only input as they are stored. Raises `InputRefused` for strings."""
    (column,) = source.columns.values()
    samples = [column[index] for index in range(len(column))]
    dtype = samples[0].dtype
    if dtype.kind not in "biuf" or not all(sample.size for sample in samples):
        raise InputRefused(f"{source.text} has {dtype} samples of {samples[0].shape}, not numbers")
    return StoredSamples(samples, dtype)


def try_candidates(
    source: LocalDataSet, stored: StoredSamples, base: Preprocessing
) -> list[CandidateSamples]:
    """`base`, the preprocessing in use, and every candidate that gives other values.

    Raises an `EdgeconvError` where the samples do not fit the model with any preprocessing, or are
    too many.
    """
    (spec,) = source.inputs
    geometry = fitted(without_numbers(base), stored, spec)
    values = taken(source, geometry)
    candidates = plausible(geometry, stored, values, spec)
    _refuse_too_many(values.nbytes * (len(candidates) + 1), len(values))
    now = fitted(base, stored, spec)
    name = next((each.name for each in candidates if each.steps == now), "as given")
    tried = [
        CandidateSamples(PreprocessingCandidate(name, now), taken(source, now), is_current=True)
    ]
    for candidate in candidates:
        samples = taken(source, candidate.steps)
        same = [i for i, other in enumerate(tried) if _are_alike(samples, other.samples)]
        if not same:
            tried.append(CandidateSamples(candidate, samples))
        elif tried[same[0]].candidate.name == "as given":
            renamed = PreprocessingCandidate(candidate.name, now)
            tried[same[0]] = dataclasses.replace(tried[same[0]], candidate=renamed)
    return tried


def taken(source: LocalDataSet, steps: Preprocessing) -> Array:
    """All samples (n, *sample_shape) after `steps`, checked against the model's input."""
    (spec,) = source.inputs
    with_steps = dataclasses.replace(source, preprocessing={"": steps})
    return with_steps.take(np.arange(source.count)).arrays[spec.name]


def joined(tried: Sequence[CandidateSamples], source: LocalDataSet) -> data.Samples:
    """The samples of all candidates, one after the other."""
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
            f"all candidates for {samples} samples would take {size_bytes / 2**30:.1f} GiB",
            hint=f"--samples {fewer}",
        )


def _are_alike(samples: Array, others: Array) -> bool:
    """Whether they differ by rounding alone; the first sample mostly shows it."""
    return all(
        np.allclose(a, b, rtol=1e-5, atol=1e-6 * max(1.0, float(np.abs(a).max())))
        for a, b in ((samples[0], others[0]), (samples, others))
    )


Outputs = dict[str, Array]
Scores = Literal["probabilities", "sigmoids", "logits"]

_OFFSETS = (0, 1, -1)
# For sums of probabilities in half precision over thousands of classes.
_ROUNDING = 0.01


@dataclass(frozen=True)
class CandidateScore:
    """The accuracy with one candidate; it fits if the model works and no other one is better."""

    accuracy: Accuracy
    interval: tuple[float, float]
    fits: bool


@dataclass(frozen=True)
class SearchScores:
    """The candidates in their order, and what holds for all of them; see `Diagnosis`."""

    candidates: tuple[CandidateScore, ...]
    classes: int
    scores: Scores
    label_offset: int
    guessing: float
    chance: float


def score_candidates(
    outputs: Sequence[Outputs],
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    *,
    label_limits: tuple[int, int],
    output: str | None,
) -> SearchScores:
    """The accuracies of the outputs of every candidate, all for the same samples.

    `outputs` are (n, classes) by name; `labels` are (n,); `label_limits` are the lowest and highest
    label of the whole data set. The best candidate has the highest accuracy; it fits where guessing
    the commonest label would not do so well by chance. Others fit too, unless the best is better by
    a paired test. Raises as `top1` does.
    """
    classes = _classes(outputs[0], output)
    offsets = _possible_offsets(label_limits, classes)
    accuracies = {
        offset: [top1(each, labels + offset, output) for each in outputs] for offset in offsets
    }
    offset = _likeliest_offset(accuracies)
    chosen = accuracies[offset]
    best = _best(chosen)
    guessing = commonest_share(labels)
    right = chosen[best].correct.count("1")
    chance = chance_of(right, len(labels), guessing, len(outputs) * len(offsets))
    rivals = max(1, len(chosen) - 1)
    return SearchScores(
        candidates=tuple(
            CandidateScore(
                each,
                share_interval(each.correct.count("1"), each.samples),
                fits=chance < LEVEL and not is_better(chosen[best], each, rivals),
            )
            for each in chosen
        ),
        classes=classes,
        scores=kind_of_scores(chosen_output(outputs[best], output)),
        label_offset=offset if chance < LEVEL else offsets[0],
        guessing=guessing,
        chance=chance,
    )


def kind_of_scores(scores: Array) -> Scores:
    """Whether scores (n, classes) are probabilities, sigmoids or logits; see `Diagnosis`."""
    finite = np.asarray(scores[np.isfinite(scores).all(axis=1)], np.float64)
    if not finite.size or finite.min() < 0 or finite.max() > 1 + _ROUNDING:
        return "logits"
    adds_up = np.abs(finite.sum(axis=1) - 1) <= _ROUNDING
    return "probabilities" if adds_up.all() else "sigmoids"


def _classes(outputs: Mapping[str, Array], output: str | None) -> int:
    """The number of classes, two of a single score; `top1` refuses what has no scores."""
    shape = chosen_output(outputs, output).shape
    return max(2, int(shape[-1])) if len(shape) > 1 else 2


def _possible_offsets(limits: tuple[int, int], classes: int) -> tuple[int, ...]:
    """The offsets with which every label is a class, else 0, which `top1` refuses."""
    low, high = limits
    return tuple(n for n in _OFFSETS if low + n >= 0 and high + n < classes) or (0,)


def _likeliest_offset(accuracies: Mapping[int, Sequence[Accuracy]]) -> int:
    """The first offset, unless the best candidate of another is better than its own."""
    likeliest, *others = accuracies
    for offset in others:
        best, other = (accuracies[n][_best(accuracies[n])] for n in (likeliest, offset))
        if is_better(other, best, sum(map(len, accuracies.values()))):
            likeliest = offset
    return likeliest


def _best(accuracies: Sequence[Accuracy]) -> int:
    """The index of the first highest value."""
    return int(np.argmax([accuracy.value for accuracy in accuracies]))
