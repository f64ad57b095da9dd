"""The samples of a search: those that it may see, and the fresh ones that it may not."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv import data
from edgeconv.data.checks import as_written
from edgeconv.errors import InputRefused
from edgeconv.tuning.chances import LEAST_SAMPLES, enough_samples

if TYPE_CHECKING:
    from edgeconv.data.source import DataSet
    from edgeconv.types import TensorSpec

Array = np.ndarray[Any, Any]

MOST_CALIBRATION = 500
# A trial is to take seconds; what is left is fresh.
_MOST_SEARCH = 4000
# Of the samples, what may be equal by chance.
_BY_CHANCE = 0.05


@dataclass(frozen=True, eq=False)
class SampleHalves:
    """The two parts of a data set. No sample is in both, and the fresh one is no smaller."""

    search: DataSet
    fresh: DataSet


def split_samples(source: DataSet, count: int | None, budget: float, batch: int) -> SampleHalves:
    """So many samples of the source, None for all, half to search with and half fresh.

    By a fixed seed, in equal shares of every label, both in whole batches. Raises `InputRefused`
    for too few.
    """
    total = source.count if count is None else min(count, source.count)
    if total < max(LEAST_SAMPLES, 2 * batch):
        raise InputRefused(
            f"{source.text}: {total} samples, and a search and its proof need at least "
            f"{max(LEAST_SAMPLES, 2 * batch)}",
            hint=f"a budget of {budget:g} wants {enough_samples(budget)} or more",
        )
    numbers = np.arange(source.count)
    chosen = _chosen(source, numbers, total // batch * batch)
    searched = min(total // 2, _MOST_SEARCH) // batch * batch
    search = _chosen(source, chosen, searched)
    return SampleHalves(source.only(search), source.only(np.setdiff1d(chosen, search)))


def _chosen(source: DataSet, pool: Array, count: int) -> Array:
    labels = None if source.labels is None else source.labels[pool]
    return data.seeded_choice(data.Samples({"": pool}, labels, source.text), count).arrays[""]


def archive_of(search: DataSet, batch: int) -> bytes:
    """An .npz of up to 500 of the search samples as they are stored, by input, without labels.

    Raises `InputRefused` where they differ in shape, which an array cannot.
    """
    count = min(search.count, max(MOST_CALIBRATION, batch)) // batch * batch
    indices = _chosen(search, np.arange(search.count), count)
    each = search.stored(indices)
    stored = {spec.name: _stacked(search, spec, each[spec.name]) for spec in search.inputs}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        # Named without a time, so that equal samples are equal bytes.
        for name, array in stored.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return file.getvalue()


def refuse_shared(calibration: DataSet, fresh: DataSet) -> None:
    """Raise `InputRefused` where the samples that calibrate are among the fresh ones as well.

    A few equal ones are by chance. What is read one by one, as pictures are, is not compared.
    """
    hashes, fresh_hashes = calibration.row_hashes(), fresh.row_hashes()
    if hashes is None or fresh_hashes is None:
        return
    seen, new = set(hashes.tolist()), set(fresh_hashes.tolist())
    shared = len(seen & new)
    if shared > _BY_CHANCE * len(seen):
        raise InputRefused(
            f"{shared} of {len(seen)} samples of {calibration.text} are among the fresh ones of "
            f"{fresh.text}, which must be new to everything",
            hint="give other calibration samples, or leave --calibration away: then the half that "
            "searches calibrates",
        )


def _stacked(source: DataSet, spec: TensorSpec, stored: Array | list[Array]) -> Array:
    where = f"{source.text}: input {spec.name!r}"
    if isinstance(stored, np.ndarray):
        has_steps = bool({"", spec.name} & source.preprocessing.keys())
        return as_written(where, stored, spec, has_steps=has_steps) if source.is_text else stored
    if len({(item.shape, item.dtype) for item in stored}) > 1:
        raise InputRefused(
            f"{where} has samples of several shapes, which cannot be kept as calibration samples",
            hint="give calibration samples with --calibration SOURCE, others than these",
        )
    return np.stack(stored)
