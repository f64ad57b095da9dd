"""A SOURCE and a model's inputs to a data set, whose samples are read and checked when needed."""

from __future__ import annotations

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from edgeconv.data.arrays import STRING, Arrays, Items, refuse_larger
from edgeconv.data.checks import (
    CLASSES,
    LabelUse,
    alike,
    as_written,
    check_input,
    chosen_use,
    fits,
    in_shape,
    input_dtype,
    limits_of,
    split_labels,
    stacked,
    used_labels,
)
from edgeconv.data.location import kind_module, located
from edgeconv.data.samples import (
    Array,
    Indices,
    Samples,
    SamplesHash,
    as_slice,
    has_batch,
    stacked_spec,
    write_samples,
)
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import listed, quoted

if TYPE_CHECKING:
    from typing import Self

    from edgeconv.data.kinds.function import Returned
    from edgeconv.types import DataSource, Preprocessing, TensorSpec

Column: TypeAlias = "Array | Items"
# The option of tables that says which columns to take.
_FEATURES = "features"
# Every whole number up to this is a float32. Pixels have fewer bits than ids.
_LEAST_ID_BYTES, _MOST_ID = 4, 1 << 24


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSet(ABC):
    """A data set for a model's inputs: counted and labeled, its samples not read yet.

    `inputs` have a batch dimension, 1 for an input without one: it takes one sample at a time.
    `labels` are as in `Samples`. `preprocessing` is by input name, "" for those not named. `at`
    are the indices of its samples among all that can be read.
    """

    text: str
    inputs: tuple[TensorSpec, ...]
    labels: Array | None
    is_text: bool
    preprocessing: Mapping[str, Preprocessing]
    class_names: tuple[str, ...] = ()
    at: Indices

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.at)

    def only(self, indices: Indices) -> Self:
        """The samples at `indices` as another data set."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, at=self.at[indices], labels=labels)

    def take(self, indices: Indices) -> Samples:
        """The samples at `indices` (n,), each input (n, *sample_shape): preprocessed and checked.

        Raises `InputRefused` for what cannot be read or the model cannot take.
        """
        (samples,) = self.chunks(indices, max(1, len(indices)))
        return samples

    def chunks(
        self, indices: Indices, size: int, digest: SamplesHash | None = None
    ) -> Iterator[Samples]:
        """The samples at `indices`, `size` at a time, read when needed.

        `digest` is given them as they are stored, before preprocessing, and their labels.
        Raises as `take` does, also where later ones differ from the first in shape or dtype.
        """
        starts = range(0, len(indices) or 1, size)
        return self._parts([indices[start : start + size] for start in starts], digest)

    def write(self, indices: Indices, directory: Path) -> Samples:
        """The samples at `indices`, written into a new directory as `write_samples` does."""
        samples = self.take(indices)
        write_samples(samples, directory)
        return samples

    @abstractmethod
    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples at `indices` as they are stored, by input: an array, or one a sample."""

    @abstractmethod
    def _parts(self, parts: Sequence[Indices], digest: SamplesHash | None) -> Iterator[Samples]:
        """The samples of `chunks`, those at the indices of each part."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LocalDataSet(DataSet):
    """A data set that is read in this process; `at` are indices of its columns."""

    columns: dict[str, Column]

    def stored(self, indices: Indices) -> dict[str, Array | list[Array]]:
        """The samples at `indices` as they are stored."""
        at = self.at[indices]
        return {
            name: column[as_slice(at)]
            if isinstance(column, np.ndarray)
            else [column[int(index)] for index in at]
            for name, column in self.columns.items()
        }

    def _parts(self, parts: Sequence[Indices], digest: SamplesHash | None) -> Iterator[Samples]:
        return map(ReadingPass(self, digest).read, parts)


class ReadingPass:
    """Samples that are read part by part; all have the dtypes and shapes of the first part."""

    def __init__(self, data_set: LocalDataSet, digest: SamplesHash | None) -> None:
        self._data_set = data_set
        self.digest = digest
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._count = 0

    def read(self, indices: Indices) -> Samples:
        """The next part: the samples at `indices`. Raises `InputRefused`."""
        whole = self._data_set
        arrays = {spec.name: self._read_input(spec, whole.at[indices]) for spec in whole.inputs}
        labels = None if whole.labels is None else whole.labels[indices]
        if self.digest and labels is not None:
            self.digest.add_labels(labels)
        for name, array in arrays.items():
            if self._shapes.setdefault(name, array.shape[1:]) != array.shape[1:]:
                raise InputRefused(
                    f"{whole.text}: input {name!r}: the first samples have the shape "
                    f"{self._shapes[name]}, and some after number {self._count} {array.shape[1:]}",
                    hint="make them equal with --preprocess",
                )
        self._count += len(indices)
        return Samples(arrays, labels, whole.text)

    def _read_input(self, spec: TensorSpec, at: Indices) -> Array:
        text, preprocessing = self._data_set.text, self._data_set.preprocessing
        where = f"{text}: input {spec.name!r}"
        steps = preprocessing.get(spec.name, preprocessing.get(""))
        column = self._data_set.columns[spec.name]
        if isinstance(column, np.ndarray):
            array = column[as_slice(at)]
            if self._data_set.is_text:
                array = as_written(where, array, spec, has_steps=steps is not None)
            if self.digest:
                self.digest.add(spec.name, array)
            array = _preprocessed(array, steps, where)
            if steps is None and _is_of_kind(array.dtype, spec):
                array = _as_keras_takes(array, spec)
        else:
            stored = (column[int(index)] for index in at)
            parts: list[Array] = []
            needed = 0
            for item in alike(where, stored, self._dtypes.get(spec.name)):
                self._dtypes[spec.name] = item.dtype
                if self.digest:
                    self.digest.add(spec.name, item[None])
                parts.append(_preprocessed(item[None], steps, where)[0])
                needed += 2 * parts[-1].nbytes
                refuse_larger(f"{where}: {len(parts)} samples", needed, "make them smaller")
            array = stacked(where, parts, spec)
        if _are_pixels(array.dtype, spec):
            array = array.astype(input_dtype(spec))
        check_input(text, array, spec)
        return array


def _preprocessed(batch: Array, steps: Preprocessing | None, where: str) -> Array:
    if steps is None:
        return batch
    from edgeconv.data.preprocess import preprocess

    return preprocess(batch, steps, where)


def open_samples(
    source: DataSource,
    inputs: tuple[TensorSpec, ...],
    *,
    preprocessing: Mapping[str, Preprocessing] | None = None,
    allow_code: bool = False,
    labels: LabelUse = CLASSES,
    returned: Returned | None = None,
) -> LocalDataSet:
    """What a SOURCE has for the model's inputs.

    `inputs` have their batch dimension, of any size, in `shape[0]`. An option that the kind does
    not have renames: `image=x_test` gives the array x_test to the input image, and then only named
    arrays are read. `preprocessing` is by input name, "" for every input not named. A SOURCE that
    runs code is refused unless `allow_code`; `returned` is what its function has returned already.
    Which `labels` there may be is in `data.labels`. Raises `UsageError` for an unknown kind, option
    or name, `InputRefused` for data that the model cannot take.
    """
    for spec in inputs:
        input_dtype(spec)
    steps = preprocessing or {}
    names = [spec.name for spec in inputs]
    for name in steps:
        if name and name not in names:
            raise unknown_name("model input in the preprocessing", name, names)
    source = located(source)
    module = kind_module(source, allow_code=allow_code)
    options, labels = chosen_use(source.options, labels, module, names)
    own, renames = _sorted_options(options, module, (*names, *labels.outputs))
    read = module.read if returned is None else partial(module.read, answer=returned)
    has_features = _FEATURES in module.OPTIONS and _FEATURES not in own
    of_source = partial(read, source.location, own)
    arrays, renames = _read(of_source, renames, names, has_features, labels.outputs)
    if not renames and len(names) == 1:
        arrays = _with_likely_labels(arrays, {*names, *labels.outputs})
    _check_rate(source, arrays.rate_hz, steps)
    arrays, renames, by_output = split_labels(arrays, renames, names, labels.outputs)
    known = _Labeled(labels.outputs, bool(by_output) or arrays.labels is not None)
    columns = _by_input(source, arrays, renames, inputs, known)
    inputs = _with_stacked(columns, inputs, steps)
    for spec in inputs:
        column = columns[spec.name]
        as_stored = not (steps or arrays.is_text)
        if isinstance(column, np.ndarray) and (as_stored or not column.ndim):
            dtype = column.dtype.name if _is_of_kind(column.dtype, spec) else spec.dtype
            # All of it, whichever samples are taken.
            check_input(str(source), column, structs.replace(spec, dtype=dtype))
    count = _same_count(source, columns)
    if not count:
        raise InputRefused(f"{source} has no samples", hint="give at least one")
    used = used_labels(str(source), arrays, by_output, count, labels)
    class_names = () if used is None else arrays.class_names
    return LocalDataSet(
        text=str(source),
        inputs=inputs,
        columns=columns,
        labels=used,
        is_text=arrays.is_text,
        preprocessing=steps,
        class_names=class_names,
        at=np.arange(count),
    )


def _with_stacked(
    columns: Mapping[str, Column],
    inputs: tuple[TensorSpec, ...],
    steps: Mapping[str, Preprocessing],
) -> tuple[TensorSpec, ...]:
    """The inputs as they take samples: those whose samples are stacked on a new first axis.

    Such an input has no batch dimension, and gets one sample at a time. Where the first dimension
    is open, as the nodes of a graph are, another input must show that it is none.
    """
    is_fixed = any(spec.shape and spec.shape[0] not in (-1, 1) for spec in inputs)
    if not is_fixed and len(inputs) == 1:
        return inputs
    shapes = {spec.name: _shape_of(columns[spec.name], read=is_fixed) for spec in inputs}

    def fits(spec: TensorSpec) -> bool:
        shape = shapes[spec.name]
        if len(shape) != len(spec.shape) + 1:
            return False
        has_steps = bool(steps.get(spec.name, steps.get("")))
        return has_steps or all(
            size in (-1, stored) for size, stored in zip(spec.shape, shape[1:], strict=True)
        )

    stacked = {spec.name for spec in inputs if spec.shape and fits(spec)}
    lengths = {shapes[name][1] for name in stacked}
    is_certain = len(lengths) > 1 or any(
        spec.shape[0] not in (-1, 1) for spec in inputs if spec.name in stacked
    )
    if not is_certain:
        stacked = set()
    if not stacked and not has_batch(inputs):
        each = ", ".join(
            f"{spec.name} {('n', *spec.shape)}".replace("'", "").replace("-1", "any")
            for spec in inputs
        )
        raise InputRefused(
            "the model's inputs have no batch dimension, and the data has no samples on a new "
            f"first axis: {', '.join(f'{name} {shape}' for name, shape in shapes.items())}",
            hint=f"stack the samples, which are then taken one at a time: {each}",
        )
    return tuple(stacked_spec(spec) if spec.name in stacked else spec for spec in inputs)


def _shape_of(column: Column, *, read: bool) -> tuple[int, ...]:
    """(n, *sample) of a column; of one that is read sample by sample, with `read`, the first's."""
    if isinstance(column, np.ndarray):
        return tuple(column.shape)
    return (len(column), *column[0].shape) if read and len(column) else (len(column),)


def _read(
    read: Callable[[frozenset[str] | None], Arrays],
    renames: dict[str, str],
    names: list[str],
    has_features: bool,
    outputs: Sequence[str],
) -> tuple[Arrays, dict[str, str]]:
    """The arrays, and the renamings of inputs and outputs."""
    if len(names) > 1 and not renames and has_features:
        # A table with a column for every input needs no more to be said.
        with contextlib.suppress(UsageError):
            return read(frozenset(names)), {name: name for name in names}
    if renames:
        # Labels under the names of outputs are there even if an input is renamed.
        renames = renames | {name: name for name in outputs if _has(read, name, renames)}
    return read(frozenset(renames.values()) if renames else None), renames


def _has(
    read: Callable[[frozenset[str] | None], Arrays], name: str, renames: dict[str, str]
) -> bool:
    """Whether there is an array of this name that nothing was renamed to."""
    if name in renames or name in renames.values():
        return False
    try:
        read(frozenset({name}))
    except UsageError:
        return False
    return True


def _check_rate(
    source: DataSource, rate_hz: int | None, steps: Mapping[str, Preprocessing]
) -> None:
    for each in steps.values():
        if rate_hz and each.mel_bins is not None and each.sample_rate_hz != rate_hz:
            raise InputRefused(
                f"{source} has audio of {rate_hz} Hz, but the preprocessing says "
                f"sample-rate-hz={each.sample_rate_hz}",
                hint=f"if the model was trained with {rate_hz} Hz, write sample-rate-hz={rate_hz}; "
                "else resample the audio",
            )


def _sorted_options(
    options: dict[str, str], module: ModuleType, names: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the kind, and the renamings as input or output name to array name."""
    own = {name: value for name, value in options.items() if name in module.OPTIONS}
    renames = {name: value for name, value in options.items() if name not in module.OPTIONS}
    for name in renames:
        if name not in names:
            raise unknown_name("data option or model input", name, {*names} | module.OPTIONS)
    return own, renames


class _Labeled(NamedTuple):
    outputs: Sequence[str]
    has_labels: bool


def _by_input(
    source: DataSource,
    arrays: Arrays,
    renames: dict[str, str],
    inputs: tuple[TensorSpec, ...],
    known: _Labeled,
) -> dict[str, Column]:
    """The columns under the names of the inputs, in their order, none missing or left over."""
    names = [spec.name for spec in inputs]
    if len(arrays.names) == len(arrays.by_name) == len(inputs) == 1 and not renames:
        # The only array is for the only input that it fits, whatever it is called.
        (array,), (spec,) = arrays.names, inputs
        if fits(_shape_of(_in_shape(arrays, array, spec), read=False)[1:], spec.shape[1:]):
            renames = {spec.name: array}
    array_of = _arrays_of_inputs(source, arrays.names, renames, names, known)
    columns = {spec.name: _as_taken(arrays, array_of[spec.name], spec) for spec in inputs}
    if not source.held:
        return columns
    return {
        name: _as_keras_takes(column, spec) if isinstance(column, np.ndarray) else column
        for (name, column), spec in zip(columns.items(), inputs, strict=True)
    }


def _is_of_kind(dtype: np.dtype[Any], spec: TensorSpec) -> bool:
    """Whether these are floats for an input of floats, where it scales itself also pixels, or
    integers for one of integers.
    """
    kind = input_dtype(spec).kind
    are_equal = dtype.kind == kind == "f" or {dtype.kind, kind} <= {"i", "u"}
    return are_equal or _are_pixels(dtype, spec)


def _are_pixels(dtype: np.dtype[Any], spec: TensorSpec) -> bool:
    """Whether these are bytes for an input of floats, which the model scales itself."""
    return bool(spec.is_scaled) and dtype == np.uint8 and input_dtype(spec).kind == "f"


def _as_keras_takes(column: Array, spec: TensorSpec) -> Array:
    """Numbers in the precision of the input: floats as floats, integers as such.

    Ids, integers of 32 or 64 bits, are the same for an input of floats, as `keras.Input((n,))` is.
    """
    expected = input_dtype(spec)
    if column.dtype == expected or not column.size:
        return column
    if column.dtype.kind == expected.kind == "f":
        with np.errstate(over="ignore"):
            return column.astype(expected)
    are_ids = column.dtype.itemsize >= _LEAST_ID_BYTES and expected == np.float32
    if column.dtype.kind in "iu" and (expected.kind in "iu" or are_ids):
        low, high = (-_MOST_ID, _MOST_ID) if are_ids else limits_of(expected)
        if low <= column.min() and column.max() <= high:
            return column.astype(expected)
    return column


def _as_taken(arrays: Arrays, array: str, spec: TensorSpec) -> Column:
    """An array as strings where the input takes these and the data has text."""
    if spec.dtype == STRING and array in arrays.as_strings:
        return arrays.as_strings[array]()
    if spec.dtype != STRING and array in arrays.not_numbers:
        raise arrays.not_numbers[array]
    return _in_shape(arrays, array, spec)


def _in_shape(arrays: Arrays, array: str, spec: TensorSpec) -> Column:
    column = arrays.by_name[array]
    if arrays.is_text or not isinstance(column, np.ndarray):
        return column
    return in_shape(column, spec.shape[1:])


def _arrays_of_inputs(
    source: DataSource,
    arrays: tuple[str, ...],
    renames: dict[str, str],
    names: list[str],
    known: _Labeled,
) -> dict[str, str]:
    """The name of the array for each input."""
    if "" in arrays and len(names) > 1:
        raise InputRefused(
            f"{source} holds one array, the model takes {len(names)}: {listed(names)}",
            hint=f"give a dictionary with the keys {quoted(names)}"
            if source.held
            else "name the columns of each: for a table "
            f"'{structs.replace(source, options=dict.fromkeys(names, 'COLUMNS'))}'; or give "
            "an .npz file with an array for each",
        )
    array_of = renames or {name or names[0]: name for name in arrays}
    missing = [name for name in names if name not in array_of]
    extra = [name for name in array_of if name not in names]
    if missing or extra:
        raise _mismatch(source, missing, extra, names, known)
    return {name: array_of[name] for name in names}


def _mismatch(
    source: DataSource, missing: list[str], extra: list[str], names: list[str], known: _Labeled
) -> InputRefused:
    # Where every input has its array, the other ones may be labels.
    others = [] if missing else [name for name in known.outputs if name not in names]
    what = "neither an input nor an output" if others else "not an input"
    parts = [f"the model's input {name!r} has no array" for name in missing]
    parts += [f"the array {name!r} is {what}" for name in extra]
    near = {out: n for n in extra for out in get_close_matches(n, others, n=1)}
    # What was renamed already was renamed wrongly; the kind's own options stay.
    kept = {name: value for name, value in source.options.items() if name not in names}
    likely = {name: _likely_array(name, missing, extra) for name in names}
    used = {*likely.values(), *near.values()}
    left = filter(_LABELS.fullmatch, (name for name in extra if name not in used))
    # With the inputs alone, the labels would be left out without a word.
    if source.kind == "npz" and not (known.has_labels or near) and (labels := next(left, "")):
        kept |= {"labels": labels}
    renamed = structs.replace(source, options=kept | likely | near)
    hint = f"say which array each input gets: '{renamed}'"
    if source.held:
        hint = f"give a dictionary with the keys {quoted(names)}"
        if others:
            hint = f"did you mean {quoted(near)}? " if near else ""
            hint += f"labels have the names of outputs: {quoted(others)}"
    has = f", and has the outputs {quoted(others)}" if others else ""
    return InputRefused(
        f"{source}: {'; '.join(parts)} (the model takes {quoted(names)}{has})", hint=hint
    )


# How tutorials name an array of labels.
_LABELS = re.compile(r"(y|labels?|targets?|class(es)?)(_\w+)?", re.IGNORECASE)


def _with_likely_labels(arrays: Arrays, known: Collection[str]) -> Arrays:
    """Of two arrays that nothing more is said of, as x_train and y_train, one may be the labels."""
    likely = [n for n in arrays.by_name if _LABELS.fullmatch(n) and n not in known]
    if arrays.labels is not None or arrays.is_text or len(arrays.names) != 2 or len(likely) != 1:
        return arrays
    samples = {name: column for name, column in arrays.by_name.items() if name not in likely}
    labels = arrays.by_name[likely[0]]
    if not isinstance(labels, np.ndarray):
        return arrays
    return replace(arrays, by_name=samples, labels=labels)


def _likely_array(name: str, missing: list[str], extra: list[str]) -> str:
    if name not in missing:
        return name
    close = get_close_matches(name, extra, n=1)
    # Samples are written before labels.
    return (close or (extra if len(missing) == 1 else []) or ["ARRAY"])[0]


def _same_count(source: DataSource, columns: dict[str, Column]) -> int:
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) != 1:
        each = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise InputRefused(
            f"{source}: the inputs have different numbers of samples: {each}",
            hint="each sample needs a value for every input",
        )
    return next(iter(counts.values()))
