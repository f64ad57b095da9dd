"""Samples and labels held against what is wanted. Nothing is cast, scaled, padded or dropped."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, Literal

import msgspec
import numpy as np

from edgeconv.data import preprocessing
from edgeconv.data.arrays import STRING, Arrays, Items, holds_strings, refuse_larger
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UnknownScale
from edgeconv.types.words import quoted, shortened

Array = np.ndarray[Any, Any]

# float32 ends at 3.4e38, and a range near it makes a quantizer's scale meaningless.
LARGEST_PLAUSIBLE = 1e30
DTYPES = {"bool", *preprocessing.DTYPES}
# Blocks, so that the maximum is found while the block is still in the caches.
_BLOCK_BYTES = 1 << 20
# "classes": class numbers (n,), any other are refused. "if classes": any other are left out.
# "numbers": any numbers (n, ...). "either": classes, or else numbers (n, ...) that are floats.
# "none": they are left out, whatever they are.
LabelNeed = Literal["classes", "if classes", "numbers", "either", "none"]


def input_dtype(spec: TensorSpec) -> np.dtype[Any]:
    """The numpy dtype of an input, S for strings. Raises `InputRefused` for resources and such."""
    if spec.dtype == STRING:
        return np.dtype("S")
    if spec.dtype not in DTYPES:
        raise InputRefused(
            f"the model's input {spec.name!r} takes {spec.dtype}, for which there are no samples",
            hint="choose a signature with inputs of numbers or strings",
        )
    return np.dtype(spec.dtype)


def check_input(source: str, array: Array, spec: TensorSpec) -> None:
    """Refuse an array that is not (n, *sample_shape) of the input's dtype, finite and sane.

    Raises `InputRefused`, naming the source, the input and what to do.
    """
    where = f"{source}: input {spec.name!r}"
    _check_dtype(where, array, input_dtype(spec))
    _check_shape(where, array.shape, spec.shape[1:])
    if array.dtype.kind == "f":
        _check_values(where, array)


def as_written(where: str, array: Array, spec: TensorSpec, *, has_steps: bool) -> Array:
    """The numbers of a table in the dtype of the input (float32 before `has_steps`).

    A row with the number of values of a sample gets the sample's shape, in C order. Raises
    `InputRefused` for other numbers of values, and for fractions where the input takes integers.
    """
    array = _as_samples(where, array, spec, has_steps=has_steps)
    expected = np.dtype(np.float32) if has_steps else input_dtype(spec)
    if array.dtype == expected or array.dtype.kind not in "iuf" or expected.kind == "S":
        return array
    if expected.kind in "iub":
        low, high = limits_of(expected)
        bad = ~((array == np.rint(array)) & (array >= low) & (array <= high))
        if bad.any():
            raise InputRefused(
                f"{where} takes {expected.name}, and the data has {array[bad].flat[0]:g}",
                hint="choose other columns, or correct the data",
            )
    with np.errstate(over="ignore"):
        return array.astype(expected)


def limits_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The lowest and the highest value of a dtype of integers or booleans."""
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _as_samples(where: str, array: Array, spec: TensorSpec, *, has_steps: bool) -> Array:
    """Rows (n, k) as (n, *sample_shape), where the shape is fixed and has k values.

    Other shapes only gain or lose dimensions of 1: (3, 32, 32) could become (32, 32, 3) in more
    than one way.
    """
    sample, stored = spec.shape[1:], array.shape[1:]
    if not array.ndim or -1 in sample or stored == sample:
        return array
    is_row = len(stored) == 1
    longer = [size for size in stored if size != 1] == [size for size in sample if size != 1]
    if math.prod(stored) == math.prod(sample) and (is_row or longer):
        return array.reshape(len(array), *sample)
    if is_row and not has_steps:
        raise InputRefused(
            f"{where} takes {math.prod(sample)} values per sample, and the data has {stored[0]}",
            hint="choose the columns: ?labels=COLUMN&features=FIRST:LAST; of a DataFrame "
            "df[COLUMNS], with the labels beside it: (df[COLUMNS], labels)",
        )
    return array


def alike(
    where: str, samples: Iterable[Array], first: np.dtype[Any] | None = None
) -> Iterator[Array]:
    """The same samples. Raises `InputRefused` at one of another dtype: its scale is another.

    `first` is the dtype of samples before these, if there were any.
    """
    for index, sample in enumerate(samples):
        first = sample.dtype if first is None else first
        if sample.dtype != first and not (holds_strings(sample) and first.kind == "S"):
            raise InputRefused(
                f"{where}: the first sample is stored as {first.name}, and number {index + 1} as "
                f"{sample.dtype.name}, so that their scales differ",
                hint="store all in one format, for example with 8 bits per channel",
            )
        yield sample


def stacked(where: str, samples: list[Array], spec: TensorSpec) -> Array:
    """Samples of one shape as one array (n, *shape). Raises `InputRefused` if they differ."""
    kinds = Counter(sample.shape for sample in samples)
    if len(kinds) > 1:
        several = ", ".join(f"{count} × {shape}" for shape, count in kinds.most_common())
        raise InputRefused(
            f"{where}: the samples differ in shape: {shortened(several)}",
            hint=f"make them equal: --preprocess '{_equalising(set(kinds), spec)}'",
        )
    return np.stack(samples)


def _equalising(shapes: set[tuple[int, ...]], spec: TensorSpec) -> str:
    """The preprocessing steps that would make samples of these shapes equal."""
    sides = ["SIDE" if side < 1 else str(side) for side in (*spec.shape[1:], -1, -1)]
    if {len(shape) for shape in shapes} == {3}:
        channels = "gray" if spec.shape[-1] == 1 else "rgb"
        steps = [f"resize={sides[0]}x{sides[1]}"] if len({s[:2] for s in shapes}) > 1 else []
        steps += [f"channels={channels}"] if len({s[2] for s in shapes}) > 1 else []
    else:
        steps = ["channels=mono"] if len({s[1:] for s in shapes}) > 1 else []
        length = sides[0] if len(spec.shape) == 2 and spec.shape[1] > 0 else "SAMPLES"
        steps += [f"length={length}"] if len({s[:1] for s in shapes}) > 1 else []
    return "&".join(steps)


def check_labels(
    source: str, labels: Array, count: int, *, only_classes: bool = True, what: str = "the labels"
) -> np.ndarray[Any, Any]:
    """The labels: int64 (count,), or without `only_classes` numbers (count, ...).

    Raises `InputRefused` for any others, which are called `what`.
    """
    where = f"{source}: {what}"
    if holds_strings(labels):
        raise InputRefused(
            f"{where} are strings, not numbers",
            hint="give class numbers: np.unique(y, return_inverse=True)[1]",
        )
    if only_classes:
        labels = _checked_classes(where, labels)
    if labels.ndim < 1 or labels.shape[0] != count:
        number = labels.shape[0] if labels.ndim else 1
        raise InputRefused(
            f"{where} are {number} and the samples are {count}",
            hint="name the labels that belong to these samples: ?labels=ARRAY",
        )
    if only_classes:
        if labels.size and (labels.min() < 0 or labels.max() > np.iinfo(np.int64).max):
            raise InputRefused(
                f"{where} run from {labels.min()} to {labels.max()}", hint="number classes from 0"
            )
        return labels.astype(np.int64)
    if labels.dtype.kind not in "biuf" or not np.isfinite(labels).all():
        raise InputRefused(
            f"{where} are {labels.dtype}, and not all of them are finite numbers",
            hint="drop or repair these samples",
        )
    return labels if labels.dtype.kind == "f" else labels.astype(np.int64)


def class_numbers(labels: Array) -> Array | None:
    """The class numbers (n,) that labels are, however they are written; None where they are none.

    They are whole numbers of shape (n,) or (n, 1), zeros and ones of any dtype, or one-hot rows
    (n, classes).
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.reshape(-1)
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels
    if labels.ndim not in (1, 2) or labels.dtype.kind not in "biuf":
        return None
    ones = labels == 1
    if not (ones | (labels == 0)).all():
        return None
    if labels.ndim == 2 and (ones.sum(axis=1) != 1).any():
        return None
    numbers: Array = ones.argmax(axis=1) if labels.ndim == 2 else ones.astype(np.int64)
    return numbers


def _checked_classes(where: str, labels: Array) -> Array:
    numbers = class_numbers(labels)
    if numbers is not None:
        return numbers
    if labels.dtype.kind not in "iu":
        hint = "give class numbers: y.astype(np.int64); "
        hint += "compare numbers with --metric mae or mse; " if labels.dtype.kind == "f" else ""
        hint += "or leave the labels out with ?labels=none"
        raise InputRefused(f"{where} are {labels.dtype}, not integers", hint=hint)
    raise InputRefused(
        f"{where} have shape {labels.shape}, not (n,)",
        hint="give one number per sample, or one-hot rows",
    )


def _check_dtype(where: str, array: Array, expected: np.dtype[Any]) -> None:
    if array.dtype == expected or (holds_strings(array) and expected.kind == "S"):
        return
    if holds_strings(array) or expected.kind == "S":
        raise _not_of_one_kind(where, array, expected)
    # `.str` tells apart what only differs in byte order.
    actual = array.dtype.str if array.dtype.name == expected.name else array.dtype.name
    hint = f"convert it: x.astype(np.{expected.name})"
    kinds = {array.dtype.kind, expected.kind}
    is_scaled = array.dtype.kind in "iu" and expected.kind == "f"
    if kinds == {"f"} or kinds <= {"i", "u"} or is_scaled:
        hint = (
            f"--preprocess dtype={expected.name} converts it, as does x.astype(np.{expected.name})"
        )
    if is_scaled:
        hint += "; if it was scaled in training too, as x / 255, --preprocess scale=1/255 does both"
    raise (UnknownScale if is_scaled else InputRefused)(
        f"{where} is {actual}, the model takes {expected.name}", hint=hint
    )


def _not_of_one_kind(where: str, array: Array, expected: np.dtype[Any]) -> InputRefused:
    if holds_strings(array):
        return InputRefused(
            f"{where} holds strings, the model takes {expected.name}",
            hint="give numbers, made from the strings as in training; or another array or column",
        )
    return InputRefused(
        f"{where} is {array.dtype.name}, the model takes strings",
        hint="give the strings that the model looks up: an array of text, for example "
        "x.astype(str), or a column of text",
    )


def _check_shape(where: str, shape: tuple[int, ...], sample: tuple[int, ...]) -> None:
    if not shape or not fits(shape[1:], sample):
        expected = ", ".join(["n", *("any" if size == -1 else str(size) for size in sample)])
        raise InputRefused(
            f"{where} has shape {shape}, the model takes ({expected})",
            hint=_shape_hint(shape, sample),
        )
    if shape[0] == 0:
        raise InputRefused(f"{where} has no samples: shape {shape}", hint="give at least one")
    if 0 in shape:
        raise InputRefused(f"{where} has empty samples: shape {shape}")


def fits(shape: tuple[int, ...], sample: tuple[int, ...]) -> bool:
    """Whether a shape is a sample's, in which -1 is any size."""
    return len(shape) == len(sample) and all(
        size in (actual, -1) for actual, size in zip(shape, sample, strict=True)
    )


def in_shape(array: Array, sample: tuple[int, ...]) -> Array:
    """Samples with a last dimension of 1 that they lack, or without one too many, as Keras 3 does,
    and rows of as many values as a sample has in its shape.

    `sample` is the shape that the model takes. Other arrays come back as they are.
    """
    stored = array.shape[1:]
    if not array.ndim or fits(stored, sample):
        return array
    if stored == (math.prod(sample),) and -1 not in sample:
        return array.reshape(len(array), *sample)
    if fits((*stored, 1), sample):
        return array[..., None]
    is_long = stored[-1:] == (1,) and fits(stored[:-1], sample)
    return array[..., 0] if is_long else array


def _shape_hint(shape: tuple[int, ...], sample: tuple[int, ...]) -> str:
    if fits(shape, sample):
        return "this is one sample without the leading dimension of samples: x[None]"
    if len(shape) > 1 and shape[1] == 1 and fits(shape[2:], sample):
        return "the batch dimension is not part of a sample: x[:, 0]"
    if len(sample) > 1 and fits((*shape[2:], *shape[1:2]), sample):
        return "channels come last: np.moveaxis(x, 1, -1)"
    if len(shape) == len(sample) and fits(shape[1:], sample[1:]) and sample[0] > 0:
        return (
            "there is no dimension that counts the samples: give np.stack of a list of them, "
            ".batch(32) of a tf.data.Dataset"
        )
    return "the first dimension counts the samples, the others must be the model's"


def _check_values(where: str, array: Array) -> None:
    # Minimum and maximum show NaN, Inf and size at once, and copy nothing.
    for first, block in _blocks(array):
        low, high = float(block.min()), float(block.max())
        if np.isfinite([low, high]).all() and max(-low, high) <= LARGEST_PLAUSIBLE:
            continue
        _refuse_values(where, array, first, block)


def _refuse_values(where: str, array: Array, first: int, block: Array) -> None:
    nan = sum(int(np.isnan(part).sum()) for _, part in _blocks(array))
    inf = sum(int(np.isinf(part).sum()) for _, part in _blocks(array))
    # Written so that NaN, which compares false, is bad too.
    bad = ~(np.abs(block) <= LARGEST_PLAUSIBLE)
    index = [int(i) for i in np.argwhere(bad)[0]]
    index[0] += first
    if nan or inf:
        raise InputRefused(
            f"{where} has {nan} NaN and {inf} infinite values, the first bad one at {index}",
            hint="drop or repair these samples: a range with them in it is worthless",
        )
    value = float(array[tuple(index)])
    raise InputRefused(
        f"{where} has the value {value:g} at {index}; over {LARGEST_PLAUSIBLE:g} is implausible",
        hint="check how the samples were scaled",
    )


def _blocks(array: Array) -> Iterator[tuple[int, Array]]:
    """Slices along the first dimension, so that temporaries stay small, with their start."""
    step = max(1, _BLOCK_BYTES // max(1, array[0].nbytes))
    for first in range(0, array.shape[0], step):
        yield first, array[first : first + step]


class LabelUse(msgspec.Struct, frozen=True, kw_only=True):
    """Which labels are wanted. An array under the name of one of `outputs` has the labels of it."""

    needs: LabelNeed = "classes"
    outputs: tuple[str, ...] = ()


CLASSES = LabelUse()


def chosen_use(
    options: dict[str, str], use: LabelUse, module: ModuleType, inputs: Sequence[str]
) -> tuple[dict[str, str], LabelUse]:
    """The options of a source without `labels=none`, and the use that this says.

    Of images and recordings, whose option it is, it stays.
    """
    if options.get("labels") != "none" or "classes" in module.OPTIONS or "labels" in inputs:
        return options, use
    others = {name: value for name, value in options.items() if name != "labels"}
    return others, LabelUse(needs="none", outputs=use.outputs)


def split_labels(
    arrays: Arrays, renames: dict[str, str], inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[Arrays, dict[str, str], dict[str, Array | Items]]:
    """The arrays and renamings of inputs, and the arrays (n, ...) of labels by output.

    `renames` has the array of each input or output, {} where all arrays have their own names.
    """
    array_of = {
        name: renames.get(name, "" if renames else name) for name in outputs if name not in inputs
    }
    chosen = {name: array for name, array in array_of.items() if array in arrays.by_name and array}
    # An array alone is the samples, whatever it is called.
    if not chosen or not (renames or set(arrays.names).difference(chosen.values())):
        return arrays, renames, {}
    kept = {name: array for name, array in renames.items() if name not in chosen}
    used = set(kept.values())
    by_name = {n: a for n, a in arrays.by_name.items() if n in used or n not in chosen.values()}
    labels = {name: arrays.by_name[array] for name, array in chosen.items()}
    return replace(arrays, by_name=by_name), kept, labels


def used_labels(
    source: str, arrays: Arrays, by_output: Mapping[str, Array | Items], count: int, use: LabelUse
) -> Array | None:
    """The labels (count, ...) that are wanted; see `Samples.labels`.

    `by_output` has the labels of outputs as they are stored. Raises `InputRefused` for labels
    that are not what is needed.
    """
    labels = arrays.labels
    if use.needs == "none":
        return None
    if use.needs == "if classes":
        are_classes = labels is not None and class_numbers(labels) is not None
        by_output = {} if are_classes else _only_classes(by_output)
        if not (by_output or are_classes) or arrays.no_classes:
            return None
        labels = None if by_output else labels
    only_classes = use.needs != "numbers"
    if by_output:
        if labels is not None:
            raise InputRefused(
                f"{source} has labels, and arrays for the outputs {quoted(by_output)} as well",
                hint="leave out one of them: ?labels=none, or other names for those arrays",
            )
        return _by_output(source, by_output, count, use.outputs)
    if labels is None:
        return None
    if use.needs == "either" and labels.dtype.kind == "f":
        only_classes = class_numbers(labels) is not None
    if only_classes and arrays.no_classes:
        raise InputRefused(
            arrays.no_classes,
            hint="labels are whole numbers from 0, or names, and numbers with --metric mae or mse; "
            "is this the column of the labels?",
        )
    return check_labels(source, labels, count, only_classes=only_classes)


def _by_output(
    source: str, by_output: Mapping[str, Array | Items], count: int, outputs: Sequence[str]
) -> Array:
    """The labels (n, ...) of the only output, or (n,) with a field for each that has some."""
    checked = {
        name: check_labels(
            source,
            _whole(f"{source}: the labels of {name!r}", column),
            count,
            only_classes=False,
            what=f"the labels of the output {name!r}",
        )
        for name, column in by_output.items()
    }
    checked = {
        n: a.reshape(-1) if a.dtype.kind == "i" and a.shape[1:] == (1,) else a
        for n, a in checked.items()
    }
    if len(outputs) == 1:
        return checked[outputs[0]]
    fields = [(name, array.dtype, array.shape[1:]) for name, array in checked.items()]
    rows = np.empty(count, fields)
    for name, array in checked.items():
        rows[name] = array
    return rows


def _only_classes(by_output: Mapping[str, Array | Items]) -> dict[str, Array]:
    """The class numbers (n,) of the outputs whose labels are classes."""
    arrays = {name: each for name, each in by_output.items() if isinstance(each, np.ndarray)}
    numbers = {name: class_numbers(array) for name, array in arrays.items()}
    return {name: each for name, each in numbers.items() if each is not None}


def _whole(where: str, column: Array | Items) -> Array:
    if isinstance(column, np.ndarray):
        return column
    rows: list[Array] = []
    for index in range(len(column)):
        rows.append(column[index])
        refuse_larger(where, rows[-1].nbytes * len(rows), "make them smaller")
        if rows[-1].shape != rows[0].shape:
            raise InputRefused(
                f"{where} differ in shape: {rows[0].shape} and, number {index}, {rows[-1].shape}",
                hint="all labels of an output need the same shape",
            )
    return np.stack(rows)
