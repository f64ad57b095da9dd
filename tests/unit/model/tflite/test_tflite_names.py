"""Which inputs and outputs of two models are the same."""

from edgeconv.model.tflite.summary import match_names
from edgeconv.types import TensorSpec


def spec(name: str, shape: tuple[int, ...] = (1, 4), dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def test_equal_names_are_the_same_in_any_order():
    own, other = [spec("a"), spec("b")], [spec("b"), spec("a")]
    assert match_names(own, other) == {"a": "a", "b": "b"}


def test_a_lone_input_is_the_lone_other_one():
    assert match_names([spec("x:0")], [spec("image")]) == {"x:0": "image"}


def test_what_converters_add_to_names_is_no_difference():
    own = [spec("serving_default_b:0"), spec("serving_default_a:0")]
    assert match_names(own, [spec("a"), spec("b")]) == {
        "serving_default_b:0": "b",
        "serving_default_a:0": "a",
    }


def test_several_are_told_by_their_kinds_and_a_quantized_one_stands_for_floats():
    quantized = TensorSpec(name="p", shape=(1, 4), dtype="int8", scale=(0.5,), zero_point=(0,))
    own = [spec("q", (1, 8), "int32"), quantized]
    other = [spec("values", (-1, 4)), spec("tokens", (-1, 8), "int32")]
    assert match_names(own, other) == {"q": "tokens", "p": "values"}


def test_what_cannot_be_told_for_certain_is_not_guessed():
    alike = [spec("p"), spec("q")]
    assert match_names(alike, [spec("left"), spec("right")]) is None
    assert match_names(alike, [spec("left")]) is None
    assert match_names([spec("p"), spec("q", (1, 9))], [spec("a"), spec("b", (1, 8))]) is None
