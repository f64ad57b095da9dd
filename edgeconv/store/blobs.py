"""Blobs called by the hash of their content, in a directory or an object store that machines share.

The place is a path or a URL that fsspec knows, such as s3://bucket/name.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.errors import EdgeconvError, InputRefused, ToolFailed, UsageError
from edgeconv.store.files import publish_all, writable_directory
from edgeconv.store.hashes import is_sha256, sha256_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINT = "check the URL, what it needs to log in, and that it can be written"


class Blobs:
    """A store of blobs, and of small named entries. It may be used by many processes at once."""

    def __init__(self, url: str) -> None:
        """Raises `UsageError` for a URL that fsspec does not know, or without fsspec."""
        self.url = url
        self._files, self._root = _file_system(url)

    def put(self, path: Path) -> str:
        """Store a file, unless it is there; returns its SHA-256. Raises `ToolFailed`."""
        digest = sha256_file(path)
        target = self._blob(digest)
        with self._failures():
            if not self._has(target):
                self._written(target, path)
        return digest

    def get(self, digest: str, target: Path) -> None:
        """Copy a blob to a file, atomically.

        Raises `InputRefused` where its content has another hash, `ToolFailed` where there is none,
        and `OutputRefused`.
        """
        writable_directory(target.parent)
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch, "blob")
            with self._failures():
                self._files.get_file(self._blob(digest), str(copy))
            actual = hashlib.sha256(copy.read_bytes()).hexdigest()
            if actual != digest:
                raise InputRefused(
                    f"{self.url}: the blob {digest[:16]}… has other content: {actual[:16]}…",
                    hint="somebody, or a fault, changed it: remove it from blobs/ there",
                )
            publish_all({target: copy})

    def write(self, name: str, content: bytes) -> None:
        """Store a named entry, over one that is there. Raises `ToolFailed`."""
        with tempfile.TemporaryDirectory() as scratch, self._failures():
            copy = Path(scratch, "entry")
            copy.write_bytes(content)
            self._written(f"{self._root}/{name}", copy)

    def read(self, name: str) -> bytes | None:
        """A named entry, None where there is none. Raises `ToolFailed`."""
        path = f"{self._root}/{name}"
        with self._failures():
            if not self._has(path):
                return None
            content: bytes = self._files.cat_file(path)
            return content

    def remove(self, name: str) -> None:
        """Remove a named entry, if it is there. Raises `ToolFailed`."""
        path = f"{self._root}/{name}"
        with self._failures(), contextlib.suppress(FileNotFoundError):
            self._files.invalidate_cache()
            self._files.rm_file(path)

    def _blob(self, digest: str) -> str:
        assert is_sha256(digest), digest
        return f"{self._root}/blobs/{digest[:2]}/{digest}"

    def _has(self, path: str) -> bool:
        # Other processes write there too.
        self._files.invalidate_cache()
        return bool(self._files.exists(path))

    def _written(self, target: str, source: Path) -> None:
        """A file under its name once it is whole: a reader never sees a part of it."""
        parent = target.rpartition("/")[0]
        self._files.makedirs(parent, exist_ok=True)
        unfinished = f"{parent}/.{uuid.uuid4().hex}"
        self._files.put_file(str(source), unfinished)
        self._files.mv(unfinished, target)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except EdgeconvError:
            raise
        except Exception as error:
            # Each object store has errors of its own.
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            raise ToolFailed(f"the shared cache {self.url}: {reason}", hint=_HINT) from error


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise UsageError(
            f"a shared cache needs fsspec: {error}", hint="pip install 'edgeconv[ray]'"
        ) from error
    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        # The error says which package is missing.
        raise UsageError(f"{url}: {error}", hint="a directory, or a URL of fsspec") from error
    return files, str(root).rstrip("/")
