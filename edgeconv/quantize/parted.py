"""Outputs of a float graph whose parts have ranges too different for one scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from edgeconv.model.tflite.cut import JoinedOutput

# By signature and output, float64 [samples, ...].
OutputArrays = dict[tuple[str, str], NDArray[np.float64]]

# Two bits of eight: parts that differ by less lose little.
_RATIO = 4.0
# A part that is smaller by this has no values to lose.
_NOTHING = 1e-9


class OutputPart(NamedTuple):
    """Values of an output: `mask` has their positions in a sample, and `span` their range."""

    mask: NDArray[np.bool_]
    span: tuple[float, float]


class PartedOutput(NamedTuple):
    """An output and its parts, that with the largest values first.

    `layers` names the tensors of the operators that give parts of different ranges one scale.
    `is_joined`: they only join, and compute nothing.
    """

    signature: str
    output: str
    parts: tuple[OutputPart, ...]
    layers: tuple[str, ...]
    is_joined: bool

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each part, with its range."""
        return tuple(
            f"{self.output} ({low:.4g} to {high:.4g})"
            for low, high in (part.span for part in self.parts)
        )


def parted_outputs(
    joined: Iterable[JoinedOutput], expected: OutputArrays
) -> tuple[PartedOutput, ...]:
    """Those of the joined outputs whose parts differ in range by more than 4 times.

    The ranges are taken from `expected`, which the float graph gives. Channels are parts only where
    they lie next to each other, and no range lies between those of two parts: class scores differ
    gradually, and channels that hardly ever fire lie anywhere.
    """
    parted = []
    for output in joined:
        values = expected.get((output.signature, output.output))
        if values is None or values.shape[1:] != output.labels.shape:
            continue
        if not np.isfinite(values).all():
            continue
        spans = _spans(output, values)
        groups = _groups(spans, gradual=not output.is_joined)
        if len(groups) > 1 and (output.is_joined or all(map(_is_row, groups))):
            parted.append(_parted_output(output, spans, groups))
    return tuple(parted)


def _is_row(labels: Sequence[int]) -> bool:
    return max(labels) - min(labels) == len(labels) - 1


def _parted_output(
    joined: JoinedOutput, spans: Sequence[tuple[float, float]], groups: Sequence[list[int]]
) -> PartedOutput:
    parts = tuple(
        OutputPart(
            np.isin(joined.labels, group),
            (min(spans[i][0] for i in group), max(spans[i][1] for i in group)),
        )
        for group in groups
    )
    layers = tuple(
        name
        for name, labels in joined.layers
        if sum(not labels.isdisjoint(group) for group in groups) > 1
    )
    return PartedOutput(joined.signature, joined.output, parts, layers, joined.is_joined)


def split_parts(parted: Sequence[PartedOutput], outputs: OutputArrays) -> OutputArrays:
    """`outputs` with each of `parted` replaced by its parts, under names with their ranges.

    A part that is some of the last dimension keeps its shape otherwise; any other one is
    [samples, values, 1].
    """
    by_key = {(output.signature, output.output): output for output in parted}
    split: OutputArrays = {}
    for key, values in outputs.items():
        output = by_key.get(key)
        if output is None:
            split[key] = values
            continue
        for name, part in zip(output.names, output.parts, strict=True):
            split[key[0], name] = _taken(values, part.mask)
    return split


def _taken(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    channels = mask.reshape(-1, mask.shape[-1])
    if (channels[:1] == channels).all():
        return values[..., channels[0]]
    return values[:, mask][..., None]


def _spans(joined: JoinedOutput, values: NDArray[np.float64]) -> list[tuple[float, float]]:
    """The smallest and the largest value of each label."""
    count = int(joined.labels.max()) + 1
    low, high = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(low, joined.labels, values.min(axis=0))
    np.maximum.at(high, joined.labels, values.max(axis=0))
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _groups(spans: Sequence[tuple[float, float]], *, gradual: bool) -> list[list[int]]:
    """The labels of each part, the largest values first; those without values are in none.

    `gradual`: a part ends where the next smaller label is 4 times smaller, else where it is that
    much smaller than the part's largest.
    """
    sizes = [max(abs(low), abs(high)) for low, high in spans]
    largest = max((size for size in sizes if np.isfinite(size)), default=0.0)
    order = sorted(
        (i for i, size in enumerate(sizes) if np.isfinite(size) and size > _NOTHING * largest),
        key=lambda i: -sizes[i],
    )
    groups: list[list[int]] = []
    for label in order:
        if groups and sizes[groups[-1][-1 if gradual else 0]] <= _RATIO * sizes[label]:
            groups[-1].append(label)
        else:
            groups.append([label])
    return groups
