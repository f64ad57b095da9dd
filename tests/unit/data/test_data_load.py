"""Samples held against what the model takes."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from sources import load_samples, open_samples
from wording import fails

from edgeconv.data import batch_size, checks, input_ranges, parse_preprocessing
from edgeconv.types import Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused, UnknownScale, UsageError

IMAGE = TensorSpec(name="image", shape=(1, 4, 4, 1), dtype="float32")
X = np.linspace(0, 1, 96, dtype=np.float32).reshape(6, 4, 4, 1)
Y = np.array([0, 1, 2, 0, 1, 2], np.uint8)


@pytest.fixture
def saved(tmp_path):
    def save(**arrays: Any) -> str:
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


def test_good_samples_come_back_unchanged_with_int64_labels(saved):
    source = saved(image=X, labels=Y)
    samples = load_samples(source, (IMAGE,))
    np.testing.assert_array_equal(samples.arrays["image"], X)
    assert samples.labels.dtype == np.int64
    assert samples.labels.tolist() == Y.tolist()
    assert samples.count == 6
    assert samples.source == source


def test_arrays_are_renamed_and_the_rest_of_the_file_left_alone(saved):
    source = saved(x_test=X, y_test=Y, x_train=X, y_train=Y) + "?image=x_test&labels=y_test"
    samples = load_samples(source, (IMAGE,))
    assert list(samples.arrays) == ["image"]
    assert samples.labels is not None


def test_one_array_may_go_to_two_inputs(saved):
    other = TensorSpec(name="other", shape=(-1, 4, 4, 1), dtype="float32")
    samples = load_samples(saved(x=X) + "?image=x&other=x", (IMAGE, other))
    np.testing.assert_array_equal(samples.arrays["other"], X)


def test_inputs_come_in_the_order_of_the_model(saved):
    scale = TensorSpec(name="scale", shape=(-1, 1), dtype="float32")
    samples = load_samples(saved(scale=X[:, 0, 0], image=X), (IMAGE, scale))
    assert list(samples.arrays) == ["image", "scale"]


def test_an_npy_goes_to_the_only_input(tmp_path):
    np.save(tmp_path / "x.npy", X)
    samples = load_samples(str(tmp_path / "x.npy"), (IMAGE,))
    assert list(samples.arrays) == ["image"]


def test_the_bundled_digits_fit_an_input_of_that_shape():
    digits = TensorSpec(name="pixels", shape=(-1, 8, 8, 1), dtype="float32")
    samples = load_samples("sklearn:digits?pixels=image", (digits,))
    assert samples.count == 1797
    assert samples.labels is not None


def test_dynamic_dimensions_take_any_size(saved):
    spec = TensorSpec(name="image", shape=(-1, -1, 4, 1), dtype="float32")
    assert load_samples(saved(image=X), (spec,)).count == 6


def test_an_input_without_dimensions_takes_one_number_a_sample(saved):
    spec = TensorSpec(name="rate", shape=(), dtype="float32")
    assert load_samples(saved(rate=np.ones(3, np.float32)), (spec,)).count == 3


def test_an_unknown_option_gets_a_suggestion(saved):
    with fails(UsageError):
        load_samples(saved(image=X) + "?label=y", (IMAGE,))
    with fails(UsageError):
        load_samples(saved(image=X) + "?imgae=x", (IMAGE,))


@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_nan_and_inf_are_counted_and_the_first_is_pointed_at(block_bytes, saved, monkeypatch):
    monkeypatch.setattr(checks, "_BLOCK_BYTES", block_bytes)
    bad = X.copy()
    bad[3, 1, 2, 0] = np.nan
    bad[4, 0, 0, 0] = np.nan
    bad[5, 0, 0, 0] = -np.inf
    with fails(InputRefused):
        load_samples(saved(image=bad), (IMAGE,))


PIXELS = np.arange(96, dtype=np.uint8).reshape(6, 4, 4, 1)


@pytest.mark.parametrize("steps", ["none", "channels=gray"])
def test_bytes_are_taken_where_the_model_scales_them_itself(steps, saved):
    scaled = replace(IMAGE, is_scaled=True)
    source, preprocessing = saved(image=PIXELS), parse_preprocessing(steps)
    samples = load_samples(source, (scaled,), preprocessing=preprocessing)
    assert samples.arrays["image"].dtype == np.float32
    np.testing.assert_array_equal(samples.arrays["image"], PIXELS)
    assert input_ranges(samples, (scaled,))[0].is_scaled
    assert not input_ranges(samples, (IMAGE,))[0].is_scaled
    with pytest.raises(UnknownScale):
        load_samples(source, (IMAGE,), preprocessing=preprocessing)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32])
def test_other_integers_have_a_scale_of_their_own(dtype, saved):
    with pytest.raises(UnknownScale):
        load_samples(saved(image=PIXELS.astype(dtype)), (replace(IMAGE, is_scaled=True),))


def test_large_but_plausible_values_pass(saved):
    assert load_samples(saved(image=X * np.float32(1e29)), (IMAGE,)).count == 6


def test_integer_inputs_take_any_value(saved):
    spec = TensorSpec(name="ids", shape=(1, 2), dtype="int64")
    ids = np.array([[np.iinfo(np.int64).max, -1]])
    assert load_samples(saved(ids=ids), (spec,)).count == 1


# Inputs without a batch dimension

NODES = TensorSpec(name="nodes", shape=(20, 8), dtype="float32")
EDGES = TensorSpec(name="edges", shape=(60, 2), dtype="int32")


def graphs(count: int) -> dict[str, Any]:
    return {"nodes": np.ones((count, 20, 8), "f"), "edges": np.ones((count, 60, 2), "i")}


@pytest.mark.parametrize("is_open", [False, True])
def test_samples_stacked_on_a_new_first_axis_are_taken_one_at_a_time(saved, is_open):
    inputs = (NODES, EDGES)
    if is_open:
        inputs = tuple(replace(spec, shape=(-1, *spec.shape[1:])) for spec in inputs)
    opened = open_samples(saved(**graphs(7)), inputs)
    assert opened.count == 7
    assert batch_size(opened.inputs) == 1
    assert [spec.shape[1:] for spec in opened.inputs] == [spec.shape for spec in inputs]
    taken = opened.take(np.arange(3))
    assert {name: array.shape for name, array in taken.arrays.items()} == {
        "nodes": (3, 20, 8),
        "edges": (3, 60, 2),
    }


def test_one_input_with_its_samples_in_rows_keeps_its_batch(saved):
    opened = open_samples(saved(nodes=np.ones((40, 8), "f")), (NODES,))
    assert (opened.inputs, batch_size(opened.inputs)) == ((NODES,), 20)
    stacked = open_samples(saved(nodes=np.ones((40, 20, 8), "f")), (NODES,))
    assert (stacked.inputs[0].shape, batch_size(stacked.inputs)) == ((1, 20, 8), 1)


@pytest.mark.parametrize(
    ("stored", "dtype"), [("float64", "float32"), ("float16", "float32"), ("int64", "int32")]
)
@pytest.mark.parametrize("name", ["image", "x_test"])
def test_samples_are_taken_as_keras_takes_them(saved, stored, dtype, name):
    spec = replace(IMAGE, dtype=dtype)
    expected = X.astype(stored).astype(dtype)
    (taken,) = load_samples(saved(**{name: X.astype(stored)}), (spec,)).arrays.values()
    (gray,) = load_samples(saved(**{name: X[..., 0].astype(stored)}), (spec,)).arrays.values()
    flat = replace(spec, shape=spec.shape[:-1])
    (longer,) = load_samples(saved(**{name: X.astype(stored)}), (flat,)).arrays.values()
    rows = X.reshape(6, 16).astype(stored)
    (row,) = load_samples(saved(**{name: rows}), (spec,)).arrays.values()
    assert taken.dtype == gray.dtype == longer.dtype == row.dtype == dtype
    np.testing.assert_array_equal(row, expected)
    np.testing.assert_array_equal(taken, expected)
    np.testing.assert_array_equal(gray, expected)
    np.testing.assert_array_equal(longer, expected[..., 0])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (Y[:, None], Y),
        ((Y > 0).astype("f"), Y > 0),
        (Y[:, None] > 0, Y > 0),
        (np.eye(3, dtype="B")[Y], Y),
        (np.eye(3, dtype="f")[Y], Y),
    ],
)
def test_classes_are_taken_as_keras_takes_them(saved, labels, classes):
    taken = load_samples(saved(image=X, labels=labels), (IMAGE,)).labels
    assert taken is not None
    assert (taken.dtype, taken.tolist()) == (np.int64, classes.tolist())


@pytest.mark.parametrize("arrays", [{"x_train": X}, {"x": X, "labels": Y}])
def test_the_only_array_is_for_the_only_input(tmp_path, arrays):
    np.savez(tmp_path / "data.npz", **arrays)
    samples = load_samples(f"{tmp_path}/data.npz", (IMAGE,))
    assert samples.arrays["image"].tolist() == X.tolist()


OTHER = TensorSpec(name="other", shape=(-1, 1), dtype="float32")
INT32 = replace(IMAGE, dtype="int32")
ROWS = TensorSpec(name="x", shape=(-1, 28), dtype="float32")
HUGE = X.copy()
HUGE[2, 0, 1, 0] = 1e38


@pytest.mark.parametrize(
    ("arrays", "inputs"),
    [
        ({"more": X, "images": X}, (IMAGE,)),
        ({"x": X, "extra": Y}, (IMAGE,)),
        ({"image": X, "more": X}, (IMAGE,)),
        ({"image": X[:0]}, (IMAGE,)),
        ({"image": X.reshape(-1, *X.shape[2:])}, (IMAGE,)),
        ({"image": X + np.float32(1e38)}, (IMAGE,)),
        ({"image": np.zeros((3, 0), "f")}, (replace(IMAGE, shape=(1, -1)),)),
        ({"image": X.astype(np.uint8)}, (IMAGE,)),
        ({"image": np.full(X.shape, 1 << 40)}, (INT32,)),
        ({"image": X.astype(">f4")}, (IMAGE,)),
        ({"image": X}, (replace(IMAGE, dtype="resource"),)),
        ({"image": X}, (replace(IMAGE, dtype="complex64"),)),
        ({"image": HUGE}, (IMAGE,)),
        ({"image": -HUGE}, (IMAGE,)),
        ({"image": X, "other": X[:5, 0, 0]}, (IMAGE, OTHER)),
        ({"image": X[0]}, (IMAGE,)),
        ({"image": X[:, None]}, (IMAGE,)),
        ({"image": np.moveaxis(X, -1, 1)}, (IMAGE,)),
        ({"image": X[:, :3]}, (IMAGE,)),
        ({"image": np.float32(1)}, (IMAGE,)),
        ({"x": np.ones((5, 28, 28), "f")}, (ROWS,)),
        ({"nodes": X[0], "edges": X[0]}, (NODES, EDGES)),
        ({"image": X, "labels": Y[:5]}, (IMAGE,)),
        ({"image": X, "labels": Y + np.float32(0.5)}, (IMAGE,)),
        ({"image": X, "labels": Y.astype("f") * 2}, (IMAGE,)),
        ({"image": X, "labels": np.ones((6, 6), "B")}, (IMAGE,)),
        ({"image": X, "labels": np.eye(6, 5)}, (IMAGE,)),
        ({"image": X, "labels": Y.astype("b") - 1}, (IMAGE,)),
        ({"image": X, "labels": Y + np.uint64(2**63)}, (IMAGE,)),
    ],
)
def test_what_the_model_does_not_take_is_refused_with_the_way_out(arrays, inputs, saved):
    with fails(InputRefused):
        load_samples(saved(**arrays), inputs)


def test_a_single_array_or_number_is_refused_with_any_option(saved, tmp_path):
    np.save(tmp_path / "x.npy", X)
    with fails(InputRefused):
        load_samples(str(tmp_path / "x.npy"), (IMAGE, OTHER))
    with fails(InputRefused):
        load_samples(saved(image=np.float32(3)), (IMAGE,), preprocessing={"": Preprocessing()})
    with fails(InputRefused):
        load_samples(saved(images=X, more=X, y=Y) + "?labels=y", (IMAGE,))


@pytest.mark.parametrize("name", ["label", "y_test", "Target"])
def test_an_array_that_is_called_like_labels_is_taken_for_these(name, saved):
    for arrays in ({"x_test": X, name: Y}, {"image": X, name: Y}):
        assert load_samples(saved(**arrays), (IMAGE,)).labels.tolist() == Y.tolist()
    assert load_samples(saved(x=X, **{name: Y}) + "?labels=none", (IMAGE,)).labels is None
    with pytest.raises(InputRefused) as refused:
        load_samples(saved(**{"x": X, "more": X, name: Y}), (IMAGE,))
    assert f"?labels={name}&image=" in refused.value.hint


def test_no_other_array_is_taken_for_labels_that_are_there(saved):
    with pytest.raises(InputRefused) as refused:
        load_samples(saved(image=X, labels=Y, target=X), (IMAGE,))
    assert "?image=image'" in refused.value.hint


@pytest.mark.parametrize(("stored", "dtype"), [("float64", "float32"), ("int64", "int32")])
def test_a_dtype_is_cast_by_the_step_that_says_so(stored, dtype, saved):
    steps = parse_preprocessing(f"dtype={dtype}")
    inputs = (replace(IMAGE, dtype=dtype),)
    loaded = load_samples(saved(image=X.astype(stored)), inputs, preprocessing=steps)
    assert loaded.arrays["image"].dtype == dtype
