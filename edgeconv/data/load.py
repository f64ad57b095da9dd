"""A SOURCE and the model's inputs to checked samples."""

from __future__ import annotations

import contextlib
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from edgeconv.data.checks import check_input, check_labels, input_dtype
from edgeconv.data.location import kind_module, located
from edgeconv.data.source import LocalDataSet
from edgeconv.data.strings import STRING
from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from edgeconv.data.arrays import Arrays
    from edgeconv.data.kinds.function import Returned
    from edgeconv.data.source import Column
    from edgeconv.types import DataSource, Preprocessing, TensorSpec

# The option of tables that says which columns to take.
_FEATURES = "features"


def open_samples(
    source: DataSource,
    inputs: tuple[TensorSpec, ...],
    *,
    preprocessing: Mapping[str, Preprocessing] | None = None,
    allow_code: bool = False,
    only_classes: bool = True,
    returned: Returned | None = None,
) -> LocalDataSet:
    """What a SOURCE has for the model's inputs.

    `inputs` have their batch dimension, of any size, in `shape[0]`. An option that the kind does
    not have renames: `image=x_test` gives the array x_test to the input image, and then only named
    arrays are read. `preprocessing` is by input name, "" for every input not named. A SOURCE that
    runs code is refused unless `allow_code`; `returned` is what its function has returned already.
    With `only_classes` labels must be class numbers (n,). Raises `UsageError` for an unknown kind,
    option or name, `InputRefused` for data that the model cannot take.
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
    own, renames = _sorted_options(source.options, module, inputs)
    read = module.read if returned is None else partial(module.read, answer=returned)
    has_features = _FEATURES in module.OPTIONS and _FEATURES not in own
    arrays, renames = _read(partial(read, source.location, own), renames, names, has_features)
    _check_rate(source, arrays.rate_hz, steps)
    columns = _by_input(source, arrays, renames, inputs)
    for spec in inputs:
        column = columns[spec.name]
        as_stored = not (steps or arrays.is_text)
        if isinstance(column, np.ndarray) and (as_stored or not column.ndim):
            check_input(str(source), column, spec)  # All of it, whichever samples are taken.
    count = _same_count(source, columns)
    if not count:
        raise InputRefused(f"{source} has no samples", hint="give at least one")
    labels = arrays.labels
    if labels is not None:
        if only_classes and arrays.no_classes:
            raise InputRefused(
                arrays.no_classes,
                hint="labels are whole numbers from 0, or names; is this the column of the labels?",
            )
        labels = check_labels(str(source), labels, count, only_classes=only_classes)
    return LocalDataSet(
        str(source), inputs, columns, labels, arrays.is_text, steps, arrays.class_names
    )


def _read(
    read: Callable[[frozenset[str] | None], Arrays],
    renames: dict[str, str],
    names: list[str],
    has_features: bool,
) -> tuple[Arrays, dict[str, str]]:
    """What the data has, and which array each input gets where that is not by its own name."""
    if len(names) > 1 and not renames and has_features:
        # A table with a column for every input needs no more to be said.
        with contextlib.suppress(UsageError):
            return read(frozenset(names)), {name: name for name in names}
    return read(frozenset(renames.values()) if renames else None), renames


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
    options: dict[str, str], module: ModuleType, inputs: tuple[TensorSpec, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the kind, and the renamings as input name to array name."""
    own = {name: value for name, value in options.items() if name in module.OPTIONS}
    renames = {name: value for name, value in options.items() if name not in module.OPTIONS}
    names = {spec.name for spec in inputs}
    for name in renames:
        if name not in names:
            raise unknown_name("data option or model input", name, names | module.OPTIONS)
    return own, renames


def _by_input(
    source: DataSource, arrays: Arrays, renames: dict[str, str], inputs: tuple[TensorSpec, ...]
) -> dict[str, Column]:
    """The columns under the names of the inputs, in their order, none missing or left over."""
    names = [spec.name for spec in inputs]
    array_of = _arrays_of_inputs(source, arrays.names, renames, names)
    return {spec.name: _as_taken(arrays, array_of[spec.name], spec) for spec in inputs}


def _as_taken(arrays: Arrays, array: str, spec: TensorSpec) -> Column:
    """An array as strings where the input takes these and the data has text."""
    if spec.dtype == STRING and array in arrays.as_strings:
        return arrays.as_strings[array]()
    if spec.dtype != STRING and array in arrays.not_numbers:
        raise arrays.not_numbers[array]
    return arrays.by_name[array]


def _arrays_of_inputs(
    source: DataSource, arrays: tuple[str, ...], renames: dict[str, str], names: list[str]
) -> dict[str, str]:
    """The name of the array for each input."""
    if "" in arrays:
        if len(names) > 1:
            raise InputRefused(
                f"{source} holds one array, the model takes {len(names)}: {listed(names)}",
                hint="name the columns of each: for a table "
                f"'{replace(source, options=dict.fromkeys(names, 'COLUMNS'))}'; or give "
                "an .npz file with an array for each",
            )
        return {names[0]: ""}
    array_of = renames or {name: name for name in arrays}
    missing = [name for name in names if name not in array_of]
    extra = [name for name in array_of if name not in names]
    if missing or extra:
        raise _mismatch(source, missing, extra, names)
    return {name: array_of[name] for name in names}


def _mismatch(
    source: DataSource, missing: list[str], extra: list[str], names: list[str]
) -> InputRefused:
    parts = [f"the model's input {name!r} has no array" for name in missing]
    parts += [f"the array {name!r} is not an input" for name in extra]
    # What was renamed already was renamed wrongly; the kind's own options stay.
    kept = {name: value for name, value in source.options.items() if name not in names}
    likely = {name: _likely_array(name, missing, extra) for name in names}
    return InputRefused(
        f"{source}: {'; '.join(parts)} (the model takes {quoted(names)})",
        hint=f"say which array each input gets: '{replace(source, options=kept | likely)}'",
    )


def _likely_array(name: str, missing: list[str], extra: list[str]) -> str:
    if name not in missing:
        return name
    if len(missing) == len(extra) == 1:
        return extra[0]
    close = get_close_matches(name, extra, n=1)
    return close[0] if close else "ARRAY"


def _same_count(source: DataSource, columns: dict[str, Column]) -> int:
    counts = {name: len(column) for name, column in columns.items()}
    if len(set(counts.values())) != 1:
        each = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise InputRefused(
            f"{source}: the inputs have different numbers of samples: {each}",
            hint="each sample needs a value for every input",
        )
    return next(iter(counts.values()))
