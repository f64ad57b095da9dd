"""Whether calibration samples are plausible on their own: their range, and how many differ."""

from __future__ import annotations

import itertools
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.types import InputRange, Suspicion
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edgeconv.data.samples import Array, Samples

# Ranges of fewer samples are chance. A set of fewer different samples than this is named.
FEW_SAMPLES = 10
# From this many on, samples that are all equal are a mistake and not an example.
_MOST_EQUAL = 8
_BLOCK_VALUES = 1 << 20
# Smaller images are none. Whether they are random is seen of this many values, or of four images:
# neighbors differ by this share of what any two pixels do. It is 0.79 for digits with much noise.
_LEAST_SIDE, _LOOKED_AT, _UNRELATED = 16, 1 << 17, 0.95
_SEED = 20261123
# Scales that are confused: what a sample is multiplied by, and what is subtracted.
_SCALES = MappingProxyType(
    {
        "scale=1/255": (1 / 255, 0.0),
        "scale=255": (255.0, 0.0),
        "scale=1/127.5&mean=1": (1 / 127.5, 1.0),
        "scale=127.5&mean=-127.5": (127.5, -127.5),
        "scale=2&mean=1": (2.0, 1.0),
        "scale=0.5&mean=-0.5": (0.5, -0.5),
        "mean=1": (1.0, 1.0),
        "scale=1/32768": (1 / 32768, 0.0),
    }
)


def input_ranges(samples: Samples) -> tuple[InputRange, ...]:
    """The range and scale of each input of numbers over all samples."""
    return tuple(
        _range_of(name, array)
        for name, array in samples.arrays.items()
        if array.dtype.kind in "biuf" and array.size
    )


def _range_of(name: str, array: Array) -> InputRange:
    low, high, total, squares = np.inf, -np.inf, 0.0, 0.0
    is_whole = True
    middle = float(array[0].astype(np.float64).mean())
    for block in _blocks(array):
        values = block.astype(np.float64)
        low, high = min(low, float(values.min())), max(high, float(values.max()))
        is_whole = is_whole and bool((values == np.rint(values)).all())
        values -= middle  # Squares of large values would lose what they differ by.
        total += float(values.sum())
        squares += float(np.square(values).sum())
    mean = total / array.size
    return InputRange(
        name=name,
        low=low,
        high=high,
        mean=middle + mean,
        deviation=float(np.sqrt(max(squares / array.size - mean * mean, 0.0))),
        is_whole=is_whole,
    )


def _blocks(array: Array) -> Iterator[Array]:
    rows = max(1, _BLOCK_VALUES // max(1, array[0].size))
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def set_suspicions(samples: Samples) -> tuple[Suspicion, ...]:
    """What is wrong with the set, without the model: too few, equal, constant or random samples."""
    count = samples.count
    equal = _equal(samples)
    different = len(equal)
    if count > 1 and different == 1:
        return (Suspicion(f"all {count} samples are equal", count >= _MOST_EQUAL),)
    return tuple(map(Suspicion, _remarks(samples, equal)))


def _remarks(samples: Samples, equal: Counter[int]) -> Iterator[str]:
    count, different, most = samples.count, len(equal), max(equal.values())
    if different < FEW_SAMPLES and count > different:
        yield f"only {different} of {count} samples differ"
    elif count < FEW_SAMPLES:
        yield f"there are only {count} samples"
    elif 2 * most > count:
        yield f"{most} of {count} samples are equal"
    if same := [name for name, array in samples.arrays.items() if _is_same(array)]:
        yield f"{quoted(same)} is the same in every sample"
    if random := [name for name, array in samples.arrays.items() if _is_random(array)]:
        yield f"neighboring pixels of {quoted(random)} have nothing in common, as in random noise"
    labels = samples.labels
    if labels is not None and labels.ndim == 1 and count >= _MOST_EQUAL and not np.ptp(labels):
        yield f"all samples have the label {labels[0]}"


def _is_same(array: Array) -> bool:
    """Whether an input of floats is the same in all samples; a mask of integers often is."""
    if array.dtype.kind != "f" or len(array) < _MOST_EQUAL:
        return False
    return all(bool((row == array[0]).all()) for row in array)


def is_image(shape: Sequence[int]) -> bool:
    """Whether a shape may be that of images, (samples, height, width, channels)."""
    return len(shape) == 4 and shape[3] in (1, 3) and min(shape[1:3]) >= _LEAST_SIDE


def _is_random(array: Array) -> bool:
    """Whether neighbors in images differ as much as any two pixels do: random, or rearranged.

    It is the ratio of J. von Neumann (1941), of some of the samples.
    """
    if array.dtype.kind not in "fiu" or not is_image(array.shape):
        return False
    most = min(len(array), max(4, _LOOKED_AT // array[0].size))
    images = array[evenly(len(array), most)].astype(np.float64)
    mixed = images.reshape(len(images), -1, images.shape[3])
    order = np.random.default_rng(_SEED).permutation(mixed.shape[1])
    any_two = np.mean((mixed - mixed[:, order]) ** 2)
    down, across = (np.mean(np.diff(images, axis=axis) ** 2) for axis in (1, 2))
    return bool(min(down, across) > _UNRELATED * any_two > 0)


def _equal(samples: Samples) -> Counter[int]:
    """How many samples there are of each kind of equal ones."""
    arrays = tuple(samples.arrays.values())
    return Counter(
        hash(tuple(array[index].tobytes() for array in arrays)) for index in range(samples.count)
    )


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
    for steps, (scale, mean) in changes.items():
        yield steps, {n: a * scale - mean if n in floats else a for n, a in arrays.items()}
    if colors := [name for name in images if arrays[name].shape[3] == 3]:
        yield "channels=bgr", {n: a[..., ::-1] if n in colors else a for n, a in arrays.items()}
    for first, second in () if only_alike else itertools.combinations(floats, 2):
        if arrays[first].shape == arrays[second].shape:
            exchanged = {first: arrays[second], second: arrays[first]}
            yield f"{first!r} and {second!r} exchanged", {**arrays, **exchanged}


def smaller_scales(arrays: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The samples in usual scales smaller than theirs, as `other_preprocessings` gives them.

    `arrays` are (samples, ...); the floats among them, whose range suggests it, are changed one at
    a time. No scale is larger: any model is surer of itself with that.
    """
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            for steps, (scale, mean) in _smaller(array).items():
                prefix = f"{name}." if len(arrays) > 1 else ""
                changed = {**arrays, name: array * scale - mean}
                yield "&".join(prefix + step for step in steps.split("&")), changed


def _smaller(array: Array) -> dict[str, tuple[float, float]]:
    low, high = float(array.min()), float(array.max())
    if low >= 0 and 2 < high <= 255 and bool((array == np.rint(array)).all()):
        names = ["scale=1/255", "scale=1/127.5&mean=1"]
    elif max(-low, high) > 1000:  # Audio of 16 bits.
        names = ["scale=1/32768"]
    elif is_image(array.shape) and low < -1.5 and high < 4:
        return {"scale=0.226&mean=-0.449": (0.226, -0.449)}
    elif -1 <= low < -0.5 and high <= 1:
        names = ["scale=0.5&mean=-0.5"]
    else:
        names = []
    return {name: _SCALES[name] for name in names}


def _negative(image: Array) -> dict[str, tuple[float, float]]:
    """What makes the negative of images, (samples, height, width, channels), by their range."""
    if float(image.min()) < 0:
        return {"scale=-1": (-1.0, 0.0)}
    high = 1.0 if float(image.max()) <= 1 else 255.0
    return {f"scale=-1&mean=-{high:g}": (-1.0, -high)}


def evenly(count: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The indices (most,) of samples evenly spread over `count`: sets are often sorted by class."""
    return np.linspace(0, count - 1, most).astype(np.intp)
