"""The kind `csv`: a table as text, with commas, or tabs in a file that ends in .tsv.

With `header=no` the first row is data; the columns are then called 0, 1, ….
`labels=COLUMN` has the labels, as class numbers or as names; `features=COLUMNS` are all
that is taken, or INPUT=COLUMNS for each input. `delimiter=` is a character, or `tab`.
COLUMNS are as in `edgeconv.data.table`. Rows are counted from 1 in messages, the header
is one, and empty lines are none.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened, refuse_larger, sha256_of
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = frozenset({"header", "labels", "features", "delimiter"})

_LARGEST_ROW_BYTES = 16 << 20
_BLOCK_BYTES = 1 << 20
_LARGEST_BYTES = 8 << 30
_MOST_COLUMNS = 1 << 20
# What a cell takes beyond its text, as a string, as a number, and that in an array of all columns.
_CELL_BYTES = 24
_COLUMN_BYTES = 4096


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hash of the file and of how it is cut into cells. Raises `InputRefused`."""
    return hash_of(sha256_of(Path(location)), _delimiter(location, options))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The chosen columns as arrays (n, columns) and the labels.

    Raises `UsageError` for a column or option that does not exist, `InputRefused` for a
    file that is not a table of numbers or strings.
    """
    from edgeconv.data import table

    delimiter, header = _delimiter(location, options), _has_header(options)
    with opened(Path(location)) as (file, size_bytes):
        if size_bytes > _LARGEST_BYTES:
            raise InputRefused(
                f"{location} has {size_bytes:,} bytes; the most is {_LARGEST_BYTES:,}"
            )
        cell_count = _check_text(location, file, delimiter)
        names = _names(location, file, delimiter, header=header)
        choice = table.choose(location, names, options, array_names)
        _refuse_too_large(location, size_bytes, cell_count, len(choice.needed), len(names))
        cells = _cells(location, file, delimiter, names, choice.needed).slice(int(header))
    if not cells.num_rows:
        raise InputRefused(
            f"{location} has a header and no rows", hint="header=no if its first row is data"
        )
    return table.arrays(location, cells, choice, first_row=2 if header else 1)


def _delimiter(location: str, options: Mapping[str, str]) -> str:
    text = options.get("delimiter", "tab" if Path(location).suffix.lower() == ".tsv" else ",")
    delimiter = "\t" if text in ("tab", "\\t") else text
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise UsageError(
            f"delimiter={text} is not one character", hint="for example delimiter=; or tab"
        )
    return delimiter


def _has_header(options: Mapping[str, str]) -> bool:
    header = options.get("header", "yes")
    if header not in ("yes", "no"):
        raise unknown_name("value of header=", header, ("yes", "no"))
    return header == "yes"


def _check_text(location: str, file: IO[bytes], delimiter: str) -> int:
    """No fewer than there are cells, in a file that is text.

    Raises `InputRefused` for what is not UTF-8, and for a quotation mark that would swallow the
    rest of the file.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, quotes, delimiters = 1, 0, 0
    while True:
        block = file.read(_BLOCK_BYTES)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            # The decoder's own object begins with what was left of the block before.
            line += error.object[: error.start].count(b"\n")
            raise InputRefused(
                f"{location} is not UTF-8 text: bad byte in line {line}",
                hint="save it as CSV in UTF-8; is it a CSV file at all?",
            ) from None
        if not block:
            break
        if b"\0" in block:
            raise InputRefused(
                f"{location} holds zero bytes and is not a text file",
                hint="save it as CSV in UTF-8",
            )
        line += block.count(b"\n")
        quotes += block.count(b'"')
        delimiters += block.count(delimiter.encode())
    if quotes % 2:
        raise InputRefused(
            f"{location} has an odd number of quotation marks, so one is never closed",
            hint='a quotation mark that is part of a cell is written twice: "5"" pipe"',
        )
    return delimiters + line


def _refuse_too_large(
    location: str, size_bytes: int, cells: int, needed: int, columns: int
) -> None:
    """Refuse what would not fit into memory, of whose columns some are needed."""
    each = size_bytes + cells * _CELL_BYTES + columns * _COLUMN_BYTES
    refuse_larger(location, each * needed // columns, "choose fewer columns with features=COLUMNS")


def _names(location: str, file: IO[bytes], delimiter: str, *, header: bool) -> list[str]:
    """The names of the columns, from the first row that is not empty."""
    file.seek(0)
    head = file.read(_LARGEST_ROW_BYTES).decode("utf-8-sig", "ignore")
    rows = csv.reader(io.StringIO(head, newline=""), delimiter=delimiter)
    try:
        first = next((row for row in rows if row), None)
    except csv.Error as error:
        raise InputRefused(f"{location} is not a readable CSV file: {error}") from error
    if first is None:
        raise InputRefused(f"{location} has no rows", hint="all of its lines are empty")
    if len(first) > _MOST_COLUMNS:
        raise InputRefused(
            f"{location} has {len(first):,} columns or more; the most is {_MOST_COLUMNS:,}",
            hint="write the samples as an array: np.save",
        )
    return [name.strip() for name in first] if header else [str(i) for i in range(len(first))]


def _cells(
    location: str, file: IO[bytes], delimiter: str, names: list[str], needed: list[str]
) -> pa.Table:
    """All rows, the first one included, of the needed columns, as text."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    ragged: list[Any] = []

    def refuse(row: Any) -> str:
        ragged.append(row)
        return "error"

    # The header is read as a row, so that names mean nothing to the parser.
    positions = {name: index for index, name in enumerate(names)}
    columns = [f"f{positions[name]}" for name in needed]
    file.seek(0)
    try:
        cells = arrow.read_csv(
            file,
            # Only a single thread knows the number of a row.
            arrow.ReadOptions(
                use_threads=False, block_size=_LARGEST_ROW_BYTES, autogenerate_column_names=True
            ),
            arrow.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            arrow.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as error:
        raise _not_parsed(location, delimiter, str(error), ragged) from error
    return cells.rename_columns(needed)


def _not_parsed(location: str, delimiter: str, message: str, ragged: list[Any]) -> InputRefused:
    if ragged:
        row = ragged[0]
        return InputRefused(
            f"{location}, row {row.number}: {row.actual_columns} cells, "
            f"and the first row has {row.expected_columns}",
            hint=f"every row needs the same number; are the cells separated by {delimiter!r}?",
        )
    if "straddl" in message:
        return InputRefused(
            f"{location} has a row of more than {_LARGEST_ROW_BYTES:,} bytes",
            hint="is it a CSV file, with one sample per line?",
        )
    return InputRefused(f"{location} is not a readable CSV file: {message}")
