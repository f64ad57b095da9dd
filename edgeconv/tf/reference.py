"""The reference: outputs of the trained model on stored samples, in TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.tf import lean
from edgeconv.types.words import first_line


class ReferencePart(msgspec.Struct, frozen=True, kw_only=True):
    """One signature, its stored samples, run `batch` at a time; outputs go to `directory`."""

    signature: str
    samples: str
    batch: int
    directory: str


class ReferenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """Signatures of a SavedModel to run."""

    saved_model: str
    parts: tuple[ReferencePart, ...]


class ReferenceOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs' names, by signature; output i is `directory`/i.npy, over all samples."""

    outputs: dict[str, tuple[str, ...]]


def run_reference(job: ReferenceJob) -> ReferenceOutputs:
    """Write the trained model's outputs. Runs in a child.

    The SavedModel is loaded as a server does: one graph, one session. Raises `InputRefused` for a
    model that does not load or run.
    """
    lean.import_converter_only()
    from tensorflow.python.framework import errors_impl

    try:
        outputs = _run(job)
    except (errors_impl.OpError, OSError, RuntimeError, ValueError) as error:
        damaged = lean.damaged_variables(str(error))
        if damaged:
            raise damaged from error
        raise InputRefused(
            f"the trained model does not run in TensorFlow: {first_line(error, 400)}",
            hint="correct the model: a conversion is verified against its outputs",
        ) from error
    return ReferenceOutputs(outputs=outputs)


def _run(job: ReferenceJob) -> dict[str, tuple[str, ...]]:
    from tensorflow.python.client import session
    from tensorflow.python.framework import ops
    from tensorflow.python.saved_model import loader_impl

    with ops.Graph().as_default() as graph, session.Session(graph=graph) as running:
        loaded = loader_impl.load(running, ["serve"], job.saved_model)
        return {part.signature: _outputs(running, loaded, part) for part in job.parts}


def _outputs(running: Any, loaded: Any, part: ReferencePart) -> tuple[str, ...]:
    """Write the outputs of one signature; returns their names."""
    from edgeconv.data.handover import read_samples, write_arrays
    from edgeconv.data.strings import as_tensorflow_gives, as_tensorflow_takes

    arrays = as_tensorflow_takes(read_samples(Path(part.samples)).arrays)
    signature = loaded.signature_def[part.signature]
    fetches = {name: info.name for name, info in sorted(signature.outputs.items())}
    runs = []
    for start in range(0, len(next(iter(arrays.values()))), part.batch):
        feed = {
            signature.inputs[name].name: value[start : start + part.batch]
            for name, value in arrays.items()
        }
        runs.append(running.run(fetches, feed))
    write_arrays(
        (
            np.concatenate([np.atleast_1d(as_tensorflow_gives(run[name])) for run in runs])
            for name in fetches
        ),
        Path(part.directory),
    )
    return tuple(fetches)
