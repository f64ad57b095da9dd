"""The files of a folder that are evidence. Only regular ones of limited size are read."""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from edgeconv.types.errors import InputRefused

RECORD = "edgeconv-embedded.json"
LOCK = "edgeconv.lock"
REPORT = "report.json"
PAGE = "report.html"
VERDICT = ".verdict.json"
# More than any project has.
_MOST_ENTRIES = 200_000
_MOST_DOCUMENTS = 5_000
_DEEPEST = 64
_HEAD_BYTES = 120
_REPORT_HEAD = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"title":')
_MANIFEST_HEAD = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"name":')
# A .tflite has at most 2 GiB, by its offsets; other files are smaller.
LARGEST_HASHED_BYTES = 1 << 32
LARGEST_REPORT_BYTES = 1 << 28
LARGEST_DOCUMENT_BYTES = 1 << 24
LARGEST_LOCK_BYTES = 1 << 22
# The limit for all files of one PATH; sparse files are cheap to create.
_MOST_HASHED_BYTES = 1 << 34
_BLOCK_BYTES = 1 << 20


@dataclass
class Root:
    """The directory that files must be in, and how many bytes of it may still be hashed."""

    path: Path
    left_bytes: int = _MOST_HASHED_BYTES


def read_within(root: Root, path: Path, limit_bytes: int) -> bytes:
    """The content of a file in `root`.

    Raises `InputRefused` for a file that is not regular, outside of `root`, larger than the limit,
    or unreadable.
    """
    with _open(root, path, limit_bytes) as (file, size):
        return file.read(size)


def head_within(root: Root, path: Path, count: int) -> bytes:
    """The first bytes of a file of any size. Raises `InputRefused` likewise."""
    with _open(root, path, None) as (file, _):
        return file.read(count)


def hash_within(root: Root, path: Path, size_bytes: int | None = None) -> str:
    """The sha256 of a file in `root`, "" if it is not of `size_bytes`. Raises likewise."""
    with _open(root, path, LARGEST_HASHED_BYTES) as (file, size):
        if size_bytes is not None and size != size_bytes:
            return ""
        root.left_bytes -= size
        if root.left_bytes < 0:
            raise InputRefused(f"{root.path} has more bytes than are hashed in one run")
        digest = hashlib.sha256()
        # Only the bytes that there were: the file may grow while it is read.
        while size > 0 and (block := file.read(min(_BLOCK_BYTES, size))):
            digest.update(block)
            size -= len(block)
        return digest.hexdigest()


@contextlib.contextmanager
def _open(root: Root, path: Path, limit_bytes: int | None) -> Iterator[tuple[BinaryIO, int]]:
    real, top = os.path.realpath(path), os.path.realpath(root.path)
    if real != top and not real.startswith(top.rstrip("/") + "/"):
        raise InputRefused(
            f"{path} is a symbolic link that leads out of {root.path}", hint="copy it with cp -rL"
        )
    try:
        # A pipe would block, and a terminal would become the controlling one.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputRefused(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputRefused(f"{path} cannot be read: {reason}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise InputRefused(f"{path} is not a regular file")
    with open(handle, "rb") as file:  # noqa: PTH123
        if limit_bytes is not None and status.st_size > limit_bytes:
            raise InputRefused(f"{path} has {status.st_size} bytes, more than {limit_bytes}")
        try:
            yield file, status.st_size
        except OSError as error:
            raise InputRefused(f"{path} cannot be read: {error.strerror}") from error


@dataclass
class EvidenceFiles:
    """The files at one PATH, all of them inside `root`.

    `links` are symbolic links to directories, which are not followed.
    """

    path: Path
    root: Root
    models: list[Path] = field(default_factory=list)
    manifests: list[Path] = field(default_factory=list)
    verdicts: list[Path] = field(default_factory=list)
    reports: list[Path] = field(default_factory=list)
    pages: list[Path] = field(default_factory=list)
    records: list[Path] = field(default_factory=list)
    locks: list[Path] = field(default_factory=list)
    links: list[Path] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """The number of files."""
        lists = (self.models, self.manifests, self.verdicts, self.reports, self.pages)
        return sum(map(len, (*lists, self.records, self.locks)))


def find_files(path: Path) -> EvidenceFiles:
    """The evidence at a PATH: below a directory, or the files that belong to a file.

    Raises `InputRefused` for a path that does not exist, and for a directory of too many files.
    """
    try:
        is_directory = path.is_dir()
        exists = is_directory or os.path.lexists(path)
    except (OSError, ValueError) as error:
        raise InputRefused(f"{path!s} cannot be read: {error}") from error
    if not exists:
        raise InputRefused(f"{path} does not exist", hint="give what convert or embed wrote")
    files = EvidenceFiles(path=path, root=Root(path if is_directory else path.parent))
    if is_directory:
        paths = _walk(path, files)
    elif path.name == RECORD:
        paths = [path]
    else:
        paths = _belonging(path)
    for each in sorted(paths):
        _sort_in(each, files)
    if not is_directory and not files.documents:
        raise InputRefused(
            f"{path} is not a file that edgeconv can verify",
            hint="give a .tflite, its manifest, a report, a lock, or a folder of these",
        )
    return files


def _belonging(path: Path) -> list[Path]:
    """A file and the files next to it that belong to it."""
    model = path.with_name(path.name.removesuffix(VERDICT) + ".tflite")
    if not path.name.endswith(VERDICT):
        model = path.with_suffix(".tflite") if path.suffix == ".json" else path
    if model.suffix != ".tflite" or not (model == path or os.path.lexists(model)):
        return [path]
    others = (model.with_suffix(".json"), model.with_suffix(VERDICT), model.parent / REPORT)
    return [each for each in (model, *others) if os.path.lexists(each)]


def _walk(top: Path, files: EvidenceFiles) -> list[Path]:
    """The files below a directory; links to directories are not followed."""
    paths: list[Path] = []
    entries, folders = 0, [(top, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    entries += 1
                    if entries > _MOST_ENTRIES or depth > _DEEPEST:
                        raise _too_many(top)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append((Path(entry.path), depth + 1))
                    elif entry.is_symlink() and entry.is_dir():
                        files.links.append(Path(entry.path))
                    # Also a folder with the name of a file, which is then refused.
                    if entry.name.endswith((".tflite", ".json", ".html", ".lock")):
                        paths.append(Path(entry.path))
        except OSError as error:
            raise InputRefused(f"{folder} cannot be read: {error.strerror}") from error
    if len(paths) > _MOST_DOCUMENTS:
        raise _too_many(top)
    return paths


def _too_many(top: Path) -> InputRefused:
    return InputRefused(
        f"{top} has more files than any folder of published models",
        hint="give only the folders that edgeconv convert, bench and embed wrote",
    )


def _sort_in(path: Path, files: EvidenceFiles) -> None:
    name = path.name
    kinds = {RECORD: files.records, LOCK: files.locks, PAGE: files.pages, REPORT: files.reports}
    if name in kinds:
        kinds[name].append(path)
    elif name.endswith(VERDICT):
        files.verdicts.append(path)
    elif name.endswith(".tflite"):
        files.models.append(path)
    elif name.endswith(".json") and os.path.lexists(path.with_suffix(".tflite")):
        files.manifests.append(path)
    elif name.endswith(".json") and (head := _head(files.root, path)):
        if _REPORT_HEAD.match(head):
            files.reports.append(path)
        elif _MANIFEST_HEAD.match(head):
            files.manifests.append(path)


def _head(root: Root, path: Path) -> bytes:
    try:
        return head_within(root, path, _HEAD_BYTES)
    except InputRefused:
        return b""
