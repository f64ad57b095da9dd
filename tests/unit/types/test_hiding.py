"""What a message of a tool still says once the values of samples are out of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgeconv.types.words import first_line, without_values

SAMPLES = arrays.arrays(
    st.sampled_from(["float32", "float64", "uint8", "int64"]),
    arrays.array_shapes(min_dims=1, max_dims=4, min_side=2, max_side=5),
    # Numbers of three digits, none of which a shape or another word of the message has.
    elements=st.integers(100, 249),
)
PRINTED = {
    "repr": repr,
    "str": str,
    "list of fractions": lambda array: repr((array + 0.5).tolist()),
    "tensor": lambda array: (
        f"<tf.Tensor: shape={array.shape}, dtype={array.dtype.name}, numpy=\n{array!r}>"
    ),
    "tensor's str": lambda array: (
        f"tf.Tensor(\n{array!s}, shape={array.shape}, dtype={array.dtype.name})"
    ),
    "replicas": lambda array: (
        "PerReplica:{\n"
        f"  0: <tf.Tensor: shape={array.shape}, dtype=float32, numpy=\n{array!r}>,\n"
        f"  1: <tf.Tensor: shape={array.shape}, dtype=float32, numpy=\n{array!r}>\n}}"
    ),
    "tuple of arrays": lambda array: str((array, {"image": array})),
    "scalar": lambda array: repr(array.ravel()[0]),
}


@given(st.data(), st.sampled_from(sorted(PRINTED)), SAMPLES)
def test_no_value_of_an_array_is_left_wherever_the_message_is_cut(data, how, array):
    text = f"cannot convert {PRINTED[how](array)} with an unsupported type"
    cut = data.draw(st.integers(len("cannot convert "), len(text)))
    values = {f"{value:g}" for value in array.ravel().astype(float)}
    for said in (without_values(text), without_values(text[:cut]), first_line(text)):
        assert said.startswith("cannot convert ")
        assert not [value for value in values if value in said], said
    assert without_values(text).endswith(" with an unsupported type")
    assert len(without_values(text)) < 250


@pytest.mark.parametrize(
    "text",
    [
        "Incompatible shapes: [32,10] vs. [32]",
        "expected shape=(None, 224, 224, 3), found shape=(1, 4)",
        "logits and labels must have the same first dimension, got logits shape [16,3] and",
        "index 5 is out of bounds for axis 0 with size 3 [Op:GatherV2]",
        "keras 3.15.1 (2.21.0), took (0.5) s, f() and [] and [...] and (...)",
        "KerasTensor(type_spec=TensorSpec(shape=(None, 4), dtype=tf.float32, name='x'))",
        'Tensor("Placeholder:0", shape=(None, 4), dtype=float32) must be from the same graph',
        "tf.Tensor(shape=(16, 4), dtype=float32)",
        "unknown names ['width', 'height'], and it's 3 of them",
    ],
)
def test_shapes_names_and_versions_stay(text):
    assert without_values(text) == text


def test_words_and_cells_in_arrays_are_values_too():
    words = np.array([[b"a fine > film", b"it's (bad)"]], dtype=object)
    for said in (repr(words), f"<tf.Tensor: shape=(1, 2), dtype=string, numpy={words!r}>"):
        hidden = without_values(f"{said} is text")
        assert not any(word in hidden for word in ("fine", "film", "bad"))
        assert hidden.endswith(" is text")
    assert without_values("numbers [1, 2, 3, 4, 5, 6, 7, 8, 9] end") == "numbers […] end"
    assert without_values("mask [ True False]") == "mask […]"


def test_a_long_text_of_a_tool_takes_no_time_that_grows_faster_than_it():
    """Of 100,000 characters: a search that goes back over each does not end."""
    deep = "[" * 50_000 + "1.5" + "]" * 50_000
    for text in ("[" + "1" * 100_000 + "x", "[1" + " " * 100_000 + "x", "(1, " * 25_000 + "x"):
        assert without_values(text) == text
    assert "1.5" not in without_values(deep)
