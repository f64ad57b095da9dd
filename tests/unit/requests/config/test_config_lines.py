from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.system.store.toml_file import TomlFile, key_lines, toml_header, toml_key, toml_value


def test_each_key_and_table_is_on_the_line_of_its_first_mention():
    text = (
        "# [no.table]\n"
        "top = 1\n"
        "[a.b]\n"
        'x = "# no comment" # a comment with = and [\n'
        "y.z = 1.5\n"
        "\n"
        "[ a . 'quoted key' ]\n"
        '"esc\\u0061ped" = 1979-05-27 07:32:00\n'
        "[[list]]\n"
        "k = {p = 1, q.r = [2, {no = 3}], s = {t = 4}}\n"
    )
    content = msgspec.toml.decode(text)
    assert key_lines(text) == {
        ("top",): 2,
        ("a",): 3,
        ("a", "b"): 3,
        ("a", "b", "x"): 4,
        ("a", "b", "y"): 5,
        ("a", "b", "y", "z"): 5,
        ("a", "quoted key"): 7,
        ("a", "quoted key", "escaped"): 8,
        ("list",): 9,
        ("list", "k"): 10,
    }
    written = TomlFile(Path("edgeconv.toml"), text, content)
    assert written.line("list", "k", "q", "r") == 10


@pytest.mark.parametrize(
    "value",
    [
        "[\n  1,\n  2, # two ]\n]",
        '[\n  "]",\n  [[], ["a"]],\n]',
        '"""\n[b]\nnot = 1\n"""',
        '"""a "quoted" \\""" one\n"""""',
        "'''\nfalse = '\n''''",
        "[{a = 1},\n{b = 2}]",
    ],
)
def test_a_value_of_several_lines_hides_nothing_and_counts_its_lines(value):
    text = f"first = {value}\nafter = 1\n"
    assert set(msgspec.toml.decode(text)) == {"first", "after"}
    assert key_lines(text) == {("first",): 1, ("after",): 2 + value.count("\n")}


def test_lines_that_end_as_on_windows_count_once():
    assert key_lines("a = 1\r\n\r\nb = 2\r\n") == {("a",): 1, ("b",): 3}


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
SCALARS = st.one_of(TEXTS, st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))


@given(st.dictionaries(TEXTS, st.dictionaries(TEXTS, VALUES, max_size=3), max_size=3), st.data())
def test_every_key_of_any_document_is_found_on_its_line(tables, data):
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, pairs in tables.items():
        lines += ["# [comment]"] * data.draw(st.integers(0, 2))
        lines.append(f"{toml_header((table,))} # = {{")
        expected[(table,)] = len(lines)
        for key, value in pairs.items():
            lines.append(f"{toml_key(key)}  =  {toml_value(value)}")
            expected[(table, key)] = len(lines)
    text = "\n".join(lines)
    assert msgspec.toml.decode(text) == tables
    assert key_lines(text) == expected


def test_a_header_alike_in_an_array_is_none():
    text = 'a = [\n["b"],\n[\n"c=1",\n],\n]\n[b]\nc = 1\n'
    assert key_lines(text) == {("a",): 1, ("b",): 7, ("b", "c"): 8}


def test_keys_of_thousands_of_parts_take_no_room():
    """Each part had an entry as long as the key up to it: gigabytes for 256 KiB of keys."""
    text = "".join(f"k{i}.{'.'.join(['a'] * 400)} = 1\n" for i in range(20))
    lines = key_lines(text)
    assert lines["k19", "a"] == 20
    assert key_lines(f"[b]\n{'a.' * 4000}a = 1\nc = 1\n")["b", "c"] == 3
    assert sum(map(len, lines)) < 20 * 16 * 16
