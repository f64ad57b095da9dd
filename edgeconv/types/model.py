"""Models and what is in them."""

from collections.abc import Collection
from importlib import import_module
from typing import Any, Literal

import msgspec

from edgeconv.types.words import listed

# The module with `as_text` and `as_html` for the result of a verb.
_SHOWN = "edgeconv.reporting.shown"
SourceKind = Literal["saved_model", "keras", "hdf5", "tflite"]


class FrozenStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every type: it cannot change, and JSON with an unknown field is refused."""


class Result(FrozenStruct, frozen=True):
    """The base of what verbs return: its text is a table, and in a notebook one of HTML."""

    def __repr__(self) -> str:
        """The result as a person reads it."""
        shown: Any = import_module(_SHOWN)
        text: str = shown.as_text(self)
        return text

    def _repr_html_(self) -> str:
        shown: Any = import_module(_SHOWN)
        html: str = shown.as_html(self)
        return html

    def show(self) -> None:
        """Show the result as a page: in a notebook below the cell, else in the browser."""
        import_module(_SHOWN).show(self)


class TensorSpec(FrozenStruct, kw_only=True, frozen=True):
    """An input or output tensor: its name in the signature, shape and numpy dtype.

    `scale` and `zero_point` are empty for a float tensor, of length 1 for a
    per-tensor and of length C for a per-channel quantized one. Where a SavedModel leaves
    even the number of dimensions open, `rank_known` is false and `shape` is empty. An input that
    `is_scaled` takes numbers such as pixels of 0 to 255, which the graph scales itself.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    rank_known: bool = True
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    is_scaled: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def shape_text(self) -> str:
        """The shape as people read it: "[?, 224, 224, 3]", or "unknown"."""
        if not self.rank_known:
            return "unknown"
        return f"[{listed('?' if size < 0 else size for size in self.shape)}]"


class Signature(FrozenStruct, kw_only=True, frozen=True):
    """A callable entry of a model: its key, and its inputs and outputs by name."""

    key: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def scaled(self) -> frozenset[str]:
        """The inputs that the graph scales itself, by name."""
        return frozenset(spec.name for spec in self.inputs if spec.is_scaled)

    @property
    def has_open_batch(self) -> bool:
        """Whether an input takes any number of samples: the graph then computes shapes."""
        return any(spec.shape[:1] == (-1,) for spec in self.inputs)


def with_scaled(signature: Signature, names: Collection[str]) -> Signature:
    """The signature, in which the inputs of these names are scaled by the graph itself."""
    inputs = (
        msgspec.structs.replace(spec, is_scaled=True) if spec.name in names else spec
        for spec in signature.inputs
    )
    return msgspec.structs.replace(signature, inputs=tuple(inputs))


class Opening(FrozenStruct, kw_only=True, frozen=True):
    """What opening a model file takes that is not in the file itself.

    `tags` choose the graph of a SavedModel, () the one for serving. `custom_objects` are texts
    MODULE or MODULE:NAME: the user's own classes and functions in a Keras file. The other two
    are filled in once they are found: `directory` is where modules are looked for first,
    `code_sha256` the hash of the modules' source files.
    """

    tags: tuple[str, ...] = ()
    custom_objects: tuple[str, ...] = ()
    directory: str = ""
    code_sha256: str = ""


class SourceModel(FrozenStruct, kw_only=True, frozen=True):
    """A model file as the user gave it, before anything ran.

    `path` is absolute; for a versioned parent it is the version directory that
    was chosen. `signatures` is empty for a Keras file, whose signature is only
    known once it is loaded. `opening` says how it is opened.
    """

    path: str
    kind: SourceKind
    name: str
    sha256: str
    size_bytes: int
    signatures: tuple[Signature, ...] = ()
    notes: tuple[str, ...] = ()
    opening: Opening = Opening()


class OperatorCount(FrozenStruct, kw_only=True, frozen=True):
    """How often an operator occurs in a graph, at one version (0 where there are none)."""

    name: str
    version: int
    count: int


class GraphSummary(FrozenStruct, kw_only=True, frozen=True):
    """What a .tflite holds, read without running it.

    `quantized_weight_share` is the fraction of constant-weight bytes, counted as
    the float32 bytes they stand for, that are stored as integers of 8 bits or
    less; `float16_weight_share` likewise for float16. `weight_bytes` counts the same
    weights as stored. `float_operators` are those that compute on float32,
    `custom_operators` those the built-in runtime lacks.
    """

    signatures: tuple[Signature, ...]
    operators: tuple[OperatorCount, ...]
    weight_bytes: int
    quantized_weight_share: float
    float16_weight_share: float
    float_operators: tuple[str, ...] = ()
    custom_operators: tuple[str, ...] = ()
    description: str = ""


class RuntimeNeed(FrozenStruct, kw_only=True, frozen=True):
    """An operator, and the version of it that a runtime must have to run it.

    `declared` is the version in the file, which is lower where a quantizer did not raise it.
    `note` says what is needed in addition to the version.
    """

    operator: str
    version: int
    declared: int
    note: str = ""


class OldestRuntime(FrozenStruct, kw_only=True, frozen=True):
    """The first TensorFlow Lite release that can run a graph, and the operators that set it.

    `unknown` are the operators of which no source says when they came; the release is then
    that of the others, and empty where there are none.
    """

    version: str
    operators: tuple[RuntimeNeed, ...] = ()
    unknown: tuple[RuntimeNeed, ...] = ()


class TargetRuntime(FrozenStruct, kw_only=True, frozen=True):
    """A runtime that a model is to run in. A `version` of "" is the one installed here."""

    name: Literal[
        "arm64", "armv7", "gpu", "litert", "tensorflow", "tflite-micro", "tflite-runtime"
    ] = "litert"
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


class Inspection(Result, kw_only=True, frozen=True):
    """What is in a model file, read without running it.

    `operators` are those of the graph; for a Keras file they are its layers by class. `declared`
    are the inputs and outputs that a Keras file's config names, and its `parameters` are counted
    by the shapes of its weights; each None where the file does not tell. `never_called`: it is a
    Sequential model that has no input yet, and cannot be converted; nor can one with
    `unusable_names` of layers, which TensorFlow does not accept. The rest is known of a
    .tflite only: the fields of `GraphSummary`, the oldest runtime that can run it, and what
    TensorFlow Lite for Microcontrollers has no kernel for; None elsewhere. `unknown_classes` are
    the classes and functions of a Keras file that Keras does not have; `tag_sets` are the tags of
    each graph of a SavedModel.
    """

    model: SourceModel
    operators: tuple[OperatorCount, ...]
    declared: Signature | None = None
    never_called: bool = False
    unusable_names: tuple[str, ...] = ()
    parameters: int | None = None
    weight_bytes: int | None = None
    quantized_weight_share: float | None = None
    float16_weight_share: float | None = None
    float_operators: tuple[str, ...] | None = None
    custom_operators: tuple[str, ...] | None = None
    oldest_runtime: OldestRuntime | None = None
    missing_in_micro: tuple[str, ...] | None = None
    description: str = ""
    unknown_classes: tuple[str, ...] = ()
    tag_sets: tuple[tuple[str, ...], ...] = ()
