"""The models of the benchmark of post-training quality: their samples, without training any."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image
from places import ROOT

from edgeconv.types import TrainingRecord

GESTURES = ROOT.parent / "shared" / "data" / "hand_gesture"
FLOWERS = ("daisy", "dandelion", "rose", "sunflower", "tulip")


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import quality_models

    return quality_models


@pytest.fixture
def flowers(models: Any) -> Any:
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


def test_photos_come_with_the_number_of_their_directory(flowers: Any, tmp_path: Path) -> None:
    images, labels = flowers.read_photos(archive(tmp_path, 3) / "flowers128.tar")
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    shades = (images.mean(axis=(1, 2, 3)) + 1) * 127.5
    assert images.shape == (15, 96, 96, 3)
    assert shades == pytest.approx(np.arange(15), abs=0.6)


def test_every_photo_is_either_for_training_or_for_testing(flowers: Any, tmp_path: Path) -> None:
    data = flowers.data(str(archive(tmp_path, 10)))
    parts = [data.x_train["image"], data.x_test["image"]]
    shades = [((part.mean(axis=(1, 2, 3)) + 1) * 127.5).round().astype(int) for part in parts]
    assert [len(part) for part in shades] == [40, 10]
    assert sorted(np.concatenate(shades)) == list(range(50))
    for part, labels in zip(shades, (data.y_train, data.y_test), strict=True):
        assert (part // 10 == labels).all()


def test_a_model_that_was_trained_is_not_trained_again(models: Any, tmp_path: Path) -> None:
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
    subject = models.baseline("flowers_mobilenet", data, tmp_path / "kept")
    assert subject.training == record
    assert subject.model == kept.parent / "1"
    with np.load(subject.calibration) as calibration, np.load(subject.test) as test:
        assert calibration.files == ["image"]
        assert len(calibration["image"]) == 12
        assert sorted(test.files) == ["image", "labels"]
        assert len(test["labels"]) == 3


@pytest.mark.skipif(not GESTURES.exists(), reason="the hand gesture data are not here")
def test_gestures_calibrate_with_500_training_rows_alone(models: Any, tmp_path: Path) -> None:
    subject = models.point_history(GESTURES, tmp_path)
    with np.load(subject.calibration) as calibration, np.load(subject.test) as test:
        assert {name: x.shape for name, x in calibration.items()} == {"input_1": (500, 32)}
        assert test["input_1"].shape == (1324, 32)
        assert test["labels"].shape == (1324,)
    assert subject.model.is_file()
    assert subject.least == 0.966
