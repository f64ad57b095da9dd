"""What an HDF5 file refers to outside of itself, found by its structure alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.source.scanning.findings import Findings

_MOST_OBJECTS = 200_000
# Weights are stored as they are; this much may be compressed, or never written.
_MOST_RATIO = 100
_ALWAYS_BYTES = 2**28
_OUTSIDE = "puts the bytes of another file into the model"


def scan_hdf5(path: Path, findings: Findings, *, where: str) -> None:
    """Look at every link and data set; none is followed or read. Raises `InputRefused`."""
    import h5py

    from edgeconv.source.keras_files import HDF5_ERRORS, damaged

    try:
        with h5py.File(path, "r") as file:
            _Hdf5Walk(path.stat().st_size, findings, where).run(file)
    except HDF5_ERRORS as error:
        raise damaged(path, "an HDF5 file", error) from error


class _Hdf5Walk:
    def __init__(self, size_bytes: int, findings: Findings, where: str) -> None:
        self._size_bytes = size_bytes
        self._findings = findings
        self._where = where
        self._claimed_bytes = 0

    def run(self, file: Any) -> None:
        """Visit the groups, each once: a hard link may lead back."""
        import h5py

        waiting, seen, count = [("", file)], set[Any](), 0
        while waiting:
            path, group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                continue
            seen.add(address)
            for name in group:
                count += 1
                if count > _MOST_OBJECTS:
                    what = f"more than {_MOST_OBJECTS} objects"
                    self._add(path, what, "takes all memory or time to read")
                    return
                place = f"{path}/{name}"
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    self._add(place, f"external link to {link.filename}", _OUTSIDE)
                elif isinstance(link, h5py.HardLink):
                    waiting += self._object(place, group, name)
        limit = _ALWAYS_BYTES + _MOST_RATIO * self._size_bytes
        if self._claimed_bytes > limit:
            what = f"data sets of {self._claimed_bytes} bytes in a file of {self._size_bytes}"
            self._add("/", what, "takes all memory to read")

    def _object(self, place: str, group: Any, name: str) -> list[tuple[str, Any]]:
        """Look at what a hard link leads to, and return it if it is a group."""
        import h5py

        kind = group.get(name, getclass=True)
        if kind is h5py.Group:
            return [(place, group[name])]
        if kind is h5py.Dataset:
            data = group[name]
            settings = data.id.get_create_plist()
            if settings.get_external_count():
                self._add(place, f"external storage in {settings.get_external(0)[0]!r}", _OUTSIDE)
            if settings.get_layout() == h5py.h5d.VIRTUAL:
                self._add(place, "virtual data set", _OUTSIDE)
            self._claimed_bytes += int(data.size or 0) * data.dtype.itemsize
        return []

    def _add(self, place: str, what: str, why: str) -> None:
        self._findings.add("structure", f"{self._where}{place}", what, why)
