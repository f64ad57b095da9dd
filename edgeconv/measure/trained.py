"""The trained model, measured in what it was trained in: TensorFlow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.handover import mapped_arrays, put_part, waiting_parts
from edgeconv.measure.timing import make_latency
from edgeconv.model import source
from edgeconv.model.source.scanning import loadable
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.processes.workers import poll_until
from edgeconv.system.store import tool_versions
from edgeconv.tf.baseline import BaselineJob, BaselineRun, run_baseline
from edgeconv.types import Measurement
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from edgeconv.data import Samples
    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.types import Allowance, Latency, SourceModel, Timing

    Outputs = dict[str, np.ndarray[Any, Any]]

NAME = "baseline"
# One part at work, and one that is ready.
_MOST_WAITING = 2


def measure_trained(
    run: BenchRun, model: SourceModel, signature: str
) -> tuple[Measurement, Outputs]:
    """The baseline's size on disk, latency and memory, and its outputs (samples, ...) by name.

    Its memory is the whole process's, with TensorFlow. Raises an `EdgeconvError` where the
    model does not run.
    """
    _refuse_other_inputs(run.samples.first, model, signature)
    run.on_progress("running the trained model")
    timing = run.measuring.timing if run.measuring.is_timed else None
    copy = Path(tempfile.mkdtemp(prefix="loaded-", dir=run.scratch)) / "model"
    job = BaselineJob(
        path=str(loadable(model, copy, trusted=run.execution.trusted)),
        kind=model.kind,
        opening=model.opening,
        signature=signature if model.kind == "saved_model" else None,
        inputs="",
        outputs="",
        samples=run.samples.count,
        warmup=timing.warmup if timing else 0,
        repeats=timing.repeats if timing else 0,
        threads=run.measuring.threads,
    )
    measured, outputs, peak_memory_bytes = run_trained(
        job,
        run.samples.parts(run.samples.part_size(job.batch)),
        scratch=run.scratch,
        allowance=run.execution.allowance,
        on_progress=run.on_progress,
        shown={job.path: model.path},
    )
    return Measurement(
        name=NAME,
        role="baseline",
        runtime=f"tensorflow {tool_versions()['tensorflow']}",
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        latency=_latency(measured, timing) if timing else None,
        peak_memory_bytes=peak_memory_bytes if timing else None,
        batched_us=measured.batch_samples_us,
        batched_size=measured.evaluation_batch,
    ), outputs


def _refuse_other_inputs(samples: Samples, model: SourceModel, key: str) -> None:
    """Raise `InputRefused` if the model is known to have other inputs."""
    by_key = {signature.key: signature for signature in model.signatures}
    known = by_key.get(key) or source.keras_file_signature(model.path)
    names = {spec.name for spec in known.inputs} if known else set(samples.arrays)
    if names != set(samples.arrays):
        raise InputRefused(
            f"the baseline {model.path} takes {quoted(sorted(names))}, but the measured files take "
            f"{quoted(sorted(samples.arrays))}",
            hint="give the model that it was converted from: --baseline MODEL",
        )


def _latency(measured: BaselineRun, timing: Timing) -> Latency:
    return make_latency(
        (measured.samples_us,),
        load_us=(measured.load_us,),
        first_us=(measured.first_us,),
        threads=measured.threads,
        batch=measured.latency_batch,
        warmup=(timing.warmup,),
    )


def run_trained(
    job: BaselineJob,
    parts: Iterable[Samples],
    *,
    scratch: Path,
    allowance: Allowance,
    on_progress: Callable[[str], None],
    shown: Mapping[str, str] = MappingProxyType({}),
) -> tuple[BaselineRun, Outputs, int]:
    """Run the job on samples that come in parts, its `inputs` and `outputs` in `scratch`.

    `shown` is as in `start_task`. Returns what it measured, the outputs (samples, ...) by name,
    mapped from files, and the process's peak memory in bytes. Raises as `run_baseline`.
    """
    inputs = Path(tempfile.mkdtemp(prefix="parts-", dir=scratch))
    outputs = Path(tempfile.mkdtemp(prefix="baseline-", dir=scratch))
    job = msgspec.structs.replace(job, inputs=str(inputs), outputs=str(outputs))
    with start_task(
        run_baseline,
        job,
        label="the trained model in TensorFlow",
        scratch=scratch,
        access=Access(
            reads=(Path(job.path), *source.code_files(job.opening)), writes=(inputs, outputs)
        ),
        allowance=allowance,
        shown=shown,
    ) as task:
        for number, part in enumerate(parts):
            poll_until(
                lambda: task.child.has_ended() or waiting_parts(inputs) < _MOST_WAITING,
                lambda: task.relay(on_progress),
            )
            if task.child.has_ended():
                break
            task.child.renew()
            put_part(part, inputs, number)
        measured = task.result(on_progress)
        return measured, mapped_arrays(outputs, measured.names), task.peak_memory_bytes
