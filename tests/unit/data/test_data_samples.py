"""Samples in memory, as files, hashed, batched and made up."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sources import load_samples
from wording import fails

from edgeconv.data import (
    Samples,
    batch_size,
    read_samples,
    sha256_samples,
    synthetic_samples,
    write_samples,
)
from edgeconv.data.samples import has_batch, join_samples
from edgeconv.runtimes import runner
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, OutputRefused

DTYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64, bool])


@st.composite
def any_samples(draw: st.DrawFn) -> Samples:
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.text(max_size=8), min_size=1, max_size=3, unique=True))
    arrays: dict[str, Any] = {}
    for name in names:
        shape = (count, *draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=1, max_side=4)))
        arrays[name] = draw(hnp.arrays(draw(DTYPES), shape))
    labels = draw(st.none() | hnp.arrays(np.int64, count, elements=st.integers(0, 9)))
    return Samples(arrays, labels, draw(st.text(max_size=8)))


@settings(deadline=None, max_examples=60)
@given(any_samples())
def test_samples_survive_being_written_and_read(tmp_path_factory, samples):
    directory = tmp_path_factory.mktemp("samples") / "new"
    write_samples(samples, directory)
    read = read_samples(directory)
    assert list(read.arrays) == list(samples.arrays)
    assert (read.source, read.count) == (samples.source, samples.count)
    for name, array in samples.arrays.items():
        assert read.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(read.arrays[name], array)
    if samples.labels is None:
        assert read.labels is None
    else:
        np.testing.assert_array_equal(read.labels, samples.labels)
    assert sha256_samples(read) == sha256_samples(samples)


@settings(deadline=None)
@given(any_samples(), st.data())
def test_the_hash_changes_with_any_byte(samples, data):
    name = data.draw(st.sampled_from(sorted(samples.arrays)))
    changed = np.ascontiguousarray(samples.arrays[name]).copy()
    raw = changed.reshape(-1).view(np.uint8)
    raw[data.draw(st.integers(0, raw.size - 1))] ^= 1
    other = Samples({**samples.arrays, name: changed}, samples.labels, samples.source)
    assert sha256_samples(other) != sha256_samples(samples)


def sha256_of(**arrays: Any) -> str:
    labels = arrays.pop("labels", None)
    return sha256_samples(Samples(arrays, labels, arrays.pop("source", "here")))


def test_the_hash_knows_names_shapes_dtypes_and_labels_but_not_order_or_layout():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    plain = sha256_of(x=x)
    assert sha256_of(y=x) != plain
    assert sha256_of(x=x.reshape(3, 2)) != plain
    assert sha256_of(x=x.view(np.int32)) != plain
    assert sha256_of(x=x, labels=np.array([0, 1])) != plain
    assert sha256_of(x=x, labels=np.array([0, 1])) != sha256_of(x=x, labels=np.array([1, 1]))
    assert sha256_of(x=np.asfortranarray(x)) == plain
    assert sha256_of(x=x, y=x) == sha256_of(y=x, x=x)


def test_the_files_have_the_documented_names(tmp_path):
    arrays: dict[str, Any] = {"b": np.ones((2, 1), np.float32), "a/0": np.zeros((2, 3), np.int8)}
    write_samples(Samples(arrays, np.array([1, 0]), "somewhere"), tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["0.npy", "1.npy", "labels.npy", "samples.json"]
    index = msgspec.json.decode((tmp_path / "samples.json").read_bytes())
    assert index == {"names": ["b", "a/0"], "source": "somewhere", "count": 2}
    assert np.load(tmp_path / "1.npy").dtype == np.int8


def test_read_samples_are_mapped_from_the_files(tmp_path):
    write_samples(Samples({"x": np.ones((2, 1), np.float32)}, None, ""), tmp_path)
    assert isinstance(read_samples(tmp_path).arrays["x"].base, np.memmap)


def test_writing_again_without_labels_leaves_no_old_ones(tmp_path):
    x = {"x": np.ones((2, 1), np.float32)}
    write_samples(Samples(x, np.array([1, 0]), ""), tmp_path)
    write_samples(Samples(x, None, ""), tmp_path)
    assert read_samples(tmp_path).labels is None


def test_a_missing_or_exchanged_array_file_is_refused(tmp_path):
    write_samples(Samples({"x": np.ones((2, 1), np.float32)}, None, ""), tmp_path)
    np.save(tmp_path / "0.npy", np.ones((3, 1), np.float32))
    with fails(InputRefused):
        read_samples(tmp_path)
    (tmp_path / "0.npy").unlink()
    with fails(InputRefused):
        read_samples(tmp_path)


def test_a_full_disk_is_refused(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    (tmp_path / "0.npy").symlink_to("/dev/full")
    samples = Samples({"x": np.ones((2000, 10), np.float32)}, None, "")
    with fails(OutputRefused):
        write_samples(samples, tmp_path)


def spec(*shape: int, name: str = "x", dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, shape=shape, dtype=dtype)


def test_the_batch_size_is_the_fixed_one_or_1():
    assert batch_size((spec(-1, 3),)) == 1
    assert batch_size((spec(1, 3), spec(-1, 2, name="y"))) == 1
    assert batch_size((spec(4, 3), spec(4, 2, name="y"))) == 4
    assert batch_size((spec(),)) == 1


def test_inputs_that_differ_in_their_first_dimension_have_no_batch():
    assert batch_size((spec(4, 3), spec(2, 3, name="y"))) == 1
    assert not has_batch((spec(4, 3), spec(2, 3, name="y")))
    made_up = synthetic_samples((spec(4, 3), spec(2, 3, name="y")), 5, 0)
    assert {name: array.shape for name, array in made_up.arrays.items()} == {
        "x": (5, 4, 3),
        "y": (5, 2, 3),
    }


@pytest.mark.parametrize("join", [join_samples, runner.join_samples])
def test_each_sample_has_a_row_of_each_output(join):
    rows = [np.arange(6).reshape(2, 3), np.arange(3).reshape(1, 3)]
    np.testing.assert_array_equal(join(rows, [2, 1]), np.concatenate(rows))
    scalars = join([np.float32(3), np.float32(5)], [2, 1])
    assert (scalars.tolist(), scalars.dtype) == ([3, 3, 5], np.float32)
    constant = np.arange(8).reshape(4, 2)
    assert join([constant, constant], [2, 1]).shape == (3, 4, 2)
    # A count of rows that is that of the samples once is none where it is not throughout.
    found = join([np.ones((1, 2)), np.ones((3, 2))], [1, 1])
    assert found[:, :, 0].tolist() == [[1, 0, 0], [1, 1, 1]]


def test_synthetic_samples_fit_the_inputs_they_were_made_for(tmp_path):
    inputs = (
        spec(-1, 8, -1, name="f"),
        spec(1, 20, name="i", dtype="int32"),
        spec(1, 40, name="b", dtype="bool"),
        spec(name="s"),
    )
    samples = synthetic_samples(inputs, 5, seed=1)
    assert samples.count == 5
    assert samples.arrays["f"].shape == (5, 8, 32)
    assert abs(float(samples.arrays["f"].mean())) < 0.2
    assert 0.9 < float(samples.arrays["f"].std()) < 1.1
    assert set(np.unique(samples.arrays["i"])) == {0, 1}
    assert set(np.unique(samples.arrays["b"])) == {False, True}
    np.savez(tmp_path / "a.npz", **samples.arrays)
    load_samples(str(tmp_path / "a.npz"), inputs)


def test_synthetic_samples_follow_the_seed_and_differ_between_inputs():
    inputs = (spec(1, 9), spec(1, 9, name="y"))
    first, again, other = (synthetic_samples(inputs, 4, seed=seed) for seed in (1, 1, 2))
    assert sha256_samples(first) == sha256_samples(again) != sha256_samples(other)
    assert not np.array_equal(first.arrays["x"], first.arrays["y"])


def test_synthetic_samples_fill_whole_batches():
    assert synthetic_samples((spec(3, 2),), 8, seed=0).count == 9


@pytest.mark.parametrize("dtype", ["resource", "variant"])
def test_no_samples_are_made_up_for_inputs_that_take_no_numbers(dtype):
    with fails(InputRefused):
        synthetic_samples((spec(1, dtype=dtype),), 1, seed=0)
