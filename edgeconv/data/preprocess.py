"""Stored samples to what the model gets: the steps of a `Preprocessing`, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.mel import log_mel
from edgeconv.data.pixels import converted_channels, cropped, resized
from edgeconv.data.steps import check
from edgeconv.data.strings import holds_strings
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.types import Preprocessing

Array = np.ndarray[Any, Any]


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
    wanted = np.dtype(steps.dtype)
    if wanted.kind == "f":
        with np.errstate(over="ignore"):
            return batch.astype(wanted)
    whole = np.rint(batch) if batch.dtype.kind == "f" else batch
    _refuse_outside(whole, wanted, where)
    return whole.astype(wanted)


def _refuse_outside(whole: Array, wanted: np.dtype[Any], where: str) -> None:
    """Refuse what `wanted` cannot hold, NaN too."""
    if not whole.size:
        return
    limits = np.iinfo(wanted)
    # As Python's numbers: 2**63 - 1 is no float, and no integer type holds all of uint64 and int64.
    low, high = whole.min().item(), whole.max().item()
    if not limits.min <= low <= high <= limits.max:
        raise InputRefused(
            f"{where}: the samples run from {low:g} to {high:g}, and {wanted.name} from "
            f"{limits.min} to {limits.max}",
            hint="choose another dtype, or scale and mean so that they fit; a bicubic resize "
            "goes beyond the stored values, a bilinear one does not",
        )


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
