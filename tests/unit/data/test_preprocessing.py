"""Preprocessing as text: inline, in a file, and written back."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from wording import fails

from edgeconv.data.preprocessing import DTYPES, KEYS, describe, parse_preprocessing
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused, UsageError


def only(text: str) -> Preprocessing:
    """The steps of every input."""
    ((name, steps),) = parse_preprocessing(text).items()
    assert name == ""
    return steps


def test_steps_are_joined_by_ampersands():
    steps = only("resize=224x192&crop=200x180&scale=1/127.5&mean=1")
    assert steps == Preprocessing(resize=(224, 192), crop=(200, 180), scale=1 / 127.5, mean=(1.0,))


def test_a_mean_may_have_one_value_a_channel_and_numbers_may_be_fractions():
    steps = only("mean=0.485,1/4,-.5&std=1,2e-1,3/2.5")
    assert steps.mean == (0.485, 0.25, -0.5)
    assert steps.std == (1, 0.2, 1.2)


def test_every_key_is_read():
    image = only(
        "channels=bgr&resize=8x9&resize-method=bicubic&antialias=true&crop=4x5&scale=2&mean=3"
        "&std=4&add-channel=true&dtype=float16"
    )
    assert image == Preprocessing(
        channels="bgr",
        resize=(8, 9),
        resize_method="bicubic",
        antialias=True,
        crop=(4, 5),
        scale=2.0,
        mean=(3.0,),
        std=(4.0,),
        add_channel=True,
        dtype="float16",
    )
    audio = only(
        "length=8000&channels=mono&mel-bins=40&wave-scale=1/32768&sample-rate-hz=8000"
        "&frame-length=200&frame-step=80&fft-length=256&mel-low-hz=125&mel-high-hz=3800"
        "&log-floor=1e-3"
    )
    assert audio == Preprocessing(
        length=8000,
        channels="mono",
        mel_bins=40,
        wave_scale=1 / 32768,
        sample_rate_hz=8000,
        frame_length=200,
        frame_step=80,
        fft_length=256,
        mel_low_hz=125.0,
        mel_high_hz=3800.0,
        log_floor=1e-3,
    )


def test_a_name_before_a_step_says_which_input_it_is_for():
    steps = parse_preprocessing("scale=1/255&tokens.dtype=int32&a.b.scale=2&a.b.mean=1")
    assert steps == {
        "": Preprocessing(scale=1 / 255),
        "tokens": Preprocessing(dtype="int32"),
        "a.b": Preprocessing(scale=2.0, mean=(1.0,)),
    }


def test_none_is_nothing_for_all_or_for_one_input():
    assert parse_preprocessing("none") == {}
    steps = parse_preprocessing("scale=2&tokens.none")
    assert steps == {"": Preprocessing(scale=2.0), "tokens": Preprocessing()}


@pytest.mark.parametrize("text", ["", "scale", "scale=", "=2", "&", "scale=2&", ".scale=2", "a.b"])
def test_what_is_no_step_is_refused(text):
    with pytest.raises(UsageError):
        parse_preprocessing(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"resize={size}" for size in ("224", "2x", "2x3x4", "2,3", "-1x2")),
        *(f"scale={n}" for n in ("nan", "inf", "1/0", "a", "1_0", "1e999", "1/2/3")),
        *(f"scale={n}" for n in (" 1", "1/", "0x1", "1e300/1e-300", "٣")),
        *(f"mean={n}" for n in ("1,", "1,,2", "1;2")),
        *(f"add-channel={n}" for n in ("yes", "True", "1")),
        *(f"length={n}" for n in ("1.5", "-1", "9" * 30, "1e3")),
        "channels=grey",
        "resize=2x2&resize-method=area",
        "dtype=string",
        "dtype=bool",
        # Out of range, or in contradiction.
        "resize=0x4",
        "resize=99999x99999",
        "length=0",
        "length=99999999999",
        "std=1,0",
        "std=-1",
        "scale=0",
        "mel-bins=4&wave-scale=0",
        "mel-bins=4&log-floor=0",
        "mean=1,2&std=1,2,3",
        "resize-method=nearest",
        "antialias=true",
        "resize=2x2&resize-method=nearest&antialias=true",
        "frame-step=2",
        "mel-bins=4&resize=2x2",
        "mel-bins=4&channels=rgb",
        "length=4&crop=2x2",
        "channels=mono&resize=2x2",
        "mel-bins=4&mel-high-hz=8001",
        "mel-bins=4&mel-low-hz=8000",
        "mel-bins=4&mel-low-hz=-1",
        "mel-bins=4&fft-length=512",
        "mel-bins=4&length=600",
        "x.scale=2&scale=2&x.scale=2",
        # None stands alone.
        *("scale=2&none", "none&scale=2", "x.none&x.scale=2"),
    ],
)
def test_steps_that_cannot_be_are_refused_with_what_they_must_be(text):
    with fails(UsageError):
        parse_preprocessing(text)


def test_limits_are_inclusive():
    assert only("mel-bins=4&mel-high-hz=8000&fft-length=640&length=640").mel_high_hz == 8000
    assert only("resize=8192x8192").resize == (8192, 8192)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_has_a_table_for_all_inputs_and_one_for_each_that_is_named(tmp_path):
    text = """
    [preprocess]
    resize = [224, 192]
    scale = "1/127.5"
    mean = 1
    [preprocess.input.audio]
    mean = [0.5, 0.25]
    add-channel = true
    [preprocess.input."a.b"]
    resize = "4x5"
    channels = "gray"
    [preprocess.input.tokens]
    """
    assert parse_preprocessing(written(tmp_path / "steps.toml", text)) == {
        "": Preprocessing(resize=(224, 192), scale=1 / 127.5, mean=(1.0,)),
        "audio": Preprocessing(mean=(0.5, 0.25), add_channel=True),
        "a.b": Preprocessing(resize=(4, 5), channels="gray"),
        "tokens": Preprocessing(),
    }


@pytest.mark.parametrize(
    "text",
    [
        "[preprocess]\nresise = [2, 2]",
        "[preprocess]\nadd_channel = true",
        "[preproces]\nscale = 2",
        "[preprocess]\nnone = ''",
        "preprocess = 3",
        "[preprocess]\ninput = 3",
        "[preprocess.input]\nscale = 3",
        "[preprocess.input.'']\nscale = 3",
        "[preprocess.input.x]\nscale = true",
        "[preprocess]\nscale = nan",
        "[preprocess]\nscale = [1]",
        f"[preprocess]\nscale = 1{'0' * 400}",
        "[preprocess]\nlength = 1.0",
        "[preprocess]\nlength = true",
        "[preprocess]\nresize = [1.0, 2]",
        "[preprocess]\nresize = 224",
        "[preprocess]\nmean = []",
        "[preprocess]\nmean = ['a']",
        "[preprocess]\nadd-channel = 1",
        "[preprocess]\nadd-channel = []",
        "[preprocess]\ndtype = 8",
        "[preprocess]\nstd = 0",
        "[preprocess",
        "scale = 1" + "0" * 5000,
        "x = " + "[" * 5000,
    ],
)
def test_a_file_with_something_not_understood_is_refused(text, tmp_path):
    with fails(UsageError):
        parse_preprocessing(written(tmp_path / "steps.toml", text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "steps.toml"
    with fails(InputRefused):
        parse_preprocessing(str(path))
    path.touch()
    with fails(InputRefused):
        parse_preprocessing(str(path))
    for text in ("# nothing", "[preprocess]"):
        with fails(InputRefused):
            parse_preprocessing(written(path, text))
    path.write_bytes(b"x = '\xff'")
    with fails(UsageError):
        parse_preprocessing(str(path))
    with path.open("wb") as file:
        file.truncate(2 << 20)
    with fails(InputRefused):
        parse_preprocessing(str(path))
    path.unlink()
    path.mkdir()
    with fails(InputRefused):
        parse_preprocessing(str(path))


def test_a_file_without_read_permission_is_refused(tmp_path):
    path = tmp_path / "steps.toml"
    path.write_text("[preprocess]\nscale = 2")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    with pytest.raises(InputRefused, match="Permission denied"):
        parse_preprocessing(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "resize=224x224&scale=1/127.5&mean=1",
        "scale=1/255&mean=0.485,0.456,0.406&std=0.229,0.224,0.225",
        "channels=gray&add-channel=true&dtype=int8",
        "length=8000&mel-bins=40&wave-scale=1/32768&sample-rate-hz=8000&log-floor=0.001",
        "scale=2&a.b.scale=-1/3&tokens.none",
        "x%26y%3Dz%2541.scale=2",
    ],
)
def test_a_description_is_written_as_a_person_would(text):
    assert describe(parse_preprocessing(text)) == text


FINITE = st.floats(allow_nan=False, allow_infinity=False)
FACTORS = st.one_of(FINITE.filter(bool), st.integers(1, 300).map(lambda n: 1 / n))
SIDES = st.integers(1, 4096)
NORMALISING: dict[str, Any] = {
    "scale": FACTORS,
    "mean": st.lists(FINITE, min_size=3, max_size=3).map(tuple),
    "std": st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=1).map(tuple),
    "add_channel": st.booleans(),
    "dtype": st.sampled_from(DTYPES),
}
IMAGES = st.fixed_dictionaries(
    {"resize": st.tuples(SIDES, SIDES)},
    optional={
        **NORMALISING,
        "channels": st.sampled_from(["rgb", "bgr", "gray"]),
        "resize_method": st.sampled_from(["nearest", "bicubic"]),
        "crop": st.tuples(SIDES, SIDES),
    },
)
AUDIO = st.fixed_dictionaries(
    {"mel_bins": SIDES},
    optional={
        **NORMALISING,
        "length": st.integers(640, 1 << 26),
        "wave_scale": FACTORS,
        "mel_low_hz": st.floats(0, 100),
        "mel_high_hz": st.floats(101, 8000),
        "log_floor": st.floats(1e-300, 1),
        "frame_step": SIDES,
    },
)
STEPS = st.one_of(IMAGES, AUDIO).map(lambda fields: Preprocessing(**fields))
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(st.dictionaries(NAMES, st.one_of(STEPS, st.just(Preprocessing())), max_size=3), STEPS)
def test_a_description_reads_back_as_what_it_describes(named, general):
    for steps in (named, {"": general, **named}):
        assert parse_preprocessing(describe(steps)) == steps


@given(st.text(st.sampled_from("scale=resize&mean.,/x12none%"), max_size=30))
def test_any_text_gives_steps_or_a_usage_error(text):
    try:
        steps = parse_preprocessing(text)
    except UsageError:
        return
    assert parse_preprocessing(describe(steps)) == steps


def test_parsing_imports_no_numpy():
    code = (
        "import sys; from edgeconv.data import parse_preprocessing as p; p('scale=2'); "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


GUIDE = (ROOT / "docs/data.md").read_text(encoding="utf-8")


def test_the_guide_has_an_example_of_every_key_and_each_of_them_is_understood():
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| `([^`|]+)` \|$", GUIDE, re.MULTILINE)
    assert [key for key, _ in rows] == list(KEYS)
    for key, example in rows:
        assert f"{key}=" in describe(parse_preprocessing(example))


def test_the_guides_file_and_frequent_steps_are_understood(tmp_path):
    (file,) = re.findall(r"```toml\n(.*?)```", GUIDE.partition("## Preprocessing")[2], re.DOTALL)
    assert set(parse_preprocessing(written(tmp_path / "x.toml", file))) == {"", "tokens"}
    frequent = re.findall(r"\| `(\w[^`|]+)` \|$", GUIDE.partition("Frequent ones")[2], re.MULTILINE)
    assert len(frequent) == 6
    for steps in (*frequent, *re.findall(r"--preprocess '([^']+)'", GUIDE)):
        assert describe(parse_preprocessing(steps)) == steps
