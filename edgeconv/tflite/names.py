"""What inputs and outputs are called, and which ones of two models are the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import TensorSpec


def valid_names(raw: Sequence[str], fallback: str) -> list[str]:
    """`raw` as signature names: valid, unique, in the same order; `fallback` for an empty one."""
    taken: set[str] = set()
    # The number to go on with: a model may have thousands of one name.
    numbers: dict[str, int] = {}
    names = []
    for one in raw:
        bare = re.sub(r":\d+$", "", one).removeprefix(f"{SERVING_DEFAULT}_")
        wanted = re.sub(r"[^A-Za-z0-9_.]+", "_", bare).strip("_") or fallback
        name = wanted
        while name in taken:
            numbers[wanted] = numbers.get(wanted, 1) + 1
            name = f"{wanted}_{numbers[wanted]}"
        taken.add(name)
        names.append(name)
    return names


def match_names(own: Sequence[TensorSpec], other: Sequence[TensorSpec]) -> dict[str, str] | None:
    """The name in `other` of each tensor of `own`; None where that cannot be told for certain.

    Tensors of one name are the same. Where the names differ, a lone tensor is the lone other
    one, and several are told by their names without what converters add, or by their types and
    the shapes of one sample, where no two have the same.
    """
    if {one.name for one in own} == {one.name for one in other}:
        return {one.name: one.name for one in own}
    if len(own) != len(other):
        return None
    if len(own) == 1:
        return {own[0].name: other[0].name}
    by_name = (valid_names([one.name for one in each], "") for each in (own, other))
    kinds = ([(_value_type(one), one.shape[1:]) for one in each] for each in (own, other))
    for keys, wanted in (tuple(by_name), tuple(kinds)):
        if set(keys) == set(wanted) and len(set(keys)) == len(keys):
            names = dict(zip(wanted, (one.name for one in other), strict=True))
            return {one.name: names[key] for one, key in zip(own, keys, strict=True)}
    return None


def _value_type(spec: TensorSpec) -> str:
    return "float32" if spec.scale else spec.dtype
