"""What a convolution or a dense layer sees of its input, row by row, and the moments of that.

Everything is (groups, ...): a dense layer or a plain convolution is one group, a grouped
convolution has its groups, a depthwise one has a group for each input channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = NDArray[np.float32]


_MOST_ROWS = 40_000
# Means need fewer than second moments: what they miss of a layer's error is one part in as many.
_MOST_ROWS_OF_MEANS = 1_000
# Multiplications that a second moment may take, and numbers that its rows may have in all groups,
# unless too few rows would be left.
_MOST_PRODUCTS, _MOST_NUMBERS = 1e10, 4e6
_LEAST_ROWS = 1000
_LEAST_ROWS_PER_INPUT = 12
_MOST_ROWS_PER_INPUT = 1000
# The golden ratio's multiples spread evenly, however many there are.
_GOLDEN = (5**0.5 - 1) / 2
_CHUNK_ELEMENTS = 2**23


class Window(NamedTuple):
    """How a kernel goes over an image. Sizes are (height, width); `same` is SAME padding."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    same: bool

    def outputs(self, image: tuple[int, int]) -> tuple[int, int]:
        """The height and width of what comes out."""
        return (self._count(image, 0), self._count(image, 1))

    def padding(self, image: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
        """Zeros before and after, for height and width: the odd one goes after."""
        return (self._pad(image, 0), self._pad(image, 1))

    def _extent(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def _count(self, image: tuple[int, int], axis: int) -> int:
        free = image[axis] if self.same else image[axis] - self._extent(axis) + 1
        return -(-free // self.strides[axis])

    def _pad(self, image: tuple[int, int], axis: int) -> tuple[int, int]:
        if not self.same:
            return (0, 0)
        needed = (self._count(image, axis) - 1) * self.strides[axis] + self._extent(axis)
        total = max(0, needed - image[axis])
        return (total // 2, total - total // 2)


class Geometry(NamedTuple):
    """How an input becomes rows: `window` is None for a dense layer; d inputs in each group."""

    groups: int
    d: int
    window: Window | None


class Quantity(NamedTuple):
    """Stored values of a tensor over runs, (n, *shape), and what they stand for."""

    stored: NDArray[np.generic]
    scale: float = 0.0
    zero_point: int = 0

    def real(self, part: slice) -> Values:
        """The numbers of some samples, as float32."""
        values: Values = np.asarray(self.stored[part], np.float32)
        return (values - self.zero_point) * np.float32(self.scale) if self.scale else values

    def images(self) -> Quantity:
        """The same, (images, height, width, channels), where a run has several of them."""
        return self._replace(stored=self.stored.reshape(-1, *self.stored.shape[-3:]))


@dataclass
class Moments:
    """Moments of the rows a quantized layer sees, and of the float layer's outputs.

    `mean` (groups, d), `covariance` (groups, d, d) are of the inputs x; `output_mean` (groups,
    channels) is of the float layer's outputs y before bias and activation; `cross` (groups, d,
    channels) is the covariance of x and y.
    """

    rows: int
    mean: Floats
    covariance: Floats
    output_mean: Floats
    cross: Floats

    def about_zero(self) -> Moments:
        """The same with moments about zero in place of those about the means."""
        x, y = self.mean, self.output_mean
        return Moments(
            self.rows,
            np.zeros_like(x),
            self.covariance + x[:, :, None] * x[:, None, :],
            np.zeros_like(y),
            self.cross + x[:, :, None] * y[:, None, :],
        )

    def lacking(self, weights: Floats) -> Floats:
        """What quantized weights, (groups, channels, d), lack of the outputs' means."""
        lack: Floats = self.output_mean - np.einsum("gcd,gd->gc", weights, self.mean)
        return lack


def layer_outputs(
    floating: Quantity, geometry: Geometry, weights: Floats, *, means: bool
) -> Iterator[Values]:
    """What the float layer makes of rows of its inputs, (groups, rows, channels), by parts.

    `weights` are the layer's, (groups, channels, d). `means`: fewer rows, enough for means.
    """
    kernel = np.swapaxes(weights, 1, 2).astype(np.float32)
    for own in _row_parts(floating, geometry, means=means):
        yield own @ kernel


def moments(quantized: Quantity, float_outputs: Iterable[Values], geometry: Geometry) -> Moments:
    """The moments over all samples; of evenly spread positions if there are very many.

    `float_outputs` are the `layer_outputs` of the same samples.
    """
    sums: _MomentSums | None = None
    rows = _row_parts(quantized, geometry, means=False)
    for x, y in zip(rows, float_outputs, strict=True):
        if sums is None:
            sums = _MomentSums.at(x, y)
        sums.add(x, y)
    assert sums is not None, "there are samples"
    return sums.moments()


def lacking(
    quantized: Quantity, float_outputs: Iterable[Values], geometry: Geometry, values: Floats
) -> Floats:
    """What `moments(...).lacking(values)` is, without second moments of the inputs.

    `float_outputs` are the `layer_outputs` of the same samples, for means.
    """
    kernel = np.swapaxes(values, 1, 2).astype(np.float32)
    parts: list[tuple[int, Floats]] = []
    rows = _row_parts(quantized, geometry, means=True)
    for x, y in zip(rows, float_outputs, strict=True):
        parts.append((x.shape[1], (y - x @ kernel).mean(axis=1, dtype=np.float64)))
    shares = np.array([rows for rows, _ in parts], np.float64)
    shares = (shares / shares.sum())[:, None, None]
    lack: Floats = np.sum(shares * np.stack([mean for _, mean in parts]), axis=0)
    return lack


@dataclass
class _MomentSums:
    """Sums about a point near the means, so that no digits are lost."""

    x0: Values
    y0: Values
    rows: int
    x: Floats
    y: Floats
    xx: Floats
    xy: Floats

    @classmethod
    def at(cls, x: Values, y: Values) -> _MomentSums:
        groups, _, d = x.shape
        channels = y.shape[2]
        return cls(
            x.mean(axis=1, keepdims=True),
            y.mean(axis=1, keepdims=True),
            0,
            np.zeros((groups, d)),
            np.zeros((groups, channels)),
            np.zeros((groups, d, d)),
            np.zeros((groups, d, channels)),
        )

    def add(self, x: Values, y: Values) -> None:
        x, y = x - self.x0, y - self.y0
        across = np.swapaxes(x, 1, 2)
        self.rows += x.shape[1]
        self.x += x.sum(axis=1, dtype=np.float64)
        self.y += y.sum(axis=1, dtype=np.float64)
        self.xx += across @ x
        self.xy += across @ y

    def moments(self) -> Moments:
        x, y = self.x / self.rows, self.y / self.rows
        return Moments(
            self.rows,
            x + self.x0[:, 0],
            self.xx / self.rows - x[:, :, None] * x[:, None, :],
            y + self.y0[:, 0],
            self.xy / self.rows - x[:, :, None] * y[:, None, :],
        )


def _row_parts(quantity: Quantity, geometry: Geometry, *, means: bool) -> Iterator[Values]:
    """Rows of a layer's input, (groups, rows, d), a part of the samples at a time.

    They are at the same places for the input of the quantized layer and of the float one.
    """
    if geometry.window is not None:
        quantity = quantity.images()
    count = len(quantity.stored)
    places = _places(quantity.stored.shape, geometry, means=means)
    whole = int(np.prod(quantity.stored.shape[1:]))
    size = places.shape[1] * geometry.d * geometry.groups
    step = max(1, _CHUNK_ELEMENTS // max(1, whole, size))
    for start in range(0, count, step):
        part = slice(start, start + step)
        rows = _rows(quantity.stored[part], geometry, places[part], quantity.zero_point)
        yield quantity._replace(stored=rows).real(slice(None))


def _places(shape: tuple[int, ...], geometry: Geometry, *, means: bool) -> NDArray[np.intp]:
    """Which rows of each sample are used: (samples, rows), evenly spread and from the next on."""
    if geometry.window is None:
        total = max(1, int(np.prod(shape[1:])) // geometry.d)
    else:
        height, width = geometry.window.outputs((shape[1], shape[2]))
        total = height * width
    d = geometry.d
    most = min(_MOST_ROWS, _MOST_ROWS_PER_INPUT * d, int(_MOST_PRODUCTS / (d * d)))
    affordable = max(_LEAST_ROWS, int(_MOST_NUMBERS / (d * geometry.groups)))
    most = max(min(most, affordable), _LEAST_ROWS_PER_INPUT * d)
    rows = _MOST_ROWS_OF_MEANS if means else most
    used = min(total, -(-rows // shape[0]))
    shift = np.arange(shape[0]) * _GOLDEN % 1.0
    places: NDArray[np.intp] = np.floor(
        (np.arange(used)[None, :] + shift[:, None]) * (total / used)
    ).astype(np.intp)
    return np.minimum(places, total - 1)


def _rows(
    values: NDArray[np.generic], geometry: Geometry, places: NDArray[np.intp], zero_point: int
) -> NDArray[np.generic]:
    sample = np.arange(len(values))[:, None]
    if geometry.window is None:
        rows = values.reshape(len(values), -1, geometry.d)[sample, places]
        return rows.reshape(1, -1, geometry.d)
    window = geometry.window
    image = (values.shape[1], values.shape[2])
    padding = window.padding(image)
    padded = values
    if np.any(padding):
        padded = np.pad(values, ((0, 0), *padding, (0, 0)), constant_values=zero_point)
    below, right = np.divmod(places, window.outputs(image)[1])
    y = (below * window.strides[0])[:, :, None, None] + _steps(window, 0)[:, None]
    x = (right * window.strides[1])[:, :, None, None] + _steps(window, 1)[None, :]
    patches = padded[sample[:, :, None, None], y, x]
    # (n, places, height, width, channels) to (groups, rows, height, width, channels of a group)
    grouped = patches.reshape(
        -1, *window.kernel, geometry.groups, patches.shape[-1] // geometry.groups
    )
    return np.moveaxis(grouped, 3, 0).reshape(geometry.groups, -1, geometry.d)


def _steps(window: Window, axis: int) -> NDArray[np.intp]:
    return np.arange(window.kernel[axis], dtype=np.intp) * window.dilations[axis]
