"""Latency: every model timed in rounds, its raw times kept, and their percentiles.

The trained model is measured in what it was trained in, TensorFlow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv.data.handover import put_part, waiting_parts
from edgeconv.data.samples import mapped_arrays
from edgeconv.model import source
from edgeconv.model.source.scanning import loadable
from edgeconv.model.tflite.summary import match_names
from edgeconv.statistics.comparison import median_interval
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import tool_versions
from edgeconv.tf.baseline import BaselineJob, BaselineRun, run_baseline
from edgeconv.types import (
    Allowance,
    Latency,
    Measurement,
    Measuring,
    PacedLatency,
    SourceModel,
    Timing,
)
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from edgeconv.data import Samples
    from edgeconv.measure.models import BenchRun, MeasuredModel
    from edgeconv.runtimes.interface import Runtime, Timed

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
    refuse_other_inputs(run.samples.first, model, signature)
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


def refuse_other_inputs(samples: Samples, model: SourceModel, key: str) -> None:
    """Raise `InputRefused` if the model is known to have other inputs."""
    by_key = {signature.key: signature for signature in model.signatures}
    known = by_key.get(key) or source.keras_file_signature(model.path)
    if known and match_names(known.inputs, samples.specs) is None:
        names = sorted(spec.name for spec in known.inputs)
        raise InputRefused(
            f"the baseline {model.path} takes {quoted(names)}, but the measured files take "
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
            task.wait_until(lambda: waiting_parts(inputs) < _MOST_WAITING, on_progress)
            if task.has_ended():
                break
            task.child.renew()
            put_part(part, inputs, number)
        measured = task.result(on_progress)
        return measured, mapped_arrays(outputs, measured.names), task.peak_memory_bytes


_ONE_INVOKE = Timing(warmup=1, warmup_seconds=0.0, repeats=1)


def time_in_rounds(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Time every model once a round, each round in another order.

    So a drift of the machine, and what the model before leaves behind, affect all alike. A model
    that fails gets its error and is left out from then on. What is not timed runs once, which names
    its runtime.
    """
    is_timed = run.measuring.is_timed and any(model.runtime.has_times for model in models)
    rounds = run.measuring.rounds if is_timed else 1
    what, count = "timing" if is_timed else "running every model", 0
    for number in range(rounds):
        first = number % len(models)
        for model in (*models[first:], *models[:first]):
            run.on_progress(CountedLine(what, count, rounds * len(models)))
            count += 1
            is_timed = run.measuring.is_timed and model.runtime.has_times
            if model.error is None and (is_timed or not model.timed):
                timing = run.measuring.timing if is_timed else _ONE_INVOKE
                _time(run, model, timing, model.timed)
            if is_timed and run.measuring.every is not None and model.runtime.has_pace:
                _time(run, model, paced_timing(run.measuring), model.paced)


def time_cold(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Load every model in fresh processes and invoke it, the models taking turns."""
    times = (run.measuring.cold or 0) if run.measuring.is_timed else 0
    paced = [model for model in models if model.runtime.has_pace]
    for number in range(times):
        for index, model in enumerate(paced):
            count = number * len(paced) + index
            run.on_progress(CountedLine("cold starts", count, times * len(paced)))
            _time(run, model, _ONE_INVOKE, model.cold)


def _time(run: BenchRun, model: MeasuredModel, timing: Timing, results: list[Timed]) -> None:
    """Add the times of a new process to the results, or set the model's error."""
    if model.error is None:
        try:
            results.append(model.runtime.time(model.model, run.samples.first.arrays, timing))
        except ToolFailed as error:
            model.error = error


def time_batched(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Time once the models that take many samples at once."""
    for model in models if run.measuring.is_timed else ():
        if model.batched is not None and model.error is None:
            try:
                inputs = run.samples.first.arrays
                timed = model.runtime.time(model.batched, inputs, run.measuring.timing)
            except ToolFailed as error:
                model.error = error
            else:
                model.batched_us = timed.samples_us


def latency_of(runs: Sequence[Timed], *, threads: int, batch: int) -> Latency:
    """The latency of one model from its runs, one process a round."""
    return make_latency(
        tuple(run.samples_us for run in runs),
        load_us=tuple(run.load_us for run in runs),
        first_us=tuple(run.first_us for run in runs),
        threads=threads,
        batch=batch,
        warmup=tuple(run.warmup for run in runs if run.warmup is not None),
    )


def paced_latency_of(
    runs: Sequence[Timed], period_us: float, *, threads: int, batch: int
) -> PacedLatency:
    """The latency of invokes that were to begin every `period_us`, one process a round."""
    # A lone invoke in a process has no distance to another.
    distances = [np.diff(run.starts_us) for run in runs if len(run.starts_us) > 1]
    median_us = float(np.median(np.concatenate(distances))) if distances else period_us
    latency = latency_of(runs, threads=threads, batch=batch)
    return PacedLatency(
        **msgspec.structs.asdict(latency), period_us=period_us, distance_us=median_us
    )


def cold_latency_of(runs: Sequence[Timed], *, threads: int, batch: int) -> Latency:
    """The latency of load and first invoke together, one sample a process."""
    return make_latency(
        tuple((run.load_us + run.first_us,) for run in runs),
        load_us=tuple(run.load_us for run in runs),
        first_us=tuple(run.first_us for run in runs),
        threads=threads,
        batch=batch,
    )


def make_latency(
    rounds_us: tuple[tuple[float, ...], ...],
    *,
    load_us: tuple[float, ...],
    first_us: tuple[float, ...],
    threads: int,
    batch: int,
    warmup: tuple[int, ...] = (),
) -> Latency:
    """A latency with its percentiles over all samples, linearly interpolated.

    `rounds_us` has the samples of each process, in microseconds, none of them empty.
    """
    samples_us = np.concatenate([np.asarray(samples, np.float64) for samples in rounds_us])
    p50_us, p90_us, p99_us = (float(value) for value in np.percentile(samples_us, [50, 90, 99]))
    return Latency(
        rounds_us=rounds_us,
        load_us=load_us,
        first_us=first_us,
        threads=threads,
        batch=batch,
        p50_us=p50_us,
        p90_us=p90_us,
        p99_us=p99_us,
        p50_interval_us=median_interval(rounds_us),
        warmup=warmup,
    )


# A slow pace has more seconds than `--seconds`, for enough samples.
_LEAST_PERIODS = 20


def paced_timing(measuring: Measuring) -> Timing:
    """The timing of invokes in the period of `measuring.every`, which is not None."""
    assert measuring.every is not None
    seconds = max(measuring.timing.seconds, _LEAST_PERIODS * measuring.every)
    return msgspec.structs.replace(measuring.timing, every_seconds=measuring.every, seconds=seconds)


def check_pace(measuring: Measuring, runtimes: Mapping[str, Runtime]) -> None:
    """Raise `UsageError` for a period or cold starts where a runtime has none."""
    options = {"--every": measuring.every, "--cold": measuring.cold}
    names = [option for option, value in options.items() if value is not None]
    if not (names and measuring.is_timed):
        return
    for text, runtime in runtimes.items():
        if not runtime.has_pace:
            why = (
                "edgeconv neither starts its process nor each invoke"
                if runtime.has_times
                else "it runs a device's kernels on this processor, and has no times"
            )
            raise UsageError(
                f"{text} cannot be timed with {' and '.join(names)}: {why}",
                hint=f"remove {' and '.join(names)}, or --runtime {text}; litert, "
                "tflite-runtime==VERSION, tensorflow==VERSION and ssh:USER@HOST can",
            )
