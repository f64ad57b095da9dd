"""Tables: which columns are meant, and their cells as arrays of numbers or strings.

COLUMNS are names separated by commas; `first:last` is every column from one to the other,
both included, in the order of the table. A name that has a comma or a colon in it is
taken as it stands where a column is called so.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgeconv.data.arrays import PYTHON_BYTES, Arrays, ended_list, refuse_larger
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import quoted

_Cells = Callable[[str, pa.ChunkedArray, int], "Array"]


Array = np.ndarray[Any, Any]

# From here on not every whole number is a float64.
_LARGEST_EXACT = 2**53
_SHOWN_CHARACTERS = 40
# More dimensions than any sample has.
_DEEPEST = 8
_NUMBER_TESTS = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_null,
)
_SHOWN = 5


def arrays(location: str, table: pa.Table, choice: ColumnChoice, first_row: int) -> Arrays:
    """The chosen columns of a table as arrays, each (n, columns), and the labels.

    One column of lists becomes (n, *list_shape). `first_row` is the number that the table's
    first row has in messages. Columns of text are there as strings as well, and only so where
    they are not numbers. Raises `InputRefused`, with row and column, for what is neither.
    """
    by_name: dict[str, Array] = {}
    not_numbers: dict[str, InputRefused] = {}
    as_strings = {
        name: partial(_stacked, location, table, columns, first_row, _strings)
        for name, columns in choice.columns.items()
        if all(_holds_text(table.schema.field(column).type) for column in columns)
    }
    for name, columns in choice.columns.items():
        try:
            by_name[name] = _stacked(location, table, columns, first_row, _numbers)
        except InputRefused as error:
            words = _unnamed_labels(location, table, columns) if choice.labels is None else None
            if name not in as_strings:
                raise words or error from error
            not_numbers[name] = words or error
    if choice.labels is None:
        return Arrays(by_name, is_text=True, as_strings=as_strings, not_numbers=not_numbers)
    where = f"{location}, column {choice.labels!r} (the labels)"
    labels, class_names = _class_numbers(where, table.column(choice.labels), first_row)
    fault = _no_classes(where, labels, first_row)
    if labels.ndim == 1 and labels.dtype.kind == "f" and not fault:
        labels = labels.astype(np.int64)
    return Arrays(
        by_name,
        labels,
        is_text=True,
        class_names=class_names,
        no_classes=fault,
        as_strings=as_strings,
        not_numbers=not_numbers,
    )


def refuse_kind(where: str, kind: pa.DataType, depth: int = 0) -> None:
    """Raise `InputRefused` for a type whose cells are neither numbers nor strings, nor lists."""
    if depth > _DEEPEST:
        raise InputRefused(f"{where} holds lists nested more than {_DEEPEST} deep")
    if pa.types.is_dictionary(kind) or _is_list(kind):
        refuse_kind(where, kind.value_type, depth + 1)
    elif not (_is_text(kind) or any(test(kind) for test in _NUMBER_TESTS)):
        raise _not_numbers(where, kind)


def written_out(where: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of the type `kind` whose strings were read as a dictionary.

    Raises `InputRefused` where they are too large together.
    """
    if column.type == kind:
        return column
    size = sum(_text_bytes(chunk) for chunk in column.chunks)
    refuse_larger(where, size, "choose fewer columns with features=COLUMNS")
    return column.cast(kind)


def _text_bytes(array: pa.Array) -> int:
    """What the strings of a dictionary, in lists maybe, are in bytes when written out."""
    while not pa.types.is_dictionary(array.type):
        array = array.flatten()
    lengths = pc.binary_length(array.dictionary).to_numpy(zero_copy_only=False)
    counts = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(lengths))
    return int(np.nan_to_num(lengths) @ counts)


def _unnamed_labels(
    location: str, table: pa.Table, columns: tuple[str, ...]
) -> InputRefused | None:
    """What is wrong with a column of words among numbers: most likely it has the labels."""
    words = [name for name in columns if _is_words(table.column(name))]
    if len(words) != 1 or len(columns) == 1:
        return None
    name, cell = words[0], table.column(words[0])[0].as_py()
    return InputRefused(
        f"{location}, column {name!r} has words, such as {_shown(cell)}, where numbers are needed",
        hint=f"if it has the labels: {location}?labels={name}; else choose the other columns with "
        "features=COLUMNS",
    )


def _is_words(column: pa.ChunkedArray) -> bool:
    """Whether no cell of a column of text is a number."""
    if not _is_text(column.type):
        return False
    cells = pc.unique(pc.utf8_trim_whitespace(column.drop_null())).to_pylist()
    return bool(cells) and all(cell and not _is_number(cell) for cell in cells)


def _stacked(
    location: str, table: pa.Table, columns: tuple[str, ...], first_row: int, of: _Cells
) -> Array:
    parts = [of(f"{location}, column {name!r}", table.column(name), first_row) for name in columns]
    if len(parts) == 1:
        return parts[0][:, None] if parts[0].ndim == 1 else parts[0]
    lists = [name for name, part in zip(columns, parts, strict=True) if part.ndim > 1]
    if lists:
        raise InputRefused(
            f"{location}: the column {lists[0]!r} holds lists, and is one of {len(parts)} columns",
            hint=f"choose it alone, as features={lists[0]} or INPUT={lists[0]}",
        )
    return np.stack(parts, axis=1)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind) or _is_list(kind):
        return _holds_text(kind.value_type)
    return _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _strings(where: str, column: pa.ChunkedArray, first_row: int) -> Array:
    """The cells as they are (n,), or (n, *list_shape) for a column of lists."""
    _refuse_nulls(where, column, first_row)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_list(column.type):
        return _lists(where, column, first_row, _strings)
    refuse_larger(where, column.nbytes + len(column) * PYTHON_BYTES, "give fewer samples")
    return ended_list(column.to_pylist(), where)


def _numbers(where: str, column: pa.ChunkedArray, first_row: int) -> Array:
    """The cells (n,), or (n, *list_shape) for a column of lists. Booleans become 0 and 1."""
    _refuse_nulls(where, column, first_row)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if _is_text(kind):
        return _parsed(where, column, first_row)
    if pa.types.is_boolean(kind):
        return _to_numpy(column.cast(pa.uint8()))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _to_numpy(column)
    if pa.types.is_decimal(kind):
        return _to_numpy(column.cast(pa.float64()))
    if _is_list(kind):
        return _lists(where, column, first_row, _numbers)
    raise _not_numbers(where, kind)


def _to_numpy(column: pa.ChunkedArray) -> Array:
    array: Array = column.to_numpy()
    return array


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _lists(where: str, column: pa.ChunkedArray, first_row: int, of: _Cells) -> Array:
    lengths = _to_numpy(pc.list_value_length(column))
    size = int(lengths[0]) if len(lengths) else 0
    if (lengths != size).any():
        row = int(np.argmax(lengths != size))
        raise InputRefused(
            f"{where}: the list in row {first_row + row} has {lengths[row]} values, "
            f"that in row {first_row} has {size}",
            hint="lists must be equally long; pad or cut them when the file is written",
        )
    flat = of(f"{where} (in its lists)", pc.list_flatten(column), 1)
    return flat.reshape(len(lengths), size, *flat.shape[1:])


def _not_numbers(where: str, kind: pa.DataType) -> InputRefused:
    # An image is stored as its bytes, or as a struct of them and its path.
    fields = [kind.field(index).type for index in range(kind.num_fields)]
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    if any(test(part) for test in binary for part in (kind, *fields)):
        return InputRefused(
            f"{where} holds bytes ({kind}), such as encoded images, not numbers",
            hint="write them to a folder of images, or to TFRecord files; "
            "or choose other columns with features=COLUMNS",
        )
    return InputRefused(
        f"{where} holds {kind}, not numbers", hint="choose other columns: features=COLUMNS"
    )


def _refuse_nulls(where: str, column: pa.ChunkedArray, first_row: int) -> None:
    if column.null_count:
        row = int(np.argmax(_to_numpy(column.is_null())))
        raise InputRefused(
            f"{where}: {column.null_count} cells are empty (null), "
            f"the first in row {first_row + row}",
            hint="fill them, or drop their rows or the column",
        )


def _parsed(where: str, column: pa.ChunkedArray, first_row: int) -> Array:
    """Text as float64; as int64 where whole numbers are too large to be exact in float64."""
    trimmed = pc.utf8_trim_whitespace(column)
    try:
        array = _to_numpy(trimmed.cast(pa.float64()))
    except pa.ArrowInvalid:
        raise _bad_cell(where, trimmed, first_row) from None
    if len(array) and np.abs(array).max() >= _LARGEST_EXACT:
        with contextlib.suppress(pa.ArrowInvalid):
            return _to_numpy(trimmed.cast(pa.int64()))
    return array


def _bad_cell(where: str, column: pa.ChunkedArray, first_row: int) -> InputRefused:
    row, cell = next(
        (row, cell) for row, cell in enumerate(column.to_pylist()) if not _is_number(cell)
    )
    if not cell:
        return InputRefused(
            f"{where}: the cell in row {first_row + row} is empty",
            hint="fill it, or drop the row or the column (features=COLUMNS)",
        )
    hint = "choose other columns with features=COLUMNS, or correct the cell"
    if row == 0 and _all_numbers(column.slice(1, 1)):
        hint = "if that is the header, remove header=no; else correct the cell"
    return InputRefused(
        f"{where}, row {first_row + row}: {_shown(cell)} is not a number", hint=hint
    )


def _is_number(cell: str) -> bool:
    return _all_numbers(pa.chunked_array([[cell]], pa.string()))


def _all_numbers(column: pa.ChunkedArray) -> bool:
    try:
        column.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= _SHOWN_CHARACTERS else cell[:_SHOWN_CHARACTERS] + "…")


def _class_numbers(
    where: str, column: pa.ChunkedArray, first_row: int
) -> tuple[Array, tuple[str, ...]]:
    """The labels, (n,) mostly, and the names that they number where they were text."""
    _refuse_nulls(where, column, first_row)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if _is_text(column.type):
        names = _class_names(where, pc.utf8_trim_whitespace(column), first_row)
        if names:
            cells = pc.utf8_trim_whitespace(column)
            numbers = pc.index_in(cells, value_set=pa.array(names, cells.type))
            return _to_numpy(numbers.cast(pa.int64())), tuple(names)
    return _numbers(where, column, first_row), ()


def _class_names(where: str, column: pa.ChunkedArray, first_row: int) -> list[str]:
    """The names of the classes in their order, none where the cells are numbers."""
    names = sorted(column.unique().to_pylist())
    numbers = [name for name in names if _is_number(name)]
    if "" in names:
        raise _bad_cell(where, pc.if_else(pc.equal(column, ""), column, "0"), first_row)
    if numbers and len(numbers) < len(names):
        odd = next(name for name in names if name not in set(numbers))
        row = column.to_pylist().index(odd)
        raise InputRefused(
            f"{where}: some are numbers, such as {_shown(numbers[0])}, and some are not: "
            f"{_shown(odd)} in row {first_row + row}",
            hint="write either numbers or names for all",
        )
    broken = next((name for name in names if "\n" in name), None)
    if broken is not None:
        raise InputRefused(
            f"{where}: {_shown(broken)} goes over several lines",
            hint="look for a quotation mark that is not closed",
        )
    return [] if numbers else names


def _no_classes(where: str, labels: Array, first_row: int) -> str:
    """The label that is not a class number, "" where all are."""
    if labels.ndim != 1 or labels.dtype.kind in "iu" or not len(labels):
        return ""
    numbers = labels.astype(np.float64)
    bad = ~((numbers == np.rint(numbers)) & (np.abs(numbers) < _LARGEST_EXACT))
    row = int(np.argmax(bad))
    is_bad = bool(bad.any())
    return (
        f"{where}, row {first_row + row}: {numbers[row]:g} is not a class number" if is_bad else ""
    )


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

    Without any of them every column but the labels is in one array, called "".
    Raises `UsageError` for a name that is not a column, `InputRefused` for names that occur
    twice.
    """
    twice = _twice(names)
    if twice:
        raise InputRefused(
            f"{location} has more than one column called {quoted(twice, _SHOWN)}",
            hint="header=no if the first row is data"
            if all(map(_is_number, names))
            else "rename them, so that it is clear which is meant",
        )
    labels = options.get("labels")
    if labels is not None and labels not in names:
        raise unknown_name(f"column in {location}", labels, names)
    if array_names is not None and "features" in options:
        raise UsageError(
            "features= and INPUT=COLUMNS both say which columns to take", hint="remove features="
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
