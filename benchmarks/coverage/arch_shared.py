"""The models that stand beside the checkout, trained by others, with samples for them."""

from pathlib import Path

import numpy as np

from benchmarks.coverage.drawn import COUNT, TINY_COUNT, images, keep, rows, series

SHARED = Path(__file__).parents[3] / "shared" / "data"
SERVING = SHARED / "tf_serving_savedmodels"


def hand_gesture(directory: Path, *, name: str, width: int, suffix: str = ".hdf5") -> Path:
    """A classifier of hand key points, with rows of its own labeled data."""
    table = np.loadtxt(SHARED / "hand_gesture" / f"{name}.csv", delimiter=",")
    order = np.random.RandomState(42).permutation(len(table))[-200:]
    keep(directory, input_1=table[order, 1 : 1 + width].astype(np.float32))
    return SHARED / "hand_gesture" / f"{name}_classifier{suffix}"


def mini_xception(directory: Path, *, name: str) -> Path:
    """A face classifier saved by Keras 2.0; its input is 64×64 grey in -1..1."""
    keep(directory, input_1=2 * images(COUNT, 64, 64, 1) - 1)
    return SHARED / "legacy_keras_h5" / f"{name}.hdf5"


def serving(
    directory: Path, *, name: str, shape: tuple[int, ...] = (1,), argument: str = "x"
) -> Path:
    """A model of TensorFlow Serving's tests, with numbers of the shape that it takes."""
    values = rows(TINY_COUNT, int(np.prod(shape))).reshape(TINY_COUNT, *shape)
    keep(directory, **{argument: values})
    return SERVING / name


def hello_world(directory: Path) -> Path:
    """The sine of a number."""
    values = np.random.default_rng(2).uniform(0, 2 * np.pi, (TINY_COUNT, 1))
    keep(directory, dense_input=values.astype(np.float32))
    return _micro("hello_world__models__hello_world_float")


def mnist_lstm(directory: Path) -> Path:
    """An LSTM over the rows of a handwritten digit."""
    with np.load(SHARED / "mnist" / "mnist.npz") as archive:
        digits = archive["x_train"][:TINY_COUNT]
    keep(directory, fixed_input=(digits / 255).astype(np.float32))
    return _micro("mnist_lstm__trained_lstm")


def micro(directory: Path, *, name: str, shape: tuple[int, ...]) -> Path:
    """A .tflite of TensorFlow Lite Micro, with samples of its input's shape."""
    keep(directory, input=series(COUNT, int(np.prod(shape)), 1).reshape(COUNT, *shape))
    return _micro(name)


def audio(directory: Path, *, name: str) -> Path:
    """A front end for speech, made of custom operators; it takes int16 sound."""
    sound = 8000 * series(COUNT, 480, 1).reshape(COUNT, 480)
    keep(directory, audio_frame=sound.astype(np.int16))
    return _micro(f"micro_speech__models__{name}")


def _micro(name: str) -> Path:
    return SHARED / "tflm_models" / f"{name}.tflite"
