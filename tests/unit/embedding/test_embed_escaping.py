from __future__ import annotations

import ast
import json
import re
import xml.etree.ElementTree as ET

import pytest
from embed_models import HOSTILE
from hypothesis import example, given
from hypothesis import strategies as st

from edgeconv.embedding.escaping import FILTERS, cmake_string, comment

TEXT = st.text(max_size=40) | st.text(alphabet="\"\\$({})</>&*?]=[\n\r\t'é😀", max_size=40)
SWIFT = re.compile(r"\\u\{([0-9a-f]+)\}")


def c_value(literal: str) -> str:
    """What a C compiler makes of it: octal escapes, and everything else as it is."""
    inside = literal[1:-1].encode("ascii")
    raw = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), inside)
    return raw.decode("utf-8")


def swift_value(literal: str) -> str:
    return SWIFT.sub(lambda match: chr(int(match[1], 16)), literal[1:-1])


READERS = {
    "c_string": c_value,
    "js_string": json.loads,
    # Every escape of a generated Kotlin literal is one of JSON as well.
    "kotlin_string": json.loads,
    "python_string": ast.literal_eval,
    "swift_string": swift_value,
}


@pytest.mark.parametrize("language", sorted(READERS))
@given(text=TEXT)
@example(text=HOSTILE)
def test_a_literal_reads_back_as_the_text(language, text):
    text = text.encode("utf-8", "replace").decode("utf-8")
    literal = FILTERS[language](text)
    assert literal.isascii()
    assert literal.isprintable()
    assert READERS[language](literal) == text


@given(text=TEXT)
@example(text=HOSTILE)
def test_nothing_in_a_literal_can_end_it_or_begin_something_else(text):
    assert '"' not in FILTERS["c_string"](text)[1:-1]
    assert "??" not in FILTERS["c_string"](text)
    assert "$" not in FILTERS["kotlin_string"](text)
    assert "\\(" not in FILTERS["swift_string"](text)
    assert "<" not in FILTERS["js_string"](text)


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
@example(text=HOSTILE)
def test_xml_reads_back_as_the_text_where_xml_can_have_it(text):
    escaped = FILTERS["xml_text"](text)
    assert escaped.isascii()
    read = ET.fromstring(f'<a b="{escaped}">{escaped}</a>')
    forbidden = {*map(chr, range(32)), "\ufffe", "\uffff"} - {*"\t\n\r"}
    assert read.text or "".join("?" if c in forbidden else c for c in text) == ""
    assert read.get("b") == (read.text or "")


@given(text=TEXT)
@example(text="]]" + "]=]" + "]==]")
@example(text="a]")
def test_an_argument_of_cmake_ends_where_it_should(text):
    literal = cmake_string(text)
    opening = re.match(r"\[(=*)\[", literal)
    assert opening
    closing = f"]{opening[1]}]"
    assert literal.index(closing, opening.end()) == len(literal) - len(closing)


@given(text=TEXT)
@example(text=HOSTILE)
def test_a_comment_stays_on_its_line_and_is_not_ended(text):
    assert re.fullmatch(r"[A-Za-z0-9_ .,:;()+=?-]*", comment(text))
    assert "*/" not in comment(text)
