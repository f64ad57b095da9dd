"""The samples of a search: those that it may see, and the fresh ones that it may not."""

from __future__ import annotations

import dataclasses
import hashlib
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
    from collections.abc import Mapping

    from edgeconv.data.arrays import Items
    from edgeconv.data.load import Source
    from edgeconv.nouns import TensorSpec

Array = np.ndarray[Any, Any]

MOST_CALIBRATION = 500
# A trial is to take seconds; what is left is fresh.
_MOST_SEARCH = 4000
# Of the samples, what may be equal by chance.
_BY_CHANCE = 0.05


@dataclass(frozen=True, eq=False)
class Parts:
    """The two parts of a data set. No sample is in both, and the fresh one is no smaller."""

    search: Source
    fresh: Source


def parted(source: Source, count: int | None, budget: float, batch: int) -> Parts:
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
    return Parts(part_of(source, search), part_of(source, np.setdiff1d(chosen, search)))


def _chosen(source: Source, pool: Array, count: int) -> Array:
    labels = None if source.labels is None else source.labels[pool]
    return data.seeded_choice(data.Samples({"": pool}, labels, source.text), count).arrays[""]


def part_of(source: Source, indices: Array) -> Source:
    """The samples at `indices` as a source of their own."""
    columns: dict[str, Array | Items] = {
        name: column[indices] if isinstance(column, np.ndarray) else _Chosen(column, indices)
        for name, column in source.columns.items()
    }
    labels = None if source.labels is None else source.labels[indices]
    return dataclasses.replace(source, columns=columns, labels=labels)


def archive_of(search: Source, batch: int) -> bytes:
    """An .npz of up to 500 of the search samples as they are stored, by input, without labels.

    Raises `InputRefused` where they differ in shape, which an array cannot.
    """
    count = min(search.count, max(MOST_CALIBRATION, batch)) // batch * batch
    indices = _chosen(search, np.arange(search.count), count)
    stored = {spec.name: _stored(search, spec, indices) for spec in search.inputs}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        # Named without a time, so that equal samples are equal bytes.
        for name, array in stored.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return file.getvalue()


def refuse_shared(calibration: Source, fresh: Source) -> None:
    """Raise `InputRefused` where the samples that calibrate are among the fresh ones as well.

    A few equal ones are by chance. What is read one by one, as pictures are, is not compared.
    """
    columns = (calibration.columns, fresh.columns)
    if not all(isinstance(each, np.ndarray) for part in columns for each in part.values()):
        return
    seen, new = (_rows(part) for part in columns)
    shared = sum(row in new for row in seen)
    if shared > _BY_CHANCE * len(seen):
        raise InputRefused(
            f"{shared} of {len(seen)} samples of {calibration.text} are among the fresh ones of "
            f"{fresh.text}, which must be new to everything",
            hint="give other calibration samples, or leave --calibration away: then the half that "
            "searches calibrates",
        )


def _rows(columns: Mapping[str, Array | Items]) -> set[bytes]:
    """The distinct samples, hashed."""
    arrays = [np.ascontiguousarray(columns[name]) for name in sorted(columns)]
    return {
        hashlib.sha256(b"".join(array[index].tobytes() for array in arrays)).digest()
        for index in range(len(arrays[0]))
    }


def _stored(source: Source, spec: TensorSpec, indices: Array) -> Array:
    column = source.columns[spec.name]
    where = f"{source.text}: input {spec.name!r}"
    if isinstance(column, np.ndarray):
        rows = column[indices]
        has_steps = bool({"", spec.name} & source.preprocessing.keys())
        return as_written(where, rows, spec, has_steps=has_steps) if source.is_text else rows
    each = [column[int(index)] for index in indices]
    if len({(item.shape, item.dtype) for item in each}) > 1:
        raise InputRefused(
            f"{where} has samples of several shapes, which cannot be kept as calibration samples",
            hint="give calibration samples with --calibration SOURCE, others than these",
        )
    return np.stack(each)


class _Chosen:
    """Some of the items, in another order."""

    def __init__(self, items: Items, indices: Array) -> None:
        self._items = items
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Array:
        return self._items[int(self._indices[index])]
