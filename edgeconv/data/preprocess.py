"""Stored samples to what the model gets: the steps of a `Preprocessing`, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.pixels import converted_channels, cropped, resized
from edgeconv.data.steps import check
from edgeconv.data.strings import holds_strings
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.types import Preprocessing

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
