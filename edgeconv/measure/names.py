"""One set of names for models that call the same inputs and outputs differently."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.measure.model_files import float_inputs
from edgeconv.model import source
from edgeconv.model.tflite import ensure_signature, summarize
from edgeconv.model.tflite.edit import with_names
from edgeconv.model.tflite.names import match_names
from edgeconv.runtimes.interface import Model
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.measure.model_files import ModelFile
    from edgeconv.types import Signature, SourceModel, TensorSpec


class CommonNames:
    """The names that the samples' arrays and all outputs go by.

    Those of the trained model, where they can be read, else of the first artifact, else of the
    first file. `inputs` are what samples are given for: a size that one file leaves open and
    another fixes is fixed. `key` is the trained model's signature key; `notes` say which files
    are run under other names than their own.
    """

    def __init__(self, model_files: Sequence[ModelFile], trained: SourceModel | None) -> None:
        """Raises `InputRefused` where two files take different inputs.

        `UsageError` where the trained model has several signatures, and none of the files' key.
        """
        published = (file.signature for file in model_files if file.artifact)
        first = _signed(model_files[0].file, model_files[0].signature)
        compared = _trained_signature(trained, first.key) if trained else None
        self.key = compared.key if compared else first.key
        self._common = compared or next(published, first)
        self.inputs = _renamed(first, self._common)
        self.notes: dict[str, None] = {}
        before: list[tuple[str, tuple[TensorSpec, ...]]] = []
        for model_file in model_files:
            own = _renamed(_signed(model_file.file, model_file.signature), self._common)
            for earlier, theirs in before:
                if _agreed(own, theirs) is None:
                    raise InputRefused(
                        f"{model_file.file.name} has other inputs than {earlier}: "
                        f"{_listed(own)} and {_listed(theirs)}",
                        hint="measure models with different inputs in separate runs",
                    )
            before.append((model_file.file.name, own))
            self.inputs = _agreed(self.inputs, own) or self.inputs

    def trained(self, model: SourceModel, batch: int, scratch: Path) -> Model:
        """A trained model that is a .tflite, to be run; see `model`."""
        signature = source.chosen_signature(model, self.key if model.signatures[0].key else None)
        return self.model(Path(model.path), signature, batch, scratch)

    def model(self, file: Path, signature: Signature, batch: int, scratch: Path) -> Model:
        """The file to be run: itself, or a copy in `scratch` that differs in its names only."""
        own = _signed(file, signature)
        inputs = _matched(own.inputs, self._common.inputs)
        outputs = _matched(own.outputs, self._common.outputs)
        own_names = [spec.name for spec in (*signature.inputs, *signature.outputs)]
        common_names = [*inputs.values(), *outputs.values()]
        if own_names == common_names:
            return Model(file=file, signature=signature.key or None, batch=batch)
        copy = Path(tempfile.mkdtemp(prefix="named-", dir=scratch)) / file.name
        copy.write_bytes(with_names(file.read_bytes(), own.key, inputs, outputs))
        pairs = zip(own_names, common_names, strict=True)
        changed = ", ".join(f"{was!r} as {name!r}" for was, name in pairs if was != name)
        note = f"{file.name} is measured under other names for its inputs and outputs: {changed}"
        self.notes[note] = None
        return Model(file=copy, signature=own.key, batch=batch)


def _matched(own: Sequence[TensorSpec], common: Sequence[TensorSpec]) -> dict[str, str]:
    """The name of each, in order: the same tensor's name in `common`, else its own."""
    matches = match_names(own, common) or {}
    return {spec.name: matches.get(spec.name, spec.name) for spec in own}


def _trained_signature(trained: SourceModel, key: str) -> Signature | None:
    """The signature of this key, else the only one; None for a Keras file, which has none."""
    if not trained.signatures:
        return None
    has_key = any(signature.key == key for signature in trained.signatures)
    signature = source.chosen_signature(trained, key if has_key else None)
    return _signed(Path(trained.path), signature) if trained.kind == "tflite" else signature


def _signed(file: Path, signature: Signature) -> Signature:
    """The signature; of a file without any, the one that it would get."""
    if signature.key:
        return signature
    return summarize(ensure_signature(file.read_bytes()), where=str(file)).signatures[0]


def _renamed(own: Signature, common: Signature) -> tuple[TensorSpec, ...]:
    """The inputs in the form of their samples, by the common names."""
    names = _matched(own.inputs, common.inputs)
    return tuple(msgspec.structs.replace(spec, name=names[spec.name]) for spec in float_inputs(own))


def _agreed(
    inputs: Sequence[TensorSpec], other: Sequence[TensorSpec]
) -> tuple[TensorSpec, ...] | None:
    """The inputs that suit both, with the sizes that either fixes; None if they differ."""
    others = {spec.name: spec for spec in other}
    if {spec.name for spec in inputs} != set(others):
        return None
    agreed = [_fixed(spec, others[spec.name]) for spec in inputs]
    return None if None in agreed else tuple(filter(None, agreed))


def _fixed(spec: TensorSpec, other: TensorSpec) -> TensorSpec | None:
    """`spec` with the sizes that `other` fixes; None if its type or a size of it differs."""
    if spec.dtype != other.dtype or len(spec.shape) != len(other.shape):
        return None
    sizes = tuple(zip(spec.shape, other.shape, strict=True))
    if any(own != theirs and min(own, theirs) >= 0 for own, theirs in sizes):
        return None
    return msgspec.structs.replace(spec, shape=tuple(max(pair) for pair in sizes))


def _listed(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name!r} {spec.dtype} {spec.shape_text}" for spec in inputs)
