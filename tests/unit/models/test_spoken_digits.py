import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgeconv.models import spoken_digits
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import fails

FLOOR = -2.0


def tone(hz: float, seconds: float = 0.5, level: float = 0.5) -> np.ndarray:
    time_s = np.arange(int(8000 * seconds)) / 8000
    return (32767 * level * np.sin(2 * np.pi * hz * time_s)).astype(np.int16)


def spectrogram(samples: np.ndarray) -> np.ndarray:
    return spoken_digits.log_mel(samples, spoken_digits.mel_weights())


def write_wav(path: Path, samples: np.ndarray, rate_hz: int = 8000, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(samples.dtype.itemsize)
        file.setframerate(rate_hz)
        file.writeframes(samples.tobytes())


# In the order of their names, which is not that of the recordings' numbers.
CLIPS = [
    ("0", "ann", 10),
    ("0", "ann", 9),
    ("0", "ann", 4),
    ("0", "bob", 7),
    ("1", "ann", 0),
    ("1", "ann", 11),
]


def recordings(directory: Path) -> str:
    directory.mkdir()
    for place, (digit, speaker, number) in enumerate(CLIPS):
        write_wav(directory / f"{digit}_{speaker}_{number}.wav", tone(300 + 200 * place))
    return str(directory)


def archive(path: Path, **changed: Any) -> str:
    """The same recordings as an .npz, in another order."""
    tones = [tone(300 + 200 * place) for place in range(len(CLIPS))][::-1]
    arrays = {
        "samples": np.concatenate(tones),
        "offsets": np.cumsum([0, *map(len, tones)]),
        "labels": np.array([int(digit) for digit, _, _ in CLIPS[::-1]], np.uint8),
        "speakers": np.array([speaker for _, speaker, _ in CLIPS[::-1]]),
        "index": np.array([number for _, _, number in CLIPS[::-1]], np.uint8),
    }
    np.savez(path, **{**arrays, **changed})
    return str(path)


def test_recordings_0_to_4_are_for_testing_and_all_sorted_by_digit_speaker_and_number(tmp_path):
    data = spoken_digits.data(recordings(tmp_path / "wavs"))
    assert data.y_train.tolist() == [0, 0, 0, 1]
    assert data.y_test.tolist() == [0, 1]
    expected = [spectrogram(tone(hz)) for hz in (500, 300, 900, 1300)]
    np.testing.assert_array_equal(data.x_train["log_mel"][..., 0], np.stack(expected))
    expected = [spectrogram(tone(hz)) for hz in (700, 1100)]
    np.testing.assert_array_equal(data.x_test["log_mel"][..., 0], np.stack(expected))
    assert data.x_train["log_mel"].dtype == np.float32
    assert data.y_train.dtype == np.int64


def test_an_archive_gives_the_same_samples_as_a_directory(tmp_path):
    by_directory = spoken_digits.data(recordings(tmp_path / "wavs"))
    by_archive = spoken_digits.data(archive(tmp_path / "clips.npz"))
    for one, other in zip(by_directory, by_archive, strict=True):
        if isinstance(one, dict):
            one, other = one["log_mel"], other["log_mel"]
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("hz", [200, 500, 1000, 2000, 3500])
def test_a_tone_is_loudest_in_the_band_whose_centre_is_nearest(hz):
    top_mel = 2595 * np.log10(1 + 4000 / 700)
    place = 2595 * np.log10(1 + hz / 700) / (top_mel / 33)
    loudest = spectrogram(tone(hz))[:25].argmax(axis=1)
    assert set(loudest.tolist()) <= {int(np.floor(place)) - 1, int(np.ceil(place)) - 1}


def test_silence_and_what_comes_after_the_recording_is_the_floor():
    np.testing.assert_array_equal(spectrogram(np.zeros(8000, np.int16)), FLOOR)
    half = spectrogram(tone(1000, seconds=0.5))
    assert (half[:31] > FLOOR).any(axis=1).all()
    np.testing.assert_array_equal(half[32:], FLOOR)


def test_nothing_after_the_last_frame_changes_a_spectrogram():
    long = np.concatenate([tone(500, 1.04), tone(3000, 1.0)])
    np.testing.assert_array_equal(spectrogram(long), spectrogram(long[: 63 * 128 + 256]))


@settings(deadline=None)
@given(hz=st.floats(100, 3900), share=st.floats(0.02, 0.9))
def test_a_tone_is_as_many_decibels_lower_as_its_amplitude(hz, share):
    loud, soft = spectrogram(tone(hz, 1.0, 0.9)), spectrogram(tone(hz, 1.0, 0.9 * share))
    # Whole sample values are all it has, which the bands far from the tone show.
    near = loud > loud.max() - 0.5
    np.testing.assert_allclose((soft - loud)[near] * 40, 20 * np.log10(share), atol=0.5)


def test_without_a_place_it_says_what_it_needs():
    with fails(FileNotFoundError):
        spoken_digits.data()


def test_an_empty_directory_is_refused_with_the_names_it_should_have(tmp_path):
    with fails(FileNotFoundError):
        spoken_digits.data(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "samples", "rate_hz", "channels"),
    [
        ("x_ann_5.wav", tone(500), 8000, 1),
        ("10_ann_5.wav", tone(500), 8000, 1),
        ("1_ann_b.wav", tone(500), 8000, 1),
        ("1_ann_5.wav", tone(500), 16000, 1),
        ("1_ann_5.wav", tone(500), 8000, 2),
        ("1_ann_5.wav", np.zeros(99, np.uint8), 8000, 1),
    ],
)
def test_another_kind_of_recording_is_refused_by_name(tmp_path, name, samples, rate_hz, channels):
    place = recordings(tmp_path / "wavs")
    write_wav(Path(place) / name, samples, rate_hz, channels)
    with fails(ValueError):
        spoken_digits.data(place)


def test_a_file_that_is_no_wav_is_refused(tmp_path):
    place = recordings(tmp_path / "wavs")
    (Path(place) / "2_ann_5.wav").write_bytes(b"RIFF and nothing more")
    with fails(ValueError):
        spoken_digits.data(place)


def test_recordings_of_which_none_is_for_training_are_refused(tmp_path):
    write_wav(tmp_path / "1_ann_0.wav", tone(500))
    with fails(ValueError):
        spoken_digits.data(str(tmp_path))


@pytest.mark.parametrize(
    "changed",
    [
        {"samples": np.zeros(24000, np.float32)},
        {"labels": np.zeros(5, np.uint8)},
        {"offsets": np.array([0, 100, 50, 200, 300, 400, 500])},
        {"offsets": np.array([-5, 100, 150, 200, 300, 400, 500])},
        {"offsets": np.array([0, 1, 2, 3, 4, 5, 99999])},
        {"offsets": np.zeros((2, 3), np.int64)},
        {"labels": np.array([0, 1, 2, 3, 4, 12])},
    ],
)
def test_an_archive_that_does_not_fit_together_is_refused(tmp_path, changed):
    with fails(ValueError):
        spoken_digits.data(archive(tmp_path / "clips.npz", **changed))


def test_an_archive_that_lacks_an_array_is_refused(tmp_path):
    np.savez(tmp_path / "clips.npz", samples=tone(500))
    with fails(ValueError):
        spoken_digits.data(str(tmp_path / "clips.npz"))
