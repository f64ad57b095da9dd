import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edgeconv.models import digits_cnn, mnist_cnn
from places import SHARED
from wording import fails

from edgeconv.plugins import BASELINE_MODELS, baseline_model


@pytest.mark.parametrize("name", BASELINE_MODELS)
def test_every_baseline_model_has_what_training_needs_and_a_card(name):
    module = baseline_model(name)
    assert callable(module.build)
    assert callable(module.data)
    for measure in (module.LOSS, module.METRIC):
        assert isinstance(measure, str) or callable(measure)
    assert module.EPOCHS >= 1
    assert module.GLOBAL_BATCH >= 1
    assert module.LEARNING_RATE > 0
    card = Path(module.__file__).with_suffix(".md").read_text(encoding="utf-8")
    assert card.startswith(f"# {name}\n")


def test_the_digits_are_float32_images_from_0_to_1_with_int64_labels():
    data = digits_cnn.data()
    assert data.x_train["image"].shape == (1201, 8, 8, 1)
    assert data.x_test["image"].shape == (596, 8, 8, 1)
    for images in (data.x_train["image"], data.x_test["image"]):
        assert images.dtype == np.float32
        assert images.min() == 0.0
        assert images.max() == 1.0
    for labels, count in ((data.y_train, 1201), (data.y_test, 596)):
        assert labels.dtype == np.int64
        assert labels.shape == (count,)


def test_a_third_of_every_class_is_for_testing():
    data = digits_cnn.data()
    tested = np.bincount(data.y_test, minlength=10)
    trained = np.bincount(data.y_train, minlength=10)
    assert list(tested) == [(n // 3) for n in tested + trained]
    assert len(tested) == digits_cnn.CLASSES


def test_training_and_test_images_together_are_all_the_digits_in_their_order():
    from sklearn.datasets import load_digits

    digits = load_digits()
    data = digits_cnn.data()
    test = digits_cnn.held_out(digits.target)
    whole = np.empty((1797, 8, 8, 1), np.float32)
    whole[test], whole[~test] = data.x_test["image"], data.x_train["image"]
    np.testing.assert_array_equal(whole[..., 0] * 16, digits.images)


def test_held_out_rows_are_the_third_and_sixth_of_each_class():
    labels = np.array([0, 1, 0, 1, 0, 1, 0, 0, 0, 1])
    assert list(np.flatnonzero(digits_cnn.held_out(labels))) == [4, 5, 8]


def test_the_digits_are_in_scikit_learn_and_no_place_is_read():
    with fails(ValueError):
        digits_cnn.data("somewhere")


def small_mnist(path: Path, **changed: np.ndarray) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (12, 28, 28), np.uint8),
        "y_train": np.arange(12, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (5, 28, 28), np.uint8),
        "y_test": np.arange(5, dtype=np.uint8),
    }
    np.savez(path, **{**arrays, **changed})
    return path


def test_mnist_is_float32_from_0_to_1_in_the_order_of_the_file(tmp_path):
    path = small_mnist(tmp_path / "mnist.npz")
    data = mnist_cnn.data(str(path))
    stored = np.load(path)
    for part, images, labels in (
        ("train", data.x_train["image"], data.y_train),
        ("test", data.x_test["image"], data.y_test),
    ):
        assert images.dtype == np.float32
        np.testing.assert_allclose(images * 255, stored[f"x_{part}"], rtol=1e-6)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, stored[f"y_{part}"])


def test_without_a_place_mnist_is_what_keras_has_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    (tmp_path / "datasets").mkdir()
    small_mnist(tmp_path / "datasets" / "mnist.npz")
    assert len(mnist_cnn.data().y_train) == 12


def test_mnist_that_was_not_downloaded_is_not_downloaded_either(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    with fails(FileNotFoundError):
        mnist_cnn.data()
    assert list(tmp_path.iterdir()) == []


def test_mnist_of_another_shape_is_refused_with_both_shapes(tmp_path):
    path = small_mnist(tmp_path / "mnist.npz", x_test=np.zeros((5, 8, 8), np.uint8))
    with fails(ValueError):
        mnist_cnn.data(str(path))


MNIST = SHARED / "mnist" / "mnist.npz"


@pytest.mark.skipif(not MNIST.is_file(), reason="MNIST is not beside the checkout")
def test_mnist_itself_has_60000_and_10000_images():
    data = mnist_cnn.data(str(MNIST))
    assert data.x_train["image"].shape == (60000, 28, 28)
    assert data.x_test["image"].shape == (10000, 28, 28)
    assert data.x_train["image"].max() == 1.0
    assert list(np.bincount(data.y_test)) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_reading_the_data_does_not_import_tensorflow(tmp_path):
    code = (
        "import sys, numpy as np; from edgeconv.plugins import BASELINE_MODELS, baseline_model\n"
        "from edgeconv.models import digits_cnn, mnist_cnn\n"
        "for name in BASELINE_MODELS: baseline_model(name)\n"
        "digits_cnn.data(); mnist_cnn.data(sys.argv[1])\n"
        "print([m for m in ('tensorflow', 'tf_keras', 'keras', 'keras_hub') if m in sys.modules])"
    )
    path = small_mnist(tmp_path / "mnist.npz")
    command = [sys.executable, "-c", code, path]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
