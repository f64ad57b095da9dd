"""Whether calibration samples are plausible on their own: their range, and how many differ."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.types import InputRange, Suspicion
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edgeconv.data.samples import Array, Samples

# Ranges of fewer samples are chance. A set of fewer different samples than this is named.
FEW_SAMPLES = 10
# From this many on, samples that are all equal are a mistake and not an example.
_MOST_EQUAL = 8
_BLOCK_VALUES = 1 << 20
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
    """What is wrong with the set, without the model: too few, equal or constant samples."""
    count, different = samples.count, _different(samples)
    if count > 1 and different == 1:
        return (Suspicion(f"all {count} samples are equal", count >= _MOST_EQUAL),)
    suspicions = []
    if different < FEW_SAMPLES and count > different:
        suspicions.append(Suspicion(f"only {different} of {count} samples differ"))
    elif count < FEW_SAMPLES:
        suspicions.append(Suspicion(f"there are only {count} samples"))
    if same := [name for name, array in samples.arrays.items() if _is_same(array)]:
        suspicions.append(Suspicion(f"{quoted(same)} is the same in every sample"))
    return tuple(suspicions)


def _is_same(array: Array) -> bool:
    """Whether an input of floats is the same in all samples; a mask of integers often is."""
    if array.dtype.kind != "f" or len(array) < _MOST_EQUAL:
        return False
    return all(bool((row == array[0]).all()) for row in array)


def _different(samples: Samples) -> int:
    arrays = tuple(samples.arrays.values())
    rows = (tuple(array[index].tobytes() for array in arrays) for index in range(samples.count))
    return len({hash(row) for row in rows})


def other_preprocessings(arrays: Mapping[str, Array]) -> Iterator[tuple[str, dict[str, Array]]]:
    """The samples as frequent mistakes would have to be undone, each with the steps that do it.

    `arrays` are float (samples, ...), others stay as they are. The steps are those of
    `--preprocess`, done after those that there are already.
    """
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f"]
    for steps, (scale, mean) in _SCALES.items():
        yield steps, {n: a * scale - mean if n in floats else a for n, a in arrays.items()}
    if colors := [name for name in floats if arrays[name].ndim == 4 and arrays[name].shape[3] == 3]:
        yield "channels=bgr", {n: a[..., ::-1] if n in colors else a for n, a in arrays.items()}
    for first, second in itertools.combinations(floats, 2):
        if arrays[first].shape == arrays[second].shape:
            exchanged = {first: arrays[second], second: arrays[first]}
            yield f"{first!r} and {second!r} exchanged", {**arrays, **exchanged}


def evenly(count: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The indices (most,) of samples evenly spread over `count`: sets are often sorted by class."""
    return np.linspace(0, count - 1, most).astype(np.intp)
