"""Quantization-aware training of a Keras model that is in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeconv.conversion.convert import convert
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.request import called
from edgeconv.system.store import publish_all, scratch_directory, writable_directory
from edgeconv.types import QAT, Conversion, Qat
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def qat(
    model: Any,
    directory: str | Path,
    training: str,
    settings: Qat = Qat(),
    *,
    name: str = "model",
    also: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
    **fields: Any,
) -> Conversion:
    """Train `model` on with quantization, and publish the int8 file that it becomes.

    `model`: a Keras 3 or tf_keras model, which is saved as `directory`/`name`.keras, or the path
    of one. `training`: a data source with labels. `also`: further recipes, to be made of the
    float model. The other arguments are fields of `ConvertRequest`. Raises as `convert`.
    """
    path = model if isinstance(model, str | Path) else _saved(model, Path(directory), name)
    own = {"model": path, "directory": directory, "to": [*also, QAT], "training": training}
    request = called(ConvertRequest, (), {**fields, **own, "qat": settings})
    return convert(request, on_progress=on_progress)


def _saved(model: Any, directory: Path, name: str) -> Path:
    """A model in memory as a Keras file, written by its own Keras."""
    if not hasattr(model, "save"):
        raise InputRefused(
            f"{type(model).__name__} is not a Keras model",
            hint="give a Keras 3 or tf_keras model, or the path of one",
        )
    writable_directory(directory)
    path = directory / f"{name}.keras"
    with scratch_directory() as scratch:
        # Keras goes by the suffix.
        model.save(scratch / path.name)
        publish_all({path: scratch / path.name})
    return path
