"""Parquet: typed columns and lists as arrays, and files that are damaged or hold other things."""

import contextlib
import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq
from sources import identity, load_samples, opened_samples, with_classes
from wording import fails

from edgeconv.data.kinds import parquet
from edgeconv.types import TensorSpec
from edgeconv.types.errors import EdgeconvError, InputRefused

FLOWERS = {"length": [5.1, 7.0, 6.3], "count": [1, 2, 3], "kind": ["setosa", "virginica", "setosa"]}


@pytest.fixture
def table(tmp_path):
    def write(columns: Any, name: str = "a.parquet", **options: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path, **options)
        return str(path)

    return write


def read(place: str, wanted: frozenset[str] | None = None, **options: str) -> Any:
    return with_classes(parquet.read(place, options, wanted))


def test_columns_become_one_array_and_text_labels_numbers(table):
    arrays = read(table(FLOWERS), labels="kind")
    assert arrays.by_name[""].tolist() == [[5.1, 1], [7.0, 2], [6.3, 3]]
    assert arrays.labels.tolist() == [0, 1, 0]
    assert arrays.class_names == ("setosa", "virginica")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 1, 5], pa.int8()),
        pa.array([0, 1, 5], pa.uint64()),
        pa.array([0, 1, 5], pa.float16()),
        pa.array([0, 1, 5], pa.float32()),
        pa.array([0, 1, 5], pa.decimal128(5, 2)),
        pa.array(["0", "1", "5"], pa.string()),
        pa.array(["0", "1", "5"], pa.large_string()),
        pa.array(["0", "1", "5"]).dictionary_encode(),
        pa.array([0, 1, 5]).dictionary_encode(),
    ],
)
def test_numbers_of_every_type_are_read_as_features_and_as_labels(values, table):
    place = table({"x": values, "y": values})
    arrays = read(place, labels="y")
    assert arrays.by_name[""].tolist() == [[0], [1], [5]]
    assert arrays.labels.tolist() == [0, 1, 5]
    assert arrays.labels.dtype.kind in "iu"


def test_booleans_are_0_and_1(table):
    assert read(table({"x": [True, False]})).by_name[""].tolist() == [[1], [0]]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 4)])
def test_a_column_of_lists_is_a_dimension(kind, table):
    pixels = np.arange(12, dtype=np.float32).reshape(3, 4)
    place = table({"image": pa.array(pixels.tolist(), kind), "y": [0, 1, 2]})
    np.testing.assert_array_equal(read(place, labels="y").by_name[""], pixels)
    spec = TensorSpec(name="in", shape=(-1, 2, 2, 1), dtype="float32")
    samples = load_samples(place + "?in=image&labels=y", (spec,))
    np.testing.assert_array_equal(samples.arrays["in"], pixels.reshape(3, 2, 2, 1))


def test_lists_of_lists_are_two_dimensions_and_keep_their_order(table):
    values = np.arange(24).reshape(2, 3, 4)
    place = table({"x": values.tolist()})
    np.testing.assert_array_equal(read(place).by_name[""], values)
    fits = TensorSpec(name="in", shape=(-1, 3, 4, 1), dtype="float32")
    assert load_samples(place, (fits,)).arrays["in"].shape == (2, 3, 4, 1)
    turned = TensorSpec(name="in", shape=(-1, 4, 3), dtype="float32")
    with fails(InputRefused):
        load_samples(place, (turned,))


def test_a_directory_is_read_in_the_order_of_its_files(table, tmp_path):
    table({"x": [3, 4]}, "parts/part-1.parquet")
    table({"x": [1, 2]}, "parts/part-0.parquet")
    table({"x": [9]}, "parts/_old.parquet")
    (tmp_path / "parts" / "_SUCCESS").touch()
    place = str(tmp_path / "parts")
    assert read(place).by_name[""].tolist() == [[1], [2], [3], [4]]
    before = identity(place)
    (tmp_path / "parts" / "_SUCCESS").write_text("changed")
    assert identity(place) == before
    table({"x": [5]}, "parts/part-2.parquet")
    assert identity(place) != before


def test_files_with_different_columns_are_refused(table, tmp_path):
    table({"x": [1]}, "parts/0.parquet")
    table({"z": [1]}, "parts/1.parquet")
    with fails(InputRefused):
        read(str(tmp_path / "parts"))
    table({"x": ["a"]}, "parts/1.parquet")
    with fails(InputRefused):
        read(str(tmp_path / "parts"))


@pytest.mark.parametrize(
    "columns",
    [
        {"x": [1.0, None, None]},
        {"x": [b"\xff\xd8"]},
        {"x": [{"bytes": b"\x89", "path": "a"}]},
        {"x": [{"a": 1}]},
        {"x": [datetime.datetime(2020, 1, 1)]},
        {"x": pa.nulls(2)},
        {"x": [[1, 2], [3]]},
        {"x": [[1, 2], None]},
        {"x": [[1, None]]},
        {"x": [["a"]]},
        {"x": [[1, 2]], "z": [1]},
        {"x": ["1", "two"]},
        {"x": pa.array([], pa.float32())},
        {"x": [decimal.Decimal("1.5")], "y": [1.5]},
    ],
)
def test_columns_that_are_no_numbers_say_which_and_where(columns, table):
    options = {"labels": "y"} if "y" in columns else {}
    with fails(InputRefused):
        read(table(columns), **options)


def test_a_dot_in_a_name_is_part_of_it(table):
    place = table({"a": [1], "a.b": [2], "y": [0]})
    assert read(place, features="a.b").by_name[""].tolist() == [[2]]
    assert read(place, features="a").by_name[""].tolist() == [[1]]


def test_a_truncated_file_is_refused(table):
    path = Path(table(FLOWERS))
    whole = path.read_bytes()
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(InputRefused, match="not a readable Parquet file"):
            read(str(path), labels="kind")


def test_many_equal_rows_in_a_small_file_are_refused(table, monkeypatch):
    place = table({"x": np.zeros(100_000)})
    assert Path(place).stat().st_size < 10_000
    monkeypatch.setattr("edgeconv.data.arrays._limit_bytes", 100_000)
    with pytest.raises(InputRefused, match=r"would take \d,\d{3},\d{3} bytes of memory"):
        read(place)


CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=20, deadline=None)
@given(CHANGES, st.sampled_from(["snappy", "none", "gzip"]))
def test_a_damaged_file_gives_a_table_or_a_clear_error(tmp_path_factory, changes, compression):
    """In a child: pyarrow was seen to abort on damaged files."""
    path = tmp_path_factory.mktemp("damaged") / "a.parquet"
    columns = {**FLOWERS, "list": [[1, 2], [3, 4], [5, 6]]}
    pq.write_table(pa.table(columns), path, compression=compression)
    damaged = bytearray(path.read_bytes())
    for position, value in changes:
        damaged[position % len(damaged)] = value
    path.write_bytes(damaged)
    row = TensorSpec(name="x", shape=(-1, 2), dtype="float32")
    source = f"{path}?labels=kind&features=length:count"
    with contextlib.suppress(EdgeconvError), opened_samples(source, (row,)) as opened:
        assert opened.take(np.arange(opened.count)).arrays["x"].dtype == np.float32
