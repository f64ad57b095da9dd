"""The kind of model at a path, from names and first bytes, and how to convert other kinds."""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from edgeconv.system.processes.failures import machine_error
from edgeconv.system.store.files import absent, refuse_pointer, refuse_pointers_in
from edgeconv.types import SourceKind
from edgeconv.types.errors import InputRefused


class Foreign(NamedTuple):
    """A kind of model that edgeconv does not convert: what it is, and what to do."""

    what: str
    hint: str


_TORCH_HINT = (
    "build the network in Python, load its weights, and convert it to a float .tflite "
    "(pip install litert-torch): litert_torch.convert(network.eval(), (sample,))"
    ".export('model.tflite'); give edgeconv that"
)
_TO_EXPORT = (
    "export it as a SavedModel, with the names of its inputs and outputs; docs/models.md has the "
    "lines to do it"
)
_MADE_FROM = "it is not converted back; give the model that it was made from"
_CHECKPOINT = Foreign(
    "a TensorFlow checkpoint, which has weights and no network",
    "build the network in Python, load the checkpoint into it (model.load_weights('PREFIX')), "
    "and save it whole: model.save('NAME.keras'); where there is a .meta file too, docs/models.md "
    "has the lines to export it",
)
_FOREST = (
    "TFLite has no operators for forests; export it as C++: pip install ydf, {}('DIR')"
    ".to_standalone_cc(); or train a network"
)
_PICKLE = Foreign(
    "a pickled Python object",
    "pickles are never loaded, because they run code; save the model whole: "
    "model.save('NAME.keras'), or by litert_torch in PyTorch; a scikit-learn model cannot become a "
    ".tflite file",
)
_ARCHIVE = Foreign("an archive", "unpack it, and give the model in it")
FOREST_SAVED_MODEL = Foreign(
    "a TensorFlow Decision Forests model", _FOREST.format("ydf.from_tensorflow_decision_forests")
)
_TEXT = Foreign(
    "text, which has no weights",
    "of a Keras model, build it, load its weights, and save it whole: model = "
    "keras.models.model_from_json(open('model.json').read()), "
    "model.load_weights('WEIGHTS.h5'), model.save('NAME.keras'); of TensorFlow.js, see "
    "docs/models.md",
)
# The most telling of a directory's files first.
_BY_SUFFIX: tuple[tuple[tuple[str, ...], Foreign], ...] = (
    (("saved_model.pbtxt",), Foreign("a SavedModel in text form", "save it without as_text")),
    ((".pb", ".pbtxt"), Foreign("a TensorFlow graph, which has no signature", _TO_EXPORT)),
    ((".meta",), Foreign("the graph of a TensorFlow 1 checkpoint (MetaGraph)", _TO_EXPORT)),
    (
        (".onnx",),
        Foreign(
            "an ONNX model",
            "convert it to a SavedModel: pip install onnx2tf, onnx2tf -i MODEL.onnx -o DIR -osd; "
            "then give edgeconv DIR. -osd adds the signature",
        ),
    ),
    ((".pt", ".pth", ".pt2", ".pte"), Foreign("a model of PyTorch", _TORCH_HINT)),
    (
        (".safetensors",),
        Foreign(
            "a safetensors file, which has weights and no network",
            "build the network in Python, load the weights into it, and save it whole: "
            "model.save('NAME.keras') in Keras, or by litert_torch in PyTorch",
        ),
    ),
    ((".ckpt", ".index", "-of-00001", "checkpoint"), _CHECKPOINT),
    ((".mlmodel", ".mlpackage"), Foreign("a Core ML model", _MADE_FROM)),
    (
        (".engine", ".plan", ".trt"),
        Foreign("a TensorRT engine, which is compiled for one GPU", _MADE_FROM),
    ),
    (
        (".task",),
        Foreign(
            "a MediaPipe task bundle (a zip archive of .tflite files)",
            "unzip it, and give one of the .tflite files in it",
        ),
    ),
    ((".litertlm", ".gguf"), Foreign("a language model for a device", _MADE_FROM)),
    ((".pkl", ".pickle", ".joblib"), _PICKLE),
    (("model.json",), _TEXT),
)
# These tell of a file. In a directory they may be anything beside a model.
_FILE_BY_SUFFIX: tuple[tuple[tuple[str, ...], Foreign], ...] = (
    (
        (".npz", ".npy"),
        Foreign(
            "arrays of numpy",
            "weights alone are not a model: set them in the network that they belong to "
            "(model.set_weights(...)), and save it whole: model.save('NAME.keras')",
        ),
    ),
    ((".json", ".yaml"), _TEXT),
    ((".zip", ".tar", ".tgz", ".tar.gz"), _ARCHIVE),
)
_BY_BEGINNING = ((b"PK\x03\x04", _ARCHIVE), (b"\x80", _PICKLE))
_BY_MEMBERS = (
    (
        {"tfhub_module.pb"},
        Foreign("a TensorFlow 1 Hub module, which is not tagged for serving", _TO_EXPORT),
    ),
    ({"header.pb", "data_spec.pb"}, Foreign("a decision forest", _FOREST.format("ydf.load_model"))),
    (
        {"config.json", "metadata.json", "model.weights.h5"},
        Foreign(
            "an unzipped .keras file",
            "zip its files without compression: cd DIR, zip -r -0 ../NAME.keras .",
        ),
    ),
)


def foreign_file(path: Path, head: bytes) -> Foreign | None:
    """Which other kind of model a file is that begins with `head`; None if unknown."""
    name = path.name.lower()
    for suffixes, kind in (*_BY_SUFFIX, *_FILE_BY_SUFFIX):
        if name.endswith(suffixes):
            return kind
    return next((kind for beginning, kind in _BY_BEGINNING if head.startswith(beginning)), None)


def foreign_directory(path: Path) -> tuple[Path, Foreign] | None:
    """Which other kind of model a directory holds, and in which file or directory.

    None if unknown. Raises `OSError`.
    """
    names = sorted(entry.name for entry in path.iterdir())
    for members, kind in _BY_MEMBERS:
        if members <= set(names):
            return path, kind
    if "saved_model.pb" in names:
        return None
    for suffixes, kind in _BY_SUFFIX:
        for name in names:
            if name.lower().endswith(suffixes):
                return path / name, kind
    return None


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
_HEAD_BYTES = 8


class LocatedModel(NamedTuple):
    """A model's absolute path, its kind, its name, and notes."""

    path: Path
    kind: SourceKind
    name: str
    notes: tuple[str, ...] = ()


def find_model(path: str | Path) -> LocatedModel:
    """The model at `path`, by names and first bytes; of numbered versions, the highest.

    Raises `InputRefused` if there is no model, with what is there instead.
    """
    absolute = _absolute(Path(path))
    try:
        mode = absolute.stat().st_mode
        if stat.S_ISDIR(mode):
            return _in_directory(absolute)
        if stat.S_ISREG(mode):
            return _file(absolute)
    except FileNotFoundError:
        raise absent(absolute, f"give {KINDS}") from None
    except (OSError, ValueError) as error:
        raise unreadable(absolute, error) from error
    raise InputRefused(f"{absolute} is neither a file nor a directory", hint=f"give {KINDS}")


def unreadable(path: Path, error: OSError | ValueError) -> InputRefused:
    """The refusal of a path that cannot be opened or read, or what the machine refused then."""
    if refused := machine_error(error, f"reading {path}"):
        return refused
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return InputRefused(
        f"{path} cannot be read: {reason}", hint="check the path and its permissions"
    )


def _absolute(path: Path) -> Path:
    # Only the system resolves ".." after a symbolic link; other links keep the user's name.
    return Path(os.path.realpath(path)) if ".." in path.parts else path.absolute()


def _in_directory(path: Path) -> LocatedModel:
    if (path / "saved_model.pb").is_file():
        _refuse_others(path)
        return LocatedModel(path, "saved_model", _name(path, path.name))
    versions = _versions(path)
    if versions:
        chosen = max(versions, key=lambda version: (int(version.name), version.name))
        numbers = ", ".join(str(int(version.name)) for version in versions)
        notes = (f"version {int(chosen.name)} of {numbers}",) if len(versions) > 1 else ()
        _refuse_others(chosen)
        return LocatedModel(chosen, "saved_model", _sanitized(path.name), notes)
    raise _no_model_in(path)


def _refuse_others(saved_model: Path) -> None:
    refuse_pointers_in(saved_model)
    if other := foreign_directory(saved_model):
        raise _foreign(*other)


def _versions(path: Path) -> list[Path]:
    numbered = [child for child in path.iterdir() if re.fullmatch(r"[0-9]+", child.name)]
    versions = [child for child in numbered if (child / "saved_model.pb").is_file()]
    return sorted(versions, key=lambda version: (int(version.name), version.name))


def _name(path: Path, own: str) -> str:
    """A model's name: its own, or the parent directory's for a numbered version."""
    is_version = re.fullmatch(r"[0-9]+", own) is not None
    return _sanitized(path.parent.name if is_version and path.parent.name else own)


def _sanitized(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "model"


def _no_model_in(path: Path) -> InputRefused:
    entries = sorted(path.iterdir())
    if not entries:
        return InputRefused(f"{path} is an empty directory", hint=f"give {KINDS}")
    inside = [*entries, *(e for d in entries if d.is_dir() for e in sorted(d.iterdir()))]
    inner = [e for e in inside if (e / "saved_model.pb").is_file()]
    models = inner + [e for e in inside if _is_named_as_model(e.name)]
    if models:
        hint = f"give the model in it: {models[0]}"
        return InputRefused(f"{path} holds no model: it has no saved_model.pb", hint=hint)
    for directory in (path, *(entry for entry in entries if entry.is_dir())):
        if other := foreign_directory(directory):
            return _foreign(*other)
    return InputRefused(f"{path} holds no model: it has no saved_model.pb", hint=f"give {KINDS}")


def _is_named_as_model(name: str) -> bool:
    return name.lower().endswith(tuple(_KIND_BY_SUFFIX)) and not name.endswith(".weights.h5")


def _file(path: Path) -> LocatedModel:
    refuse_pointer(path)
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise InputRefused(f"{path} is empty (0 bytes)", hint="copy or save the model again")
    named, content = _KIND_BY_SUFFIX.get(path.suffix.lower()), _content_kind(head)
    above = [parent for parent in path.parents[:2] if (parent / "saved_model.pb").is_file()]
    if above and named is None:
        raise InputRefused(
            f"{path} is a part of a SavedModel", hint=f"give its directory: {above[0]}"
        )
    if named is None:
        # A zip archive may be of any kind.
        if content in ("keras", None) and (other := foreign_file(path, head)):
            raise _foreign(path, other)
        raise InputRefused(
            f"{path} is not a kind of model that edgeconv converts",
            hint=_rename(content) or f"give {KINDS}",
        )
    if named != content:
        raise InputRefused(
            f"{path} is named {path.suffix}, but its content is {_WHAT[content]}",
            hint=_rename(content) or "it may be truncated or garbled: copy or save it again",
        )
    return LocatedModel(path, named, _name(path, path.stem))


def _content_kind(head: bytes) -> SourceKind | None:
    if head.startswith(b"PK\x03\x04"):
        return "keras"
    if head == b"\x89HDF\r\n\x1a\n":
        return "hdf5"
    return "tflite" if head[4:8] == b"TFL3" else None


def _foreign(path: Path, other: Foreign) -> InputRefused:
    return InputRefused(f"{path} is {other.what}", hint=other.hint)


def _rename(content: SourceKind | None) -> str:
    return f"rename it to end in {_SUFFIX_BY_KIND[content]}" if content in _SUFFIX_BY_KIND else ""
