"""The kind `npy`: one array, as np.save writes it, for a model with one input.

`labels=PATH` names a second .npy file, with the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, StoredRows, opened, read_array, sha256_of
from edgeconv.types.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

OPTIONS = frozenset({"labels"})
_AT_ONCE_BYTES = 1 << 28


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hashes of the file and of its labels file. Raises `InputRefused`."""
    labels = (path for path in options.values() if path != "none")
    return "+".join(sha256_of(Path(path)) for path in (location, *labels))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The array (n, ...), which has no name, and the labels. Raises `InputRefused` or `UsageError`.

    A large one is read sample by sample, when needed.
    """
    if array_names is not None:
        raise UsageError(
            f"{location} holds a single array without a name, so none can be chosen by name",
            hint="remove the renaming, or use an .npz file",
        )
    labels = options.get("labels")
    path = Path(location)
    with opened(path) as (_, size_bytes):
        is_large = size_bytes > _AT_ONCE_BYTES
    column = StoredRows(path) if is_large else _read_file(path)
    return Arrays({"": column}, _read_file(Path(labels)) if labels else None)


def _read_file(path: Path) -> np.ndarray[Any, Any]:
    with opened(path) as (file, size_bytes):
        return read_array(file, size_bytes, str(path))
