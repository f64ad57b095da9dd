"""The kind `npz`: numpy's archive of named arrays, as np.savez writes it.

`labels=ARRAY` says which array holds the labels; without it, one called "labels" does.
"""

from __future__ import annotations

import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened, read_array, refuse_bomb, refuse_larger, sha256_of
from edgeconv.types.errors import InputRefused, unknown_name

if TYPE_CHECKING:
    import numpy as np

OPTIONS = frozenset({"labels"})

# Those that numpy writes. Others unpack gigabytes in one step.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

# What zipfile raises on damage, on encryption (RuntimeError) and on unknown methods.
_BAD_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    NotImplementedError,
    ValueError,
)


def identity(location: str, options: Mapping[str, str]) -> str:  # noqa: ARG001
    """The hash of the file. Raises `InputRefused`."""
    return sha256_of(Path(location))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The arrays called `array_names` (None: all but the labels), each (n, ...), and the labels.

    Raises `UsageError` for a name that is not in the file, `InputRefused` for a file
    that is not an archive of arrays.
    """
    path = Path(location)
    with opened(path) as (file, _size):
        try:
            with zipfile.ZipFile(file) as archive:
                return _arrays(path, archive, options, array_names)
        except _BAD_ZIP as error:
            raise InputRefused(
                f"{path} is not a readable .npz archive: {error}", hint=_hint(path, file)
            ) from error


def _arrays(
    path: Path,
    archive: zipfile.ZipFile,
    options: Mapping[str, str],
    array_names: frozenset[str] | None,
) -> Arrays:
    members = {
        member.filename.removesuffix(".npy"): member
        for member in archive.infolist()
        if member.filename.endswith(".npy")
    }
    if not members:
        raise InputRefused(f"{path} holds no arrays", hint="write it with np.savez")
    labels = options.get("labels", "labels" if "labels" in members else None)
    names = list(members) if array_names is None else sorted(array_names)
    names = [name for name in names if array_names is not None or name != labels]
    needed = [*names, *([labels] if labels else [])]
    for name in needed:
        if name not in members:
            raise unknown_name(f"array in {path}", name, members)
    _refuse_bombs(path, [members[name] for name in needed])
    arrays = {name: _member(path, archive, members[name], name) for name in dict.fromkeys(needed)}
    return Arrays({name: arrays[name] for name in names}, arrays[labels] if labels else None)


def _member(
    path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str
) -> np.ndarray[Any, Any]:
    if member.compress_type not in _METHODS:
        raise InputRefused(
            f"{path}, array {name!r}, is compressed in a way that numpy does not write",
            hint="write it with np.savez or np.savez_compressed",
        )
    with archive.open(member) as stream:
        return read_array(stream, member.file_size, f"{path}, array {name!r},")


def _refuse_bombs(path: Path, members: list[zipfile.ZipInfo]) -> None:
    unpacked = sum(member.file_size for member in members)
    # The archive declares the sizes of its members; the size of the file is certain.
    packed = min(sum(member.compress_size for member in members), path.stat().st_size)
    refuse_bomb(str(path), packed, unpacked)
    refuse_larger(str(path), unpacked, "save the array with np.save: a .npy file is read in parts")


def _hint(path: Path, file: IO[bytes]) -> str:
    file.seek(0)
    if file.read(6) == b"\x93NUMPY":
        return f"it is a single array: use npy:{path}"
    return "write it with np.savez; pickled files are never loaded"
