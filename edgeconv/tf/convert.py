"""The float32 .tflite of a trained model: all that TensorFlow has to do in a conversion."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgeconv.nouns import SourceKind
from edgeconv.tf import keras_files, lean
from edgeconv.tf.batch import fix_batch

SERVING = "serving_default"


class FloatJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to convert. `signature` is None for a Keras file, which has only one.

    `batch`: fix the dynamic leading dimension of every input to this, None leaves it.
    `target`: the .tflite to write. `saved_model`: where a SavedModel that had to be
    made on the way is kept (it is the reference for what the .tflite must compute).
    """

    path: str
    kind: SourceKind
    signature: str | None
    batch: int | None
    target: str
    saved_model: str


class FloatGraph(msgspec.Struct, frozen=True, kw_only=True):
    """What was converted: `saved_model` and `signature` are what TensorFlow's converter read."""

    saved_model: str
    signature: str
    notes: tuple[str, ...] = ()


def to_float(job: FloatJob) -> FloatGraph:
    """Write the float32 .tflite. Runs in a child.

    Raises `InputRefused` for a model that does not load or convert.
    """
    graph = _saved_model(job)
    data = lean.convert_saved_model(graph.saved_model, signature=graph.signature, tags=("serve",))
    Path(job.target).write_bytes(data)
    return graph


def _saved_model(job: FloatJob) -> FloatGraph:
    if job.kind == "saved_model":
        assert job.signature is not None
        if job.batch is None:
            lean.import_converter_only()
            return FloatGraph(saved_model=job.path, signature=job.signature)
        fix_batch(job.path, job.signature, job.batch, job.saved_model)
        return FloatGraph(
            saved_model=job.saved_model,
            signature=job.signature,
            notes=(f"the batch was fixed to {job.batch}",),
        )
    loader = keras_files.export(job.path, job.kind, job.saved_model, batch=job.batch)
    fixed = () if job.batch is None else (f"the batch was fixed to {job.batch}",)
    notes = (f"loaded with {loader}", *fixed)
    return FloatGraph(saved_model=job.saved_model, signature=SERVING, notes=notes)
