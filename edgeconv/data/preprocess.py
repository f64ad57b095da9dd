"""Stored samples to what the model gets: the steps of a `Preprocessing`, one after another.

A resize without antialiasing takes the pixels that `tf.image.resize` takes, half-pixel centers
and float32 coordinates included, so that a model trained on its output sees the same; with
antialiasing it is Pillow's own.
"""

import math
from typing import Any

import numpy as np

from edgeconv.data.arrays import holds_strings
from edgeconv.data.preprocessing import check
from edgeconv.types import Preprocessing
from edgeconv.types.errors import InputRefused

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 64 << 20


def preprocess(batch: Array, steps: Preprocessing, where: str) -> Array:
    """The samples (n, *stored_shape) after `steps`, (n, *sample_shape).

    float32 where anything was computed (uint8 where that was only gray of uint8), and else the
    stored dtype, unless `steps` name one.
    Raises `InputRefused`, naming `where`, for samples that a step does not fit, and
    `UsageError` for steps that contradict each other.
    """
    check(steps)
    if holds_strings(batch):
        if steps == type(steps)():
            return batch
        raise InputRefused(
            f"{where} holds strings, and preprocessing is for numbers",
            hint="add NAME.none for this input, as in --preprocess 'scale=1/255&user.none'",
        )
    if batch.dtype.kind not in "biuf":
        raise InputRefused(f"{where} has {batch.dtype} samples, which no preprocessing takes")
    try:
        for step in _STEPS:
            batch = step(batch, steps, where)
    except MemoryError as error:
        raise InputRefused(
            f"{where}: {len(batch)} samples do not fit into memory", hint="use fewer, or smaller"
        ) from error
    return batch


def _with_length(batch: Array, steps: Preprocessing, where: str) -> Array:
    if steps.length is None:
        return batch
    if batch.ndim not in (2, 3):
        raise InputRefused(
            f"{where} has samples of shape {batch.shape[1:]}, and length is for (values,) or "
            "(values, columns)",
            hint="for images, resize=HEIGHTxWIDTH",
        )
    missing = max(0, steps.length - batch.shape[1])
    after = [(0, 0), (0, missing), *[(0, 0)] * (batch.ndim - 2)]
    return np.pad(batch[:, : steps.length], after) if missing else batch[:, : steps.length]


def _scaled(batch: Array, steps: Preprocessing, where: str) -> Array:
    if steps.scale is None and not steps.mean and not steps.std:
        return batch
    for key, values in (("mean", steps.mean), ("std", steps.std)):
        last = batch.shape[-1] if batch.ndim > 1 else 1
        if len(values) > 1 and len(values) != last:
            raise InputRefused(
                f"{where}: {key} has {len(values)} values, and the last dimension of the samples, "
                f"{batch.shape[1:]}, is not {len(values)}",
                hint="give one value, or one for each channel; channels=rgb makes three",
            )
    # What overflows here is refused as infinite afterwards, by its index.
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.float32(1 if steps.scale is None else steps.scale)
        scaled = np.multiply(batch, scale, dtype=np.float32, casting="unsafe")
        if steps.mean:
            scaled -= np.asarray(steps.mean, np.float32)
        if steps.std:
            scaled /= np.asarray(steps.std, np.float32)
    return scaled


def _with_channel(batch: Array, steps: Preprocessing, where: str) -> Array:  # noqa: ARG001
    return batch[..., None] if steps.add_channel else batch


def _with_dtype(batch: Array, steps: Preprocessing, where: str) -> Array:
    if steps.dtype is None or batch.dtype == steps.dtype:
        return batch
    dtype = np.dtype(steps.dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return batch.astype(dtype)
    whole = np.rint(batch) if batch.dtype.kind == "f" else batch
    _refuse_outside(whole, dtype, where)
    return whole.astype(dtype)


def _refuse_outside(whole: Array, dtype: np.dtype[Any], where: str) -> None:
    """Refuse what `dtype` cannot hold, NaN too."""
    if not whole.size:
        return
    limits = np.iinfo(dtype)
    # As Python's numbers: no float is 2**63 - 1, and no integer type holds all of uint64 and int64.
    low, high = whole.min().item(), whole.max().item()
    if not limits.min <= low <= high <= limits.max:
        raise InputRefused(
            f"{where}: the samples run from {low:g} to {high:g}, and {dtype.name} from "
            f"{limits.min} to {limits.max}",
            hint="choose another dtype, or scale and mean so that they fit; a bicubic resize "
            "goes beyond the stored values, a bilinear one does not",
        )


def log_mel(batch: Array, steps: Preprocessing, where: str) -> Array:
    """Audio (n, length) to float32 (n, frames, mel_bins), if `steps` ask for it.

    frames = 1 + (length - frame_length) // frame_step. Raises `InputRefused`.
    """
    if steps.mel_bins is None:
        return batch
    _refuse_no_audio(batch, steps, where)
    window = _hann(steps.frame_length)
    fft_length = steps.fft_length or 1 << (steps.frame_length - 1).bit_length()
    mel = _mel_weights(steps, fft_length // 2 + 1)
    frames = np.lib.stride_tricks.sliding_window_view(batch, steps.frame_length, axis=1)
    frames = frames[:, :: steps.frame_step]
    result = np.empty((*frames.shape[:2], steps.mel_bins), np.float32)
    step = max(1, _BLOCK_BYTES // (16 * frames.shape[1] * fft_length))
    for first in range(0, len(batch), step):
        block = frames[first : first + step] * (window * (steps.wave_scale or 1.0))
        magnitudes = np.abs(np.fft.rfft(block, fft_length))
        result[first : first + step] = np.log(magnitudes @ mel + steps.log_floor)
    return result


def _refuse_no_audio(batch: Array, steps: Preprocessing, where: str) -> None:
    if batch.ndim != 2:
        raise InputRefused(
            f"{where} has samples of shape {batch.shape[1:]}, and mel-bins is for audio (length,)",
            hint="channels=mono makes one channel of several",
        )
    if steps.wave_scale is None and batch.dtype.kind in "iu":
        full = -int(np.iinfo(batch.dtype).min) or 128
        raise InputRefused(
            f"{where} has {batch.dtype} audio, and the spectrogram depends on its scale",
            hint=f"wave-scale=1/{full} for -1..1, as tf.audio.decode_wav and librosa give it, or "
            "wave-scale=1 for the numbers as they are",
        )
    if batch.shape[1] < steps.frame_length:
        raise InputRefused(
            f"{where}: {batch.shape[1]} samples of audio are less than a frame of "
            f"{steps.frame_length}",
            hint="choose a smaller frame-length, or fill up with length=SAMPLES",
        )


def _hann(length: int) -> Array:
    """TensorFlow's Hann window: periodic for an even length, and symmetric for an odd one."""
    if length == 1:
        return np.ones(1)
    period = length if length % 2 == 0 else length - 1
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / period)


def _mel_weights(steps: Preprocessing, fft_bins: int) -> Array:
    """(fft_bins, mel_bins): what each frequency adds to each mel bin."""
    assert steps.mel_bins is not None
    half_hz = steps.sample_rate_hz / 2
    low, high = _mel(np.array([steps.mel_low_hz, steps.mel_high_hz or half_hz]))
    edges = np.linspace(low, high, steps.mel_bins + 2)
    positions = _mel(np.linspace(0, half_hz, fft_bins))[:, None]
    rising = (positions - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - positions) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling))
    weights[0] = 0
    return np.asarray(weights)


def _mel(hz: Array) -> Array:
    return np.asarray(1127 * np.log1p(hz / 700))


# ITU-R BT.601 luma: of Pillow's "L", in 65536ths, and of tf.image.rgb_to_grayscale.
_LUMA_65536 = (19595, 38470, 7471)
_LUMA = (0.2989, 0.587, 0.114)
# The cubic kernel of Keys (1981) with a = -0.5, which TensorFlow looks up in 1024 steps.
_CUBIC_A = -0.5
_CUBIC_STEPS = 1024


def converted_channels(batch: Array, steps: Preprocessing, where: str) -> Array:
    """The samples (n, ...) with `steps.channels`; see `Preprocessing`. Raises `InputRefused`."""
    if steps.channels is None:
        return batch
    if steps.channels == "mono":
        return _mono(batch, where)
    pixels = batch[..., None] if batch.ndim == 3 else batch
    if pixels.ndim != 4 or not 1 <= pixels.shape[-1] <= 4:
        raise InputRefused(
            f"{where} has samples of shape {batch.shape[1:]}, and channels={steps.channels} is for "
            "images (height, width) or (height, width, 1 to 4 channels)",
            hint="remove channels, or for audio write channels=mono",
        )
    # The last of two or four channels is alpha.
    colors = pixels[..., : 1 if pixels.shape[-1] < 3 else 3]
    if steps.channels == "gray":
        return colors if colors.shape[-1] == 1 else _gray(colors)
    if colors.shape[-1] == 1:
        return np.repeat(colors, 3, axis=-1)
    return colors if steps.channels == "rgb" else colors[..., ::-1]


def resized(batch: Array, steps: Preprocessing, where: str) -> Array:
    """The samples at `steps.resize`, float32 unless by nearest. Raises `InputRefused`."""
    if steps.resize is None:
        return batch
    _refuse_no_image(batch, "resize", where)
    if steps.antialias:
        pixels = batch[..., None] if batch.ndim == 3 else batch
        small = np.stack([_by_pillow(image, steps) for image in pixels])
        return small[..., 0] if batch.ndim == 3 else small
    for axis, size in zip((1, 2), steps.resize, strict=True):
        batch = _resized_along(batch, axis, size, steps.resize_method)
    return batch


def cropped(batch: Array, steps: Preprocessing, where: str) -> Array:
    """The middle `steps.crop` of the samples (n, ...); an odd pixel is left over at the end."""
    if steps.crop is None:
        return batch
    _refuse_no_image(batch, "crop", where)
    height, width = steps.crop
    top, left = (
        (have - want) // 2 for have, want in zip(batch.shape[1:3], steps.crop, strict=True)
    )
    if top < 0 or left < 0:
        raise InputRefused(
            f"{where}: crop={height}x{width} is larger than an image of "
            f"{batch.shape[1]}x{batch.shape[2]}",
            hint=f"resize first, which comes before the crop: resize={height}x{width}",
        )
    return batch[:, top : top + height, left : left + width]


def _mono(batch: Array, where: str) -> Array:
    if batch.ndim == 2:
        # Also where there is nothing to mix, so that both kinds may be in one data set.
        return batch.astype(np.float32)
    if batch.ndim != 3:
        raise InputRefused(
            f"{where} has samples of shape {batch.shape[1:]}, and channels=mono is for audio "
            "(length,) or (length, channels)",
            hint="for images, channels=gray",
        )
    return np.asarray(batch.mean(axis=-1, dtype=np.float32))


def _gray(colors: Array) -> Array:
    """(n, h, w, 1) of (n, h, w, 3): uint8 as Pillow rounds it of uint8, and else float32."""
    if colors.dtype != np.uint8:
        return np.asarray(colors.astype(np.float32) @ np.asarray(_LUMA, np.float32))[..., None]
    weighted = colors.astype(np.uint32) @ np.asarray(_LUMA_65536, np.uint32)
    return ((weighted + (1 << 15)) >> 16).astype(np.uint8)[..., None]


def _refuse_no_image(batch: Array, step: str, where: str) -> None:
    if batch.ndim not in (3, 4) or 0 in batch.shape[1:]:
        raise InputRefused(
            f"{where} has samples of shape {batch.shape[1:]}, and {step} is for images "
            "(height, width) or (height, width, channels)",
            hint=f"remove {step}; for audio and rows, length=SAMPLES",
        )


def _by_pillow(image: Array, steps: Preprocessing) -> Array:
    """(height, width, channels) float32, channel by channel: Pillow has no floats in color."""
    from PIL import Image

    assert steps.resize is not None
    height, width = steps.resize
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    dtype = np.uint8 if image.dtype == np.uint8 else np.float32
    channels = [
        Image.fromarray(np.ascontiguousarray(image[..., index], dtype)).resize(
            (width, height), filters[steps.resize_method]
        )
        for index in range(image.shape[-1])
    ]
    return np.stack([np.asarray(channel, np.float32) for channel in channels], axis=-1)


def _resized_along(batch: Array, axis: int, size: int, method: str) -> Array:
    centers = _centers(batch.shape[axis], size)
    if method == "nearest":
        nearest = np.minimum(np.floor(centers).astype(np.intp), batch.shape[axis] - 1)
        return np.asarray(np.take(batch, nearest, axis))
    taps = (_linear if method == "bilinear" else _cubic)(
        centers - np.float32(0.5), batch.shape[axis]
    )
    shape = list(batch.shape)
    shape[axis] = size
    result = np.zeros(shape, np.float32)
    # In blocks of samples, so that what is gathered stays smaller than the result.
    step = max(1, _BLOCK_BYTES // max(1, 4 * math.prod(shape[1:])))
    for first in range(0, len(batch), step):
        block = slice(first, first + step)
        for index, weight in taps:
            along = weight.reshape([-1 if each == axis else 1 for each in range(batch.ndim)])
            result[block] += np.take(batch[block], index, axis) * along
    return result


def _centers(have: int, want: int) -> Array:
    """Where the middles of `want` pixels lie among `have`, in float32 as TensorFlow has them."""
    scale = np.float32(have) / np.float32(want)
    return (np.arange(want, dtype=np.float32) + np.float32(0.5)) * scale


def _linear(positions: Array, have: int) -> list[tuple[Array, Array]]:
    """The two neighbors of each position, and their weights; beyond the edge it is repeated."""
    below = np.floor(positions)
    index, share = below.astype(np.intp), positions - below
    return [(np.clip(index + i, 0, have - 1), w) for i, w in ((0, 1 - share), (1, share))]


def _cubic(positions: Array, have: int) -> list[tuple[Array, Array]]:
    """The four neighbors of each position, and their weights; beyond the edge there is nothing."""
    below = np.floor(positions)
    index = below.astype(np.intp)
    share = np.rint((positions - below) * _CUBIC_STEPS) / _CUBIC_STEPS
    neighbors = [(index + i, _keys(np.abs(share - i))) for i in (-1, 0, 1, 2)]
    inside = [(i, np.where((i >= 0) & (i < have), w, 0)) for i, w in neighbors]
    total = sum(w for _, w in inside)
    return [(np.clip(i, 0, have - 1), (w / total).astype(np.float32)) for i, w in inside]


def _keys(distance: Array) -> Array:
    a = _CUBIC_A
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)


_STEPS = (
    _with_length,
    converted_channels,
    resized,
    cropped,
    log_mel,
    _scaled,
    _with_channel,
    _with_dtype,
)
