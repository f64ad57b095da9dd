"""Directories of WAV files: good, odd, damaged and hostile ones."""

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile
from sources import identity, open_samples
from wording import fails

from edgeconv.data import parse_preprocessing
from edgeconv.data.arrays import Items
from edgeconv.data.kinds import wavs
from edgeconv.data.location import located, parse_source
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

RAMP = np.arange(-5, 6, dtype=np.int16)
CLIP = TensorSpec(name="clip", shape=(-1, 11), dtype="int16")


def saved(path: Path, audio: Any = RAMP, rate_hz: int = 8000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(path, rate_hz, audio)
    return path


def chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def riff(*chunks: bytes) -> bytes:
    content = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(content)) + content


def fmt(tag: int = 1, channels: int = 1, rate_hz: int = 8000, bits: int = 16, **odd: int) -> bytes:
    block = odd.get("block", channels * bits // 8)
    per_second = odd.get("per_second", rate_hz * block)
    return chunk(b"fmt ", struct.pack("<HHIIHH", tag, channels, rate_hz, per_second, block, bits))


DATA = chunk(b"data", RAMP.tobytes())


@pytest.fixture
def words(tmp_path) -> Path:
    """Two clips of "no" and one of "yes"."""
    for value, name in enumerate(("no/b.wav", "no/a.wav", "yes/c.wav")):
        saved(tmp_path / "words" / name, RAMP + np.int16(value))
    return tmp_path / "words"


def column(folder: Path, **options: str) -> Items:
    (found,) = wavs.read(str(folder), options, None).by_name.values()
    return found


def only(folder: Path, content: bytes) -> np.ndarray[Any, Any]:
    """The audio of a file with these bytes."""
    (folder / "x.wav").write_bytes(content)
    return column(folder)[0]


class TestClasses:
    def test_each_directory_is_a_class(self, words):
        read = wavs.read(str(words), {}, None)
        assert read.class_names == ("no", "yes")
        assert read.labels.tolist() == [0, 0, 1]
        assert read.rate_hz == 8000
        assert [int(column(words)[index][0]) for index in range(3)] == [-4, -5, -3]

    def test_the_text_before_the_first_underscore_may_be_the_class(self, tmp_path):
        for name in ("7_jackson_32", "0_theo_1", "7_theo_2"):
            saved(tmp_path / f"{name}.wav")
        read = wavs.read(str(tmp_path), {"labels": "prefix"}, None)
        assert read.class_names == ("0", "7")
        assert read.labels.tolist() == [0, 1, 1]
        classes = tmp_path / "order.txt"
        classes.write_text("7\n0\n")
        ordered = wavs.read(str(tmp_path), {"labels": "prefix", "classes": str(classes)}, None)
        assert ordered.labels.tolist() == [1, 0, 0]

    @pytest.mark.parametrize("name", ["noise.wav", "_noise.wav"])
    def test_a_file_without_a_prefix_is_named(self, name, tmp_path):
        saved(tmp_path / "7_a.wav")
        saved(tmp_path / name)
        with fails(InputRefused):
            column(tmp_path, labels="prefix")

    def test_without_directories_or_a_word_on_labels_there_are_none(self, words):
        assert wavs.read(str(words / "no"), {}, None).labels is None
        assert wavs.read(str(words), {"labels": "none"}, None).labels is None


class TestRate:
    def test_files_of_different_rates_are_refused_and_a_few_of_them_named(self, words):
        for index in range(9):
            saved(words / f"yes/{index}.wav", rate_hz=16000)
        with fails(InputRefused):
            column(words)

    def test_the_rate_that_is_demanded_is_checked(self, words):
        assert len(column(words, rate="8000")) == 3
        with fails(InputRefused):
            column(words, rate="16000")

    @pytest.mark.parametrize("rate", ["0", "-1", "8k", "8000.0", "9" * 30, "²"])
    def test_a_rate_that_is_no_number_is_refused(self, rate, words):
        with fails(UsageError):
            column(words, rate=rate)

    def test_a_spectrogram_of_another_rate_is_refused(self, words):
        spec = TensorSpec(name="mel", shape=(-1, -1, 4), dtype="float32")
        text = "mel-bins=4&wave-scale=1&frame-length=8&frame-step=4"
        with fails(InputRefused):
            open_samples(str(words), (spec,), preprocessing=parse_preprocessing(text))
        steps = parse_preprocessing(text + "&sample-rate-hz=8000")
        taken = open_samples(str(words), (spec,), preprocessing=steps).take(np.arange(3))
        assert taken.arrays["mel"].shape == (3, 1, 4)


class TestAudio:
    @pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float32, np.float64])
    @pytest.mark.parametrize("shape", [(11,), (11, 2)])
    def test_it_is_as_it_was_stored(self, dtype, shape, tmp_path):
        audio = np.random.default_rng(1).integers(-9, 9, shape).astype(dtype)
        saved(tmp_path / "x.wav", audio)
        found = column(tmp_path)[0]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, audio)

    def test_8_bits_are_signed_so_that_silence_is_0(self, tmp_path):
        saved(tmp_path / "x.wav", np.array([0, 127, 128, 255], np.uint8))
        found = column(tmp_path)[0]
        assert found.dtype == np.int8
        assert found.tolist() == [-128, -1, 0, 127]

    def test_24_bits_are_the_upper_ones_of_int32(self, tmp_path):
        with wave.open(str(tmp_path / "x.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(3)
            file.setframerate(8000)
            file.writeframes(b"\x01\x00\x00\xff\xff\xff" + b"\xff\xff\x7f\x00\x00\x80")
        found = column(tmp_path)[0]
        assert found.dtype == np.int32
        assert (found >> 8).tolist() == [[1, -1], [2**23 - 1, -(2**23)]]

    def test_the_extensible_format_is_read(self, tmp_path):
        guid = struct.pack("<H", 1) + b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
        header = struct.pack("<HHIIHHHHI", 0xFFFE, 1, 8000, 16000, 2, 16, 22, 16, 4) + guid
        audio = only(tmp_path, riff(chunk(b"fmt ", header), DATA))
        np.testing.assert_array_equal(audio, RAMP)

    @pytest.mark.parametrize(
        "more",
        [[chunk(b"id3 ", b"abc")], [chunk(b"LIST", b"abcd")], [chunk(b"cue ", b"")], [b"\0"]],
    )
    def test_what_lies_beside_the_audio_is_passed_over_without_a_word(self, more, tmp_path):
        np.testing.assert_array_equal(only(tmp_path, riff(fmt(), DATA, *more)), RAMP)
        if more != [b"\0"]:
            np.testing.assert_array_equal(only(tmp_path, riff(*more, fmt(), DATA)), RAMP)

    def test_what_follows_the_wav_is_passed_over(self, tmp_path):
        np.testing.assert_array_equal(only(tmp_path, riff(fmt(), DATA) + b"TAG" * 40), RAMP)


class TestDamage:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"hello, world, I am text",
            b"RIFX\0\0\0\0WAVE",
            b"RF64\0\0\0\0WAVE",
            b"FORM\0\0\0\0AIFF",
            b"RIFF\0\0\0\0WEBP",
            b"RIFF",
            riff(),
            riff(fmt()),
            riff(DATA),
            riff(DATA, fmt()),
            riff(fmt(), DATA, DATA),
            riff(fmt(), chunk(b"data", b"")),
            riff(fmt(), chunk(b"data", b"abc")),
            riff(chunk(b"fmt ", b"\1\0"), DATA),
            riff(fmt(tag=6, bits=8), DATA),
            riff(fmt(tag=2, bits=4), DATA),
            riff(fmt(bits=12), DATA),
            riff(fmt(tag=3, bits=16), DATA),
            riff(fmt(channels=0), DATA),
            riff(fmt(rate_hz=0), DATA),
            riff(fmt(block=7), DATA),
            riff(fmt(), b"data" + struct.pack("<I", 0xFFFFFFFF) + bytes(40)),
            b"RIFF\xff\xff\xff\xff" + riff(fmt(), DATA)[8:],
        ],
    )
    def test_it_is_refused_when_the_directory_is_opened(self, content, tmp_path):
        (tmp_path / "x.wav").write_bytes(content)
        with fails(InputRefused):
            column(tmp_path)

    def test_every_truncation_is_refused(self, tmp_path):
        whole = riff(fmt(), chunk(b"LIST", b"abcd"), DATA)
        for length in range(len(whole)):
            with pytest.raises(InputRefused):
                only(tmp_path, whole[:length])

    def test_what_only_the_decoder_sees_is_refused_when_it_is_taken(self, tmp_path):
        with fails(InputRefused):
            only(tmp_path, riff(fmt(per_second=1), DATA))


class TestAsSource:
    def test_the_kind_is_told_by_what_the_directory_holds(self, words):
        assert located(parse_source(str(words))).kind == "wavs"
        assert located(parse_source(f"{words / 'no'}?labels=none")).kind == "wavs"

    def test_clips_of_several_lengths_are_refused_until_they_are_made_equal(self, words):
        saved(words / "yes/long.wav", np.arange(20, dtype=np.int16))
        with fails(InputRefused):
            open_samples(str(words), (CLIP,)).take(np.arange(4))
        steps = parse_preprocessing("length=11")
        taken = open_samples(str(words), (CLIP,), preprocessing=steps).take(np.arange(4))
        assert taken.arrays["clip"].dtype == np.int16
        assert taken.arrays["clip"][3].tolist() == list(range(11))

    def test_mono_and_stereo_are_made_equal_by_mixing(self, words):
        saved(words / "yes/stereo.wav", np.stack([RAMP, RAMP + 2], axis=-1))
        with fails(InputRefused):
            open_samples(str(words), (CLIP,)).take(np.arange(4))
        spec = TensorSpec(name="clip", shape=(-1, 11), dtype="float32")
        steps = parse_preprocessing("channels=mono")
        taken = open_samples(str(words), (spec,), preprocessing=steps).take(np.arange(4))
        np.testing.assert_array_equal(taken.arrays["clip"][3], RAMP + 1)

    def test_the_identity_follows_the_way_to_label(self, words):
        assert identity(str(words)) != identity(f"{words}?labels=none")
