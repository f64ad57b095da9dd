"""What the trained model itself says: its outputs on stored samples, in TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from edgeconv.errors import InputRefused
from edgeconv.tf import lean


class ReferenceJob(msgspec.Struct, frozen=True, kw_only=True):
    """Run one signature on the stored samples, `batch` at a time; outputs go to `directory`."""

    saved_model: str
    signature: str
    samples: str
    batch: int
    directory: str


class ReferenceDone(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs' names; output i is `directory`/i.npy, over all samples."""

    outputs: tuple[str, ...]


def run_reference(job: ReferenceJob) -> ReferenceDone:
    """Write the trained model's outputs. Runs in a child.

    The SavedModel is loaded as a server loads it: one graph, one session. Raises
    `InputRefused` for a model that does not load or run.
    """
    import numpy as np

    from edgeconv.data import read_samples

    lean.import_converter_only()
    from tensorflow.python.framework import errors_impl

    arrays = read_samples(Path(job.samples)).arrays
    try:
        outputs = _run(job, arrays)
    except (errors_impl.OpError, OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise InputRefused(
            f"the trained model does not run in TensorFlow: {reason[0][:400]}",
            hint="without its own outputs no conversion of it can be verified",
        ) from error
    for index, values in enumerate(outputs.values()):
        np.save(Path(job.directory) / f"{index}.npy", values)
    return ReferenceDone(outputs=tuple(outputs))


def _run(job: ReferenceJob, arrays: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    from tensorflow.python.client import session
    from tensorflow.python.framework import ops
    from tensorflow.python.saved_model import loader_impl

    with ops.Graph().as_default() as graph, session.Session(graph=graph) as running:
        loaded = loader_impl.load(running, ["serve"], job.saved_model)
        signature = loaded.signature_def[job.signature]
        fetches = {name: info.name for name, info in sorted(signature.outputs.items())}
        parts = []
        for start in range(0, len(next(iter(arrays.values()))), job.batch):
            feed = {
                signature.inputs[name].name: value[start : start + job.batch]
                for name, value in arrays.items()
            }
            parts.append(running.run(fetches, feed))
    return {name: np.concatenate([np.atleast_1d(part[name]) for part in parts]) for name in fetches}
