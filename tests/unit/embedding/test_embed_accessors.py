import ast
import json
import re
import xml.etree.ElementTree as ET

import pytest
from embed_models import HOSTILE
from hypothesis import example, given
from hypothesis import strategies as st
from wording import fails

from edgeconv.embedding.accessors import FILTERS, cmake_string, comment, identifiers, ports
from edgeconv.types import Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("snake", ("input_image", "serving_default_input_1_0", "rgb_image2", "uber_name")),
        ("camel", ("inputImage", "servingDefaultInput10", "rgbImage2", "uberName")),
        ("pascal", ("InputImage", "ServingDefaultInput10", "RgbImage2", "UberName")),
    ],
)
def test_names_become_words(style, expected):
    names = ["inputImage", "serving_default_input_1:0", "RGBImage2", "Über name"]
    assert identifiers(names, style, (), "tensor") == expected


def test_equal_identifiers_are_numbered_in_the_order_of_the_names():
    assert identifiers(["a-b", "a b", "a.b"], "snake", (), "x") == ("a_b", "a_b_2", "a_b_3")
    assert identifiers(["a-b", "a b"], "camel", (), "x") == ("aB", "aB2")


def test_types_are_told_apart_by_more_than_capitals():
    assert identifiers(["ab", "a b", "AB"], "pascal", (), "x") == ("Ab", "AB2", "Ab3")
    assert identifiers(["ab", "a b"], "camel", (), "x") == ("ab", "aB")


def test_a_number_never_makes_an_identifier_that_is_there_already():
    assert identifiers(["a", "a_2", "A"], "snake", (), "x") == ("a", "a_2", "a_3")


def test_reserved_words_get_an_underscore_and_names_without_letters_another_name():
    assert identifiers(["class", "日本", "", "7"], "snake", {"class"}, "input") == (
        "class_",
        "input",
        "input_2",
        "input7",
    )


@given(
    st.lists(st.text(max_size=12), max_size=8, unique=True),
    st.sampled_from(["snake", "camel", "pascal"]),
)
def test_identifiers_are_identifiers_all_different_and_not_reserved(names, style):
    reserved = {"a", "class", "in", "A", "Class", "tensor"}
    found = identifiers(names, style, reserved, "tensor")
    assert len(set(found)) == len(names) == len(found)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", one) for one in found)
    assert not reserved & set(found)


def test_a_port_has_its_place_in_the_graph_its_bytes_and_its_preprocessing():
    specs = [
        TensorSpec(name="b", shape=(-1, 4), dtype="int8", scale=(0.5,), zero_point=(-3,)),
        TensorSpec(name="a", shape=(2,), dtype="float64"),
    ]
    steps = Preprocessing(scale=2.0)
    shapes = {"a": (2,), "b": (1, 4)}
    first, second = ports(specs, ["a", "b"], shapes, {"b": steps, "": Preprocessing()})
    assert (first.index, first.graph_index, first.bytes, first.elements) == (0, 1, 4, 4)
    assert (first.scale, first.zero_point, first.is_open) == (0.5, -3, True)
    assert first.preprocessing == steps
    assert (second.graph_index, second.bytes, second.scale) == (0, 16, None)
    assert second.preprocessing == Preprocessing()
    assert not second.is_open


@pytest.mark.parametrize("dtype", ["string", "resource", "int4"])
def test_a_tensor_without_a_type_in_code_is_refused(dtype):
    with fails(InputRefused):
        ports([TensorSpec(name="x", shape=(1,), dtype=dtype)], ["x"], {"x": (1,)})


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
