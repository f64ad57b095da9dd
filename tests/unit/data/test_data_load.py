"""Samples held against what the model takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sources import load_samples

from edgeconv.data import checks, parse_preprocessing
from edgeconv.errors import InputRefused, UsageError
from edgeconv.types import Preprocessing, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = TensorSpec(name="image", shape=(1, 4, 4, 1), dtype="float32")
X = np.linspace(0, 1, 96, dtype=np.float32).reshape(6, 4, 4, 1)
Y = np.array([0, 1, 2, 0, 1, 2], np.uint8)


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    def save(**arrays: Any) -> str:
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


def test_good_samples_come_back_unchanged_with_int64_labels(saved: Any) -> None:
    source = saved(image=X, labels=Y)
    samples = load_samples(source, (IMAGE,))
    np.testing.assert_array_equal(samples.arrays["image"], X)
    assert samples.labels is not None
    assert samples.labels.dtype == np.int64
    assert samples.labels.tolist() == Y.tolist()
    assert samples.count == 6
    assert samples.source == source


def test_arrays_are_renamed_and_the_rest_of_the_file_left_alone(saved: Any) -> None:
    source = saved(x_test=X, y_test=Y, x_train=X, y_train=Y) + "?image=x_test&labels=y_test"
    samples = load_samples(source, (IMAGE,))
    assert list(samples.arrays) == ["image"]
    assert samples.labels is not None


def test_one_array_may_go_to_two_inputs(saved: Any) -> None:
    other = TensorSpec(name="other", shape=(-1, 4, 4, 1), dtype="float32")
    samples = load_samples(saved(x=X) + "?image=x&other=x", (IMAGE, other))
    np.testing.assert_array_equal(samples.arrays["other"], X)


def test_inputs_come_in_the_order_of_the_model(saved: Any) -> None:
    scale = TensorSpec(name="scale", shape=(-1, 1), dtype="float32")
    samples = load_samples(saved(scale=X[:, 0, 0], image=X), (IMAGE, scale))
    assert list(samples.arrays) == ["image", "scale"]


def test_an_npy_goes_to_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    samples = load_samples(str(tmp_path / "x.npy"), (IMAGE,))
    assert list(samples.arrays) == ["image"]


def test_an_npy_is_refused_for_a_model_with_two_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    other = TensorSpec(name="other", shape=(1, 1), dtype="float32")
    with pytest.raises(InputRefused, match="holds one array, the model takes 2: image, other"):
        load_samples(str(tmp_path / "x.npy"), (IMAGE, other))


def test_the_bundled_digits_fit_an_input_of_that_shape() -> None:
    digits = TensorSpec(name="pixels", shape=(-1, 8, 8, 1), dtype="float32")
    samples = load_samples("sklearn:digits?pixels=image", (digits,))
    assert samples.count == 1797
    assert samples.labels is not None


def test_dynamic_dimensions_take_any_size(saved: Any) -> None:
    spec = TensorSpec(name="image", shape=(-1, -1, 4, 1), dtype="float32")
    assert load_samples(saved(image=X), (spec,)).count == 6


def test_an_input_without_dimensions_takes_one_number_a_sample(saved: Any) -> None:
    spec = TensorSpec(name="rate", shape=(), dtype="float32")
    assert load_samples(saved(rate=np.ones(3, np.float32)), (spec,)).count == 3


def test_missing_and_extra_arrays_are_both_named_with_the_renaming_to_use(saved: Any) -> None:
    with pytest.raises(InputRefused) as error:
        load_samples(saved(images=X), (IMAGE,))
    assert "input 'image' has no array; the array 'images' is not an input" in str(error.value)
    assert "data.npz?image=images'" in error.value.hint


def test_an_extra_array_alone_is_refused(saved: Any) -> None:
    with pytest.raises(InputRefused, match="'more' is not an input") as error:
        load_samples(saved(image=X, more=X), (IMAGE,))
    assert "?image=image'" in error.value.hint


def test_an_unknown_option_gets_a_suggestion(saved: Any) -> None:
    with pytest.raises(UsageError, match="did you mean 'labels'"):
        load_samples(saved(image=X) + "?label=y", (IMAGE,))
    with pytest.raises(UsageError, match="did you mean 'image'"):
        load_samples(saved(image=X) + "?imgae=x", (IMAGE,))


@pytest.mark.parametrize(
    ("array", "hint"),
    [
        (X[0], "x[None]"),
        (X[..., 0], "x[..., None]"),
        (X[:, None], "x[:, 0]"),
        (np.moveaxis(X, -1, 1), "np.moveaxis(x, 1, -1)"),
        (X[:, :3], "the first dimension counts the samples"),
        (np.float32(1), "the first dimension counts the samples"),
    ],
)
def test_a_wrong_shape_is_refused_with_the_way_out(array: Any, hint: str, saved: Any) -> None:
    with pytest.raises(InputRefused, match=r"the model takes \(n, 4, 4, 1\)") as error:
        load_samples(saved(image=array), (IMAGE,))
    assert hint in error.value.hint


def test_no_samples_at_all_are_refused(saved: Any) -> None:
    with pytest.raises(InputRefused, match="has no samples"):
        load_samples(saved(image=X[:0]), (IMAGE,))


def test_samples_without_values_are_refused(saved: Any) -> None:
    spec = TensorSpec(name="image", shape=(1, -1), dtype="float32")
    with pytest.raises(InputRefused, match="empty samples"):
        load_samples(saved(image=np.zeros((3, 0), np.float32)), (spec,))


def test_a_lone_array_of_another_name_is_offered_for_the_lone_input(saved: Any) -> None:
    with pytest.raises(InputRefused, match="'image' has no array") as error:
        load_samples(saved(x_train=X), (IMAGE,))
    assert "?image=x_train'" in error.value.hint


def test_a_wrong_dtype_is_never_cast(saved: Any) -> None:
    with pytest.raises(InputRefused, match="is float64, the model takes float32") as error:
        load_samples(saved(image=X.astype(np.float64)), (IMAGE,))
    assert error.value.hint.startswith("--preprocess dtype=float32 converts it")
    steps = parse_preprocessing("dtype=float32")
    loaded = load_samples(saved(image=X.astype(np.float64)), (IMAGE,), preprocessing=steps)
    assert loaded.arrays["image"].dtype == np.float32


def test_integers_of_another_width_are_refused_with_the_step_that_converts_them(
    saved: Any,
) -> None:
    spec = TensorSpec(name="image", shape=IMAGE.shape, dtype="int32")
    with pytest.raises(InputRefused, match="is int64, the model takes int32") as error:
        load_samples(saved(image=X.astype(np.int64)), (spec,))
    assert error.value.hint.startswith("--preprocess dtype=int32 converts it")
    steps = parse_preprocessing("dtype=int32")
    loaded = load_samples(saved(image=X.astype(np.int64)), (spec,), preprocessing=steps)
    assert loaded.arrays["image"].dtype == np.int32


def test_integers_for_a_float_input_are_refused_with_a_word_on_scaling(saved: Any) -> None:
    with pytest.raises(InputRefused, match="is uint8") as error:
        load_samples(saved(image=X.astype(np.uint8)), (IMAGE,))
    assert "x.astype(np.float32), and scale it as it was in training" in error.value.hint


def test_the_other_byte_order_is_a_wrong_dtype(saved: Any) -> None:
    with pytest.raises(InputRefused, match="is >f4, the model takes float32"):
        load_samples(saved(image=X.astype(">f4")), (IMAGE,))


@pytest.mark.parametrize("dtype", ["resource", "complex64"])
def test_an_input_that_takes_no_numbers_is_refused(dtype: str, saved: Any) -> None:
    spec = TensorSpec(name="image", shape=(1,), dtype=dtype)
    with pytest.raises(InputRefused, match=f"'image' takes {dtype}"):
        load_samples(saved(image=X), (spec,))


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_nan_and_inf_are_counted_and_the_first_is_pointed_at(
    block_bytes: int, saved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_BLOCK_BYTES", block_bytes)
    bad = X.copy()
    bad[3, 1, 2, 0] = np.nan
    bad[4, 0, 0, 0] = np.nan
    bad[5, 0, 0, 0] = -np.inf
    with pytest.raises(InputRefused) as error:
        load_samples(saved(image=bad), (IMAGE,))
    assert "'image' has 2 NaN and 1 infinite values" in str(error.value)
    assert "first bad one at [3, 1, 2, 0]" in str(error.value)


@pytest.mark.parametrize("value", [1e38, -1e31])
def test_an_implausible_magnitude_is_refused(value: float, saved: Any) -> None:
    bad = X.copy()
    bad[2, 0, 1, 0] = value
    with pytest.raises(InputRefused, match=r"at \[2, 0, 1, 0\]; over 1e\+30"):
        load_samples(saved(image=bad), (IMAGE,))


def test_large_but_plausible_values_pass(saved: Any) -> None:
    assert load_samples(saved(image=X * np.float32(1e29)), (IMAGE,)).count == 6


def test_integer_inputs_take_any_value(saved: Any) -> None:
    spec = TensorSpec(name="ids", shape=(1, 2), dtype="int64")
    ids = np.array([[np.iinfo(np.int64).max, -1]])
    assert load_samples(saved(ids=ids), (spec,)).count == 1


def test_inputs_with_different_counts_are_refused(saved: Any) -> None:
    other = TensorSpec(name="other", shape=(-1, 1), dtype="float32")
    with pytest.raises(InputRefused, match="'image' 6, 'other' 5"):
        load_samples(saved(image=X, other=X[:5, 0, 0]), (IMAGE, other))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (Y[:5], "labels are 5 and the samples are 6"),
        (Y.astype(np.float32), "float32, not integers"),
        (Y.astype(bool), "bool, not integers"),
        (Y[:, None], r"y.ravel\(\)"),
        (np.eye(6, dtype=np.uint8), "if one-hot"),
        (Y.astype(np.int8) - 1, "run from -1 to 1"),
        (Y + np.uint64(2**63), "number classes from 0"),
    ],
)
def test_labels_that_are_no_class_numbers_are_refused(
    labels: Any, message: str, saved: Any
) -> None:
    with pytest.raises(InputRefused, match=message):
        load_samples(saved(image=X, labels=labels), (IMAGE,))


def test_a_single_number_is_refused_before_any_preprocessing_too(saved):
    steps = {"": Preprocessing(scale=2.0)}
    with pytest.raises(InputRefused, match=r"has shape \(\), the model takes"):
        load_samples(saved(image=np.float32(3)), (IMAGE,), preprocessing=steps)


def test_the_hint_keeps_the_options_that_were_right(saved):
    with pytest.raises(InputRefused) as error:
        load_samples(saved(images=X, y=np.zeros(6, np.int64)) + "?labels=y", (IMAGE,))
    assert "data.npz?labels=y&image=images'" in error.value.hint
