"""The models of the benchmark of post-training quality: their samples, without training any."""

import io
import tarfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from PIL import Image
from places import ROOT

from edgeconv.types import TrainingRecord

GESTURES = ROOT.parent / "shared" / "data" / "hand_gesture"
FLOWERS = ("daisy", "dandelion", "rose", "sunflower", "tulip")


@pytest.fixture
def models(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import quality_models

    return quality_models


@pytest.fixture
def flowers(models):
    from benchmarks.trained import flowers_mobilenet

    return flowers_mobilenet


def archive(directory: Path, each: int) -> Path:
    """An archive with `each` photos of every flower, each of them in a shade of its own."""
    with tarfile.open(directory / "flowers128.tar", "w") as file:
        for number, flower in enumerate(FLOWERS):
            for index in range(each):
                photo = Image.new("L", (8, 8), color=each * number + index).convert("RGB")
                content = io.BytesIO()
                photo.save(content, "JPEG", quality=100)
                member = tarfile.TarInfo(f"flowers/{flower}/{index}.jpg")
                member.size = len(content.getvalue())
                file.addfile(member, io.BytesIO(content.getvalue()))
    return directory


def test_photos_come_with_the_number_of_their_directory(flowers, tmp_path):
    images, labels = flowers.read_photos(archive(tmp_path, 3) / "flowers128.tar")
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    shades = (images.mean(axis=(1, 2, 3)) + 1) * 127.5
    assert images.shape == (15, 96, 96, 3)
    assert shades == pytest.approx(np.arange(15), abs=0.6)


def test_every_photo_is_either_for_training_or_for_testing(flowers, tmp_path):
    data = flowers.data(str(archive(tmp_path, 10)))
    parts = [data.x_train["image"], data.x_test["image"]]
    shades = [((part.mean(axis=(1, 2, 3)) + 1) * 127.5).round().astype(int) for part in parts]
    assert [len(part) for part in shades] == [40, 10]
    assert sorted(np.concatenate(shades)) == list(range(50))
    for part, labels in zip(shades, (data.y_train, data.y_test), strict=True):
        assert (part // 10 == labels).all()


def test_a_model_that_was_trained_is_not_trained_again(models, tmp_path):
    record = TrainingRecord(
        model="flowers_mobilenet",
        strategy="none",
        loop="fit",
        replicas=1,
        global_batch=32,
        steps_per_epoch=1,
        learning_rate=0.1,
        seed=0,
        epochs=(),
        train_samples=480,
        seconds=1.0,
        wall_seconds=1.0,
    )
    kept = tmp_path / "kept" / "trained" / "flowers_mobilenet" / "1.training.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(msgspec.json.encode(record))
    data = archive(tmp_path, 3)
    model = models.baseline("flowers_mobilenet", data, tmp_path / "kept")
    assert model.training == record
    assert model.file == kept.parent / "1"
    with np.load(model.calibration) as calibration, np.load(model.test) as test:
        assert calibration.files == ["image"]
        assert len(calibration["image"]) == 12
        assert sorted(test.files) == ["image", "labels"]
        assert len(test["labels"]) == 3


def test_every_model_of_its_own_module_is_measured(models, tmp_path):
    modules = {path.stem for path in models._TRAINED.glob("*.py")} - {"__init__"}
    measured = models.trained_models(tmp_path)
    assert modules <= set(measured)
    assert len(measured) >= 14


@pytest.mark.skipif(not GESTURES.exists(), reason="the hand gesture data are not here")
def test_gestures_calibrate_with_500_training_rows_alone(models, tmp_path):
    model = models.point_history(GESTURES, tmp_path)
    with np.load(model.calibration) as calibration, np.load(model.test) as test:
        assert {name: x.shape for name, x in calibration.items()} == {"input_1": (500, 32)}
        assert test["input_1"].shape == (1324, 32)
        assert test["labels"].shape == (1324,)
    assert model.file.is_file()
    assert model.least == 0.966


@pytest.fixture
def detector(models):
    from benchmarks.trained import mnist_detector

    return mnist_detector


def test_a_detection_is_right_where_digit_and_box_are(detector):
    box = np.array([10, 10, 20, 30], np.float32)
    labels = np.append(box, 3)[np.newaxis].repeat(4, axis=0)
    outputs = np.zeros((4, 14), np.float32)
    outputs[:, :4] = box
    outputs[:, 4 + 3] = 1.0
    # Of 20 x 10 pixels, two thirds of the union and then a bit less than half are shared.
    outputs[1, 1] -= 10
    outputs[2, 1] -= 21
    outputs[3, 4 + 5] = 2.0
    assert detector.right(outputs, labels).tolist() == [1, 1, 0, 0]
    assert detector.score({"detection": outputs}, labels).tolist() == [1, 1, 0, 0]


def test_the_box_of_a_scene_is_tight_around_its_digit(detector):
    digits = np.zeros((12, 28, 28), np.uint8)
    digits[:, 9:12, 5:25] = 255
    images, targets = detector.scenes(digits, np.arange(12) % 10, 6, seed=3)
    for image, (left, top, right, bottom, digit) in zip(images, targets, strict=True):
        assert (right - left, bottom - top) == (20, 3)
        assert (image[int(top) : int(bottom), int(left) : int(right)] == 1).all()
        assert 0 <= digit < 10


def test_a_window_has_positions_and_their_differences(models):
    from benchmarks.trained import gesture_windows

    row = np.arange(32, dtype=np.float64)[np.newaxis] ** 2
    (window,) = gesture_windows.windows_of(row)
    assert window.shape == (16, 4)
    assert window[3].tolist() == [36, 49, 36 - 16, 49 - 25]
    assert window[0, 2:].tolist() == [0, 0]


def test_words_are_numbered_by_how_common_they_are(models):
    from benchmarks.trained import polarity_cnn

    ids = polarity_cnn.vocabulary([["b", "a", "b"], ["c", "a", "b"]])
    assert ids == {"b": 2, "a": 3, "c": 4}
    numbers = polarity_cnn.numbers_of(["a", "new", "b"] + ["c"] * 40, ids)
    assert numbers.tolist() == [3, 1, 2] + [4] * 29
    assert polarity_cnn.numbers_of(["a"], ids).tolist() == [3] + [0] * 31
