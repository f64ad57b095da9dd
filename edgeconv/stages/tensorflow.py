"""The two things that TensorFlow does in a conversion, each in a child, each kept in the cache.

Both are started by a function that returns what waits for them, so that they run side by
side; what is in the cache is not started at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.store import hash_of
from edgeconv.tf.convert import FloatJob, to_float
from edgeconv.tf.reference import ReferenceJob, run_reference

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from edgeconv.nouns import Signature
    from edgeconv.stages import Run
    from edgeconv.stages.samples import Split

_FLOAT, _REFERENCE = "float", "reference"
_MODEL, _INDEX, _SAVED_MODEL, _OUTPUTS = "float.tflite", "index.json", "saved_model", "outputs"


class FloatGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The float32 .tflite, and the SavedModel and signature that it was made from."""

    file: Path
    saved_model: str
    signature: str
    notes: tuple[str, ...] = ()


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """What the trained model answers to the held-back samples: output i is `directory`/i.npy."""

    directory: Path
    outputs: tuple[str, ...]


class _FloatIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache keeps beside the float32 graph, and the SavedModel if one was made."""

    signature: str
    notes: tuple[str, ...]


def start_float_graph(
    run: Run, chosen: Signature | None, children: contextlib.ExitStack
) -> Callable[[], FloatGraph]:
    """Start making the float32 graph; the function that comes back waits for it.

    That raises an `EdgeconvError` where the model does not load or convert.
    """
    plan = run.plan
    entry = run.cache.find(_FLOAT, plan.float_key)
    if entry is not None:
        return lambda: _kept_graph(run, entry)
    file, exported = run.scratch / _MODEL, run.scratch / _SAVED_MODEL
    run.on_progress("converting to float32 with TensorFlow")
    job = FloatJob(
        path=plan.model.path,
        kind=plan.model.kind,
        signature=chosen.key if chosen else None,
        batch=plan.batch,
        target=str(file),
        saved_model=str(exported),
    )
    task = children.enter_context(run.start(to_float, job, "TensorFlow's converter"))

    def finish() -> FloatGraph:
        made = task.result(run.on_progress)
        kept = {_SAVED_MODEL: exported} if exported.is_dir() else {}
        index = _FloatIndex(signature=made.signature, notes=made.notes)
        files = {_MODEL: file, _INDEX: _written(run, "float.json", index), **kept}
        run.cache.keep(_FLOAT, plan.float_key, files)
        return FloatGraph(
            file=file, saved_model=made.saved_model, signature=made.signature, notes=made.notes
        )

    return finish


def _kept_graph(run: Run, entry: Path) -> FloatGraph:
    made = entry / _SAVED_MODEL
    index = msgspec.json.decode((entry / _INDEX).read_bytes(), type=_FloatIndex)
    return FloatGraph(
        file=entry / _MODEL,
        saved_model=str(made) if made.is_dir() else run.plan.model.path,
        signature=index.signature,
        notes=index.notes,
    )


def start_reference(
    run: Run, saved_model: str, signature: str, split: Split, children: contextlib.ExitStack
) -> Callable[[], Reference]:
    """Start running the trained model on the held-back samples; what comes back waits for it.

    That raises `InputRefused` where the model does not run in TensorFlow.
    """
    plan = run.plan
    key = hash_of(plan.float_key, plan.calibration_identity, plan.samples)
    entry = run.cache.find(_REFERENCE, key)
    if entry is not None:
        names = msgspec.json.decode((entry / _INDEX).read_bytes(), type=tuple[str, ...])
        return lambda: Reference(directory=entry / _OUTPUTS, outputs=names)
    directory = run.scratch / _OUTPUTS
    directory.mkdir()
    job = ReferenceJob(
        saved_model=saved_model,
        signature=signature,
        samples=str(split.held_back),
        batch=split.batch,
        directory=str(directory),
    )
    task = children.enter_context(run.start(run_reference, job, "the trained model in TensorFlow"))

    def finish() -> Reference:
        outputs = task.result().outputs
        index = _written(run, "reference.json", outputs)
        run.cache.keep(_REFERENCE, key, {_OUTPUTS: directory, _INDEX: index})
        return Reference(directory=directory, outputs=outputs)

    return finish


def _written(run: Run, name: str, value: _FloatIndex | tuple[str, ...]) -> Path:
    path = run.scratch / name
    path.write_bytes(msgspec.json.encode(value))
    return path
