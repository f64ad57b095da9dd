"""What changed between two reports or two .tflite files."""

from __future__ import annotations

from typing import Literal

from edgeconv.types.model import FrozenStruct, Result, TensorSpec


class NumberChange(FrozenStruct, kw_only=True, frozen=True):
    """A number before and after; None where it was not measured.

    `quantity` is the field of a measurement, with its unit in the name, or "metric:NAME".
    `interval` is the 95 % interval of after minus before, where samples could be paired, and of
    a median time where both were taken in several rounds.
    """

    quantity: str
    before: float | None
    after: float | None
    interval: tuple[float, float] | None = None


class OperatorChange(FrozenStruct, kw_only=True, frozen=True):
    """How often an operator is in a graph, at a version, before and after."""

    operator: str
    version: int
    before: int
    after: int


class TensorChange(FrozenStruct, kw_only=True, frozen=True):
    """A tensor whose type, shape, scale or zero point is another one; None where it is not there.

    `role`: it is an input, an output, or inside the graph.
    """

    role: Literal["input", "output", "inside"]
    before: TensorSpec | None
    after: TensorSpec | None


class FlipCount(FrozenStruct, kw_only=True, frozen=True):
    """Samples whose class is another one: what it was, what it is, and some of their indices."""

    label: int | None
    before: int
    after: int
    samples: tuple[int, ...]


class ModelDifference(FrozenStruct, kw_only=True, frozen=True):
    """One model before and after; equal numbers and tensors are left out.

    `same_file` says that both have the same content. `fixed` and `broken` count the samples
    that became right and wrong, None where both are not known for the same samples.
    """

    before: str
    after: str
    same_file: bool
    numbers: tuple[NumberChange, ...] = ()
    operators: tuple[OperatorChange, ...] = ()
    tensors: tuple[TensorChange, ...] = ()
    fixed: int | None = None
    broken: int | None = None
    flips: tuple[FlipCount, ...] = ()


class Difference(Result, kw_only=True, frozen=True):
    """All that changed between two reports, or between two .tflite files.

    `refused` says what was not compared, and why. `only_before` and `only_after` are the models
    that only one of them has.
    """

    format: Literal[1] = 1
    before: str
    after: str
    models: tuple[ModelDifference, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
