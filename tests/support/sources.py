"""The functions of `edgeconv.data` with a text for the SOURCE, as a test writes it."""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from edgeconv import data
from edgeconv.data.arrays import Arrays
from edgeconv.data.location import parse_source
from edgeconv.data.samples import Samples
from edgeconv.data.source import DataSet, LocalDataSet
from edgeconv.data.source import open_samples as open_local
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused


def identity(text: str, **options: Any) -> str:
    """The hash of what a SOURCE holds."""
    return data.identity(parse_source(text), **options)


def runs_code(text: str) -> bool:
    """Whether reading a SOURCE runs code."""
    return data.runs_code(parse_source(text))


def opened_samples(
    text: str, inputs: tuple[TensorSpec, ...], **options: Any
) -> AbstractContextManager[DataSet]:
    """The samples of a SOURCE, read in a child."""
    return data.opened_samples(parse_source(text), inputs, **options)


def open_samples(text: str, inputs: tuple[TensorSpec, ...], **options: Any) -> LocalDataSet:
    """The samples of a SOURCE, read here."""
    return open_local(parse_source(text), inputs, **options)


def load_samples(text: str, inputs: tuple[TensorSpec, ...], **options: Any) -> Samples:
    """All samples of a SOURCE, each input (n, *sample_shape)."""
    opened = open_samples(text, inputs, **options)
    return opened.take(np.arange(opened.count))


def with_classes(arrays: Arrays) -> Arrays:
    """The same arrays. Raises, as `open_samples` does for inputs of numbers, what it is told."""
    for error in arrays.not_numbers.values():
        raise error
    if arrays.no_classes:
        raise InputRefused(arrays.no_classes)
    return arrays


def split_taken(
    samples: Samples | DataSet, count: int | None, **options: Any
) -> tuple[Samples, Samples]:
    """The samples of `edgeconv.data.split_calibration`."""
    calibration, held_back = data.split_calibration(samples, count, **options)
    return samples.take(calibration), samples.take(held_back)
