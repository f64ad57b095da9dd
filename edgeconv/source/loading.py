"""From a path to a `SourceModel`, and what is in it, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.errors import InputRefused
from edgeconv.source.kinds import find_model, unreadable
from edgeconv.source.opening import refuse_unknown_classes, resolved
from edgeconv.store.hashes import sha256_once, sha256_tree
from edgeconv.types import Inspection, Opening, SourceModel

if TYPE_CHECKING:
    from edgeconv.source.kinds import LocatedModel
    from edgeconv.types import Signature

# What only a server reads, and may be written later: the model is the same with it.
_NO_PART = ("assets.extra/tf_serving_warmup_requests",)


def identify(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """The model at `path` by name, kind, size and content hash; its signatures are not read.

    Modules of `opening` are found and hashed, and not imported. Raises `InputRefused` for
    anything that is no model by its name and first bytes, or a module that is not there, and
    `UsageError` for an opening that this kind of model does not have, or code that is not allowed.
    """
    return _identified(find_model(path), opening, allow_code=allow_code)


def load(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """The model at `path`: what `identify` gives, and its signatures and notes.

    Raises as `identify`, and `InputRefused` also for a file whose content turns out not to be a
    model.
    """
    return inspect_model(path, opening, allow_code=allow_code, count=False).model


def load_to_run(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """What `load` gives, of a model that TensorFlow is to run.

    Raises as `load`, and `InputRefused` where it is clear already that TensorFlow cannot open it:
    no graph for serving, or classes that Keras does not have.
    """
    inspection = inspect_model(path, opening, allow_code=allow_code, count=False)
    model = inspection.model
    if inspection.unknown_classes and not model.opening.custom_objects:
        refuse_unknown_classes(model.path, inspection.unknown_classes)
    if model.kind == "saved_model" and not model.opening.tags:
        from edgeconv.source.saved_model import refuse_without_graph

        refuse_without_graph(model.path, inspection.tag_sets)
    return model


def inspect_model(
    path: str | Path,
    opening: Opening = Opening(),
    *,
    allow_code: bool = False,
    count: bool = True,
) -> Inspection:
    """All that can be said of the model at `path` without running it.

    Without `count`, the parameters of a .keras file are not counted, which takes a process.
    Raises as `load`.
    """
    found = find_model(path)
    model = _identified(found, opening, allow_code=allow_code)
    if found.kind == "saved_model":
        return _inspect_saved_model(found, model)
    if found.kind == "tflite":
        return _inspect_tflite(found, model)
    return _inspect_keras(found, model, count=count)


def keras_file_signature(path: str | Path) -> Signature | None:
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


def serving_path(model: SourceModel, target: Path) -> str:
    """The path of the model as TensorFlow takes it.

    That is its own; of a SavedModel whose graph for `opening` is not tagged "serve" alone, it is
    `target`, where a copy is written that is. Raises `InputRefused`.
    """
    from edgeconv.source.saved_model import serving_copy

    if model.kind != "saved_model":
        return model.path
    return str(target) if serving_copy(Path(model.path), model.opening.tags, target) else model.path


def refuse_quantized(model: SourceModel) -> None:
    """Raise `InputRefused` for a .tflite that is quantized already.

    Its rounding errors would be quantized once more, and be taken for the float model's.
    """
    from edgeconv.tflite import is_quantized, summarize
    from edgeconv.tflite.precision import likely_recipe

    if model.kind != "tflite":
        return
    content = _content(Path(model.path))
    summary = summarize(content, where=model.path)
    if is_quantized(summary):
        recipe = likely_recipe(content, where=model.path)
        share = summary.quantized_weight_share
        raise InputRefused(
            f"{model.path} is quantized already, as by the recipe {recipe} ({share:.0%} of its "
            "weights have 8 bits or less)",
            hint="convert the float model that it was made from; bench, check and embed take "
            "this file as it is",
        )


def _identified(found: LocatedModel, opening: Opening, *, allow_code: bool) -> SourceModel:
    is_tree = found.kind == "saved_model"
    opening = resolved(opening, found, allow_code=allow_code)
    try:
        return SourceModel(
            path=str(found.path),
            kind=found.kind,
            name=found.name,
            sha256=(
                # A link of a stranger's may lead to all that is on this machine.
                sha256_tree(found.path, without=_NO_PART, follows_out=False, sha256_of=sha256_once)
                if is_tree
                else sha256_once(found.path)
            ),
            size_bytes=_size_bytes(found.path),
            notes=found.notes,
            opening=opening,
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


def _inspect_saved_model(found: LocatedModel, model: SourceModel) -> Inspection:
    from msgspec.structs import replace

    from edgeconv.source.saved_model import read_saved_model

    content = read_saved_model(found.path, model.opening.tags)
    notes = (*model.notes, *content.notes)
    return Inspection(
        model=replace(model, signatures=content.signatures, notes=notes),
        operators=content.operators,
        tag_sets=content.tag_sets,
    )


def _inspect_keras(found: LocatedModel, model: SourceModel, *, count: bool) -> Inspection:
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
        unknown_classes=content.unknown,
    )


def _inspect_tflite(found: LocatedModel, model: SourceModel) -> Inspection:
    from msgspec.structs import replace

    from edgeconv.tflite import oldest_runtime, summarize

    data, where = _content(found.path), str(found.path)
    summary = summarize(data, where=where)
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
