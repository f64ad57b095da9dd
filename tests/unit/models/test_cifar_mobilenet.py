from pathlib import Path

import numpy as np
import pytest
from edgeconv.models import cifar_mobilenet
from places import SHARED
from python_2_pickle import as_python_2
from wording import fails

JPEG = SHARED / "cifar10_jpeg_dev"


def pictures(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)


def small_npz(path: Path) -> Path:
    labels = np.arange(10, dtype=np.uint8)
    np.savez(path, x_train=pictures(10), y_train=labels, x_test=pictures(3), y_test=labels[:3])
    return path


def small_batches(directory: Path) -> Path:
    """CIFAR-10's "python version" with 2 images a file, labeled by the number of the file."""
    directory.mkdir(parents=True)
    for number, name in enumerate((*cifar_mobilenet.TRAIN_FILES, cifar_mobilenet.TEST_FILE)):
        planes = pictures(2, seed=number).transpose(0, 3, 1, 2).reshape(2, 3072)
        stored = {"data": planes, "labels": [number, number], "batch_label": "a batch"}
        (directory / name).write_bytes(as_python_2(stored))
    return directory


def test_an_npz_gives_float32_images_from_0_to_1(tmp_path):
    data = cifar_mobilenet.data(str(small_npz(tmp_path / "images.npz")))
    assert data.x_train["image"].dtype == np.float32
    np.testing.assert_allclose(data.x_train["image"] * 255, pictures(10), rtol=1e-6)
    assert data.y_train.tolist() == list(range(10))
    assert data.y_test.tolist() == [0, 1, 2]


def test_a_directory_with_one_npz_is_as_good_as_the_file(tmp_path):
    path = small_npz(tmp_path / "images.npz")
    by_file, by_directory = cifar_mobilenet.data(str(path)), cifar_mobilenet.data(str(tmp_path))
    np.testing.assert_array_equal(by_file.x_test["image"], by_directory.x_test["image"])


def test_a_directory_with_two_is_refused(tmp_path):
    small_npz(tmp_path / "a.npz")
    small_npz(tmp_path / "b.npz")
    with fails(ValueError):
        cifar_mobilenet.data(str(tmp_path))


def test_a_directory_with_none_is_refused_with_what_was_looked_for(tmp_path):
    with fails(FileNotFoundError):
        cifar_mobilenet.data(str(tmp_path))


def test_a_place_that_does_not_exist_is_refused(tmp_path):
    with fails(FileNotFoundError):
        cifar_mobilenet.data(str(tmp_path / "nowhere"))


def test_the_batches_come_in_their_order_with_colours_last(tmp_path):
    data = cifar_mobilenet.data(str(small_batches(tmp_path / "batches")))
    assert data.y_train.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert data.y_test.tolist() == [5, 5]
    second = data.x_train["image"][2:4]
    np.testing.assert_allclose(second * 255, pictures(2, seed=1), rtol=1e-6)


def test_a_missing_batch_is_named(tmp_path):
    directory = small_batches(tmp_path / "batches")
    (directory / "data_batch_3").unlink()
    with fails(FileNotFoundError):
        cifar_mobilenet.data(str(directory))


@pytest.mark.parametrize(
    "stored",
    [
        {"data": [1, 2], "labels": [0]},
        {"data": np.zeros((1, 3072), np.uint8)},
        [1, 2],
        {"data": np.zeros((1, 100), np.uint8), "labels": [0]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": [b"cat"]},
    ],
)
def test_a_batch_of_something_else_is_refused(tmp_path, stored):
    directory = small_batches(tmp_path / "batches")
    (directory / "data_batch_2").write_bytes(as_python_2(stored))
    with fails(ValueError):
        cifar_mobilenet.data(str(directory))


@pytest.mark.parametrize(
    "folder", ["cifar-10-batches-py", "cifar-10-batches-py-target/cifar-10-batches-py"]
)
def test_without_a_place_it_is_what_either_keras_has_downloaded(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    small_batches(tmp_path / "datasets" / folder)
    assert len(cifar_mobilenet.data().y_train) == 10


def test_what_was_not_downloaded_is_not_downloaded_either(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with fails(FileNotFoundError):
        cifar_mobilenet.data()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not JPEG.is_dir(), reason="the images are not beside the checkout")
def test_the_images_beside_the_checkout_are_taken():
    data = cifar_mobilenet.data(str(JPEG))
    assert data.x_train["image"].shape == (12000, 32, 32, 3)
    assert data.x_test["image"].shape == (2000, 32, 32, 3)
    assert set(data.y_test.tolist()) == set(range(10))
