from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edgeconv.models import digits_cnn

from edgeconv.errors import UsageError
from edgeconv.plugins import BASELINE_MODELS, baseline_model


@pytest.mark.parametrize("name", BASELINE_MODELS)
def test_every_baseline_model_has_what_training_needs_and_a_card(name):
    module = baseline_model(name)
    assert callable(module.build)
    assert callable(module.data)
    assert isinstance(module.LOSS, str)
    assert isinstance(module.METRIC, str)
    assert module.EPOCHS >= 1
    assert module.GLOBAL_BATCH >= 1
    assert module.LEARNING_RATE > 0
    card = Path(module.__file__).with_suffix(".md").read_text(encoding="utf-8")
    assert card.startswith(f"# {name}\n")


def test_an_unknown_baseline_model_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'digits_cnn'"):
        baseline_model("digit_cnn")


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


def test_reading_the_data_does_not_import_tensorflow():
    code = (
        "import sys; from edgeconv.models import digits_cnn; digits_cnn.data();"
        "print([m for m in ('tensorflow', 'tf_keras', 'keras') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
