"""Warnings about quantized files that are larger than need be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.types import EVERY_RECIPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.types import Recipe, RecipeName

# Scales and names take this much in any file: too little to speak of.
_LITTLE_BYTES = 1024
# Two recipes with weights of equal bits differ by less.
_FAR = 1.5


def size_warning(
    recipe: Recipe,
    sizes: Mapping[RecipeName, int],
    float_bytes: int,
    *,
    unrolled: bool,
) -> str:
    """The warning about a file that is larger than need be, "" where it is not.

    `sizes` are the bytes of all that were made together, `float_bytes` those of the float32 model
    before any loops were unrolled, which `unrolled` says of this one.
    """
    size = sizes[recipe.name]
    cheaper = EVERY_RECIPE[1 : EVERY_RECIPE.index(recipe.name)]
    others = {name: sizes[name] for name in cheaper if name in sizes and sizes[name] < float_bytes}
    least = min(others, key=lambda name: others[name], default=None)
    beyond_float = size > float_bytes + _LITTLE_BYTES
    beyond_other = least and size > max(_FAR * others[least], others[least] + _LITTLE_BYTES)
    if recipe.name == "float32" or not (beyond_float or beyond_other):
        return ""
    why = ", because its loops were unrolled: each step became an operator" * unrolled
    if least and not beyond_float:
        return f"{_times(least, size, others[least])}{why}"
    return (
        f"{_times('float32', size, float_bytes)}{why}; "
        f"{_instead(recipe, least, others, unrolled=unrolled)}"
    )


def _times(other: str, size: int, bytes_: int) -> str:
    return (
        f"the file is {size / bytes_:.1f} times as large as {other} ({size:,} and {bytes_:,} bytes)"
    )


def _instead(
    recipe: Recipe, least: RecipeName | None, others: Mapping[RecipeName, int], *, unrolled: bool
) -> str:
    if least is not None:
        return f"{least} has {others[least]:,} bytes"
    if unrolled and recipe.full_integer:
        return "dynamic keeps the loops, and is smaller as a rule"
    return "float32 or float16 serves better"
