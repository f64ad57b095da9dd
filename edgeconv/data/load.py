"""A SOURCE and a model's inputs to checked samples."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from edgeconv.data.checks import check_input, check_labels, input_dtype
from edgeconv.data.location import parse_location
from edgeconv.data.samples import Array, Samples
from edgeconv.errors import InputRefused, unknown_name
from edgeconv.plugins import sample_source

if TYPE_CHECKING:
    from types import ModuleType

    from edgeconv.data.arrays import Arrays
    from edgeconv.nouns import TensorSpec


def load_samples(source: str, inputs: tuple[TensorSpec, ...]) -> Samples:
    """Read a SOURCE, and check it against the model's inputs.

    `inputs` have their batch dimension, of whatever size, in `shape[0]`. An option that
    is not the kind's own renames: `image=x_test` gives the array x_test to the input
    image, and then only arrays that are named so are read. Raises `UsageError` for a
    SOURCE that says something unknown, `InputRefused` for data the model cannot take.
    """
    for spec in inputs:
        input_dtype(spec)
    location = parse_location(source)
    module = sample_source(location.kind)
    own, renames = _sorted_options(location.options, module, inputs)
    wanted = frozenset(renames.values()) if renames else None
    given: Arrays = module.read(location.place, own, wanted)
    arrays = _by_input(source, given.by_name, renames, inputs)
    for spec in inputs:
        check_input(source, arrays[spec.name], spec)
    count = _same_count(source, arrays)
    labels = None if given.labels is None else check_labels(source, given.labels, count)
    return Samples(arrays, labels, source)


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
    source: str,
    by_name: dict[str, Array],
    renames: dict[str, str],
    inputs: tuple[TensorSpec, ...],
) -> dict[str, Array]:
    """The arrays under the names of the inputs, in their order, none missing or left over."""
    names = [spec.name for spec in inputs]
    if "" in by_name:
        if len(names) > 1:
            raise InputRefused(
                f"{source} holds one array, the model takes {len(names)}: {', '.join(names)}",
                hint="use an .npz file with an array for each",
            )
        return {names[0]: by_name[""]}
    given = {name: by_name[array] for name, array in renames.items()} if renames else by_name
    missing = [name for name in names if name not in given]
    extra = [name for name in given if name not in names]
    if missing or extra:
        raise _mismatch(source, missing, extra, names)
    return {name: given[name] for name in names}


def _mismatch(source: str, missing: list[str], extra: list[str], names: list[str]) -> InputRefused:
    parts = [f"the model's input {name!r} has no array" for name in missing]
    parts += [f"the array {name!r} is no input" for name in extra]
    pairs = [f"{name}={_likely_array(name, missing, extra)}" for name in names]
    return InputRefused(
        f"{source}: {'; '.join(parts)} (the model takes {', '.join(map(repr, names))})",
        hint=f"say which array each input gets: '{source.partition('?')[0]}?{'&'.join(pairs)}'",
    )


def _likely_array(name: str, missing: list[str], extra: list[str]) -> str:
    if name not in missing:
        return name
    close = get_close_matches(name, extra, n=1)
    return close[0] if close else "ARRAY"


def _same_count(source: str, arrays: dict[str, Any]) -> int:
    counts = {name: int(array.shape[0]) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        each = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise InputRefused(
            f"{source}: the inputs have different numbers of samples: {each}",
            hint="each sample needs a value for every input",
        )
    return next(iter(counts.values()))
