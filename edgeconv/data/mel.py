"""The log-mel spectrogram of audio, as `tf.signal` computes it.

The steps and their conventions are those of `tf.signal.stft` with its Hann window and of
`tf.signal.linear_to_mel_weight_matrix`: frames without padding, HTK's mel scale, triangles of
height one on it, and no weight for the constant part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.types import Preprocessing

Array = np.ndarray[Any, Any]

_BLOCK_BYTES = 64 << 20


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
    places = _mel(np.linspace(0, half_hz, fft_bins))[:, None]
    rising = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling))
    weights[0] = 0
    return np.asarray(weights)


def _mel(hz: Array) -> Array:
    return np.asarray(1127 * np.log1p(hz / 700))
