"""The preprocessings that a model was plausibly trained with, by the samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from edgeconv.data.preprocess import preprocess
from edgeconv.data.scalings import COLORS, EVERYTHING, PIXELS, WAVES, Scaling
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.types import Preprocessing, TensorSpec

Array = np.ndarray[Any, Any]

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
