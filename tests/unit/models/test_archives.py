"""The files that the image models read, checked before they are believed."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgeconv.models import archives
from python_2_pickle import as_python_2
from wording import fails


def image_arrays(**changed: np.ndarray) -> dict[str, np.ndarray]:
    arrays = {
        "x_train": np.full((3, 2, 2), 255, np.uint8),
        "y_train": np.array([0, 1, 2], np.uint8),
        "x_test": np.full((2, 2, 2), 51, np.uint8),
        "y_test": np.array([[2], [0]], np.int32),
    }
    return {**arrays, **changed}


def read(path: Path) -> Any:
    return archives.images_of(path, "image", (2, 2), 3)


def test_images_are_scaled_and_labels_flattened(tmp_path):
    np.savez(tmp_path / "a.npz", **image_arrays())
    data = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(data.x_train["image"], np.ones((3, 2, 2), np.float32))
    np.testing.assert_allclose(data.x_test["image"], np.full((2, 2, 2), 0.2), rtol=1e-6)
    assert data.y_test.tolist() == [2, 0]
    assert data.y_test.dtype == np.int64


@pytest.mark.parametrize(
    "changed",
    [
        {"x_train": np.zeros((3, 2, 2), np.float32)},
        {"x_train": np.zeros((3, 2, 3), np.uint8)},
        {"x_test": np.zeros((0, 2, 2), np.uint8)},
        {"y_train": np.zeros(2, np.int64)},
        {"y_test": np.zeros((2, 3), np.int64)},
        {"y_test": np.array([0.0, 1.0])},
        {"y_test": np.array([0, 3])},
        {"y_test": np.array([-1, 1])},
    ],
)
def test_arrays_that_are_not_such_images_are_refused(tmp_path, changed):
    np.savez(tmp_path / "a.npz", **image_arrays(**changed))
    with fails(ValueError):
        read(tmp_path / "a.npz")


def test_a_file_that_is_not_there_is_named_with_what_it_should_have(tmp_path):
    with fails(FileNotFoundError):
        read(tmp_path / "a.npz")


def test_an_archive_without_one_of_the_arrays_is_refused(tmp_path):
    arrays = image_arrays()
    del arrays["y_test"]
    np.savez(tmp_path / "a.npz", **arrays)
    with fails(ValueError):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("size", [0, 100, 500, 900])
def test_a_file_that_was_cut_off_is_refused(tmp_path, size):
    whole = tmp_path / "whole.npz"
    np.savez(whole, **image_arrays())
    (tmp_path / "a.npz").write_bytes(whole.read_bytes()[:size])
    with fails(ValueError):
        read(tmp_path / "a.npz")


def test_a_damaged_array_is_refused(tmp_path):
    whole = tmp_path / "whole.npz"
    np.savez_compressed(whole, **image_arrays(x_train=np.arange(4000, dtype=np.uint8)))
    content = bytearray(whole.read_bytes())
    content[60:90] = bytes(30)
    (tmp_path / "a.npz").write_bytes(content)
    with fails(ValueError):
        read(tmp_path / "a.npz")


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_code_of_an_archive_runs(tmp_path):
    made = tmp_path / "made"
    bombs = np.array([Bomb(made)], dtype=object)
    np.savez(tmp_path / "a.npz", **image_arrays(x_train=bombs))
    with fails(ValueError):
        read(tmp_path / "a.npz")
    assert not made.exists()


def test_no_code_of_a_pickle_runs(tmp_path):
    made, path = tmp_path / "made", tmp_path / "batch"
    path.write_bytes(pickle.dumps({"data": Bomb(made)}))
    with fails(ValueError):
        archives.unpickled_arrays(path)
    assert not made.exists()


def batch() -> dict[bytes, Any]:
    return {b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"labels": [1, 2]}


@pytest.mark.parametrize("pickled", [as_python_2, pickle.dumps])
def test_a_pickle_of_arrays_and_lists_is_read(tmp_path, pickled):
    path = tmp_path / "batch"
    path.write_bytes(pickled(batch()))
    read_again = archives.unpickled_arrays(path)
    np.testing.assert_array_equal(read_again[b"data"], batch()[b"data"])
    assert read_again[b"labels"] == [1, 2]


@pytest.mark.parametrize("size", range(0, 200, 7))
def test_a_pickle_that_was_cut_off_is_refused(tmp_path, size):
    path = tmp_path / "batch"
    path.write_bytes(as_python_2(batch())[:size])
    with fails(ValueError):
        archives.unpickled_arrays(path)


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x02}q\x00(U", b"cos\nsystem\n(."])
def test_what_is_no_whole_pickle_is_refused(tmp_path, content):
    path = tmp_path / "batch"
    path.write_bytes(content)
    with fails(ValueError):
        archives.unpickled_arrays(path)


def test_a_pickle_that_is_not_there_is_named(tmp_path):
    with fails(FileNotFoundError):
        archives.unpickled_arrays(tmp_path / "batch")


def test_keras_keeps_its_data_below_keras_home_or_in_the_home_directory(monkeypatch):
    monkeypatch.setenv("KERAS_HOME", "/somewhere")
    assert archives.keras_datasets() == Path("/somewhere/datasets")
    monkeypatch.delenv("KERAS_HOME")
    assert archives.keras_datasets() == Path.home() / ".keras" / "datasets"
