"""From a path to a `SourceModel` and its content, without running it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.model.source.kinds import LocatedModel, find_model, unreadable
from edgeconv.system.store.files import sha256_tree
from edgeconv.system.store.notes import sha256_once
from edgeconv.types import (
    Artifact,
    Inspection,
    Opening,
    Recipe,
    Signature,
    SourceModel,
    TensorSpec,
    Verification,
)
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from edgeconv.requests.looking import InspectRequest


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
        from edgeconv.model.source.saved_model import refuse_without_graph

        refuse_without_graph(model.path, inspection.tag_sets)
    return model


def inspect_model(
    path: str | Path, opening: Opening = Opening(), *, allow_code: bool = False, count: bool = True
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

    Raises as `load`, and `InputRefused` for a Sequential model that was never called, and for names
    of layers that TensorFlow does not accept.
    """
    inspection = inspect_model(path, count=False)
    if inspection.never_called:
        raise InputRefused(
            f"{inspection.model.path}: the model has never been called, so its input shape is not "
            "known",
            hint="call it on a batch before saving, or export a SavedModel with a signature",
        )
    if inspection.unusable_names:
        from edgeconv.model.source.keras_names import unusable_names

        raise unusable_names(inspection.model.path, inspection.unusable_names)
    return inspection.declared


def serving_path(model: SourceModel, target: Path) -> str:
    """The path at which TensorFlow loads the model.

    It is `target` for a SavedModel whose graph for `opening` has other tags than "serve" alone: a
    copy with this tag is written there. Raises `InputRefused`.
    """
    from edgeconv.model.source.saved_model import serving_copy

    if model.kind != "saved_model":
        return model.path
    return str(target) if serving_copy(Path(model.path), model.opening.tags, target) else model.path


def refuse_quantized(model: SourceModel) -> None:
    """Raise `InputRefused` for a quantized .tflite: its errors would be taken for the model's."""
    if model.kind != "tflite":
        return
    from edgeconv.model.tflite import is_quantized, summarize
    from edgeconv.model.tflite.operators import likely_recipe

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
    from edgeconv.model.tflite.operators import likely_recipe

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
        source_path=Path(model.path).name,
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
    from edgeconv.model.source.saved_model import read_saved_model

    content = read_saved_model(Path(model.path), model.opening.tags)
    notes = (*model.notes, *content.notes)
    return Inspection(
        model=replace(model, signatures=content.signatures, notes=notes),
        operators=content.operators,
        tag_sets=content.tag_sets,
    )


def _inspect_keras(model: SourceModel, *, count: bool) -> Inspection:
    from edgeconv.model.source.keras_files import read_hdf5, read_keras

    path, is_zip = Path(model.path), model.kind == "keras"
    content = read_keras(path, count=count) if is_zip else read_hdf5(path)
    return Inspection(
        model=replace(model, notes=(*model.notes, *content.notes)),
        operators=content.layers,
        declared=content.signature,
        never_called=content.never_called,
        unusable_names=content.unusable_names,
        parameters=content.parameters,
        unknown_classes=content.unknown,
    )


def _inspect_tflite(model: SourceModel) -> Inspection:
    from edgeconv.model.tflite import oldest_runtime, summarize
    from edgeconv.model.tflite.arena import missing_in_micro
    from edgeconv.model.tflite.flatbuffer import has_weights_outside, read

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


# The settings for opening a model, checked before TensorFlow starts.

# tf_keras writes it into a SavedModel, and builds the layers from it.
_KERAS_METADATA = "keras_metadata.pb"


def resolve_opening(opening: Opening, location: LocatedModel, *, allow_code: bool) -> Opening:
    """The opening with the hash of the user's modules, which are not imported.

    Raises `UsageError` for settings that do not fit this kind of model, or code that is not
    allowed, and `InputRefused` for a missing module.
    """
    if opening.tags and location.kind != "saved_model":
        raise UsageError(
            f"--tag {','.join(opening.tags)}: {location.path} is not a SavedModel",
            hint="remove --tag",
        )
    if not opening.custom_objects:
        return opening
    has_layers = location.kind in ("keras", "hdf5") or (location.path / _KERAS_METADATA).is_file()
    named = ", ".join(opening.custom_objects)
    if not has_layers:
        raise UsageError(
            f"--custom-objects {named}: {location.path} has no Keras layers, only their graph",
            hint="remove --custom-objects",
        )
    if not allow_code:
        raise UsageError(
            f"--custom-objects {named} runs code, and was not given on the command line",
            hint="check what it runs, and allow it: allow_code=True",
        )
    from edgeconv.data.code import custom_hash, find_custom

    directory = opening.directory or str(Path.cwd())
    modules = [find_custom(text, directory) for text in opening.custom_objects]
    return replace(opening, directory=directory, code_sha256=custom_hash(modules))


def code_files(opening: Opening) -> tuple[Path, ...]:
    """The user's own modules and what they import beside them: files, and whole packages."""
    from edgeconv.data.code import readable_code

    named = opening.custom_objects
    files = (path for text in named for path in readable_code(text, opening.directory))
    return tuple(dict.fromkeys(files))


def opening_key(model: SourceModel) -> tuple[object, ...]:
    """The part of a cache key that depends on the opening, without paths."""
    return (sorted(model.opening.tags), model.opening.code_sha256)


def refuse_unknown_classes(path: str, names: Sequence[str]) -> None:
    """Raise `InputRefused`: a Keras file has classes or functions that Keras does not have."""
    raise InputRefused(
        f"{path} has {', '.join(map(repr, names))}, which only the code that made the model knows",
        hint="give the module that has it with --custom-objects MODULE, or export the model as a "
        "SavedModel where that code is, and convert that: it holds what a layer computes",
    )


# Choosing the signature of a model to convert or run.

# Keras exports a model's one endpoint under two keys.
_KERAS_KEYS = frozenset({"serve", SERVING_DEFAULT})
# The ranges of the integers to which inputs and outputs are quantized.
_LIMITS = {"int8": range(-(2**7), 2**7), "uint8": range(2**8), "int16": range(-(2**15), 2**15)}
_MOST_FUNCTIONS = 10
_EXPORT_AGAIN = "export the model again; no converter writes such a file"


def chosen_signature(model: SourceModel, key: str | None) -> Signature:
    """The signature `key` of a SavedModel or .tflite; for None, the only one.

    The twins "serve" and "serving_default" that Keras exports, with equal inputs and outputs,
    count as one. Raises `UsageError` for an unknown key, or None with several signatures, and
    `InputRefused` without any, for inputs of unknown rank, or as `refuse_unusable`.
    """
    signature = _by_key(model, key)
    refuse_unusable(model.path, signature)
    for tensor in signature.inputs:
        if tensor.rank_known and not tensor.shape:
            raise InputRefused(
                f"{model.path}: input {tensor.name!r} of signature {signature.key!r} is a single "
                "number, which has no dimension for the samples",
                hint="export a signature in which it is fixed, or has one value for each sample",
            )
        if not tensor.rank_known:
            raise InputRefused(
                f"{model.path}: input {tensor.name!r} of signature {signature.key!r} "
                "leaves its number of dimensions open",
                hint="export the model with an input_signature that gives its shape",
            )
    return signature


def refuse_unusable(where: str, signature: Signature) -> None:
    """Raise `InputRefused` for a signature that cannot be run on samples."""
    name = f"signature {signature.key!r}" if signature.key else "its first graph"
    names = [tensor.name for tensor in signature.inputs]
    if len(set(names)) < len(names):
        raise InputRefused(f"{where}: two inputs of {name} have the same name", hint=_EXPORT_AGAIN)
    for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        if not tensors:
            raise InputRefused(
                f"{where}: {name} has no {side}s", hint="export a signature that has both"
            )
        for tensor in tensors:
            if problem := _problem(tensor, is_input=side == "input"):
                raise InputRefused(
                    f"{where}: {side} {tensor.name!r} of {name} {problem}", hint=_EXPORT_AGAIN
                )


def _problem(tensor: TensorSpec, *, is_input: bool) -> str:
    """What is wrong with a tensor alone, or ""."""
    from edgeconv.model.tflite.structure import MOST_DIMENSIONS

    if len(tensor.shape) > MOST_DIMENSIONS:
        return f"has {len(tensor.shape)} dimensions, which is more than any kernel takes"
    if any(size < -1 or (is_input and size == 0) for size in tensor.shape):
        return f"has the shape {list(tensor.shape)}, which no sample has"
    points = tensor.zero_point
    if len(tensor.scale) != len(points):
        return f"has {len(tensor.scale)} scales and {len(points)} zero points"
    if len(tensor.scale) > 1:
        return f"has {len(tensor.scale)} scales, where only one is possible"
    if tensor.dtype in _LIMITS and any(point not in _LIMITS[tensor.dtype] for point in points):
        return f"has the zero point {points[0]}, which {tensor.dtype} does not hold"
    if not all(math.isfinite(scale) and scale > 0 for scale in tensor.scale):
        return "has a scale that is not a positive number"
    return ""


def distinct_signatures(model: SourceModel) -> tuple[Signature, ...]:
    """All signatures to convert, only one of Keras's twins. Raises `InputRefused` without any."""
    signatures = {signature.key: signature for signature in model.signatures}
    if _are_keras_twins(signatures):
        return (signatures[SERVING_DEFAULT],)
    if not signatures:
        _by_key(model, None)
    return model.signatures


def _by_key(model: SourceModel, key: str | None) -> Signature:
    signatures = {signature.key: signature for signature in model.signatures}
    if not signatures:
        raise _without_signature(model)
    if key in signatures:
        return signatures[key]
    if len(signatures) == 1 and (key is None or (key == SERVING_DEFAULT and "" in signatures)):
        return model.signatures[0]
    if key is None and _are_keras_twins(signatures):
        return signatures[SERVING_DEFAULT]
    if key is not None:
        raise unknown_name("signature", key, signatures)
    listed = "".join(f"\n  {_described(signature)}" for signature in model.signatures)
    raise UsageError(
        f"{model.path} has {len(signatures)} signatures:{listed}",
        hint="choose one with --signature KEY",
    )


def _without_signature(model: SourceModel) -> InputRefused:
    """The refusal, with the functions that a signature can be made of."""
    from edgeconv.model.source.saved_model import read_functions

    is_saved = model.kind == "saved_model"
    functions = read_functions(Path(model.path), model.opening.tags) if is_saved else ()
    listed = "".join(f"\n  {function.text}" for function in functions[:_MOST_FUNCTIONS])
    if not functions:
        return InputRefused(
            f"{model.path} has no signature to convert",
            hint="export it with one: model.export('DIR') in Keras, or tf.saved_model.save(..., "
            "signatures=...)",
        )
    return InputRefused(
        f"{model.path} has no signature to convert; its functions are:{listed}",
        hint="save it with a signature of one of them: model = tf.saved_model.load('DIR'); "
        f"tf.saved_model.save(model, 'NEW', signatures={functions[0].trace})",
    )


def _are_keras_twins(signatures: dict[str, Signature]) -> bool:
    ends = [(signature.inputs, signature.outputs) for signature in signatures.values()]
    return signatures.keys() == _KERAS_KEYS and ends[0] == ends[1]


def _described(signature: Signature) -> str:
    inputs = (f"{t.name}: {t.dtype} {t.shape_text}" for t in signature.inputs)
    return f"{signature.key}({', '.join(inputs)})"
