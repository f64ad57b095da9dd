"""The settings for opening a model, checked before TensorFlow starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.source.kinds import LocatedModel
    from edgeconv.types import Opening, SourceModel

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
            hint="check what it runs, and allow it: Execution(allow_code=True)",
        )
    from edgeconv.data.custom import custom_hash, find_custom

    directory = opening.directory or str(Path.cwd())
    modules = [find_custom(text, directory) for text in opening.custom_objects]
    return replace(opening, directory=directory, code_sha256=custom_hash(modules))


def code_directories(opening: Opening) -> tuple[Path, ...]:
    """The directories that the user's own modules are imported from."""
    from edgeconv.data.custom import find_custom

    roots = (find_custom(text, opening.directory).root for text in opening.custom_objects)
    here = [Path(opening.directory)] if opening.directory else []
    return tuple(dict.fromkeys((*roots, *here)))


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
