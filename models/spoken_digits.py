"""A small CNN for spoken digits, "zero" to "nine": the Free Spoken Digit Dataset at 8 kHz.

It looks at a log-mel spectrogram of the first second, which `data` computes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from edgeconv.models import Data
    from numpy.typing import NDArray

INPUT_NAME = "log_mel"
OUTPUT_NAME = "probabilities"
CLASSES = 10
LOSS = "sparse_categorical_crossentropy"
METRIC = "accuracy"
EPOCHS = 20
GLOBAL_BATCH = 64
LEARNING_RATE = 1e-2
SAMPLE_RATE_HZ = 8000
WINDOW = 256
HOP = 128
FFT = 512
FRAMES = 64
BANDS = 32
FIRST_FILTERS = 24
# Filters and stride of each depthwise-separable block.
BLOCKS = ((48, 2), (64, 1), (96, 2))
# The upstream's own split: recordings 0 to 4 of each speaker and digit are for testing.
TEST_RECORDINGS = 5
ARRAYS = ("samples", "offsets", "labels", "speakers", "index")


class Clip(NamedTuple):
    """One recording: int16 (n,) at 8 kHz, with its digit, speaker and number."""

    digit: int
    speaker: str
    number: int
    samples: NDArray[np.int16]


def build() -> Any:
    """A new tf_keras.Model: float32 (batch, 64, 32, 1), to probabilities (batch, 10)."""
    from tf_keras import Model, layers

    log_mel = layers.Input((FRAMES, BANDS, 1), name=INPUT_NAME)
    x = layers.Conv2D(FIRST_FILTERS, 3, strides=2, padding="same", use_bias=False)(log_mel)
    x = _normalized(x)
    for filters, stride in BLOCKS:
        x = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(x)
        x = _normalized(x)
        x = layers.Conv2D(filters, 1, use_bias=False)(x)
        x = _normalized(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    return Model(log_mel, layers.Dense(CLASSES, activation="softmax", name=OUTPUT_NAME)(x))


def _normalized(x: Any) -> Any:
    from tf_keras import layers

    # The running averages follow a short training only with less inertia than the default.
    return layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))


def data(location: str | None = None) -> Data:
    """Spectrograms, float32 (n, 64, 32, 1), and the digits, int64 (n,).

    Sorted by digit, speaker and number of the recording. `location` is a directory of upstream's
    DIGIT_SPEAKER_NUMBER.wav, or an .npz of all: `samples`, int16, concatenated; `offsets`, n + 1,
    where each begins; and `labels`, `speakers` and `index`, (n,).
    """
    import numpy as np
    from edgeconv.models import Data

    clips = sorted(_clips(location), key=lambda clip: clip[:3])
    test = np.array([clip.number < TEST_RECORDINGS for clip in clips])
    if test.all() or not test.any():
        raise ValueError(f"{location} has recordings for training or testing only")
    weights = mel_weights()
    x = np.stack([log_mel(clip.samples, weights) for clip in clips])[..., np.newaxis]
    y = np.array([clip.digit for clip in clips], np.int64)
    return Data({INPUT_NAME: x[~test]}, y[~test], {INPUT_NAME: x[test]}, y[test])


def log_mel(samples: NDArray[np.int16], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Decibels below full scale in each mel band, / 40: float32 (64, 32), about -2 to 1.

    Frames of 32 ms every 16 ms; longer recordings are cut, and shorter ones padded with silence.
    """
    import numpy as np

    length = WINDOW + HOP * (FRAMES - 1)
    signal = np.zeros(length, np.float32)
    signal[: len(samples)] = samples[:length] / np.float32(32768)
    frames = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[::HOP]
    spectrum = np.abs(np.fft.rfft(frames * np.hanning(WINDOW), FFT)) ** 2
    decibels = 10 * np.log10(np.maximum(spectrum @ weights, 1e-8))
    return (decibels / 40).astype(np.float32)


def mel_weights() -> NDArray[np.float32]:
    """Triangles evenly spaced on the mel scale up to 4 kHz: float32 (257, 32).

    O'Shaughnessy, "Speech Communication" (1987), page 150: mel = 2595 log10(1 + f / 700).
    """
    import numpy as np

    top_mel = 2595 * np.log10(1 + SAMPLE_RATE_HZ / 2 / 700)
    corners_hz = 700 * (10 ** (np.linspace(0, top_mel, BANDS + 2) / 2595) - 1)
    left, center, right = corners_hz[:-2], corners_hz[1:-1], corners_hz[2:]
    hz = np.fft.rfftfreq(FFT, 1 / SAMPLE_RATE_HZ)[:, np.newaxis]
    rising, falling = (hz - left) / (center - left), (right - hz) / (right - center)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def _clips(location: str | None) -> list[Clip]:
    if location is None:
        raise FileNotFoundError(
            "spoken_digits needs the recordings of the Free Spoken Digit Dataset: "
            "a directory of its .wav files, or an .npz"
        )
    path = Path(location)
    return _clips_of_directory(path) if path.is_dir() else _clips_of_npz(path)


def _clips_of_npz(path: Path) -> list[Clip]:
    from edgeconv.models import archives

    samples, offsets, *columns = archives.read_npz(path, ARRAYS).values()
    count = len(offsets) - 1
    shapes = {(count,)} | {column.shape for column in columns}
    if samples.dtype != "int16" or samples.ndim != 1 or offsets.ndim != 1 or len(shapes) > 1:
        raise ValueError(f"{path}: samples have to be int16, and each other array one of a clip")
    if (offsets[1:] < offsets[:-1]).any() or offsets[0] < 0 or offsets[-1] > len(samples):
        raise ValueError(f"{path}: its offsets do not ascend from 0 to {len(samples)}")
    rows = zip(*columns, offsets[:-1], offsets[1:], strict=True)
    return [
        Clip(_digit(digit, path), str(speaker), int(index), samples[first:last])
        for digit, speaker, index, first, last in rows
    ]


def _clips_of_directory(directory: Path) -> list[Clip]:
    paths = sorted(directory.glob("*_*_*.wav"))
    if not paths:
        raise FileNotFoundError(f"{directory} has no recordings named DIGIT_SPEAKER_NUMBER.wav")
    return [_clip_of_wav(path) for path in paths]


def _clip_of_wav(path: Path) -> Clip:
    import wave

    import numpy as np

    digit, _, rest = path.stem.partition("_")
    speaker, _, index = rest.rpartition("_")
    if not index.isdecimal():
        raise ValueError(f"{path} is not named DIGIT_SPEAKER_NUMBER.wav")
    try:
        with wave.open(str(path)) as file:
            form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            stored = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is not a WAV file: {error}") from error
    if form != (1, 2, SAMPLE_RATE_HZ):
        raise ValueError(f"{path} is not mono, of 16 bits at 8 kHz")
    return Clip(_digit(digit, path), speaker, int(index), np.frombuffer(stored, "<i2"))


def _digit(value: Any, path: Path) -> int:
    if str(value) not in set("0123456789"):
        raise ValueError(f"{path}: {value} is not a digit")
    return int(value)
