"""What is made of the messages of TensorFlow's converter."""

import pytest
from wording import says

from edgeconv.tf.lean import refusal
from edgeconv.tf.shapes import shape_hint
from edgeconv.types.errors import UnsupportedOperators

FIXING = "fix the open dimensions; or "


def form_of(operator: str, *types: str) -> str:
    """A message about an operator in a form that TFLite does not have."""
    return (
        f"error: 'tf.{operator}' op is neither a custom op nor a flex op\n"
        f"TF Select ops: {operator}\nDetails:\n\ttf.{operator}({', '.join(types)}) -> (y)\n"
    )


def test_open_dimensions_are_the_hint_where_there_are_some():
    message = form_of("Conv2D", "tensor<?x?x?x?xf32>", "tensor<1x1x4x1xf32>")
    refused = refusal(message, FIXING)
    assert isinstance(refused, UnsupportedOperators)
    assert refused.cause.operators == ("Conv2D",)
    assert refused.hint.startswith(FIXING)
    assert FIXING not in refusal(message).hint


@pytest.mark.parametrize(("channels", "has_groups"), [(2, True), (4, False), (14, True)])
def test_groups_of_channels_are_not_taken_for_open_dimensions(channels, has_groups):
    weights = f"tensor<3x3x3x{channels}x4xf32>"
    refused = refusal(form_of("Conv3D", "tensor<?x8x8x8x4xf32>", weights), FIXING)
    assert refused.hint.startswith(FIXING) is not has_groups
    assert ("concatenate a Conv3D" in refused.hint) is has_groups


def test_the_hint_gives_each_open_input_with_what_is_known_of_it():
    shapes = {"image": [-1, -1, 8, 3], "size": [-1, 2], "steps": [2, None, 4]}
    hint = shape_hint(shapes)
    says(hint)
    assert "size" not in hint
    assert shape_hint({"size": [None, 2]}) == ""
