"""From a path to a `SourceModel` and its content, without running it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.errors import InputRefused
from edgeconv.source.kinds import find_model, unreadable
from edgeconv.source.opening import refuse_unknown_classes, resolve_opening
from edgeconv.store.hashes import sha256_once, sha256_tree
from edgeconv.types import Artifact, Inspection, Opening, Recipe, SourceModel, Verification

if TYPE_CHECKING:
    from edgeconv.requests.looking import InspectRequest
    from edgeconv.types import Signature

# Read by servers only, and written later: not a part of the model.
_NO_PART = ("assets.extra/tf_serving_warmup_requests",)
NOT_MADE_HERE = "none: edgeconv did not make this file"


def identify(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """The model at `path` by name, kind, size and content hash; its signatures are not read.

    Modules of `opening` are hashed and not imported. Raises `InputRefused` for what is not a model
    by name and first bytes, or a missing module, and `UsageError` for an opening that does not fit
    this kind of model, or code that is not allowed.
    """
    location = find_model(path)
    opening = resolve_opening(opening, location, allow_code=allow_code)
    try:
        if location.kind == "saved_model":
            # Hostile links may lead to everything on this machine.
            sha256 = sha256_tree(
                location.path, without=_NO_PART, follows_out=False, sha256_of=sha256_once
            )
        else:
            sha256 = sha256_once(location.path)
        return SourceModel(
            path=str(location.path),
            kind=location.kind,
            name=location.name,
            sha256=sha256,
            size_bytes=_size_bytes(location.path),
            notes=location.notes,
            opening=opening,
        )
    except OSError as error:
        raise unreadable(location.path, error) from error


def load(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """The model at `path`, as `identify` returns it, with its signatures and notes.

    Raises as `identify`, and `InputRefused` also for content that is not a model.
    """
    return inspect_model(path, opening, allow_code=allow_code, count=False).model


def load_to_run(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False
) -> SourceModel:
    """The model at `path`, as `load` returns it, for TensorFlow to run.

    Raises as `load`, and `InputRefused` for a model that TensorFlow cannot open: without a graph
    for serving, or with classes that Keras does not have.
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
    """The content of the model at `path`, without running it.

    Counting the parameters of a .keras file takes a process; without `count` it is skipped. Raises
    as `load`.
    """
    model = identify(path, opening, allow_code=allow_code)
    if model.kind == "saved_model":
        return _inspect_saved_model(model)
    if model.kind == "tflite":
        return _inspect_tflite(model)
    return _inspect_keras(model, count=count)


def inspect(request: InspectRequest) -> Inspection:
    """The verb `inspect`: signatures, operators or layers, and weights. Raises `InputRefused`."""
    return inspect_model(request.model, request.opening)


def keras_file_signature(path: str | Path) -> Signature | None:
    """The signature that a Keras file's config declares; None for other models, or without one.

    Raises as `load`, and `InputRefused` for a Sequential model that was never called.
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
    """The path at which TensorFlow loads the model.

    It is `target` for a SavedModel whose graph for `opening` has other tags than "serve" alone: a
    copy with this tag is written there. Raises `InputRefused`.
    """
    from edgeconv.source.saved_model import serving_copy

    if model.kind != "saved_model":
        return model.path
    return str(target) if serving_copy(Path(model.path), model.opening.tags, target) else model.path


def refuse_quantized(model: SourceModel) -> None:
    """Raise `InputRefused` for a quantized .tflite: its errors would be taken for the model's."""
    from edgeconv.tflite import is_quantized, summarize
    from edgeconv.tflite.weights import likely_recipe

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


def artifact_of_file(path: str | Path) -> Artifact:
    """A manifest for the .tflite at `path`, as far as the file itself has the content.

    The recipe is the one that it looks like. `verification` says that it was not compared with a
    float model; `key` is empty. Raises `InputRefused` for what is not a .tflite.
    """
    from edgeconv.tflite.weights import likely_recipe

    inspection = inspect_model(path)
    model = inspection.model
    if model.kind != "tflite":
        raise InputRefused(f"{path} is not a .tflite file", hint="convert it first")
    content = Path(model.path).read_bytes()
    return Artifact(
        name=model.name,
        file=Path(model.path).name,
        key="",
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        source_path=model.path,
        source_kind="tflite",
        source_sha256=model.sha256,
        recipe=Recipe(name=likely_recipe(content, where=model.path)),
        engine="litert",
        signatures=model.signatures,
        operators=inspection.operators,
        quantized_weight_share=inspection.quantized_weight_share or 0.0,
        float16_weight_share=inspection.float16_weight_share or 0.0,
        float_operators=inspection.float_operators or (),
        verification=Verification(
            reference=NOT_MADE_HERE, samples=0, synthetic=False, runtime="", outputs=()
        ),
        oldest_runtime=inspection.oldest_runtime,
    )


def _size_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    counted = (
        file for file in path.rglob("*") if file.relative_to(path).as_posix() not in _NO_PART
    )
    return sum(file.stat().st_size for file in counted if file.is_file())


def _inspect_saved_model(model: SourceModel) -> Inspection:
    from edgeconv.source.saved_model import read_saved_model

    content = read_saved_model(Path(model.path), model.opening.tags)
    notes = (*model.notes, *content.notes)
    return Inspection(
        model=replace(model, signatures=content.signatures, notes=notes),
        operators=content.operators,
        tag_sets=content.tag_sets,
    )


def _inspect_keras(model: SourceModel, *, count: bool) -> Inspection:
    from edgeconv.source.keras_files import read_hdf5, read_keras

    path, is_zip = Path(model.path), model.kind == "keras"
    content = read_keras(path, count=count) if is_zip else read_hdf5(path)
    return Inspection(
        model=replace(model, notes=(*model.notes, *content.notes)),
        operators=content.layers,
        declared=content.signature,
        never_called=content.never_called,
        parameters=content.parameters,
        trainable_parameters=content.trainable_parameters,
        unknown_classes=content.unknown,
    )


def _inspect_tflite(model: SourceModel) -> Inspection:
    from edgeconv.tflite import oldest_runtime, summarize
    from edgeconv.tflite.flatbuffer import has_weights_outside, read
    from edgeconv.tflite.micro import missing_in_micro

    data, where = _content(Path(model.path)), model.path
    summary = summarize(data, where=where)
    outside = ("weights outside of the flatbuffer",) if has_weights_outside(data) else ()
    return Inspection(
        model=replace(model, signatures=summary.signatures),
        operators=summary.operators,
        weight_bytes=summary.weight_bytes,
        quantized_weight_share=summary.quantized_weight_share,
        float16_weight_share=summary.float16_weight_share,
        float_operators=summary.float_operators,
        custom_operators=summary.custom_operators,
        oldest_runtime=oldest_runtime(data, where),
        missing_in_micro=(*outside, *missing_in_micro(read(data, where=where))),
        description=summary.description,
    )


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
