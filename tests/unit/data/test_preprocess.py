"""What preprocessing does to samples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from places import SHARED
from wording import fails

from edgeconv.data import preprocess as preprocess_module
from edgeconv.data import preprocess as steps
from edgeconv.data.preprocess import preprocess
from edgeconv.data.preprocessing import parse_preprocessing
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused, UsageError

FSDD = SHARED / "audio_fsdd/fsdd.npz"
RNG = np.random.default_rng(3)
PHOTOS = RNG.integers(0, 256, (3, 11, 8, 3), np.uint8)
TONE = (8000 * np.sin(np.arange(4000) * 0.2)).astype(np.int16)


def done(text: str, batch: Any) -> np.ndarray[Any, Any]:
    return preprocess(np.asarray(batch), parse_preprocessing(text)[""], "here")


def test_nothing_to_do_leaves_the_samples_as_they_are():
    assert preprocess(PHOTOS, Preprocessing(), "here") is PHOTOS


def test_scale_mean_and_std_are_applied_in_that_order():
    made = done("scale=1/100&mean=1&std=2", np.array([[100, 300]], np.int16))
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, [[0, 1]])


def test_a_mean_for_each_channel_goes_to_its_channel():
    made = done("mean=1,2,3&std=1,2,4", np.full((2, 1, 1, 3), 7, np.uint8))
    np.testing.assert_array_equal(made, np.broadcast_to([6, 2.5, 1], (2, 1, 1, 3)))


def test_columns_of_a_row_may_have_a_mean_each():
    np.testing.assert_array_equal(done("mean=1,2", [[1.0, 2.0], [3.0, 4.0]]), [[0, 0], [2, 2]])


def test_single_numbers_are_scaled_too():
    np.testing.assert_array_equal(done("scale=2&mean=1", [1, 2, 3]), [1, 3, 5])


@pytest.mark.parametrize("text", ["mean=1,2,3", "std=1,2"])
def test_a_mean_that_is_not_one_a_channel_is_refused(text):
    with fails(InputRefused):
        done(text, np.zeros((2, 5, 5, 1)))


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.int8, np.int16, np.int32, np.float32, np.float64]),
        st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.just(3)),
        elements=st.integers(0, 127),
    ),
    st.floats(1e-3, 1e3),
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=1),
)
def test_normalising_is_its_formula(batch, scale, mean, std):
    steps = Preprocessing(scale=scale, mean=tuple(mean), std=tuple(std))
    made = preprocess(batch, steps, "here")
    exact = (batch.astype(np.float64) * scale - np.array(mean)) / np.array(std)
    size = (np.abs(batch * scale) + np.abs(mean)) / np.array(std)
    assert made.dtype == np.float32
    assert (np.abs(made - exact) <= 4e-7 * size + 1e-30).all()


STEPS_OF_IMAGES = st.fixed_dictionaries(
    {},
    optional={
        "channels": st.sampled_from(["rgb", "bgr", "gray"]),
        "resize": st.tuples(st.integers(3, 20), st.integers(3, 20)),
        "crop": st.tuples(st.integers(1, 3), st.integers(1, 3)),
        "scale": st.floats(0.1, 2),
        "mean": st.just((0.5,)),
        "add_channel": st.booleans(),
    },
)
COMPUTING = {"resize", "scale", "mean", "std", "mel_bins"}


@settings(max_examples=100, deadline=None)
@given(
    STEPS_OF_IMAGES,
    st.sampled_from([np.uint8, np.int16, np.float32, np.float64]),
    st.sampled_from(["bilinear", "bicubic"]),
    st.booleans(),
)
def test_one_by_one_is_the_same_as_all_at_once_and_computed_means_float32(
    fields, dtype, method, antialias
):
    if "resize" in fields:
        fields |= {"resize_method": method, "antialias": antialias}
    steps = Preprocessing(**fields)
    stored = PHOTOS.astype(dtype)
    whole = preprocess(stored, steps, "here")
    parts = [preprocess(one[None], steps, "here")[0] for one in stored]
    np.testing.assert_allclose(whole, np.stack(parts), rtol=1e-6)
    grayed = fields.get("channels") == "gray" and dtype is not np.uint8
    assert whole.dtype == (np.float32 if COMPUTING & set(fields) or grayed else dtype)
    assert {part.dtype for part in parts} == {whole.dtype}


class TestLength:
    def test_the_end_is_cut_off_or_filled_with_zeros(self):
        rows = np.array([[1, 2, 3]], np.int16)
        assert done("length=2", rows).tolist() == [[1, 2]]
        assert done("length=5", rows).tolist() == [[1, 2, 3, 0, 0]]
        assert done("length=5", rows).dtype == np.int16

    def test_columns_stay_together(self):
        steps = np.arange(1, 7).reshape(1, 3, 2)
        assert done("length=4", steps).tolist() == [[[1, 2], [3, 4], [5, 6], [0, 0]]]

    @pytest.mark.parametrize("shape", [(2,), (2, 3, 3, 3)])
    def test_images_and_single_numbers_have_none(self, shape):
        with fails(InputRefused):
            done("length=4", np.zeros(shape))


class TestChannels:
    def test_gray_of_uint8_is_pillows_l(self):
        from PIL import Image

        every = RNG.integers(0, 256, (1, 300, 300, 3), np.uint8)
        made = done("channels=gray", every)
        assert made.dtype == np.uint8
        assert made.shape == (1, 300, 300, 1)
        np.testing.assert_array_equal(made[0, ..., 0], Image.fromarray(every[0]).convert("L"))

    def test_gray_of_floats_weighs_the_colours(self):
        made = done("channels=gray", np.array([[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]], np.float32))
        np.testing.assert_allclose(made.ravel(), [0.2989, 0.587, 0.114], rtol=1e-6)

    def test_bgr_turns_the_colours_around(self):
        np.testing.assert_array_equal(done("channels=bgr", PHOTOS), PHOTOS[..., ::-1])
        assert done("channels=bgr", PHOTOS).dtype == np.uint8

    def test_rgb_repeats_gray_and_drops_alpha(self):
        gray = PHOTOS[..., :1]
        three = np.repeat(gray, 3, axis=-1)
        np.testing.assert_array_equal(done("channels=rgb", gray), three)
        np.testing.assert_array_equal(done("channels=rgb", gray[..., 0]), three)
        alpha = np.concatenate([PHOTOS, PHOTOS[..., :1]], axis=-1)
        np.testing.assert_array_equal(done("channels=rgb", alpha), PHOTOS)
        np.testing.assert_array_equal(done("channels=rgb", alpha[..., 2:]), PHOTOS[..., [2, 2, 2]])

    def test_gray_keeps_what_is_gray(self):
        np.testing.assert_array_equal(done("channels=gray", PHOTOS[..., 0]), PHOTOS[..., :1])
        np.testing.assert_array_equal(done("channels=gray", PHOTOS[..., :2]), PHOTOS[..., :1])

    def test_mono_is_the_mean_of_the_channels_in_float32(self):
        stereo = np.array([[[32767, 32767], [-5, 8]]], np.int16)
        made = done("channels=mono", stereo)
        assert made.dtype == np.float32
        assert made.tolist() == [[32767, 1.5]]
        assert done("channels=mono", stereo[..., 0]).dtype == np.float32

    @pytest.mark.parametrize("channels", ["rgb", "bgr", "gray"])
    @pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 4, 4, 5), (2, 4, 4, 0), (1, 2, 3, 4, 3)])
    def test_what_is_no_image_has_no_colours(self, shape, channels):
        with fails(InputRefused):
            done(f"channels={channels}", np.zeros(shape))

    @pytest.mark.parametrize("shape", [(2,), (2, 4, 4, 3)])
    def test_what_is_no_audio_is_not_mixed(self, shape):
        with fails(InputRefused):
            done("channels=mono", np.zeros(shape))


class TestResize:
    @pytest.mark.parametrize("method", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("size", [(5, 3), (22, 31), (11, 8)])
    def test_with_antialias_it_is_pillows(self, size, method):
        from PIL import Image

        text = f"resize={size[0]}x{size[1]}&resize-method={method}&antialias=true"
        kind = Image.Resampling[method.upper()]
        for image, made in zip(PHOTOS, done(text, PHOTOS), strict=True):
            of_pillow = np.asarray(Image.fromarray(image).resize(size[::-1], kind))
            np.testing.assert_array_equal(made, of_pillow)
        floats = PHOTOS[..., 0].astype(np.float32) / 255
        for image, made in zip(floats, done(text, floats), strict=True):
            np.testing.assert_array_equal(made, Image.fromarray(image).resize(size[::-1], kind))

    def test_half_of_a_slope_is_the_means_of_its_pairs(self):
        slope = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
        np.testing.assert_allclose(done("resize=1x4", slope), [[[0.5, 2.5, 4.5, 6.5]]])

    def test_nearest_only_chooses(self):
        made = done("resize=2x2&resize-method=nearest", PHOTOS)
        assert made.dtype == np.uint8
        np.testing.assert_array_equal(made, PHOTOS[:, [2, 8]][:, :, [2, 6]])

    def test_blocks_of_samples_change_nothing(self, monkeypatch):
        whole = done("resize=20x20", PHOTOS)
        monkeypatch.setattr(preprocess_module, "_BLOCK_BYTES", 1)
        np.testing.assert_array_equal(done("resize=20x20", PHOTOS), whole)

    @pytest.mark.parametrize("shape", [(2,), (2, 4), (2, 4, 0), (1, 2, 3, 4, 3)])
    @pytest.mark.parametrize("step", ["resize", "crop"])
    def test_what_is_no_image_is_refused(self, step, shape):
        with fails(InputRefused):
            done(f"{step}=2x2", np.zeros(shape))


class TestCrop:
    def test_it_is_from_the_middle_and_an_odd_pixel_stays_at_the_end(self):
        np.testing.assert_array_equal(done("crop=4x4", PHOTOS), PHOTOS[:, 3:7, 2:6])

    def test_it_comes_after_the_resize(self):
        assert done("resize=20x20&crop=12x14", PHOTOS).shape == (3, 12, 14, 3)

    def test_one_larger_than_the_image_is_refused(self):
        with fails(InputRefused):
            done("crop=11x9", PHOTOS)


class TestDtype:
    def test_whole_numbers_are_rounded_to(self):
        made = done("mean=0.4&dtype=int8", np.array([[0, 1, 2, 127]], np.uint8))
        assert made.dtype == np.int8
        assert made.tolist() == [[0, 1, 2, 127]]
        assert done("mean=0.6&dtype=int8", [[0, 1, 127]]).tolist() == [[-1, 0, 126]]

    def test_no_samples_fit_every_dtype(self):
        assert done("dtype=int8", np.zeros((0, 2))).shape == (0, 2)

    def test_int8_models_get_their_shifted_pixels(self):
        made = done("mean=128&dtype=int8", np.array([[0, 128, 255]], np.uint8))
        assert made.tolist() == [[-128, 0, 127]]

    @pytest.mark.parametrize(
        ("dtype", "values"),
        [
            ("int8", np.array([[128]], np.uint8)),
            ("uint8", np.array([[-1]], np.int16)),
            ("int64", np.array([[2**63]], np.uint64)),
            ("uint64", np.array([[-1]], np.int64)),
            ("int64", np.array([[2.0**63]])),
            ("int32", np.array([[np.nan, 1]])),
            ("int32", np.array([[np.inf]])),
        ],
    )
    def test_what_a_dtype_cannot_hold_is_refused(self, dtype, values):
        with fails(InputRefused):
            done(f"dtype={dtype}", values)

    @pytest.mark.parametrize("dtype", ["int64", "uint64"])
    def test_the_largest_numbers_fit(self, dtype):
        high = np.iinfo(dtype).max
        values = np.array([[high]], np.uint64)
        assert done(f"dtype={dtype}", values).tolist() == [[high]]

    def test_floats_become_other_floats(self):
        assert done("dtype=float16", [[0.5, 1e9]]).tolist() == [[0.5, np.inf]]
        assert done("scale=2&dtype=float64", np.ones((1, 2), np.uint8)).dtype == np.float64

    def test_complex_numbers_are_refused(self):
        with fails(InputRefused):
            done("dtype=float32", [[1j]])


def test_a_channel_is_added_at_the_end():
    assert done("add-channel=true", PHOTOS[..., 0]).shape == (3, 11, 8, 1)


def test_steps_in_contradiction_are_refused_here_too():
    steps = Preprocessing(mel_bins=4, resize=(2, 2))
    with fails(UsageError):
        preprocess(PHOTOS, steps, "here")
    with fails(UsageError):
        preprocess(PHOTOS, Preprocessing(channels="grey"), "here")


def test_samples_that_fill_the_memory_are_refused():
    batch = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 45, 1, 1), (0, 0, 0))
    with fails(InputRefused):
        done("scale=2", batch)


class TestLogMel:
    def test_the_shape_is_frames_by_bins(self):
        text = "mel-bins=12&wave-scale=1/32768&frame-length=400&frame-step=160"
        made = done(text, np.stack([TONE, TONE]))
        assert made.shape == (2, 1 + (4000 - 400) // 160, 12)
        assert made.dtype == np.float32

    def test_a_tone_is_in_the_bin_of_its_frequency(self):
        rate, hz = 16000, 0.2 * 16000 / (2 * np.pi)
        made = done("mel-bins=40&wave-scale=1", TONE[None])[0].mean(0)
        mel = 1127 * np.log1p(np.array([20, rate / 2, hz]) / 700)
        assert made.argmax() == round((mel[2] - mel[0]) / (mel[1] - mel[0]) * 41) - 1

    def test_silence_is_the_logarithm_of_the_floor(self):
        made = done("mel-bins=4&log-floor=0.5", np.zeros((1, 1000), np.float32))
        np.testing.assert_allclose(made, np.log(0.5), rtol=1e-6)

    def test_wave_scale_is_multiplied_first(self):
        text = "mel-bins=4&log-floor=1e-30&wave-scale="
        quiet, loud = done(text + "1/1000", TONE[None]), done(text + "1", TONE[None])
        np.testing.assert_allclose(loud - quiet, np.log(1000), rtol=1e-4)

    def test_integers_without_a_scale_are_refused_with_the_one_to_use(self):
        with fails(InputRefused):
            done("mel-bins=4", TONE[None])

    def test_floats_need_no_scale(self):
        text = "mel-bins=4&log-floor=1e-3"
        np.testing.assert_allclose(
            done(text, TONE[None].astype(np.float64)),
            done(text + "&wave-scale=1", TONE[None]),
            rtol=1e-6,
        )

    def test_less_than_a_frame_is_refused_and_filled_up_it_is_one(self):
        with fails(InputRefused):
            done("mel-bins=4&wave-scale=1", TONE[None, :639])
        assert done("mel-bins=4&wave-scale=1&length=640", TONE[None, :639]).shape == (1, 1, 4)

    def test_stereo_is_mixed_first_or_refused(self):
        stereo = np.stack([TONE, TONE], axis=-1)[None]
        with fails(InputRefused):
            done("mel-bins=4", stereo)
        mixed = done("channels=mono&mel-bins=4", stereo)
        np.testing.assert_allclose(mixed, done("mel-bins=4&wave-scale=1", TONE[None]), rtol=1e-5)

    def test_blocks_of_samples_change_nothing(self, monkeypatch):
        batch = RNG.normal(size=(3, 2000))
        whole = done("mel-bins=10", batch)
        monkeypatch.setattr(steps, "_BLOCK_BYTES", 1)
        np.testing.assert_allclose(done("mel-bins=10", batch), whole, rtol=1e-6)


@pytest.mark.skipif(not FSDD.is_file(), reason="the spoken digits are not here")
def test_spoken_digits_are_told_apart_by_their_log_mel_spectrograms():
    from sklearn.linear_model import RidgeClassifier

    with np.load(FSDD) as file:
        stored = dict(file)
    starts, ends = stored["offsets"][:-1], stored["offsets"][1:]
    clips = [stored["samples"][a:b][None] for a, b in zip(starts, ends, strict=True)]
    steps = parse_preprocessing(
        "length=8000&mel-bins=40&wave-scale=1/32768&sample-rate-hz=8000&frame-length=256"
        "&frame-step=128&log-floor=1e-3"
    )[""]
    spectra = np.stack([preprocess(clip, steps, "here").ravel() for clip in clips])
    is_test = stored["index"] < 5
    model = RidgeClassifier(alpha=100).fit(spectra[~is_test], stored["labels"][~is_test])
    assert model.score(spectra[is_test], stored["labels"][is_test]) >= 0.9
