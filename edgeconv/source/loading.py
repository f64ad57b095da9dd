"""From a path to a `SourceModel`, and what is in it, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused
from edgeconv.nouns import Inspection, SourceModel
from edgeconv.source.kinds import find_model, unreadable
from edgeconv.store.hashes import sha256_file, sha256_tree

if TYPE_CHECKING:
    from edgeconv.nouns import Signature
    from edgeconv.source.kinds import Found

# What only a server reads, and may be written later: the model is the same with it.
_NO_PART = ("assets.extra/tf_serving_warmup_requests",)


def identify(path: str | Path) -> SourceModel:
    """The model at `path` by name, kind, size and content hash; its signatures are not read.

    Raises `InputRefused` for anything that is no model by its name and first bytes.
    """
    return _identified(find_model(path))


def load(path: str | Path) -> SourceModel:
    """The model at `path`: what `identify` gives, and its signatures and notes.

    Raises `InputRefused` also for a file whose content turns out not to be a model.
    """
    return inspect_model(path, count=False).model


def inspect_model(path: str | Path, *, count: bool = True) -> Inspection:
    """All that can be said of the model at `path` without running it.

    Without `count`, the parameters of a .keras file are not counted, which takes a process.
    Raises `InputRefused`, see `load`.
    """
    found = find_model(path)
    model = _identified(found)
    if found.kind == "saved_model":
        return _inspect_saved_model(found, model)
    if found.kind == "tflite":
        return _inspect_tflite(found, model)
    return _inspect_keras(found, model, count=count)


def declared(path: str | Path) -> Signature | None:
    """The signature that a Keras file's config declares; None where it does not tell, or elsewhere.

    Raises `InputRefused` as `load` does, and for a Sequential model that was never called.
    """
    inspection = inspect_model(path, count=False)
    if inspection.never_called:
        raise InputRefused(
            f"{inspection.model.path}: the model has never been called, so its input shape is not "
            "known",
            hint="call it on a batch before saving, or export a SavedModel with a signature",
        )
    return inspection.declared


def refuse_quantized(model: SourceModel) -> None:
    """Raise `InputRefused` for a .tflite that is quantised already.

    Its rounding errors would be quantised once more, and be taken for the float model's.
    """
    from edgeconv.tflite import is_quantized, summarise
    from edgeconv.tflite.precision import looks_like

    if model.kind != "tflite":
        return
    content = _content(Path(model.path))
    summary = summarise(content, where=model.path)
    if is_quantized(summary):
        recipe = looks_like(content, where=model.path)
        share = summary.quantized_weight_share
        raise InputRefused(
            f"{model.path} is quantized already, as by the recipe {recipe} ({share:.0%} of its "
            "weights have 8 bits or less)",
            hint="convert the float model that it was made from; bench, check and embed take "
            "this file as it is",
        )


def _identified(found: Found) -> SourceModel:
    is_tree = found.kind == "saved_model"
    try:
        return SourceModel(
            path=str(found.path),
            kind=found.kind,
            name=found.name,
            sha256=(
                sha256_tree(found.path, without=_NO_PART) if is_tree else sha256_file(found.path)
            ),
            size_bytes=_size_bytes(found.path),
            notes=found.notes,
        )
    except OSError as error:
        raise unreadable(found.path, error) from error


def _size_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    counted = (
        file for file in path.rglob("*") if file.relative_to(path).as_posix() not in _NO_PART
    )
    return sum(file.stat().st_size for file in counted if file.is_file())


def _inspect_saved_model(found: Found, model: SourceModel) -> Inspection:
    from msgspec.structs import replace

    from edgeconv.source.saved_model import read_saved_model

    content = read_saved_model(found.path)
    notes = (*model.notes, *content.notes)
    return Inspection(
        model=replace(model, signatures=content.signatures, notes=notes),
        operators=content.operators,
    )


def _inspect_keras(found: Found, model: SourceModel, *, count: bool) -> Inspection:
    from msgspec.structs import replace

    from edgeconv.source.keras_files import read_hdf5, read_keras

    is_zip = found.kind == "keras"
    content = read_keras(found.path, count=count) if is_zip else read_hdf5(found.path)
    return Inspection(
        model=replace(model, notes=(*model.notes, *content.notes)),
        operators=content.layers,
        declared=content.signature,
        never_called=content.never_called,
        parameters=content.parameters,
        trainable_parameters=content.trainable_parameters,
    )


def _inspect_tflite(found: Found, model: SourceModel) -> Inspection:
    from msgspec.structs import replace

    from edgeconv.tflite import oldest_runtime, summarise

    data, where = _content(found.path), str(found.path)
    summary = summarise(data, where=where)
    return Inspection(
        model=replace(model, signatures=summary.signatures),
        operators=summary.operators,
        weight_bytes=summary.weight_bytes,
        quantized_weight_share=summary.quantized_weight_share,
        float16_weight_share=summary.float16_weight_share,
        float_operators=summary.float_operators,
        custom_operators=summary.custom_operators,
        oldest_runtime=oldest_runtime(data, where),
        description=summary.description,
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
