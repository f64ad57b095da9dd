"""A Keras file as a SavedModel, whose signature can be read without TensorFlow."""

from __future__ import annotations

import msgspec

from edgeconv.tf import keras_files
from edgeconv.tf.environment import use_cpu_only
from edgeconv.types import Opening, SourceKind


class ExportJob(msgspec.Struct, frozen=True, kw_only=True):
    """The Keras file to read, and the directory that does not exist yet to write."""

    path: str
    kind: SourceKind
    target: str
    opening: Opening = Opening()


class ExportedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What loaded the file: "keras" or "tf_keras"."""

    loader: str


def export_keras(job: ExportJob) -> ExportedModel:
    """Write the SavedModel. Runs in a child. Raises `InputRefused`, see `keras_files.export`."""
    use_cpu_only()
    loaders = keras_files.export(job.path, job.kind, job.target, opening=job.opening)
    return ExportedModel(loader=loaders[-1].attempt)
