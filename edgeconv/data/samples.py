"""Checked samples: their hash, how they are stored, what they show.

They are written once, mapped by whoever reads them, and read when needed: no process has all of
them in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from edgeconv.data.arrays import STRING, holds_strings, plain, read_header
from edgeconv.system.store.files import read_noun
from edgeconv.types import InputRange, Suspicion, TensorSpec
from edgeconv.types.errors import InputRefused, OutputRefused
from edgeconv.types.words import quoted

Array = np.ndarray[Any, Any]
Indices = np.ndarray[tuple[int], np.dtype[np.intp]]
_LABELS = "labels.npy"
# Ranges of fewer samples are chance. A set of fewer different samples than this is named.
FEW_SAMPLES = 10
# From this many on, samples that are all equal are a mistake and not an example.
_MOST_EQUAL = 8
_BLOCK_VALUES = 1 << 20
# Smaller images are none. Whether they are random is seen of this many values, or of four images:
# neighbors differ by this share of what any two pixels do. It is 0.79 for digits with much noise.
LEAST_SIDE, _LOOKED_AT, _UNRELATED = 16, 1 << 17, 0.95
_PIXEL_SEED = 20261123


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples for a model's inputs, in the order of its inputs.

    `arrays` maps an input's name to (n, *sample_shape), without the model's batch
    dimension, and strings in the form of `edgeconv.data.arrays`; `labels` is int64 (n,), or
    (n, ...) of any numbers where these are needed, or (n,) with a field for each output of
    several, or None; `source` is where they came from.
    """

    arrays: dict[str, Array]
    labels: Array | None
    source: str

    @property
    def count(self) -> int:
        """How many samples there are."""
        return int(next(iter(self.arrays.values())).shape[0])

    @property
    def specs(self) -> list[TensorSpec]:
        """What inputs of these names, shapes and types would be."""
        return [
            TensorSpec(name=name, shape=array.shape, dtype=array.dtype.name)
            for name, array in self.arrays.items()
        ]

    def take(self, indices: Indices) -> Samples:
        """The samples at `indices`, in that order; not copied where they are next to each other."""
        chosen = as_slice(indices)
        return Samples(
            {name: array[chosen] for name, array in self.arrays.items()},
            None if self.labels is None else self.labels[chosen],
            self.source,
        )


def as_slice(indices: Indices) -> slice | Indices:
    """The indices (n,) as a slice, which copies nothing, where they are consecutive."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


def batch_size(inputs: tuple[TensorSpec, ...]) -> int:
    """How many samples the model takes at once: its fixed batch, 1 where that is dynamic.

    Also 1 where the inputs differ in their first dimension, which cannot be a batch then.
    """
    sizes = {spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] != -1}
    return next(iter(sizes)) if len(sizes) == 1 else 1


def has_batch(inputs: tuple[TensorSpec, ...]) -> bool:
    """Whether the first dimensions of the inputs can be a batch: the fixed ones are equal."""
    return len({spec.shape[0] for spec in inputs if spec.shape and spec.shape[0] != -1}) < 2


def stacked_spec(spec: TensorSpec) -> TensorSpec:
    """An input without a batch dimension as it takes samples: one on a new first axis."""
    return msgspec.structs.replace(spec, shape=(1, *spec.shape))


def join_samples(parts: Sequence[Array], sizes: Sequence[int]) -> Array:
    """One output of several batches as an array (n, *shape) with a row for each sample.

    An output whose first dimension does not count the samples of its batch, `sizes`, belongs to
    each of them. runner.py, which cannot import edgeconv, does the same.
    """
    arrays = [np.asarray(part) for part in parts]
    if not all(a.shape[:1] == (size,) for a, size in zip(arrays, sizes, strict=True)):
        arrays = [
            np.broadcast_to(a, (size, *a.shape)) for a, size in zip(arrays, sizes, strict=True)
        ]
    if any(array.shape[1:] != arrays[0].shape[1:] for array in arrays):
        most = np.max([array.shape[1:] for array in arrays], axis=0).tolist()
        arrays = [
            np.pad(a, [(0, 0), *((0, to - n) for n, to in zip(a.shape[1:], most, strict=True))])
            for a in arrays
        ]
    return np.concatenate(arrays)


def sha256_samples(samples: Samples) -> str:
    """The hash of the content: names, dtypes, shapes and bytes, of the labels as well.

    The order of the inputs and the source do not count.
    """
    digest = SamplesHash()
    digest.update(samples)
    return digest.hexdigest()


class SamplesHash:
    """`sha256_samples` of samples that come in parts, never all in memory.

    They may differ in shape and dtype: these count as much as the bytes.
    """

    def __init__(self) -> None:
        self._hexdigest = ""
        # The labels are under a key that no input can have.
        self._columns: dict[tuple[str, bool], _ColumnHash] = {}

    def update(self, samples: Samples) -> None:
        """Take the next samples into account; all have the same inputs."""
        for name, array in samples.arrays.items():
            self.add(name, array)
        if samples.labels is not None:
            self.add_labels(samples.labels)

    def add(self, name: str, rows: Array) -> None:
        """Take the next samples (n, *shape) of an input into account."""
        self._columns.setdefault((name, False), _ColumnHash()).add(rows)

    def add_labels(self, labels: Array) -> None:
        """Take the labels (n, ...) of the next samples into account."""
        self._columns.setdefault(("", True), _ColumnHash()).add(labels)

    def take_over(self, hexdigest: str) -> None:
        """Take the hash of all of them from a process that has read them."""
        self._hexdigest = hexdigest

    def hexdigest(self) -> str:
        """The hash of all of them."""
        if self._hexdigest:
            return self._hexdigest
        named = [(key, *column.parts()) for key, column in sorted(self._columns.items())]
        return hashlib.sha256(msgspec.json.encode(named)).hexdigest()


class _ColumnHash:
    """The bytes of the rows of one array, and how many in a row have which dtype and shape."""

    def __init__(self) -> None:
        self._bytes = hashlib.sha256()
        self._runs: list[tuple[int, str, tuple[int, ...]]] = []

    def add(self, rows: Array) -> None:
        kind = (STRING if holds_strings(rows) else rows.dtype.str, rows.shape[1:])
        before = 0
        if self._runs and self._runs[-1][1:] == kind:
            before = self._runs.pop()[0]
        self._runs.append((before + len(rows), *kind))
        if holds_strings(rows):
            # Not as they are stored, which depends on the longest of those that came together.
            for value in plain(rows).ravel():
                self._bytes.update(len(value).to_bytes(8, "little") + value)
            return
        self._bytes.update(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)

    def parts(self) -> tuple[list[tuple[int, str, tuple[int, ...]]], str]:
        return self._runs, self._bytes.hexdigest()


class SamplesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """samples.json: `names[i]` is the input that `i.npy` holds (count, *sample_shape) for."""

    names: tuple[str, ...]
    source: str
    count: int


def write_samples(samples: Samples, directory: Path) -> None:
    """Write samples.json, 0.npy, 1.npy … and, with labels, labels.npy into a directory.

    Raises `OutputRefused`.
    """
    with _writing(directory):
        write_arrays(samples.arrays.values(), directory)
        if samples.labels is None:
            (directory / _LABELS).unlink(missing_ok=True)
        else:
            np.save(directory / _LABELS, samples.labels, allow_pickle=False)
        _write_index(samples, directory)


def move_samples(written: Path, directory: Path, names: Sequence[str], source: str) -> Samples:
    """The samples that a child wrote with `write_samples`, their files moved to a new directory.

    The child's own list of them is not believed. Raises `InputRefused`, `OutputRefused`.
    """
    with _writing(directory):
        (directory / _LABELS).unlink(missing_ok=True)
        for name in (*(f"{position}.npy" for position in range(len(names))), _LABELS):
            if os.path.lexists(written / name):
                shutil.move(written / name, directory / name)
        samples = Samples(*mapped_samples(directory, names), source)
        _write_index(samples, directory)
    return samples


@contextlib.contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise no_room(f"samples to {directory}", error) from error


def _write_index(samples: Samples, directory: Path) -> None:
    index = SamplesFile(names=tuple(samples.arrays), source=samples.source, count=samples.count)
    (directory / "samples.json").write_bytes(msgspec.json.encode(index))


def write_arrays(arrays: Iterable[Array], directory: Path) -> None:
    """Write 0.npy, 1.npy …, of any shapes, into a directory that is there. Raises `OSError`."""
    for position, array in enumerate(arrays):
        np.save(directory / f"{position}.npy", array, allow_pickle=False)


def mapped_arrays(directory: Path, names: Sequence[str]) -> dict[str, Array]:
    """The arrays, of any shapes, of `write_arrays` by name, mapped; see `mapped`."""
    return {name: mapped(directory / f"{index}.npy") for index, name in enumerate(names)}


def sample_files(directory: Path) -> dict[str, Path]:
    """The .npy file of each input that `write_samples` wrote. Raises `InputRefused`."""
    names = _index(directory).names
    return {name: directory / f"{position}.npy" for position, name in enumerate(names)}


def _index(directory: Path) -> SamplesFile:
    return read_noun(directory / "samples.json", SamplesFile, what="list of samples")


def read_samples(directory: Path) -> Samples:
    """The samples that `write_samples` wrote, mapped from the files and not read yet.

    Raises `InputRefused` where a file is missing.
    """
    index = _index(directory)
    arrays, labels = mapped_samples(directory, index.names, index.count)
    return Samples(arrays, labels, index.source)


def mapped_samples(
    directory: Path, names: Sequence[str], count: int | None = None
) -> tuple[dict[str, Array], Array | None]:
    """The arrays (n, ...) of `write_samples` for the inputs `names`, and the labels if any.

    All have `count` rows, or as many as the first. Raises `InputRefused` where they do not.
    """
    arrays: dict[str, Array] = {}
    for position, name in enumerate(names):
        arrays[name] = mapped(directory / f"{position}.npy", count)
        count = len(arrays[name])
    labels = directory / _LABELS
    return arrays, mapped(labels, count) if labels.exists() else None


def mapped(path: Path, count: int | None = None) -> Array:
    """The array of a .npy file, mapped and not read yet: of shape (count, ...) with a `count`.

    A child wrote it: a link, which could lead anywhere, is not followed. Raises `InputRefused`
    where it is anything else.
    """
    try:
        with open(path, "rb", opener=_without_links) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputRefused(f"{path} is not a file")
            shape, dtype, in_order = read_header(file, str(path), status.st_size)
            order: Literal["C", "F"] = "C" if in_order else "F"
            array: Array = np.memmap(file, dtype, "r", file.tell(), shape, order)
    except (OSError, ValueError) as error:
        raise InputRefused(f"{path} cannot be read: {error}") from error
    if count is not None and array.shape[:1] != (count,):
        raise InputRefused(f"{path} has shape {array.shape}, and {count} samples were written")
    return np.asarray(array)


def _without_links(path: str, flags: int) -> int:
    # And without waiting, as for the other end of a pipe.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def no_room(what: str, error: OSError) -> OutputRefused:
    """What a full disk raises."""
    return OutputRefused(
        f"cannot write {what}: {error.strerror or error}",
        hint="free some space, or choose another temporary directory with TMPDIR",
    )


def input_ranges(samples: Samples, inputs: Iterable[TensorSpec] = ()) -> tuple[InputRange, ...]:
    """The range and scale of each input of numbers over all samples."""
    scaled = {spec.name for spec in inputs if spec.is_scaled}
    ranges = (
        _range_of(name, array)
        for name, array in samples.arrays.items()
        if array.dtype.kind in "biuf" and array.size
    )
    return tuple(
        msgspec.structs.replace(each, is_scaled=True)
        if each.is_whole and each.name in scaled
        else each
        for each in ranges
    )


def _range_of(name: str, array: Array) -> InputRange:
    low, high, total, squares = np.inf, -np.inf, 0.0, 0.0
    is_whole = True
    middle = float(array[0].astype(np.float64).mean())
    for block in _blocks(array):
        values = block.astype(np.float64)
        low, high = min(low, float(values.min())), max(high, float(values.max()))
        is_whole = is_whole and bool((values == np.rint(values)).all())
        values -= middle  # Squares of large values would lose what they differ by.
        total += float(values.sum())
        squares += float(np.square(values).sum())
    mean = total / array.size
    return InputRange(
        name=name,
        low=low,
        high=high,
        mean=middle + mean,
        deviation=float(np.sqrt(max(squares / array.size - mean * mean, 0.0))),
        is_whole=is_whole,
    )


def _blocks(array: Array) -> Iterator[Array]:
    rows = max(1, _BLOCK_VALUES // max(1, array[0].size))
    for start in range(0, len(array), rows):
        yield array[start : start + rows]


def set_suspicions(samples: Samples) -> tuple[Suspicion, ...]:
    """What is wrong with the set, without the model: too few, equal, constant or random samples."""
    count = samples.count
    equal = _equal(samples)
    different = len(equal)
    if count > 1 and different == 1:
        return (Suspicion(f"all {count} samples are equal", count >= _MOST_EQUAL),)
    return tuple(map(Suspicion, _remarks(samples, equal)))


def _remarks(samples: Samples, equal: Counter[int]) -> Iterator[str]:
    count, different, most = samples.count, len(equal), max(equal.values())
    if different < FEW_SAMPLES and count > different:
        yield f"only {different} of {count} samples differ"
    elif count < FEW_SAMPLES:
        yield f"there are only {count} samples" if count > 1 else "there is only one sample"
    elif 2 * most > count:
        yield f"{most} of {count} samples are equal"
    if same := [name for name, array in samples.arrays.items() if _is_same(array)]:
        yield f"{quoted(same)} is the same in every sample"
    if random := [name for name, array in samples.arrays.items() if _is_random(array)]:
        yield f"neighboring pixels of {quoted(random)} have nothing in common, as in random noise"
    labels = samples.labels
    are_classes = labels is not None and labels.ndim == 1 and labels.dtype.kind == "i"
    if labels is not None and are_classes and count >= _MOST_EQUAL and not np.ptp(labels):
        yield f"all samples have the label {labels[0]}"


def _is_same(array: Array) -> bool:
    """Whether an input of floats is the same in all samples; a mask of integers often is."""
    if array.dtype.kind != "f" or len(array) < _MOST_EQUAL:
        return False
    return all(bool((row == array[0]).all()) for row in array)


def is_image(shape: Sequence[int]) -> bool:
    """Whether a shape may belong to images, (samples, height, width, channels)."""
    return len(shape) == 4 and shape[3] in (1, 3) and min(shape[1:3]) >= LEAST_SIDE


def _is_random(array: Array) -> bool:
    """Whether neighbors in images differ as much as any two pixels do: random, or rearranged.

    It is the ratio of J. von Neumann (1941), of some of the samples.
    """
    if array.dtype.kind not in "fiu" or not is_image(array.shape):
        return False
    most = min(len(array), max(4, _LOOKED_AT // array[0].size))
    images = array[evenly(len(array), most)].astype(np.float64)
    mixed = images.reshape(len(images), -1, images.shape[3])
    order = np.random.default_rng(_PIXEL_SEED).permutation(mixed.shape[1])
    any_two = np.mean((mixed - mixed[:, order]) ** 2)
    down, across = (np.mean(np.diff(images, axis=axis) ** 2) for axis in (1, 2))
    return bool(min(down, across) > _UNRELATED * any_two > 0)


def _equal(samples: Samples) -> Counter[int]:
    """How many samples there are of each kind of equal ones."""
    arrays = tuple(samples.arrays.values())
    return Counter(
        hash(tuple(array[index].tobytes() for array in arrays)) for index in range(samples.count)
    )


def evenly(count: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The indices (most,) of samples evenly spread over `count`: sets are often sorted by class."""
    return np.linspace(0, count - 1, most).astype(np.intp)
