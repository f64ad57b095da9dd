"""The doctor on models that were trained with a known preprocessing, in TensorFlow and LiteRT."""

import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from forking import output_of
from places import SHARED
from zoo import stocked

from edgeconv import bench, convert, doctor
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Diagnosis, Measuring, Timing
from edgeconv.types.errors import InputRefused

PHOTOS = SHARED / "cifar10_jpeg_dev/cifar10_jpeg_dev.npz"
SAMPLES = 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PHOTOS.exists(), reason="the shared CIFAR-10 photos are absent"),
]

STEPS = {
    "unit": "scale=1/255",
    "signed": "scale=1/127.5&mean=1",
    "caffe": "channels=bgr&mean=103.939,116.779,123.68",
    "background": "scale=1/255",
}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory) -> Path:
    """Models of known preprocessing, and raw.npz with the test photos."""
    root = tmp_path_factory.mktemp("doctor")
    with np.load(PHOTOS) as stored:
        np.savez(root / "raw.npz", photo=stored["x_test"], y=stored["y_test"])
    return stocked(root, "keras_zoo:preprocessed", PHOTOS)


@pytest.fixture(scope="module")
def source(zoo) -> str:
    return f"{zoo / 'raw.npz'}?labels=y&photo=photo"


def float_model(model: Path, out: Path) -> Path:
    made = convert(model, out=out, to=make_recipes(["float32"]))
    return out / made.artifacts[0].file


def assert_found(diagnosis: Diagnosis, name: str) -> None:
    # The samples' own mean and deviation come near to −1 to 1, and may not be told apart.
    found = [trial.preprocess for trial in diagnosis.fits if trial.name != "standardized"]
    assert found == [STEPS[name]], diagnosis
    assert diagnosis.trials[0].preprocess == STEPS[name]
    assert diagnosis.label_offset == (1 if name == "background" else 0)


@pytest.mark.parametrize("name", STEPS)
def test_the_training_of_a_saved_model_is_found_and_bench_agrees(name, zoo, source, tmp_path):
    diagnosis = doctor(zoo / name, source, samples=SAMPLES)
    assert_found(diagnosis, name)
    assert diagnosis.scores == ("probabilities" if name == "signed" else "logits")
    assert diagnosis.runtime.startswith("tensorflow 2")
    converted = float_model(zoo / name, tmp_path / "out")
    on_lite = doctor(converted, source, samples=SAMPLES)
    assert_found(on_lite, name)
    assert on_lite.runtime.startswith("ai_edge_litert")
    if diagnosis.label_offset:
        return  # What bench measures, it measures with the labels as they are.
    report = bench(
        [converted],
        data=source,
        preprocess=diagnosis.trials[0].preprocess,
        samples=SAMPLES,
        baseline=zoo / name,
        measuring=Measuring(rounds=1, timing=Timing(warmup=1, repeats=2, seconds=0.5)),
    )
    assert report.baseline.accuracy == diagnosis.trials[0].accuracy
    assert report.measurements[0].accuracy == on_lite.trials[0].accuracy
    assert report.data.preprocessing == STEPS[name]


@pytest.mark.parametrize("file", ["caffe.keras", "unit.h5"])
def test_the_training_of_a_keras_file_is_found(file, zoo, source):
    assert_found(doctor(zoo / file, source, samples=SAMPLES), Path(file).stem)


def test_photos_of_another_size_in_folders_are_examined_too(zoo, tmp_path):
    from PIL import Image

    with np.load(zoo / "raw.npz") as raw:
        photos, labels = raw["photo"][:400], raw["y"][:400]
    for number, (photo, label) in enumerate(zip(photos, labels, strict=True)):
        folder = tmp_path / "photos" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        side = 64 if number % 2 else 96
        Image.fromarray(photo).resize((side, side)).save(folder / f"{number}.png")
    diagnosis = doctor(zoo / "caffe", f"images:{tmp_path / 'photos'}", samples=300)
    assert diagnosis.trials[0].preprocess == (
        "channels=bgr&resize=32x32&mean=103.939,116.779,123.68"
    )
    assert diagnosis.ok


def test_a_model_at_chance_ends_with_1_and_a_fit_with_0(zoo, source, cli, tmp_path):
    with np.load(zoo / "raw.npz") as raw:
        shuffled = np.random.default_rng(3).permutation(raw["y"])
        np.savez(tmp_path / "shuffled.npz", photo=raw["photo"], y=shuffled)
    wrong = cli("doctor", zoo / "unit", f"{tmp_path / 'shuffled.npz'}?labels=y&photo=photo")
    assert wrong.returncode == 1, wrong.stderr
    assert "None of 12 preprocessings" in wrong.stdout
    right = cli("doctor", zoo / "unit", source, "--samples", SAMPLES, "--json", "-q")
    assert (right.returncode, right.stderr) == (0, "")
    assert_found(msgspec.json.decode(right.stdout, type=Diagnosis), "unit")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_saved_model_with_a_fixed_batch_gets_whole_batches(zoo, tmp_path):
    script = (
        "import sys, tensorflow as tf\n"
        "loaded = tf.saved_model.load(sys.argv[1])\n"
        "call = loaded.signatures['serving_default']\n"
        "spec = tf.TensorSpec((20, 32, 32, 3), tf.float32, name='photo')\n"
        "run = tf.function(lambda photo: call(**{next(iter(\n"
        "    call.structured_input_signature[1])): photo}))\n"
        "module = tf.Module()\n"
        "module.loaded = loaded\n"
        "concrete = run.get_concrete_function(spec)\n"
        "tf.saved_model.save(module, sys.argv[2], signatures=concrete)\n"
    )
    fixed = tmp_path / "fixed"
    output_of("-c", script, zoo / "unit", fixed)
    source = f"{zoo / 'raw.npz'}?labels=y"
    assert doctor(fixed, source).data.samples == 40
    assert_found(doctor(fixed, source, samples=SAMPLES), "unit")
    with pytest.raises(InputRefused, match="the model takes 20 at once"):
        doctor(fixed, source, samples=30)
    shutil.rmtree(fixed)
