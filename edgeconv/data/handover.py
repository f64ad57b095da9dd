"""Arrays that a child process reads or makes, handed to its parent in files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import Arrays, opened, read_array
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a directory: `names[i]` is in i.npy, and the labels in labels.npy.

    Those of `strings` are in strings-i.npy as strings. `not_numbers` has a message and a hint.
    """

    names: tuple[str, ...]
    has_labels: bool
    is_text: bool
    class_names: tuple[str, ...]
    no_classes: str = ""
    strings: tuple[str, ...] = ()
    not_numbers: dict[str, tuple[str, str]] = {}


def hand_over(arrays: Arrays, directory: Path) -> Handover:
    """In the child: write arrays, none of which is `Items`, to `directory`."""
    import numpy as np

    for position, name in enumerate(arrays.names):
        if name in arrays.by_name:
            array = np.asarray(arrays.by_name[name])
            np.save(directory / f"{position}.npy", array, allow_pickle=False)
        if name in arrays.as_strings:
            strings = arrays.as_strings[name]()
            np.save(directory / f"strings-{position}.npy", strings, allow_pickle=False)
    if arrays.labels is not None:
        np.save(directory / "labels.npy", arrays.labels, allow_pickle=False)
    return Handover(
        names=arrays.names,
        has_labels=arrays.labels is not None,
        is_text=arrays.is_text,
        class_names=arrays.class_names,
        no_classes=arrays.no_classes,
        strings=tuple(arrays.as_strings),
        not_numbers={n: (e.message, e.hint or "") for n, e in arrays.not_numbers.items()},
    )


def take_over(handover: Handover, directory: Path, names: Iterable[str] | None = None) -> Arrays:
    """In the parent: the arrays called `names` (None: all), and the labels."""
    import numpy as np

    chosen = handover.names if names is None else tuple(names)
    by_name = {
        name: _read(directory, str(handover.names.index(name)))
        for name in chosen
        if name not in handover.not_numbers
    }
    labels = _read(directory, "labels") if handover.has_labels else None
    return Arrays(
        by_name,
        labels,
        handover.is_text,
        handover.class_names,
        no_classes=handover.no_classes,
        as_strings={
            name: partial(np.asarray, _read(directory, f"strings-{handover.names.index(name)}"))
            for name in handover.strings
            if name in chosen
        },
        not_numbers={
            name: InputRefused(message, hint=hint)
            for name, (message, hint) in handover.not_numbers.items()
            if name in chosen
        },
    )


def _read(directory: Path, name: str) -> np.ndarray[Any, Any]:
    path = directory / f"{name}.npy"
    with opened(path) as (file, size_bytes):
        return read_array(file, size_bytes, str(path), are_ended=True)
