"""The kind `parquet`: a table in one Parquet file, or in all `*.parquet` of a directory.

`labels=COLUMN` has the labels, as class numbers or as names; `features=COLUMNS` are all
that is taken, or INPUT=COLUMNS for each input. COLUMNS are as in `edgeconv.data.table`. A
column of equally long lists is an array (n, length). Rows are counted from 1 in messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened, refuse_larger, sha256_of
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import listed, shortened

if TYPE_CHECKING:
    import pyarrow as pa

OPTIONS = frozenset({"labels", "features"})

# What a value takes, as Arrow has it, as an array, and that in an array of all columns; half of it
# because the rows are counted as well.
_VALUE_BYTES = 12
_COLUMN_BYTES = 4096

# What pyarrow raises on damaged files, in addition to its own exceptions.
_BAD_PARQUET = (OSError, OverflowError, ValueError, IndexError, KeyError, TypeError)


def identity(location: str, options: Mapping[str, str]) -> str:  # noqa: ARG001
    """The hash of the files, in the order of their names. Raises `InputRefused`."""
    return hash_of(*(sha256_of(path) for path in _files(location)))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The chosen columns as arrays (n, columns), and the labels.

    Raises `UsageError` for a column that does not exist, `InputRefused` for files that
    hold no table of numbers or strings. Damaged files can abort pyarrow.
    """
    from edgeconv.data import table

    paths = _files(location)
    choice = table.choose(location, _names(paths), options, array_names)
    refuse_larger(
        location,
        sum(_needed_bytes(location, path, choice.needed) for path in paths),
        "choose fewer columns with features=COLUMNS, or one of several files",
    )
    rows = _joined(paths, [_columns(location, path, choice.needed) for path in paths])
    if not rows.num_rows:
        raise InputRefused(f"{location} has no rows")
    return table.arrays(location, rows, choice, first_row=1)


def _files(location: str) -> list[Path]:
    path = Path(location)
    if not path.is_dir():
        return [path]
    try:
        # What begins with _ or . is not data to those who write such directories.
        files = sorted(p for p in path.glob("*.parquet") if p.name[0] not in "_.")
    except OSError as error:
        raise InputRefused(f"{path} cannot be read: {error.strerror or error}") from error
    if not files:
        raise InputRefused(
            f"{path} holds no .parquet files",
            hint="give the directory that has them directly in it, or one file",
        )
    return files


def _names(paths: Sequence[Path]) -> list[str]:
    """The columns, the same in every file."""
    first: list[str] = []
    for path in paths:
        with _parquet_file(path) as file:
            names = list(file.schema_arrow.names)
        first = first or names
        if names != first:
            raise InputRefused(
                f"{path.name} has the columns {shortened(listed(names), 100)}, "
                f"and {paths[0].name} has {shortened(listed(first), 100)}",
                hint="give one of the files, or write them with the same columns",
            )
    return first


def _needed_bytes(location: str, path: Path, needed: list[str]) -> int:
    """What the columns of a file take in memory, strings that occur more than once only once.

    A column of equal values is tiny in the file, with any declared size. Raises
    `InputRefused` for columns of another type.
    """
    from edgeconv.data import table

    with _parquet_file(path) as file:
        # Each access builds it again.
        schema = file.schema_arrow
        for name in needed:
            table.refuse_kind(f"{location}, column {name!r}", schema.field(name).type)
        metadata = file.metadata
        paths = {leaf.path for leaf in _leaves(metadata, needed)}
        values, declared = metadata.num_rows * len(needed), 0
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            chunks = [group.column(index) for index in range(group.num_columns)]
            chunks = [chunk for chunk in chunks if chunk.path_in_schema in paths]
            values += sum(chunk.num_values for chunk in chunks)
            declared += sum(chunk.total_uncompressed_size for chunk in chunks)
    total: int = declared + values * _VALUE_BYTES + len(needed) * _COLUMN_BYTES
    return total


def _leaves(metadata: Any, needed: list[str]) -> list[Any]:
    """What the columns consist of, as the file stores them."""
    schema, chosen = metadata.schema, set(needed)
    leaves = (schema.column(index) for index in range(len(schema)))
    return [each for each in leaves if chosen & {each.path, each.path.partition(".")[0]}]


def _columns(location: str, path: Path, needed: list[str]) -> pa.Table:
    import pyarrow as pa

    from edgeconv.data import table

    with _parquet_file(path) as file:
        schema = file.schema_arrow
        kinds = [schema.field(name).type for name in needed]
        leaves = _leaves(file.metadata, needed)
        text = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    # Equal strings are read once, so that their size is known before they are written out.
    with _parquet_file(path, text) as file:
        rows = file.read(columns=needed, use_threads=False)
        # A name is also taken for the path to a field, which may select more columns.
        rows = rows.select(needed)
        # Else text that is not UTF-8 would fail later, anywhere.
        rows.validate(full=True)
        columns = [
            table.written_out(f"{location}, column {name!r}", rows.column(name), kind)
            for name, kind in zip(needed, kinds, strict=True)
        ]
        return pa.table(columns, names=needed)


@contextlib.contextmanager
def _parquet_file(path: Path, as_dictionary: Sequence[str] = ()) -> Iterator[Any]:
    """The open file. What cannot be read of it, in the block as well, is an `InputRefused`."""
    import pyarrow as pa
    from pyarrow import parquet

    with opened(path) as (stream, _size):
        try:
            with parquet.ParquetFile(stream, read_dictionary=list(as_dictionary)) as file:
                yield file
        except (pa.ArrowException, *_BAD_PARQUET) as error:
            raise InputRefused(
                f"{path} is not a readable Parquet file: {shortened(str(error), 300)}",
                hint="copy or write it again; it may be cut short",
            ) from error


def _joined(paths: Sequence[Path], parts: Sequence[pa.Table]) -> pa.Table:
    import pyarrow as pa

    for path, part in zip(paths, parts, strict=True):
        if part.schema.types != parts[0].schema.types:
            index = next(
                i for i, kind in enumerate(part.schema.types) if kind != parts[0].schema.types[i]
            )
            raise InputRefused(
                f"the column {part.schema.names[index]!r} is {part.schema.types[index]} in "
                f"{path.name}, and {parts[0].schema.types[index]} in {paths[0].name}",
                hint="write the files with the same columns",
            )
    return pa.concat_tables(part.replace_schema_metadata() for part in parts)
