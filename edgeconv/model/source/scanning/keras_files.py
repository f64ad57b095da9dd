"""The scan of .keras and HDF5 files: their structure, then their configuration.

A child process reads them: on damaged files the HDF5 library can loop forever or crash.
"""

from __future__ import annotations

import itertools
import re
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.model.source.keras_files import (
    HDF5_ERRORS,
    ZIP_ERRORS,
    damaged,
    decoded,
    without_model,
)
from edgeconv.model.source.scanning.copying import write_archive, write_hdf5_model
from edgeconv.model.source.scanning.keras_config import scan_config
from edgeconv.model.source.scanning.nodes import Findings
from edgeconv.system.processes.failures import blames_input, machine_error, no_room
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import scratch_directory
from edgeconv.types import Allowance, ScanFinding
from edgeconv.types.errors import OutputRefused, WorkerCrashed, WorkerOutOfMemory, WorkerTimedOut

_ALLOWANCE = Allowance(timeout_s=60.0, memory_bytes=2**32)
_CONFIGS = ("config.json", "metadata.json")
_MOST_CONFIG_BYTES = 2**27
_MOST_ENTRIES = 100_000
# Weights do not compress, texts do; this much is always allowed.
_MOST_RATIO = 100
_ALWAYS_BYTES = 2**28
_MOST_OBJECTS = 200_000
_HDF5 = b"\x89HDF\r\n\x1a\n"
_OUTSIDE = "puts the bytes of another file into the model"
_TAKES_ALL = "takes all memory or disk to read"


class KerasScanJob(msgspec.Struct, frozen=True, kw_only=True):
    """The file to scan; `known` are the user's MODULE or MODULE:NAME.

    `target` is where the model is written anew if nothing is found, "" for nowhere.
    """

    path: str
    is_archive: bool
    scratch: str
    known: tuple[str, ...] = ()
    target: str = ""


class KerasFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings in a file."""

    findings: tuple[ScanFinding, ...]


def scan_keras(
    path: Path, *, is_archive: bool, known: frozenset[str], target: Path | None = None
) -> tuple[ScanFinding, ...]:
    """The findings in a .keras or HDF5 file, which is written anew at `target` if there are none.

    Raises `InputRefused` for a damaged one, and `OutputRefused`.
    """
    with scratch_directory() as scratch:
        job = KerasScanJob(
            path=str(path),
            is_archive=is_archive,
            scratch=str(scratch),
            known=tuple(sorted(known)),
            target=str(target or ""),
        )
        if target:
            target.parent.mkdir(parents=True, exist_ok=True)
        task = start_task(
            scan_keras_here,
            job,
            label="scanning",
            scratch=scratch,
            access=Access(reads=(path,), writes=(scratch, *([target.parent] if target else []))),
            allowance=_ALLOWANCE,
        )
        try:
            with task:
                return task.result().findings
        except (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory) as error:
            if not blames_input(error):
                raise
            raise damaged(path, "a Keras file", error) from error


def scan_keras_here(job: KerasScanJob) -> KerasFindings:
    """`scan_keras`, in this process."""
    findings = Findings()
    path, known = Path(job.path), frozenset(job.known)
    _refuse_both(path, findings, is_archive=job.is_archive)
    if findings.has_error:
        return KerasFindings(findings=findings.all())
    if job.is_archive:
        _scan_archive(path, Path(job.scratch), findings, known)
    else:
        _scan_hdf5_model(path, findings, known)
    if job.target and not findings.has_error:
        _write(path, job)
    return KerasFindings(findings=findings.all())


def _refuse_both(path: Path, findings: Findings, *, is_archive: bool) -> None:
    """Add a finding for a file that is of both kinds, which one loader takes for the other."""
    if _hides_hdf5(path) if is_archive else zipfile.is_zipfile(path):
        why = "what one reader takes, another may not"
        findings.add("structure", path.name, "a zip archive and an HDF5 file in one", why)


def _hides_hdf5(path: Path) -> bool:
    """Whether an archive is an HDF5 file by something else than a file of weights in it.

    HDF5 looks for its beginning at byte 0, 512 and so on, doubled, where an archive's own file of
    weights may happen to begin.
    """
    import h5py

    if not h5py.is_hdf5(path):
        return False
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size_bytes:
            file.seek(at)
            if file.read(len(_HDF5)) == _HDF5:
                break
            at = max(512, 2 * at)
    try:
        with zipfile.ZipFile(path) as archive:
            return at not in map(_data_begins, archive.infolist(), itertools.repeat(archive.fp))
    except ZIP_ERRORS:
        return True


def _data_begins(entry: zipfile.ZipInfo, file: Any) -> int:
    """Where the content of an entry begins, behind its local header (APPNOTE.TXT, 4.3.7)."""
    file.seek(entry.header_offset + 26)
    name_bytes, extra_bytes = map(int, struct.unpack("<HH", file.read(4)))
    return entry.header_offset + 30 + name_bytes + extra_bytes


def _write(path: Path, job: KerasScanJob) -> None:
    try:
        if job.is_archive:
            write_archive(path, Path(job.target), Path(job.scratch))
        else:
            write_hdf5_model(path, Path(job.target))
    except OSError as error:
        # HDF5 gives no number, of a full disk neither; weights are read here for the first time.
        what, target = "the copy of the model", Path(job.target).parent
        refused = machine_error(error, what) or no_room(what, target)
        if error.errno is None:
            raise refused or damaged(path, "a Keras file", error) from error
        raise refused or OutputRefused(
            f"{job.target} cannot be written: {error.strerror}"
        ) from error


def _scan_archive(path: Path, scratch: Path, findings: Findings, known: frozenset[str]) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            _scan_entries(path, archive, findings)
            if findings.has_error:
                return
            for entry in archive.infolist():
                if entry.filename.endswith(".json"):
                    content = decoded(path, entry.filename, archive.read(entry))
                    _scan_json(entry.filename, content, findings, known)
                elif entry.filename.endswith((".h5", ".hdf5")):
                    # Not by its own name, which is the file's to choose.
                    unpacked = scratch / "weights.h5"
                    with archive.open(entry) as packed, unpacked.open("wb") as target:
                        shutil.copyfileobj(packed, target)
                    _scan_hdf5(unpacked, findings, where=entry.filename)
    except ZIP_ERRORS as error:
        raise damaged(path, "a zip archive", error) from error


def _scan_entries(path: Path, archive: zipfile.ZipFile, findings: Findings) -> None:
    entries = archive.infolist()
    if len(entries) > _MOST_ENTRIES:
        what = f"more than {_MOST_ENTRIES} files in the archive"
        findings.add("structure", path.name, what, _TAKES_ALL)
        return
    names = set[str]()
    for entry in entries:
        for what, why in _of_entry(entry):
            findings.add("structure", entry.filename, what, why)
        if entry.filename in names:
            why = "what one reader takes, another may not"
            findings.add("structure", entry.filename, "two files of one name", why)
        names.add(entry.filename)
    total_bytes = sum(entry.file_size for entry in entries)
    if total_bytes > _ALWAYS_BYTES + _MOST_RATIO * path.stat().st_size:
        what = f"{total_bytes} bytes packed into {path.stat().st_size}"
        findings.add("structure", path.name, what, _TAKES_ALL)


def _of_entry(entry: zipfile.ZipInfo) -> Iterator[tuple[str, str]]:
    name = entry.filename
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name) or _climbs(name):
        yield f"a file called {name!r}", "is written outside of the folder it is unpacked to"
    if stat.S_ISLNK(entry.external_attr >> 16):
        yield "a symbolic link", "leads out of the folder it is unpacked to"
    if name in _CONFIGS and entry.file_size > _MOST_CONFIG_BYTES:
        yield f"{name} of {entry.file_size} bytes", _TAKES_ALL
    if name.endswith((".npz", ".npy", ".pkl", ".pickle")):
        yield f"{name}, in NumPy's or Python's own format", "can hold code that runs when it loads"


def _climbs(name: str) -> bool:
    return ".." in re.split(r"[/\\]", name)


def _scan_json(name: str, content: Any, findings: Findings, known: frozenset[str]) -> None:
    scan_config(content, findings, known, where=name)
    if name not in _CONFIGS:
        # The names of further files, for weights in several.
        for text in _texts(content):
            if text.startswith("/") or _climbs(text):
                findings.add("path", name, f"a file called {text!r}", "reads a file outside")


def _texts(content: Any) -> Iterator[str]:
    waiting = [content]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            waiting += [*node, *node.values()]
        elif isinstance(node, list):
            waiting += node


def _scan_hdf5_model(path: Path, findings: Findings, known: frozenset[str]) -> None:
    import h5py

    _scan_hdf5(path, findings, where=path.name)
    if findings.has_error:
        return
    try:
        with h5py.File(path, "r") as file:
            config, training = (file.attrs.get(n) for n in ("model_config", "training_config"))
    except HDF5_ERRORS as error:
        raise damaged(path, "an HDF5 file", error) from error
    if config is None:
        raise without_model(path)
    scan_config(decoded(path, "model_config", config), findings, known, where="model_config")
    if training is not None:
        held = {"training_config": decoded(path, "training_config", training)}
        scan_config(held, findings, known, where="training_config")


def _scan_hdf5(path: Path, findings: Findings, *, where: str) -> None:
    """Scan every link and data set without following or reading it. Raises `InputRefused`."""
    import h5py

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

        waiting, visited, count = [("", file)], set[Any](), 0
        while waiting:
            path, group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in visited:
                continue
            visited.add(address)
            for name in group:
                count += 1
                if count > _MOST_OBJECTS:
                    what = f"more than {_MOST_OBJECTS} objects"
                    self._add(path, what, "takes all memory or time to read")
                    return
                inner = f"{path}/{name}"
                link = group.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    self._add(inner, f"external link to {link.filename}", _OUTSIDE)
                elif isinstance(link, h5py.HardLink):
                    waiting += self._object(inner, group, name)
        limit = _ALWAYS_BYTES + _MOST_RATIO * self._size_bytes
        if self._claimed_bytes > limit:
            what = f"data sets of {self._claimed_bytes} bytes in a file of {self._size_bytes}"
            self._add("/", what, "takes all memory to read")

    def _object(self, path: str, group: Any, name: str) -> list[tuple[str, Any]]:
        """Scan the target of a hard link; returns it if it is a group."""
        import h5py

        kind = group.get(name, getclass=True)
        if kind is h5py.Group:
            return [(path, group[name])]
        if kind is h5py.Dataset:
            data = group[name]
            settings = data.id.get_create_plist()
            if settings.get_external_count():
                self._add(path, f"external storage in {settings.get_external(0)[0]!r}", _OUTSIDE)
            if settings.get_layout() == h5py.h5d.VIRTUAL:
                self._add(path, "virtual data set", _OUTSIDE)
            self._claimed_bytes += int(data.size or 0) * data.dtype.itemsize
        return []

    def _add(self, path: str, what: str, why: str) -> None:
        self._findings.add("structure", f"{self._where}{path}", what, why)
