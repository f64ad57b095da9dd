"""Preprocessing against TensorFlow's own: the same numbers, so that a model sees what it knows."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forking import output_of

from edgeconv.data.kinds import images, wavs
from edgeconv.data.preprocess import preprocess
from edgeconv.types import Preprocessing

SIZES = [(7, 5), (14, 10), (20, 31), (3, 2), (13, 9), (13, 40), (1, 1), (26, 18)]
METHODS = ["nearest", "bilinear", "bicubic"]
STFTS: list[dict[str, Any]] = [
    {"mel_bins": 40, "sample_rate_hz": 8000, "frame_length": 256, "frame_step": 128},
    {"mel_bins": 13, "sample_rate_hz": 16000, "frame_length": 401, "frame_step": 160},
    {
        "mel_bins": 20,
        "sample_rate_hz": 8000,
        "frame_length": 200,
        "frame_step": 80,
        "fft_length": 512,
        "mel_low_hz": 125.0,
        "mel_high_hz": 3800.0,
        "log_floor": 1e-3,
    },
    {"mel_bins": 2, "sample_rate_hz": 8000, "frame_length": 1, "frame_step": 1, "mel_low_hz": 0.0},
]

# Runs in a process of its own, as TensorFlow always does here.
SCRIPT = """
import json, sys
import numpy as np
import tensorflow as tf

folder, sizes, methods, stfts, files = json.loads(sys.argv[1])
made = {}
images = np.load(f"{folder}/images.npy")
for size in sizes:
    for method in methods:
        for name, stored in (("uint8", images), ("float32", images.astype(np.float32) / 7)):
            key = f"{method} {size[0]}x{size[1]} {name}"
            made[key] = tf.image.resize(stored, size, method=method).numpy()
made["antialias"] = tf.image.resize(images, (7, 5), antialias=True).numpy()
made["gray uint8"] = tf.image.rgb_to_grayscale(images).numpy()
made["gray float32"] = tf.image.rgb_to_grayscale(images.astype(np.float32) / 255).numpy()
audio = np.load(f"{folder}/audio.npy")
for number, wanted in enumerate(stfts):
    parts = tf.signal.stft(
        audio, wanted["frame_length"], wanted["frame_step"], wanted.get("fft_length") or None
    )
    weights = tf.signal.linear_to_mel_weight_matrix(
        wanted["mel_bins"],
        parts.shape[-1],
        wanted["sample_rate_hz"],
        wanted.get("mel_low_hz", 20.0),
        wanted.get("mel_high_hz") or wanted["sample_rate_hz"] / 2,
    )
    mel = tf.tensordot(tf.abs(parts), weights, 1)
    made[f"mel {number}"] = tf.math.log(mel + wanted.get("log_floor", 1e-6)).numpy()
for name in files:
    content = tf.io.read_file(f"{folder}/{name}")
    if name.endswith(".wav"):
        made[name] = tf.audio.decode_wav(content)[0].numpy()
    else:
        made[name] = tf.io.decode_image(content, expand_animations=False).numpy()
np.savez(f"{folder}/made.npz", **made)
"""
FILES = ["rgb.png", "gray.png", "rgba.png", "palette.png", "deep.png", "rgb.bmp", "rgb.jpg"]


def pictures() -> np.ndarray[Any, Any]:
    """(4, 13, 9, 3) uint8: noise, a slope, and single bright pixels."""
    rng = np.random.default_rng(5)
    images = rng.integers(0, 256, (4, 13, 9, 3), np.uint8)
    images[1] = np.linspace(0, 255, 13 * 9 * 3).reshape(13, 9, 3)
    images[2] = 0
    images[2, 6, 4], images[2, 0, 0], images[2, -1, -1] = 255, 255, 255
    return images


def clips() -> np.ndarray[Any, Any]:
    """(4, 2000) float32: noise, a tone in a little noise, a tone in none, and silence."""
    audio = np.zeros((4, 2000), np.float32)
    audio[:2] = np.random.default_rng(6).normal(0, [[0.1], [1e-3]], (2, 2000))
    audio[1:3] += 0.5 * np.sin(np.arange(2000) * 0.3)
    return audio


def write_files(folder: Path) -> None:
    from PIL import Image
    from scipy.io import wavfile

    image = Image.fromarray(pictures()[0])
    smooth = Image.fromarray(pictures()[1]).resize((64, 48))
    image.save(folder / "rgb.png")
    image.save(folder / "rgb.bmp")
    smooth.save(folder / "rgb.jpg", quality=90)
    image.convert("L").save(folder / "gray.png")
    rgba = image.convert("RGBA")
    rgba.putalpha(image.convert("L"))
    rgba.save(folder / "rgba.png")
    image.quantize(16).save(folder / "palette.png")
    Image.fromarray(pictures()[0, :, :, 0] * np.uint16(257)).save(folder / "deep.png")
    stereo = np.random.default_rng(7).integers(-32768, 32768, (50, 2), np.int16)
    wavfile.write(folder / "clip.wav", 8000, stereo)


@pytest.fixture(scope="module")
def of_tensorflow(tmp_path_factory) -> tuple[Path, dict[str, Any]]:
    """The files, and what TensorFlow makes of them and of the pictures and clips."""
    folder = tmp_path_factory.mktemp("tensorflow")
    np.save(folder / "images.npy", pictures())
    np.save(folder / "audio.npy", clips())
    write_files(folder)
    argument = json.dumps([str(folder), SIZES, METHODS, STFTS, [*FILES, "clip.wav"]])
    output_of("-c", SCRIPT, argument)
    with np.load(folder / "made.npz") as made:
        return folder, dict(made)


@pytest.mark.parametrize("name", ["uint8", "float32"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_a_resize_is_what_tf_image_resize_makes(method, size, name, of_tensorflow):
    stored = pictures() if name == "uint8" else pictures().astype(np.float32) / 7
    steps = Preprocessing(resize=size, resize_method=method)
    made = preprocess(stored, steps, "here")
    wanted = of_tensorflow[1][f"{method} {size[0]}x{size[1]} {name}"]
    assert made.shape == wanted.shape
    if method == "nearest":
        np.testing.assert_array_equal(made, wanted)
    else:
        np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-6 * stored.max())


def test_an_antialiased_resize_is_near_tensorflows_too(of_tensorflow):
    made = preprocess(pictures(), Preprocessing(resize=(7, 5), antialias=True), "here")
    # Pillow rounds to whole levels, once down and once across.
    np.testing.assert_allclose(made, of_tensorflow[1]["antialias"], atol=1.01)


def test_gray_is_what_tensorflow_makes_it_to_a_level(of_tensorflow):
    gray = Preprocessing(channels="gray")
    made = preprocess(pictures(), gray, "here")
    assert np.abs(made.astype(int) - of_tensorflow[1]["gray uint8"]).max() <= 1
    made = preprocess(pictures().astype(np.float32) / 255, gray, "here")
    np.testing.assert_allclose(made, of_tensorflow[1]["gray float32"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", range(len(STFTS)))
def test_a_log_mel_spectrogram_is_what_tf_signal_makes(number, of_tensorflow):
    made = preprocess(clips(), Preprocessing(**STFTS[number]), "here")
    wanted = of_tensorflow[1][f"mel {number}"]
    assert made.shape == wanted.shape
    assert made.dtype == np.float32
    quiet = 2  # Beside a pure tone, TensorFlow's own rounding is larger than what is there.
    others = [0, 1, 3]
    np.testing.assert_allclose(made[others], wanted[others], rtol=1e-4, atol=1e-4)
    loudest = np.exp(wanted[quiet]).max()
    np.testing.assert_allclose(
        np.exp(made[quiet]), np.exp(wanted[quiet]), rtol=1e-4, atol=1e-6 * loudest
    )


@pytest.mark.parametrize("name", ["rgb.png", "gray.png", "rgba.png", "palette.png", "rgb.bmp"])
def test_an_image_file_has_the_pixels_that_tensorflow_decodes(name, of_tensorflow, tmp_path):
    np.testing.assert_array_equal(
        only_image(of_tensorflow[0] / name, tmp_path), of_tensorflow[1][name]
    )


def test_a_jpeg_has_the_pixels_that_tensorflow_decodes_to_a_few_levels(of_tensorflow, tmp_path):
    made = only_image(of_tensorflow[0] / "rgb.jpg", tmp_path)
    apart = np.abs(made.astype(int) - of_tensorflow[1]["rgb.jpg"])
    assert apart.max() <= 8
    assert apart.mean() < 1


def test_16_bit_gray_is_kept_where_tensorflows_default_halves_it(of_tensorflow, tmp_path):
    made = only_image(of_tensorflow[0] / "deep.png", tmp_path)
    np.testing.assert_array_equal(made >> 8, of_tensorflow[1]["deep.png"])


def test_a_wav_has_the_samples_that_tensorflow_decodes(of_tensorflow, tmp_path):
    shutil.copy(of_tensorflow[0] / "clip.wav", tmp_path)
    (clip,) = wavs.read(str(tmp_path), {}, None).by_name.values()
    steps = Preprocessing(scale=1 / 32768)
    np.testing.assert_array_equal(
        preprocess(clip[0][None], steps, "here")[0], of_tensorflow[1]["clip.wav"]
    )


def only_image(file: Path, folder: Path) -> np.ndarray[Any, Any]:
    shutil.copy(file, folder)
    (column,) = images.read(str(folder), {}, None).by_name.values()
    return column[0]
