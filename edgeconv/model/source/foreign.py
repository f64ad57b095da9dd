"""Models of other kinds, known by their names, and how to convert them.

They are not read: a file's suffix tells, or how it begins where the suffix tells nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


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
    "a TensorFlow Decision Forests model",
    _FOREST.format("ydf.from_tensorflow_decision_forests"),
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
