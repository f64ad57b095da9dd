"""Which columns of a table are meant.

COLUMNS are names separated by commas; `first:last` is every column from one to the other,
both included, in the order of the table. A name that has a comma or a colon in it is
taken as it stands where a column is called so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SHOWN = 5


@dataclass(frozen=True)
class ColumnChoice:
    """The columns that make up each array, by the array's name, and the column of the labels."""

    columns: Mapping[str, tuple[str, ...]]
    labels: str | None

    @property
    def needed(self) -> list[str]:
        """Every column that is to be read, once."""
        chosen = [name for names in self.columns.values() for name in names]
        return list(dict.fromkeys([*chosen, *([self.labels] if self.labels else [])]))


def choose(
    location: str,
    names: Sequence[str],
    options: Mapping[str, str],
    array_names: Iterable[str] | None,
) -> ColumnChoice:
    """What the options `labels` and `features`, or else the COLUMNS in `array_names`, mean.

    Without any of them every column but that of the labels is in one array, called "".
    Raises `UsageError` for a name that is not a column, `InputRefused` for names that occur
    twice.
    """
    twice = _twice(names)
    if twice:
        raise InputRefused(
            f"{location} has more than one column called {quoted(twice, _SHOWN)}",
            hint="rename them, so that it is clear which is meant",
        )
    labels = options.get("labels")
    if labels is not None and labels not in names:
        raise unknown_name(f"column in {location}", labels, names)
    if array_names is not None and "features" in options:
        raise UsageError(
            "features= and INPUT=COLUMNS both say which columns to take",
            hint="remove features=",
        )
    if array_names is not None:
        return ColumnChoice(
            {text: _columns(location, names, text) for text in sorted(array_names)}, labels
        )
    if "features" in options:
        return ColumnChoice({"": _columns(location, names, options["features"])}, labels)
    rest = tuple(name for name in names if name != labels)
    if not rest:
        raise InputRefused(f"{location} has no columns but the labels")
    return ColumnChoice({"": rest}, labels)


def _columns(location: str, names: Sequence[str], text: str) -> tuple[str, ...]:
    if text in names:
        return (text,)
    chosen: list[str] = []
    known = set(names)
    for part in text.split(","):
        chosen += [part] if part in known else _range(location, names, part)
    twice = _twice(chosen)
    if twice:
        raise UsageError(f"{text!r} names the column {twice[0]!r} twice")
    return tuple(chosen)


def _twice(names: Sequence[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _range(location: str, names: Sequence[str], part: str) -> Sequence[str]:
    first, colon, last = part.partition(":")
    if not colon:
        raise unknown_name(f"column in {location}", part, names)
    for name in (first, last):
        if name not in names:
            raise unknown_name(f"column in {location}", name, names)
    start, stop = names.index(first), names.index(last)
    if start > stop:
        raise UsageError(
            f"in {location} the column {first!r} comes after {last!r}",
            hint=f"turn them around: {last}:{first}",
        )
    return names[start : stop + 1]
