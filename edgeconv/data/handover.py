"""Arrays that a child process reads or makes, handed to its parent in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import Arrays, opened, read_array

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy as np


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a directory: `names[i]` is in i.npy, and the labels in labels.npy."""

    names: tuple[str, ...]
    has_labels: bool
    is_text: bool
    class_names: tuple[str, ...]
    no_classes: str = ""


def hand_over(arrays: Arrays, directory: Path) -> Handover:
    """In the child: write arrays, none of which is `Items`, to `directory`."""
    import numpy as np

    for position, array in enumerate(arrays.by_name.values()):
        np.save(directory / f"{position}.npy", np.asarray(array), allow_pickle=False)
    if arrays.labels is not None:
        np.save(directory / "labels.npy", arrays.labels, allow_pickle=False)
    return Handover(
        names=tuple(arrays.by_name),
        has_labels=arrays.labels is not None,
        is_text=arrays.is_text,
        class_names=arrays.class_names,
        no_classes=arrays.no_classes,
    )


def take_over(handover: Handover, directory: Path, names: Iterable[str] | None = None) -> Arrays:
    """In the parent: the arrays called `names` (None: all), and the labels."""
    chosen = handover.names if names is None else names
    by_name = {name: _read(directory, str(handover.names.index(name))) for name in chosen}
    labels = _read(directory, "labels") if handover.has_labels else None
    return Arrays(
        by_name,
        labels,
        handover.is_text,
        handover.class_names,
        no_classes=handover.no_classes,
    )


def _read(directory: Path, name: str) -> np.ndarray[Any, Any]:
    path = directory / f"{name}.npy"
    with opened(path) as (file, size_bytes):
        return read_array(file, size_bytes, str(path))
