import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import fails

from edgeconv.tf.shapes import FixedShapes
from edgeconv.types.errors import InputRefused

SIZES = st.integers(1, 512)
SHAPES = st.lists(st.none() | SIZES, min_size=1, max_size=5)


def test_nothing_fixed_leaves_every_shape_alone():
    assert not FixedShapes().fixes
    assert FixedShapes().of("x", [None, 4]) == [None, 4]
    assert FixedShapes().of("x", []) == []


def test_a_batch_fixes_the_first_dimension_and_no_other():
    fixed = FixedShapes(batch=3)
    assert fixed.fixes
    assert fixed.of("x", [None, None, 8]) == [3, None, 8]
    assert fixed.of("x", [3, 8]) == [3, 8]


@pytest.mark.parametrize("shape", [[], [2, 8]], ids=["scalar", "another batch"])
def test_a_batch_that_an_input_cannot_have_is_refused_unless_only_open_ones_are_meant(shape):
    with fails(InputRefused):
        FixedShapes(batch=3).of("image", shape)
    assert FixedShapes(batch=3, only_open=True).of("image", shape) == shape


def test_a_whole_shape_is_for_the_input_it_names_and_the_batch_for_the_others():
    fixed = FixedShapes(batch=2, by_input={"image": (1, 32, -1, 3)})
    assert fixed.of("image", [None, None, None, 3]) == [1, 32, None, 3]
    assert fixed.of("mask", [None, 7]) == [2, 7]


@pytest.mark.parametrize(
    "wanted", [(1, 32, 32, 4), (1, 32, 32), (1, 32, 32, 3, 1)], ids=["size", "fewer", "more"]
)
def test_a_shape_that_is_not_the_inputs_is_refused_with_both(wanted):
    with fails(InputRefused):
        FixedShapes(by_input={"image": wanted}).of("image", [None, None, None, 3])


def test_an_open_place_is_said_as_a_question_mark():
    with fails(InputRefused):
        FixedShapes(by_input={"x": (-1, 9)}).of("x", [None, 8])


def test_where_only_open_dimensions_are_meant_fixed_ones_stay():
    fixed = FixedShapes(by_input={"x": (5, 9)}, only_open=True)
    assert fixed.of("x", [None, 8]) == [5, 8]
    with pytest.raises(InputRefused):
        fixed.of("x", [None, 8, 8])


@given(SHAPES, st.data())
def test_what_the_model_has_fixed_is_never_changed(shape, data):
    sizes = st.just(-1) | SIZES
    wanted = tuple(data.draw(st.lists(sizes, min_size=len(shape), max_size=len(shape))))
    fixed = FixedShapes(by_input={"x": wanted}, only_open=True)
    for have, want, made in zip(shape, wanted, fixed.of("x", shape), strict=True):
        if have is not None:
            assert made == have
        else:
            assert made == (None if want == -1 else want)


@given(SHAPES, SIZES)
def test_fixing_twice_is_fixing_once(shape, batch):
    fixed = FixedShapes(batch=batch, only_open=True)
    once = fixed.of("x", shape)
    assert fixed.of("x", once) == once
