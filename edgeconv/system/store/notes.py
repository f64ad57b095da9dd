"""What this user has noted: which models were converted here, and hashes of files.

A manifest, which anybody may have written, names the model that `bench` loads as the baseline. That
name is trusted only for a model that the user converted. The notes are in the user's state
directory, where neither a project nor a restored cache can add one.
"""

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeconv.system.store.files import publish_bytes, sha256_file
from edgeconv.system.store.hashes import hash_of
from edgeconv.system.store.seals import state_directory
from edgeconv.types.errors import OutputRefused

# What the top of a project has.
_OF_PROJECTS = (".git", "edgeconv.toml", "pyproject.toml")
# The notes of a path have the hash of its content, and those of a hash the path that has it.
_CONVERTED = "converted"
Noun = TypeVar("Noun", bound=msgspec.Struct)
# By the path of the model: what this process has converted, also where no note can be written.
_hashes: dict[str, str] = {}


def note_converted(model: str | Path, sha256: str) -> None:
    """Note that the model at this path was converted as it is now, where a note can be written."""
    path = os.path.realpath(model)
    if not was_converted(model, sha256):
        write_note(_CONVERTED, path, sha256)
    if read_note(_CONVERTED, sha256) != path:
        write_note(_CONVERTED, sha256, path)
    _hashes[path] = sha256


def was_converted(model: str | Path, sha256: str) -> bool:
    """Whether the last conversion here of the model at this path was of this content."""
    path = os.path.realpath(model)
    return sha256 in (_hashes.get(path), read_note(_CONVERTED, path))


def recorded_path(model: str | Path, directory: Path) -> str:
    """How a manifest in `directory` names a model: by its path in the project, or its name."""
    top, path = _project_around(directory), Path(os.path.realpath(model))
    return path.relative_to(top).as_posix() if top in path.parents else Path(model).name


def in_project(noun: Noun, directory: Path) -> Noun:
    """The same value for a file in `directory`: paths in its project are relative to it.

    The project is the nearest directory above with a configuration or a repository, or else the
    current one. Published files do not tell where on a machine it is.
    """
    top = json.dumps(f"{_project_around(directory)}/", ensure_ascii=False)[1:-1].encode()
    # Not where it is the middle of another path.
    found = re.compile(rb"(?<![\w/.-])" + re.escape(top))
    text = msgspec.json.encode(noun)
    return msgspec.json.decode(found.sub(b"", text), type=type(noun)) if top in text else noun


def _project_around(directory: Path) -> Path:
    folder, here = Path(os.path.realpath(directory)), Path.cwd()
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111
    tops = (top for top in folder.parents if any((top / name).exists() for name in _OF_PROJECTS))
    return next((top for top in tops if not home.is_relative_to(top)), here)


def find_source(recorded: str, sha256: str, directory: Path) -> Path:
    """The model that a manifest in `directory` names: one of this content that was converted here.

    It is in a directory above, or, if only its name is known, wherever it was. Else it is what
    the nearest directory above has, or the name, if there is none.
    """
    named = [str(top / recorded) for top in directory.absolute().parents]
    noted = [
        *(path for path, each in _hashes.items() if each == sha256),
        read_note(_CONVERTED, sha256),
    ]
    noted = [path for path in noted if Path(path).name == recorded]
    there = [path for path in (*named, *noted) if os.path.lexists(path)]
    converted = (path for path in there if was_converted(path, sha256))
    return Path(next(converted, next(iter(there), recorded)))


def read_note(kind: str, about: str) -> str:
    """What this user's last note of a kind says about something, "" without one."""
    try:
        return _note(kind, about).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def write_note(kind: str, about: str, text: str) -> None:
    """Note something for the user's later processes, where that is possible."""
    note = _note(kind, about)
    with contextlib.suppress(OSError, OutputRefused):
        note.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(text.encode(errors="surrogateescape"), note)


def _note(kind: str, about: str) -> Path:
    return state_directory() / kind / hash_of(about)


# Hashes of files that are read once while they stay as they are.

# The system's clock for files goes in steps of up to a hundredth of a second.
CLOCK_STEP_NS = 20_000_000
# A smaller file is read as fast as its note.
_LEAST_NOTED_BYTES = 2**20
# By the state of the file.
_file_hashes: dict[tuple[int, ...], str] = {}


def sha256_once(path: Path) -> str:
    """The sha256 of a file's bytes, which is computed once while the file does not change.

    That of a large file is noted for the user's next process. A file is unchanged while its
    device, inode, size, mtime and ctime are. No program can choose the ctime, so a change is
    noticed after which a tool has put the mtime back. Changes within one step of the clock look
    alike: the hash of a file that has only just changed is not remembered. Writes past the file
    system, or with the clock set back, are not noticed.
    """
    state = _state(path)
    known = _file_hashes.get(state)
    if known is not None:
        return known
    is_noted = state[2] >= _LEAST_NOTED_BYTES
    place, text = os.path.realpath(path), " ".join(map(str, state))
    if is_noted and (note := read_note("hashed", place)).startswith(f"{text} "):
        return _file_hashes.setdefault(state, note[len(text) + 1 :])
    is_settled = time.time_ns() - max(state[-2:]) > CLOCK_STEP_NS
    known = sha256_file(path)
    if is_settled and _state(path) == state:
        _file_hashes[state] = known
        if is_noted:
            write_note("hashed", place, f"{text} {known}")
    return known


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_size)
    return (*identity, status.st_mtime_ns, status.st_ctime_ns)
