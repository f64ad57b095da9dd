"""Does what was made also run in the runtime of older devices, with the same answers?"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.conversion.output_checks import verify_errors
from edgeconv.data import Samples, write_samples
from edgeconv.model.tflite import output_steps
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.statistics.outputs import output_errors
from edgeconv.types import Allowance, Artifact
from edgeconv.types.errors import EdgeconvError, VerificationFailed

if TYPE_CHECKING:
    from benchmarks.coverage.results import Cell
    from edgeconv.types import Signature

NAME = "tflite-runtime 2.14.0"
_BATCHES = 2
_ALLOWANCE = Allowance(timeout_s=300)


def old_target(python: str | None) -> RuntimePython | None:
    """The older runtime in the Python given, or in an environment that edgeconv makes for it.

    None where no Python here can have it; why goes to stderr.
    """
    if python:
        return RuntimePython(package="tflite_runtime", python=python)
    try:
        runtime = parse_target_runtime("tflite-runtime==2.14.0")
        return isolated_target(runtime, lambda text: print(text, file=sys.stderr))
    except EdgeconvError as error:
        print(f"no older runtime: {error}", file=sys.stderr)
        return None


def with_old_runtime(
    cell: Cell, model: Path | None, samples: Mapping[str, Path], target: RuntimePython | None
) -> Cell:
    """The cell with what the older runtime said of its file, where there are both.

    `samples` are files by signature, "" for the only one.
    """
    if target is None or model is None:
        return cell
    artifact = msgspec.json.decode(model.with_suffix(".json").read_bytes(), type=Artifact)
    said = []
    for signature in artifact.signatures:
        with np.load(samples.get(signature.key) or samples[""]) as archive:
            said.append(_try(model, artifact, signature, dict(archive), target))
    return msgspec.structs.replace(cell, old_runtime=next(filter(None, said), ""))


def _try(
    model: Path,
    artifact: Artifact,
    signature: Signature,
    arrays: Mapping[str, np.ndarray],
    target: RuntimePython,
) -> str:
    """Why the file does not give there what it gives here; "" where it does."""
    batch = next((i.shape[0] for i in signature.inputs if i.shape and i.shape[0] > 0), 1)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        _store(scratch / "samples", arrays, count=_BATCHES * batch)
        try:
            here, there = (
                _outputs(model, scratch, signature.key, batch, place)
                for place in (RuntimePython(), target)
            )
            steps = output_steps(model.read_bytes(), signature.key)
            verify_errors(artifact.recipe, output_errors(here, there, steps))
        except VerificationFailed as error:
            return f"runs, and gives other answers: {error.message}"
        except EdgeconvError as error:
            return str(error).replace(name, "").partition(" failed: ")[2] or str(error)
    wrong = [n for n, value in there.items() if not np.isfinite(value).all()]
    return f"output {wrong[0]!r} has values that are not finite" if wrong else ""


def _outputs(
    model: Path, scratch: Path, key: str, batch: int, target: RuntimePython
) -> dict[str, np.ndarray]:
    with start_run(
        model,
        scratch / "samples",
        scratch=scratch,
        signature=key,
        batch=batch,
        target=target,
        allowance=_ALLOWANCE,
    ) as running:
        return dict(running.result().outputs)


def _store(directory: Path, arrays: Mapping[str, np.ndarray], *, count: int) -> None:
    """The first samples, as edgeconv stores them for its runner."""
    some = {name: values[:count] for name, values in arrays.items()}
    write_samples(Samples(some, None, "coverage"), directory)
