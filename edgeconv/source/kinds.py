"""Which kind of model a path holds, found without reading more than its first bytes."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.nouns import SourceKind

KINDS = "a SavedModel directory, a .keras, .h5 or .hdf5 file, or a float .tflite file"

_KIND_BY_SUFFIX: dict[str, SourceKind] = {
    ".keras": "keras",
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".tflite": "tflite",
}
_SUFFIX_BY_KIND: dict[SourceKind, str] = {"keras": ".keras", "hdf5": ".h5", "tflite": ".tflite"}
_WHAT: dict[SourceKind | None, str] = {
    "keras": "a zip archive, as .keras files are",
    "hdf5": "an HDF5 file",
    "tflite": "a .tflite file",
    None: "nothing that edgeconv knows",
}
_SAVE_AS_SAVED_MODEL = "export the model as a SavedModel where it was trained, and give that"
_HINT_BY_FOREIGN_SUFFIX = {
    ".pb": "a frozen graph has no signature; export a SavedModel, and give its directory",
    ".pbtxt": "text graphs are not read; export a SavedModel, and give its directory",
    ".onnx": "convert it to a SavedModel first, for instance with onnx2tf",
    ".pt": "convert the PyTorch model with ai-edge-torch; edgeconv takes the float .tflite",
    ".pth": "convert the PyTorch model with ai-edge-torch; edgeconv takes the float .tflite",
    ".ckpt": _SAVE_AS_SAVED_MODEL,
    ".index": _SAVE_AS_SAVED_MODEL,
    ".meta": _SAVE_AS_SAVED_MODEL,
    ".safetensors": _SAVE_AS_SAVED_MODEL,
}
_HEAD_BYTES = 8


class Found(NamedTuple):
    """A model's absolute path, its kind, its name, and what is worth saying of the choice."""

    path: Path
    kind: SourceKind
    name: str
    notes: tuple[str, ...] = ()


def find_model(path: str | Path) -> Found:
    """The model at `path`, as far as names and first bytes tell.

    A directory of numbered versions stands for its highest. Raises `InputRefused` where
    there is no model, and says what is there instead.
    """
    absolute = _absolute(Path(path))
    try:
        mode = absolute.stat().st_mode
        if stat.S_ISDIR(mode):
            return _in_directory(absolute)
        if stat.S_ISREG(mode):
            return _file(absolute)
    except FileNotFoundError:
        what = "is a symbolic link to nothing" if absolute.is_symlink() else "does not exist"
        raise InputRefused(f"{absolute} {what}", hint=f"give {KINDS}") from None
    except (OSError, ValueError) as error:
        raise unreadable(absolute, error) from error
    raise InputRefused(f"{absolute} is neither a file nor a directory", hint=f"give {KINDS}")


def unreadable(path: Path, error: OSError | ValueError) -> InputRefused:
    """The refusal of a path that the system would not open or read."""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputRefused(
        f"{path} cannot be read: {reason}", hint="check the path and its permissions"
    )


def _absolute(path: Path) -> Path:
    # Only the system can say where ".." leads to past a symbolic link; other links keep
    # the name that the user gave them.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def _in_directory(path: Path) -> Found:
    if (path / "saved_model.pb").is_file():
        return Found(path, "saved_model", _name(path, path.name))
    versions = _versions(path)
    if versions:
        chosen = max(versions, key=lambda version: (int(version.name), version.name))
        numbers = ", ".join(str(int(version.name)) for version in versions)
        notes = (f"version {int(chosen.name)} of {numbers}",) if len(versions) > 1 else ()
        return Found(chosen, "saved_model", _sanitised(path.name), notes)
    raise _no_model_in(path)


def _versions(path: Path) -> list[Path]:
    numbered = [child for child in path.iterdir() if re.fullmatch(r"[0-9]+", child.name)]
    versions = [child for child in numbered if (child / "saved_model.pb").is_file()]
    return sorted(versions, key=lambda version: (int(version.name), version.name))


def _name(path: Path, own: str) -> str:
    """A model's name: its own, or that of the directory that has it as a numbered version."""
    is_version = re.fullmatch(r"[0-9]+", own) is not None
    return _sanitised(path.parent.name if is_version and path.parent.name else own)


def _sanitised(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "model"


def _no_model_in(path: Path) -> InputRefused:
    entries = sorted(path.iterdir())
    if not entries:
        return InputRefused(f"{path} is an empty directory", hint=f"give {KINDS}")
    inside = [*entries, *(e for d in entries if d.is_dir() for e in sorted(d.iterdir()))]
    if any(entry.name == "saved_model.pbtxt" for entry in inside):
        return InputRefused(
            f"{path} holds a SavedModel in text form (saved_model.pbtxt)",
            hint="save it again without as_text, so that it has a saved_model.pb",
        )
    models = [entry for entry in inside if entry.suffix.lower() in _KIND_BY_SUFFIX]
    if models:
        hint = f"give the model in it: {models[0]}"
    elif any(entry.suffix == ".index" or entry.name == "checkpoint" for entry in inside):
        hint = f"it looks like a checkpoint; {_SAVE_AS_SAVED_MODEL}"
    else:
        hint = f"give {KINDS}"
    return InputRefused(f"{path} holds no model: it has no saved_model.pb", hint=hint)


def _file(path: Path) -> Found:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    named, content = _KIND_BY_SUFFIX.get(path.suffix.lower()), _content_kind(head)
    if named is None:
        raise _foreign(path, content)
    if not head:
        raise InputRefused(f"{path} is empty (0 bytes)", hint="copy or save the model again")
    if named != content:
        raise InputRefused(
            f"{path} is named {path.suffix}, and its content is {_WHAT[content]}",
            hint=_rename(content) or "it may be truncated or garbled: copy or save it again",
        )
    return Found(path, named, _name(path, path.stem))


def _content_kind(head: bytes) -> SourceKind | None:
    if head.startswith(b"PK\x03\x04"):
        return "keras"
    if head == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    return "tflite" if head[4:8] == b"TFL3" else None


def _foreign(path: Path, content: SourceKind | None) -> InputRefused:
    if path.name == "saved_model.pb":
        hint = f"give the directory it is in: {path.parent}"
    else:
        known = _HINT_BY_FOREIGN_SUFFIX.get(path.suffix.lower())
        # Any kind of file may be a zip archive, so that alone makes no Keras model.
        likely = "" if content == "keras" else _rename(content)
        hint = known or likely or f"give {KINDS}"
    return InputRefused(f"{path} is not a kind of model that edgeconv takes", hint=hint)


def _rename(content: SourceKind | None) -> str:
    return f"rename it to end in {_SUFFIX_BY_KIND[content]}" if content in _SUFFIX_BY_KIND else ""
