"""Names of inputs and outputs, and which of them correspond in two models."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import TensorSpec


def valid_names(raw: Sequence[str], fallback: str) -> list[str]:
    """`raw` as valid, unique signature names, in the same order; `fallback` for an empty one."""
    taken: set[str] = set()
    # The last number of each name: a model may have thousands of one name.
    numbers: dict[str, int] = {}
    names = []
    for raw_name in raw:
        bare = re.sub(r":\d+$", "", raw_name).removeprefix(f"{SERVING_DEFAULT}_")
        base = re.sub(r"[^A-Za-z0-9_.]+", "_", bare).strip("_") or fallback
        name = base
        while name in taken:
            numbers[base] = numbers.get(base, 1) + 1
            name = f"{base}_{numbers[base]}"
        taken.add(name)
        names.append(name)
    return names


def match_names(own: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> dict[str, str] | None:
    """The name in `other` of each tensor of `own`; None if that is not certain.

    Equal names correspond, and so do single tensors. Otherwise the names without converters'
    additions decide, or types and shapes of one sample, where each is unique.
    """
    if {spec.name for spec in own} == {spec.name for spec in other}:
        return {spec.name: spec.name for spec in own}
    if len(own) != len(other):
        return None
    if len(own) == 1:
        return {own[0].name: other[0].name}
    by_name = (valid_names([spec.name for spec in each], "") for each in (own, other))
    kinds = ([(_value_type(spec), spec.shape[1:]) for spec in each] for each in (own, other))
    for keys, theirs in (tuple(by_name), tuple(kinds)):
        if set(keys) == set(theirs) and len(set(keys)) == len(keys):
            names = dict(zip(theirs, (spec.name for spec in other), strict=True))
            return {spec.name: names[key] for spec, key in zip(own, keys, strict=True)}
    return None


def _value_type(spec: TensorSpec) -> str:
    return "float32" if spec.scale else spec.dtype
