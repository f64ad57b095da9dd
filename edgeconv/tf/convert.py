"""The float32 .tflite of a trained model: all that TensorFlow has to do in a conversion."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.nouns import SourceKind
from edgeconv.tf import keras_files, lean

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
    exported = job.saved_model
    with tempfile.TemporaryDirectory(dir=Path(exported).parent) as scratch:
        first = exported if job.batch is None else str(Path(scratch, "dynamic"))
        loader = keras_files.export(job.path, job.kind, first)
        if job.batch is not None:
            fix_batch(first, SERVING, job.batch, exported)
    fixed = () if job.batch is None else (f"the batch was fixed to {job.batch}",)
    notes = (f"loaded with {loader}", *fixed)
    return FloatGraph(saved_model=exported, signature=SERVING, notes=notes)


def fix_batch(directory: str, signature: str, batch: int, target: str) -> None:
    """Save one signature again in `target`, with the leading dimension of its inputs fixed.

    Raises `InputRefused` where an input's leading dimension is fixed to another number.
    """
    import tensorflow as tf

    loaded = tf.saved_model.load(directory)
    function = loaded.signatures[signature]
    specs = {
        name: tf.TensorSpec(_with_batch(name, spec.shape, batch), spec.dtype, name=name)
        for name, spec in function.structured_input_signature[1].items()
    }

    def call(**inputs: Any) -> Any:
        return function(**inputs)

    module = tf.Module()
    module.model = loaded  # keeps the variables that the function reads
    fixed = tf.function(call).get_concrete_function(**specs)
    tf.saved_model.save(module, target, signatures={signature: fixed})


def _with_batch(name: str, shape: Any, batch: int) -> list[int | None]:
    dimensions = shape.as_list()
    if not dimensions or dimensions[0] not in (None, batch):
        raise InputRefused(
            f"--batch {batch}: input {name!r} has shape {dimensions}, whose leading dimension "
            "is not dynamic",
            hint="leave --batch away: the model's batch is fixed already",
        )
    return [batch, *dimensions[1:]]
