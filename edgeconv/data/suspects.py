"""Whether samples can be right, by what a model answers, and in which other scale they would be.

A model that was trained gives samples like those of its training answers that differ, and of which
it is not certain beyond all measure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import numpy as np

from edgeconv.data.samples import LEAST_SIDE, Array, is_image
from edgeconv.types import Suspicion
from edgeconv.types.words import quoted

# For ImageNet's pixels in 0 to 1, as torchvision and Keras's mode "torch" have them.
_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# For ImageNet's pixels in 0 to 255, as Caffe and Keras's mode "caffe" have it. In RGB too.
_CAFFE_MEAN = (123.68, 116.779, 103.939)


class Scaling(NamedTuple):
    """What values in 0 to 1 become: (x * span - mean) / std. `mean`, `std` in RGB order."""

    name: str
    span: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = ()

    def after(self, other: Scaling) -> Scaling:
        """What values in the `other` scale, which has one mean and no deviation, become by this."""
        factor = self.span / other.span
        mean = tuple(round(value - other.mean[0] * factor, 6) for value in self.mean)
        return Scaling(self.name, factor, mean, self.std)

    @property
    def steps(self) -> str:
        """The steps of `--preprocess` that do it: "scale=1/127.5&mean=1"."""
        inverse = 1 / self.span
        scale = f"{self.span:g}" if inverse <= 2 else f"1/{inverse:g}"
        parts = [f"scale={scale}"] if self.span != 1 else []
        parts += [f"mean={_comma_separated(self.mean)}"] if any(self.mean) else []
        return "&".join([*parts, *([f"std={_comma_separated(self.std)}"] if self.std else [])])


EVERYTHING = (Scaling("0 to 1", 1.0), Scaling("−1 to 1", 2.0, (1.0,)))
WAVES = (Scaling("−1 to 1", 2.0, (1.0,)),)
PIXELS = (*EVERYTHING, Scaling("0 to 255", 255.0))
COLORS = (
    *PIXELS,
    Scaling("ImageNet mean and deviation", 1.0, _IMAGENET_MEAN, _IMAGENET_STD),
    Scaling("Caffe mean", 255.0, _CAFFE_MEAN),
)


def _comma_separated(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)


# Fewer consecutive samples are alike by chance, which moves this ratio by an eighth for 64 of them.
_ENOUGH_IN_ORDER, _UNRELATED_ROWS = 32, 0.75
# Scales that are confused, by the steps from one to the other: those that `doctor` tries, a mean
# that was not subtracted, and audio of 16 bits.
_SCALES = MappingProxyType(
    {
        change.steps: change
        for change in (
            *(to.after(of) for of, to in itertools.permutations(PIXELS, 2)),
            Scaling("", 1.0, (1.0,)),
            Scaling("", 1 / 32768),
        )
    }
)
# Fewer samples have the same answer by chance, or too few labels for a verdict.
_LEAST_SAMPLES, _LEAST_LABELS = 16, 50
# An output varies between samples by at least this share of its root mean square.
_LEAST_VARIATION = 0.003
# A probability that no training gets to: its logarithm has no gradient left in float32.
_NEGLIGIBLE = 1e-12
_SATURATED_SHARE = 0.5
# Scores of so many classes at least, whose probabilities differ by a factor of 1e22.
_LEAST_CLASSES, _FAR_APART = 3, 50.0
# How much more answers tell of samples in a smaller scale that fits, of all they could. To samples
# that fit as they are, those of 12 models told as much at most.
_TELLS_MORE = 0.1
# What answers tell less than of samples in a far smaller scale than that of the training.
_TELLS_NOTHING = 0.02
_FROM_0_TO_1, _FROM_BOTH_SIDES = "scale=255", "scale=127.5&mean=-127.5"
# The share of the labels that answers to right samples hit at least, to be sure. By how many
# deviations others have to hit more, of which there are about a dozen.
_MOSTLY_HIT, _SURELY = 0.5, 3.5
_PERMUTATIONS = 200
_CHANCE = 0.05
_PERMUTATION_SEED = 20261122


def state_suspicions(arrays: Mapping[str, Array], states: Collection[str]) -> Iterator[Suspicion]:
    """What is wrong with consecutive samples, (samples, ...), and the `states` they led to."""
    if zero := [name for name in states if not arrays[name].any()]:
        yield Suspicion(f"the state {quoted(zero)} is 0 in all samples, so its range is not known")
    others = (name for name in arrays if name not in states)
    if noise := [name for name in others if _is_noise(arrays[name])]:
        yield Suspicion(
            f"consecutive samples of {quoted(noise)} have nothing in common, as in random noise: "
            "states need runs of consecutive samples"
        )


def _is_noise(array: Array) -> bool:
    """Whether consecutive samples, their levels, and neighbors in a sample differ as any two do."""
    if array.dtype.kind != "f" or len(array) < _ENOUGH_IN_ORDER:
        return False
    rows = array.reshape(len(array), -1).astype(np.float64)
    parts = [rows]
    if rows.shape[1] >= LEAST_SIDE:
        parts += [np.sqrt(np.mean(rows**2, axis=1, keepdims=True)), rows.T]
    return all(_least_related(part) for part in parts)


def _least_related(rows: Array) -> bool:
    """Whether consecutive rows, (rows, columns), are unrelated, by the ratio of von Neumann."""
    spread = float(rows.var(axis=0).mean())
    return bool(np.mean(np.diff(rows, axis=0) ** 2) > 2 * _UNRELATED_ROWS * spread > 0)


def other_preprocessings(
    arrays: Mapping[str, Array], *, only_alike: bool = False
) -> Iterator[tuple[str, dict[str, Array]]]:
    """The samples as frequent mistakes would have to be undone, each with the steps that do it.

    `arrays` are float (samples, ...), others stay as they are. The steps are those of
    `--preprocess`, done after those that there are already. `only_alike`: of those after which
    images have the same range.
    """
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    images = [name for name in floats if is_image(arrays[name].shape)]
    changes = {} if only_alike else dict(_SCALES)
    if images:
        changes |= _negative(arrays[images[0]])
    for steps, change in changes.items():
        yield steps, {n: _scaled(a, change) if n in floats else a for n, a in arrays.items()}
    colors = [name for name in images if arrays[name].shape[3] == 3]
    for of, to in itertools.product(PIXELS, COLORS[len(PIXELS) :] if not only_alike else ()):
        change = to.after(of)
        if colors:
            yield (
                change.steps,
                {n: _scaled(a, change) if n in colors else a for n, a in arrays.items()},
            )
    if colors:
        yield "channels=bgr", {n: a[..., ::-1] if n in colors else a for n, a in arrays.items()}
    for first, second in () if only_alike else itertools.combinations(floats, 2):
        if arrays[first].shape == arrays[second].shape:
            exchanged = {first: arrays[second], second: arrays[first]}
            yield f"{first!r} and {second!r} exchanged", {**arrays, **exchanged}


def usual_scales(
    arrays: Mapping[str, Array], outputs: Mapping[str, Array]
) -> Iterator[tuple[str, dict[str, Array]]]:
    """The samples in usual scales smaller than theirs, as `other_preprocessings` gives them.

    `arrays` are (samples, ...); the floats among them, whose range suggests it, are changed one at
    a time. Any model is surer of itself with a larger scale, so that is tried for images only of
    which the probabilities of classes among `outputs`, (samples, ...), tell nothing; two
    coordinates tell little as scores of two classes, too.
    """
    told = _most_information({n: each for n, each in outputs.items() if _are_probabilities(each)})
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            larger = _larger(array) if 0 < told < _TELLS_NOTHING else {}
            for steps, change in (_smaller(array) | larger).items():
                prefix = f"{name}." if len(arrays) > 1 else ""
                changed = {**arrays, name: _scaled(array, change)}
                yield "&".join(prefix + step for step in steps.split("&")), changed


def _scaled(array: Array, change: Scaling) -> Array:
    """Samples (samples, ...) after a change of their scale, in their dtype."""
    changed = array * change.span - np.asarray(change.mean)
    whole: Array = (changed / np.asarray(change.std) if change.std else changed).astype(array.dtype)
    return whole


def _smaller(array: Array) -> dict[str, Scaling]:
    low, high = float(array.min()), float(array.max())
    if low >= 0 and 2 < high <= 255 and bool((array == np.rint(array)).all()):
        names = ["scale=1/255", "scale=1/127.5&mean=1"]
    elif max(-low, high) > 1000:  # Audio of 16 bits.
        names = ["scale=1/32768"]
    elif is_image(array.shape) and low < -1.5 and high < 4:
        return {"scale=0.226&mean=-0.449": Scaling("", 0.226, (-0.449,))}
    elif -1 <= low < -0.5 and high <= 1:
        names = ["scale=0.5&mean=-0.5"]
    else:
        names = []
    return {name: _SCALES[name] for name in names}


def _larger(array: Array) -> dict[str, Scaling]:
    low, high = float(array.min()), float(array.max())
    if not is_image(array.shape) or high > 1 or low < -1:
        return {}
    names = [_FROM_0_TO_1] if low >= 0 else [_FROM_BOTH_SIDES]
    return {name: _SCALES[name] for name in names}


def is_larger(steps: str) -> bool:
    """Whether these steps of `usual_scales` make samples larger."""
    return any(each in steps for each in (_FROM_0_TO_1, "scale=127.5&"))


def _negative(image: Array) -> dict[str, Scaling]:
    """What makes the negative of images, (samples, height, width, channels), by their range."""
    if float(image.min()) < 0:
        return {"scale=-1": Scaling("", -1.0)}
    high = 1.0 if float(image.max()) <= 1 else 255.0
    return {f"scale=-1&mean=-{high:g}": Scaling("", -1.0, (-high,))}


def is_saturated(output: Array) -> bool:
    """Whether most of the probabilities, (samples, classes) or (samples, 1), are exactly 0 or 1."""
    return saturated_share(output) > _SATURATED_SHARE


def saturated_share(output: Array) -> float:
    """The share of samples whose probabilities, (samples, classes) or (samples, 1), are exactly 0
    and 1; 0 for what has none, or too few samples.
    """
    if not _are_probabilities(output) or len(output) < _LEAST_SAMPLES:
        return 0.0
    if output.shape[1] == 1:
        return _share_of_limits(output)
    second = np.sort(output.astype(np.float64), axis=1)[:, -2]
    return float((second < _NEGLIGIBLE).mean())


def is_overdriven(output: Array) -> bool:
    """Whether an output, (samples, ...), looks like that to inputs of far too large a scale.

    Probabilities of several labels or of each pixel are exactly 0 and 1, or scores of classes,
    (samples, classes), so far apart that no probability but one is left of them.
    """
    if output.dtype.kind != "f" or output.ndim < 2 or len(output) < _LEAST_SAMPLES:
        return False
    if output.min() >= 0 and output.max() <= 1:
        return bool((output == 1).any()) and _share_of_limits(output) > _SATURATED_SHARE
    if output.ndim > 2 or output.shape[1] < _LEAST_CLASSES or output.min() >= 0:
        return False
    second, first = np.sort(output.astype(np.float64), axis=1)[:, -2:].T
    return bool((first - second > _FAR_APART).mean() > _SATURATED_SHARE)


def _share_of_limits(output: Array) -> float:
    return float(((output < _NEGLIGIBLE) | (output == 1)).mean())


def _are_probabilities(output: Array) -> bool:
    """Whether an output is of classes that add up to 1, or of one class."""
    if output.ndim != 2 or output.dtype.kind != "f" or not output.size:
        return False
    if not (output.min() >= 0 and output.max() <= 1):
        return False
    return output.shape[1] == 1 or bool(np.allclose(output.sum(axis=1), 1, atol=1e-3))


def variation(output: Array) -> float:
    """How much an output, (samples, ...), differs between samples: 0 for the same in all.

    It is the largest standard deviation of a value, of the root mean square of all. NaN if any is.
    """
    rows = output.reshape(len(output), -1).astype(np.float64)
    scale = float(np.sqrt(np.mean(rows**2)))
    return float(rows.std(axis=0).max()) / scale if scale else 0.0


def information(output: Array) -> float:
    """What the answers, (samples, classes), say of the samples: 0 for nothing, 1 for all they can.

    It is the mutual information of sample and class, of the logarithm of the number of classes, as
    J. Bridle et al. (1991) trained by. Scores become probabilities by softmax. NaN if any is not
    finite; 0 for what has no classes.
    """
    if output.ndim != 2 or output.shape[1] < 2 or output.dtype.kind != "f":
        return 0.0
    values = output.astype(np.float64)
    if not _are_probabilities(output):
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    mean = _entropy(values.mean(axis=0, keepdims=True))
    return (mean - _entropy(values)) / float(np.log(values.shape[1]))


def more_telling(
    outputs: Mapping[str, Array], others: Iterable[tuple[str, Mapping[str, Array]]]
) -> tuple[str, tuple[float, float]]:
    """Which of other samples, by name, a model's outputs tell clearly more of; "" for none.

    With it comes the information in `outputs` and in the best of the `others`, all of them floats
    (samples, classes).
    """
    own, best, better = _most_information(outputs), 0.0, ""
    for name, answers in others:
        amount = _most_information(answers)
        if amount > best:
            best, better = amount, name
    return (better if best - own >= _TELLS_MORE else ""), (own, best)


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """How many of `count` labels a model's answers hit, to samples as they are and to others.

    `gained` and `lost` are how many of them only the latter, or only the former, hit.
    """

    count: int
    own: int
    other: int
    gained: int
    lost: int

    def is_more(self, deviations: float) -> bool:
        """Whether the others hit more, by so many deviations of a sign test."""
        return self.gained - self.lost > deviations * math.sqrt(max(1, self.gained + self.lost))


def classes_of(labels: Array | None, output: str) -> Array | None:
    """The class numbers (samples,) of an output; one array of labels is for any of them."""
    if labels is not None and labels.dtype.names:
        labels = labels[output] if output in labels.dtype.names else None
    return labels if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu" else None


def hits_of(
    labels: Array | None, outputs: Mapping[str, Array], others: Mapping[str, Array]
) -> Hits | None:
    """The labels (samples,) that a model's first answers with classes hit; None without both."""
    for name, output in outputs.items():
        classes = classes_of(labels, name)
        is_scored = output.ndim == 2 and output.shape[1] > 1
        if classes is not None and is_scored and len(output) == len(classes):
            own, other = (each[name].argmax(axis=1) == classes for each in (outputs, others))
            return Hits(
                count=len(classes),
                own=int(own.sum()),
                other=int(other.sum()),
                gained=int((other & ~own).sum()),
                lost=int((own & ~other).sum()),
            )
    return None


def are_hit(labels: Array | None, outputs: Mapping[str, Array]) -> bool:
    """Whether the answers hit most of the labels, (samples,): then the samples are right."""
    hits = hits_of(labels, outputs, outputs)
    return hits is not None and hits.own >= _MOSTLY_HIT * hits.count


def more_right(
    labels: Array | None,
    outputs: Mapping[str, Array],
    others: Iterable[tuple[str, Mapping[str, Array]]],
) -> tuple[str, Hits | None]:
    """Which of other samples, by name, a model's outputs hit far more of the labels for; "" for
    none. `others` are not asked for where most labels are hit, or there are none.
    """
    best: tuple[str, Hits | None] = ("", None)
    own = hits_of(labels, outputs, outputs)
    if own is None or own.count < _LEAST_SAMPLES or are_hit(labels, outputs):
        return best
    for name, answers in others:
        hits = hits_of(labels, outputs, answers)
        if hits and hits.is_more(_SURELY) and hits.other > (best[1].other if best[1] else 0):
            best = (name, hits)
    return best


def _most_information(outputs: Mapping[str, Array]) -> float:
    finite = (output for output in outputs.values() if np.isfinite(output).all())
    return max(map(information, finite), default=0.0)


def _entropy(probabilities: Array) -> float:
    """The mean entropy of (samples, classes), in nats."""
    logarithms = np.log(np.maximum(probabilities, _NEGLIGIBLE))
    return float(-(probabilities * logarithms).sum(axis=1).mean())


def answer_remarks(outputs: Mapping[str, Array]) -> Iterator[str]:
    """What is strange about a model's outputs, (samples, ...) by name, a sentence each."""
    for name, output in outputs.items():
        if output.ndim < 2 or output.dtype.kind != "f" or len(output) < _LEAST_SAMPLES:
            continue
        if not np.isfinite(output).all():
            continue
        if variation(output) <= _LEAST_VARIATION:
            yield f"the float model's output {name!r} hardly differs between them"
        elif (
            _are_probabilities(output) and output.shape[1] > 1 and not np.ptp(output.argmax(axis=1))
        ):
            yield f"the float model gives all of them the same answer in {name!r}"
        if is_saturated(output):
            yield f"the float model's probabilities in {name!r} are exactly 0 and 1"


def is_at_chance(output: Array, labels: Array | None) -> bool:
    """Whether the largest of the outputs does not depend on the labels.

    `output` is (samples, classes), the classes however numbered, and `labels` (samples,). It is
    compared with what permuted labels give.
    """
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return False
    is_classes = output.ndim == 2 and output.shape[1] > 1
    if not is_classes or len(labels) != len(output) or len(labels) < _LEAST_LABELS:
        return False
    answers = np.unique(output.argmax(axis=1), return_inverse=True)[1]
    classes = np.unique(labels, return_inverse=True)[1]
    if classes.max() == 0 or answers.max() == 0:
        return False
    rng = np.random.default_rng(_PERMUTATION_SEED)
    actual = _dependence(answers, classes)
    permuted = [_dependence(answers, rng.permutation(classes)) for _ in range(_PERMUTATIONS)]
    return bool(np.mean(np.array(permuted) >= actual) > _CHANCE)


def _dependence(answers: Array, classes: Array) -> float:
    counts = np.zeros((answers.max() + 1, classes.max() + 1))
    np.add.at(counts, (answers, classes), 1)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0, keepdims=True)
    return float((counts**2 / expected).sum())
