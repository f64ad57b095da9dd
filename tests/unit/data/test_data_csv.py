"""CSV: columns, labels, and every way that a text can fail to be a table of numbers."""

import csv
import io
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import identity, load_samples, with_classes
from wording import fails

from edgeconv.data.kinds import csv_file
from edgeconv.types import Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

FLOWERS = "length,width,kind\n5.1,3.5,setosa\n7.0,3.2,versicolor\n6.3,3.3,virginica\n4.9,3,setosa\n"


@pytest.fixture
def table(tmp_path):
    def write(text: str | bytes, name: str = "a.csv") -> str:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return str(path)

    return write


def read(place: str, wanted: frozenset[str] | None = None, **options: str) -> Any:
    return with_classes(csv_file.read(place, options, wanted))


def column(*shape: int, name: str = "x", dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def test_every_column_but_the_labels_is_one_array(table):
    arrays = read(table(FLOWERS), labels="kind")
    assert list(arrays.by_name) == [""]
    np.testing.assert_array_equal(
        arrays.by_name[""], [[5.1, 3.5], [7.0, 3.2], [6.3, 3.3], [4.9, 3.0]]
    )
    assert arrays.is_text


def test_class_names_are_numbered_in_their_order(table):
    arrays = read(table(FLOWERS), labels="kind")
    assert arrays.class_names == ("setosa", "versicolor", "virginica")
    assert arrays.labels.tolist() == [0, 1, 2, 0]


def test_class_numbers_stay_what_they_are_and_may_have_a_decimal_point(table):
    arrays = read(table("y,x\n7,1\n0.0,2\n2.,3\n"), labels="y")
    assert arrays.labels.tolist() == [7, 0, 2]
    assert arrays.labels.dtype == np.int64
    assert arrays.class_names == ()


def test_columns_are_numbered_without_a_header(table):
    arrays = read(table("1,10,100\n2,20,200\n"), header="no", labels="0", features="2,1")
    assert arrays.by_name[""].tolist() == [[100, 10], [200, 20]]
    assert arrays.labels.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("b:d", [2, 3, 4]),
        ("a,c:d", [1, 3, 4]),
        ("d,a", [4, 1]),
        ("e:f", [5]),
        ("e:f,a", [5, 1]),
        ("a:a", [1]),
        ("g,h", [6]),
    ],
)
def test_columns_are_names_and_ranges(columns, expected, table):
    place = table('a,b,c,d,e:f,"g,h"\n1,2,3,4,5,6\n')
    assert read(place, features=columns).by_name[""].tolist() == [expected]
    assert read(place, frozenset({columns})).by_name[columns].tolist() == [expected]


def test_inputs_get_the_columns_that_are_named_for_them(table):
    place = table("a,b,c,y\n1,2,3,0\n4,5,6,1\n")
    specs = (column(-1, 2, name="left"), column(-1, 1, name="right"))
    samples = load_samples(f"{place}?left=a:b&right=c&labels=y", specs)
    assert samples.arrays["left"].tolist() == [[1, 2], [4, 5]]
    assert samples.arrays["right"].tolist() == [[3], [6]]
    assert samples.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("shape", "expected"), [((-1, 1), (3, 1)), ((-1,), (3,)), ((1, 1, 1), (3, 1, 1))]
)
def test_one_column_fits_an_input_of_one_value_whatever_its_shape(shape, expected, table):
    samples = load_samples(table("x\n1\n2\n3\n"), (column(*shape),))
    assert samples.arrays["x"].shape == expected


def test_a_flattened_image_is_put_into_the_shape_of_the_input(table):
    pixels = np.arange(2 * 64).reshape(2, 64)
    rows = "\n".join(",".join(map(str, row)) for row in pixels)
    samples = load_samples(table(rows) + "?header=no", (column(-1, 8, 8, 1),))
    np.testing.assert_array_equal(samples.arrays["x"], pixels.reshape(2, 8, 8, 1))
    assert samples.arrays["x"].dtype == np.float32


def test_preprocessing_begins_with_the_shape_of_the_input(table):
    steps = {"": Preprocessing(mean=(1.0, 2.0), std=(1.0, 1.0))}
    samples = load_samples(
        table("1,2,3,4\n5,6,7,8\n") + "?header=no", (column(-1, 2, 1, 2),), preprocessing=steps
    )
    assert samples.arrays["x"].reshape(2, 4).tolist() == [[0, 0, 2, 2], [4, 4, 6, 6]]


def test_preprocessing_may_change_the_number_of_values(table):
    steps = {"": Preprocessing(length=3)}
    samples = load_samples(
        table("1,2,3,4\n5,6,7,8\n") + "?header=no", (column(-1, 3),), preprocessing=steps
    )
    assert samples.arrays["x"].tolist() == [[1, 2, 3], [5, 6, 7]]


def test_too_few_or_many_columns_name_both_numbers_and_the_option(table):
    with fails(InputRefused):
        load_samples(table("a,b,y\n1,2,0\n"), (column(-1, 2),))


def test_whole_numbers_go_to_an_integer_input_exactly(table):
    place = table(f"a,b\n{2**62 + 1},1\n-3,2\n")
    samples = load_samples(place, (column(-1, 2, dtype="int64"),))
    assert samples.arrays["x"].tolist()[1] == [-3, 2]
    assert load_samples(f"{place}?features=a", (column(-1, dtype="int64"),)).arrays["x"][0] == (
        2**62 + 1
    )


@pytest.mark.parametrize(("dtype", "value"), [("int8", "128"), ("int32", "1.5"), ("bool", "2")])
def test_a_number_that_an_input_cannot_hold_is_refused(dtype, value, table):
    with fails(InputRefused):
        load_samples(table(f"x\n0\n1\n{value}\n"), (column(-1, 1, dtype=dtype),))


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("a\tb\n1\t2\n", "a.tsv", {}),
        ("a;b\n1;2\n", "a.csv", {"delimiter": ";"}),
        ("a\tb\n1\t2\n", "a.csv", {"delimiter": "tab"}),
        ("\ufeffa,b\r\n1,2\r\n", "a.csv", {}),
        ("a, b\n 1 , 2\n", "a.csv", {}),
        ('"a","b"\n"1","2"\n\n', "a.csv", {}),
        ("\n\na,b\n\n1,2", "a.csv", {}),
    ],
)
def test_the_dialects_of_csv_read_the_same(text, name, options, table):
    place = table(text, name)
    assert read(place, **options).by_name[""].tolist() == [[1, 2]]
    assert read(place, features="b", **options).by_name[""].tolist() == [[2]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n", {}, "has a header and no rows"),
        ("\n\n", {}, "has no rows"),
        ("a,b\n1,2\n3\n", {}, "row 3: 1 cells, and the first row has 2"),
        ("a;b\n1;2,5\n", {}, "row 2: 2 cells, and the first row has 1.*separated by ','"),
        ("a,b\n1,2\n", {"header": "no"}, "row 1: 'a' is not a number.*remove header=no"),
        ("a,b\n1,2\n3,4,5\n", {"features": "a"}, "row 3: 3 cells"),
        ("a,b\n1,2\n3,x\n", {}, r"column 'b', row 3: 'x' is not a number"),
        ("a,b\n1,2\n3,\n", {}, r"column 'b': the cell in row 3 is empty"),
        ("1,2\n3,  \n", {"header": "no"}, r"column '1': the cell in row 2 is empty"),
        ("a,b\n1,2\n3,0x10\n", {}, "'0x10' is not a number"),
        ("a,y\n1,\n", {"labels": "y"}, r"'y' \(the labels\): the cell in row 2 is empty"),
        ("a,y\n1,2\n1,dog\n", {"labels": "y"}, "numbers, such as '2', and .* 'dog' in row 3"),
        ("a,y\n1,2\n1,2.5\n", {"labels": "y"}, r"\(the labels\), row 3: 2.5 is not a class number"),
        ("a,y\n1,nan\n", {"labels": "y"}, "nan is not a class number"),
        ("a,y\n1,1e300\n", {"labels": "y"}, "not a class number"),
        ('a,y\n1,"dog\ncat"\n', {"labels": "y"}, "goes over several lines"),
        ("a,b,a\n1,2,3\n", {}, "more than one column called 'a'"),
        ("7,0.5,0.5\n1,2,3\n", {}, "more than one column called '0.5' header=no"),
        ("y\n1\n", {"labels": "y"}, "no columns but the labels"),
        ('a,b\n1,"2\n3,4\n', {}, "odd number of quotation marks"),
        (b"a,b\n1,2\n3,\xff\n", {}, "not UTF-8 text: bad byte in line 3"),
        ("a,b\n1,é\n".encode("latin-1"), {}, "bad byte in line 2"),
        ("a,b\n1,2\n".encode("utf-16"), {}, "not UTF-8 text: bad byte in line 1"),
        (b"a,b\n1,2\0\n", {}, "holds zero bytes"),
    ],
)
def test_a_text_that_is_no_table_of_numbers_says_where(text, options, message, table):
    with pytest.raises(InputRefused) as refused:
        read(table(text), **options)
    assert re.search(message, f"{refused.value.message} {refused.value.hint}")


@pytest.mark.parametrize("options", [{}, {"features": "width,kind"}])
def test_a_column_of_words_is_taken_for_the_labels_that_nobody_named(options, table):
    place = table("width,height,kind\n1,2,cat\n3,4,dog\n")
    with fails(InputRefused):
        read(place, **options)
    assert read(place, labels="kind").class_names == ("cat", "dog")


@pytest.mark.parametrize(
    "options",
    [
        {"labels": "knd"},
        {"features": "length,widht"},
        {"features": "length:widht"},
        {"features": "width:length"},
        {"features": "length,length:width"},
        {"features": ""},
        {"header": "none"},
        {"delimiter": ",,"},
        {"delimiter": '"'},
    ],
)
def test_a_wrong_option_is_a_usage_error(options, table):
    with fails(UsageError):
        read(table(FLOWERS), **options)


def test_features_and_renaming_are_not_mixed(table):
    with fails(UsageError):
        read(table(FLOWERS), frozenset({"width"}), features="length")


def test_a_huge_line_is_refused(table, monkeypatch):
    monkeypatch.setattr(csv_file, "_LARGEST_ROW_BYTES", 1 << 12)
    rows = "1,2\n" * 2000
    assert read(table(rows), header="no").by_name[""].shape == (2000, 2)
    with fails(InputRefused):
        read(table("1,2\n1," + "2" * 20_000 + "\n"), header="no")
    with pytest.raises(InputRefused):
        read(table("1," + "2" * 200_000 + "\n"), header="no")


def test_a_file_over_the_limit_is_refused(table, monkeypatch):
    monkeypatch.setattr(csv_file, "_LARGEST_BYTES", 10)
    with fails(InputRefused):
        read(table(FLOWERS))


def test_the_delimiter_is_part_of_the_identity(table):
    comma, tab = table(FLOWERS), table(FLOWERS, "b.tsv")
    assert identity(comma) == identity(table(FLOWERS, "c.csv")) != identity(tab)


floats = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(floats, min_size=width, max_size=width), min_size=1, max_size=8
        )
    ),
    st.sampled_from([",", ";", "\t", "|"]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_the_standard_library_writes_is_read_to_the_last_bit(
    tmp_path_factory, rows, delimiter, header, end
):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_MINIMAL)
    if header:
        writer.writerow([f'column "{i}"{delimiter}' for i in range(len(rows[0]))])
    writer.writerows(rows)
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.getvalue().encode())
    arrays = read(str(path), delimiter=delimiter, header="yes" if header else "no")
    np.testing.assert_array_equal(arrays.by_name[""], rows)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=10))
def test_class_names_come_back_through_their_numbers_or_are_refused(tmp_path_factory, names):
    text = io.StringIO()
    csv.writer(text).writerows([["x", "y"], *([1, name] for name in names)])
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
    try:
        arrays = read(str(path), labels="y")
    except InputRefused:
        return
    if arrays.class_names:
        assert [arrays.class_names[i] for i in arrays.labels] == [name.strip() for name in names]
