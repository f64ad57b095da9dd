import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from wording import fails

from edgeconv.conversion.graph_checks import (
    are_curable,
    left_in_float,
    refuse_floats,
    refuse_senseless_scales,
    verify_signature,
)
from edgeconv.conversion.output_checks import refuse_not_finite, verify_errors
from edgeconv.model.tflite.kernels import KERNELS
from edgeconv.model.tflite.operators import RULED
from edgeconv.quantize.rules import unruled_floats
from edgeconv.requests.recipes import make_recipes
from edgeconv.statistics.outputs import output_errors
from edgeconv.types import GraphSummary, OperatorCount, OutputError, Recipe, Signature, TensorSpec
from edgeconv.types.errors import VerificationFailed

numbers = st.floats(-1e3, 1e3, width=32)
outputs = arrays(np.float32, array_shapes(min_dims=1, max_dims=3, max_side=5), elements=numbers)
batches_of_classes = arrays(np.float32, (6, 3), elements=numbers)


def error_of(reference: Any, actual: Any, step: float = 0.0) -> OutputError:
    given = {"y": np.asarray(reference)}, {"y": np.asarray(actual)}
    (error,) = output_errors(*given, {"y": step})
    return error


def recipe(name: str = "int8", **options: Any) -> Recipe:
    (made,) = make_recipes([name], **options)
    return made


# How far an output is from its reference


@given(value=outputs)
def test_equal_outputs_have_no_error(value):
    error = error_of(value, value.copy())
    assert (error.snr_db, error.max_abs_error, error.rms_error) == (200.0, 0.0, 0.0)
    assert error.cosine == pytest.approx(1.0)
    assert error.argmax_agreement in (None, 1.0)


@given(value=batches_of_classes, noise=batches_of_classes, factor=st.sampled_from([0.5, 2.0, -4.0]))
def test_the_ratio_does_not_change_when_both_are_scaled_and_the_errors_scale(value, noise, factor):
    assume(np.var(value) > 1e-6)
    plain = error_of(value, value + noise)
    scaled = error_of(factor * value, factor * (value + noise))
    assert scaled.snr_db == pytest.approx(plain.snr_db, abs=1e-6)
    assert scaled.cosine == pytest.approx(plain.cosine, abs=1e-6)
    for name in ("max_abs_error", "rms_error", "rms_reference"):
        assert getattr(scaled, name) == pytest.approx(abs(factor) * getattr(plain, name), rel=1e-6)


@given(value=batches_of_classes, noise=batches_of_classes, offset=st.sampled_from([-64.0, 512.0]))
def test_an_offset_that_both_share_is_no_signal(value, noise, offset):
    value, noise = np.float64(value), np.float64(noise)
    assume(np.var(value) > 1e-3)
    assume(np.mean(noise**2) > 1e-3)
    shifted = error_of(value + offset, value + noise + offset)
    assert shifted.snr_db == pytest.approx(error_of(value, value + noise).snr_db, abs=1e-3)


def test_the_numbers_are_those_of_the_textbook():
    error = error_of([[3.0, 1.0], [-1.0, 1.0]], [[3.0, 2.0], [-1.0, 3.0]])
    # Values of mean 1 and variance 2; errors 0, 1, 0, 2.
    assert error.snr_db == pytest.approx(10 * math.log10(2 / 1.25))
    assert error.max_abs_error == 2.0
    assert error.rms_error == pytest.approx(math.sqrt(5 / 4))
    assert error.rms_reference == pytest.approx(math.sqrt(12 / 4))
    assert error.cosine == pytest.approx((9 + 2 + 1 + 3) / math.sqrt(12 * 23))
    assert error.argmax_agreement == 1.0


def test_integers_are_compared_without_overflow():
    error = error_of(np.array([-128, 127], np.int8), np.array([127, -128], np.int8))
    assert (error.max_abs_error, error.rms_error) == (255.0, 255.0)


@given(value=arrays(np.float32, (6, 3), elements=numbers, unique=True))
def test_agreement_is_the_share_of_samples_with_the_same_largest_class(value):
    moved = value.copy()
    moved[:2] = np.roll(moved[:2], 1, axis=1)
    assert error_of(value, moved).argmax_agreement == pytest.approx(4 / 6)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 2, 2), (0, 3)])
def test_what_is_no_vector_of_classes_has_no_agreement(shape):
    assert error_of(np.zeros(shape), np.zeros(shape)).argmax_agreement is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["reference", "actual"])
def test_a_value_that_is_not_finite_is_never_close(wrong, side):
    good = np.ones((2, 3), np.float32)
    bad = good.copy()
    bad[0, 1] = wrong
    pair = (bad, good) if side == "reference" else (good, bad)
    error = error_of(*pair)
    assert not math.isfinite(error.rms_error)
    with fails(VerificationFailed):
        verify_errors(recipe(min_snr_db=-1000.0), (error,))


def test_infinite_values_on_both_sides_are_not_taken_for_equal():
    infinite = np.full((2, 3), np.inf, np.float32)
    error = error_of(infinite, infinite)
    with fails(VerificationFailed):
        verify_errors(recipe(), (error,))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_an_output_that_is_not_finite_is_refused_without_any_reference(wrong):
    good = {"a": np.ones((2, 3), np.float32), "n": np.array([1, 2])}
    refuse_not_finite(recipe(), good)
    with fails(VerificationFailed):
        refuse_not_finite(recipe(), good | {"b": np.array([0.0, wrong], np.float16)})


def test_outputs_of_other_names_or_shapes_are_no_result_at_all():
    one = np.zeros((2, 3))
    with fails(VerificationFailed):
        output_errors({"y": one}, {"z": one}, {})
    with fails(VerificationFailed):
        output_errors({"y": one}, {"y": one[:, :1]}, {})


def test_every_output_is_compared_in_the_order_of_their_names():
    one, two = np.zeros((1, 2)), np.ones((1, 2))
    errors = output_errors({"b": one, "a": one}, {"a": one, "b": two}, {})
    assert [(error.output, error.max_abs_error) for error in errors] == [("a", 0.0), ("b", 1.0)]


# Whether that is close enough


def judged(name: str = "int8", **fields: Any) -> Any:
    values = {"snr_db": 0.0, "rms_error": 1.0, "rms_reference": 2.0} | fields
    error = OutputError(output="y", max_abs_error=9.0, cosine=0.9, **values)
    return verify_errors(recipe(name, min_snr_db=None if name == "float32" else 6.0), (error,))


def test_an_output_passes_at_the_limit_that_is_given_and_not_below():
    assert judged(snr_db=6.0) == ()
    with fails(VerificationFailed) as caught:
        judged(snr_db=5.9)
    assert caught.value.exit_code == 4


def test_only_float32_has_a_limit_unless_one_is_given():
    (error,) = output_errors({"y": np.arange(6.0)[:, None]}, {"y": np.zeros((6, 1))}, {})
    for name in ("float16", "dynamic", "int8", "int16x8"):
        assert verify_errors(recipe(name), (error,)) == ()
    with fails(VerificationFailed):
        verify_errors(recipe("float32"), (error,))


@pytest.mark.parametrize("name", ["dynamic", "float16", "int8", "weight-only-int8"])
def test_samples_are_advised_where_they_give_ranges(name):
    with fails(VerificationFailed) as caught:
        judged(name, snr_db=5.9)
    assert ("samples" in caught.value.hint) == (name == "int8")


@pytest.mark.parametrize(("name", "rounding"), [("float32", 2.0**-16), ("int8", 2.0**-10)])
def test_an_error_that_is_rounding_passes_however_little_the_output_varies(name, rounding):
    judged(name, snr_db=-50.0, rms_error=2 * rounding, rms_reference=2.0)
    with pytest.raises(VerificationFailed):
        judged(name, snr_db=-50.0, rms_error=2.01 * rounding, rms_reference=2.0)


def test_an_error_within_one_step_of_the_output_passes():
    judged(rms_error=1.0, step=1.0)
    with pytest.raises(VerificationFailed):
        judged(rms_error=1.0, step=0.99)


def test_one_bad_output_among_good_ones_fails_the_whole():
    good, bad = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
    errors = output_errors({"a": good, "b": good}, {"a": good, "b": bad}, {})
    with fails(VerificationFailed):
        verify_errors(recipe(min_snr_db=6.0), errors)


@given(value=batches_of_classes, noise=batches_of_classes)
def test_what_is_closer_never_fails_where_the_farther_passes(value, noise):
    far, near = error_of(value, value + noise), error_of(value, value + np.float32(0.5) * noise)
    try:
        verify_errors(recipe(min_snr_db=6.0), (far,))
    except VerificationFailed:
        return
    verify_errors(recipe(min_snr_db=6.0), (near,))


def test_outputs_that_are_all_zero_or_integers_or_of_one_sample_have_their_extent():
    zero = error_of(np.zeros((4, 3)), np.zeros((4, 3)))
    assert (zero.span, zero.varies_by, zero.is_flat) == ((0.0, 0.0), 0.0, True)
    assert verify_errors(recipe(min_snr_db=6.0), (zero,)) == ()
    off = error_of(np.zeros((4, 3)), np.full((4, 3), 0.5))
    with fails(VerificationFailed):
        verify_errors(recipe(min_snr_db=6.0), (off,))
    integers = error_of(np.array([[-128], [127]], np.int8), np.array([[-128], [126]], np.int8))
    assert (integers.span, integers.varies_by) == ((-128.0, 127.0), 255.0)
    one = error_of([[1.0, 5.0]], [[1.0, 5.0]])
    assert (one.span, one.varies_by, one.samples) == ((1.0, 5.0), 0.0, 1)
    assert (one.is_flat, one.is_constant) == (False, True)
    assert error_of(np.zeros((0, 3)), np.zeros((0, 3))).span is None
    assert error_of([[math.nan]], [[1.0]]).span is None


# Whether the graph is what was asked for


def summary(**fields: Any) -> GraphSummary:
    """A model all of int8, but for `fields`."""
    defaults = {"operators": (), "weight_bytes": 100, "float16_weight_share": 0.0}
    defaults |= {"signatures": (), "quantized_weight_share": 1.0}
    return GraphSummary(**(defaults | fields))


def signature(inputs: str = "float32", outputs: str = "float32", **fields: Any) -> Signature:
    scales = {"float32": {}, "int32": {}}
    fields = {"scale": (0.5,), "zero_point": (0,)} | fields
    x, y = (
        TensorSpec(name=name, shape=(1, 3), dtype=dtype, **scales.get(dtype, fields))
        for name, dtype in (("x", inputs), ("y", outputs))
    )
    return Signature(key="serving_default", inputs=(x,), outputs=(y,))


def test_a_full_integer_model_as_asked_passes_without_a_warning():
    assert verify_signature(recipe(), summary(), signature()) == ()
    asked = recipe(input_type="uint8", output_type="int8")
    assert verify_signature(asked, summary(), signature("uint8", "int8")) == ()


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        (("int8", "int8"), ("float32", "int8")),
        (("int8", "int8"), ("int8", "float32")),
        (("float32", "float32"), ("int8", "float32")),
        (("uint8", "float32"), ("int8", "float32")),
        (("float32", "int8"), ("float32", "uint8")),
    ],
)
def test_other_input_or_output_types_than_asked_are_refused(asked, made):
    wrong = recipe(input_type=asked[0], output_type=asked[1])
    with fails(VerificationFailed):
        verify_signature(wrong, summary(), signature(*made))


def test_an_integer_input_that_stands_for_no_float_stays_what_it_is():
    asked = recipe(input_type="int8", output_type="int8")
    assert verify_signature(asked, summary(), signature("int32", "int8")) == ()


@pytest.mark.parametrize("scale", [0.0, -0.5, math.nan, math.inf, 3.9e35])
def test_a_scale_that_makes_no_sense_is_refused(scale):
    made = signature("int8", "float32", scale=(scale,))
    with fails(VerificationFailed):
        verify_signature(recipe(input_type="int8"), summary(), made)


def unruled(name: str, *groups: set[str]) -> tuple[str, ...]:
    return unruled_floats(recipe(name), groups)


@pytest.mark.parametrize("options", [{"full_integer": True}, {"input_type": "int8"}])
def test_operators_in_float_are_refused_only_where_all_are_to_be_integers(options):
    left = unruled("int8", {"BUCKETIZE"}, {"RFFT2D"})
    assert left == ("BUCKETIZE", "RFFT2D")
    asked = recipe(**options)
    assert (asked.only_integers, recipe().only_integers) == (True, False)
    with fails(VerificationFailed) as caught:
        refuse_floats(asked, left)
    assert caught.value.cause.operators == left
    refuse_floats(asked, ())


@pytest.mark.parametrize(
    ("group", "causes"),
    [
        ({"MINIMUM", "SQUARE"}, ("SQUARE",)),
        ({"DEQUANTIZE", "NEG", "QUANTIZE", "RESHAPE", "WHILE"}, ("NEG", "WHILE")),
        # Weights are not left in float in silence.
        ({"FULLY_CONNECTED", "SIN", "TANH"}, ("FULLY_CONNECTED", "SIN")),
        # None of them has a reason.
        ({"MINIMUM", "RESHAPE"}, ("MINIMUM", "RESHAPE")),
        ({"DEQUANTIZE", "QUANTIZE"}, ("DEQUANTIZE", "QUANTIZE")),
    ],
)
def test_operators_in_float_for_their_neighbors_are_not_named(group, causes):
    assert unruled("int8", group) == causes
    assert unruled("int8", group, {"MINIMUM"}) == tuple(sorted({*causes, "MINIMUM"}))


def test_the_hint_has_what_the_table_of_kernels_says_instead():
    hint = left_in_float(recipe(full_integer=True), ("SIN", "SQUARE")).hint
    assert f"{KERNELS['SQUARE'].instead} for SQUARE" in hint
    assert "for SIN" not in hint


@pytest.mark.parametrize(
    ("left", "curable"),
    [((), False), (("SIN", "ATAN2"), False), (("WHILE",), True), (("SIN", "NEG"), True)],
)
def test_another_form_of_the_model_is_tried_only_for_what_may_become_integers(left, curable):
    assert are_curable(left) == curable


def test_what_a_rule_leaves_in_float_allows_no_other_of_its_kind():
    assert unruled("int8", {RULED, "RESHAPE"}) == ()
    assert unruled("int8", {RULED, "FULLY_CONNECTED"}) == ("FULLY_CONNECTED",)
    assert unruled("int8", {RULED, "RESHAPE"}, {"DIV"}) == ("DIV",)


def test_which_operators_have_a_kernel_depends_on_the_integers():
    group = {"PRELU", "RESHAPE"}
    assert unruled("int8", group) == ("PRELU", "RESHAPE")
    assert unruled("int16x8", group) == ("PRELU",)


def test_recipes_that_are_not_full_integer_may_compute_in_float():
    assert unruled("dynamic", {"CONV_2D"}) == ()


@pytest.mark.parametrize(
    ("name", "share", "warning"),
    [
        ("dynamic", "quantized_weight_share", "nothing was quantized: this dynamic model is"),
        ("weight-only-int8", "quantized_weight_share", "nothing was quantized: this weight-only"),
        ("float16", "float16_weight_share", "nothing became float16: this model is the float32"),
    ],
)
def test_a_model_in_which_nothing_was_made_smaller_says_so(name, share, warning):
    shares = {"quantized_weight_share": 0.0, "float16_weight_share": 0.0}
    (said,) = verify_signature(recipe(name), summary(**shares), signature())
    assert said.startswith(warning)
    assert verify_signature(recipe(name), summary(**(shares | {share: 0.5})), signature()) == ()


def test_a_full_integer_model_without_quantised_weights_is_refused_if_it_has_weights():
    left = summary(quantized_weight_share=0.0, float_operators=("ADD",))
    allowed = recipe()
    with fails(VerificationFailed):
        verify_signature(allowed, left, signature())
    without = summary(quantized_weight_share=0.0, weight_bytes=0, float_operators=("ADD",))
    assert verify_signature(allowed, without, signature()) == ()
    # The constants of elementwise operators are int16 in an int16x8 model: no 8 bits there.
    assert verify_signature(recipe(), summary(quantized_weight_share=0.0), signature()) == ()


@pytest.mark.parametrize(
    ("name", "shares", "said"),
    [
        ("dynamic", {"quantized_weight_share": 0.3}, "only 30.0% of the weights became int8"),
        ("weight-only-int8", {"quantized_weight_share": 0.3}, "only 30.0% of the weights"),
        ("float16", {"float16_weight_share": 0.3}, "only 30.0% of the weights became float16"),
        ("dynamic", {"quantized_weight_share": 0.6}, ""),
    ],
)
def test_weights_that_mostly_stay_float32_are_told_of(name, shares, said):
    some = summary(**{"quantized_weight_share": 0.0, "weight_bytes": 8192, **shares})
    warnings = verify_signature(recipe(name), some, signature())
    assert [w.startswith(said) for w in warnings] == ([True] if said else [])
    few = summary(**{"quantized_weight_share": 0.0, "weight_bytes": 2048, **shares})
    assert verify_signature(recipe(name), few, signature()) == ()


def test_a_float32_model_has_nothing_to_quantise_and_no_warning():
    assert (
        verify_signature(recipe("float32"), summary(quantized_weight_share=0.0), signature()) == ()
    )


def test_operators_that_keep_state_between_invokes_are_told_of():
    operators = (
        OperatorCount(name="UNIDIRECTIONAL_SEQUENCE_LSTM", version=1, count=2),
        OperatorCount(name="ADD", version=1, count=1),
    )
    (said,) = verify_signature(recipe("float32"), summary(operators=operators), signature())
    assert said.startswith("UNIDIRECTIONAL_SEQUENCE_LSTM keeps its state between invokes")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_scale_inside_the_graph_must_be_a_plausible_number(scale):
    if scale <= 1e12:
        refuse_senseless_scales(recipe(), {"t": scale})
    else:
        with pytest.raises(VerificationFailed, match="makes no sense"):
            refuse_senseless_scales(recipe(), {"t": scale})
