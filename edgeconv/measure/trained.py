"""The trained model, measured in what it was trained in: TensorFlow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.measure.accuracy import top1
from edgeconv.measure.measuring import start_model
from edgeconv.measure.timing import latency_of, make_latency
from edgeconv.nouns import Latency, Measurement
from edgeconv.store import tool_versions
from edgeconv.tasks import start_task
from edgeconv.tf.baseline import BaselineJob, BaselineRun, run_baseline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from edgeconv.measure.measuring import Bench
    from edgeconv.nouns import SourceModel
    from edgeconv.runtimes.local import Run

NAME = "baseline"


def measure_trained(run: Bench, model: SourceModel, signature: str) -> Measurement:
    """The baseline's size on disk, latency, memory and accuracy.

    Its memory is the whole process, TensorFlow included. A .tflite that was the source of
    a conversion runs as any .tflite does. Raises an `EdgeconvError` where it does not run:
    without it there is nothing to compare with.
    """
    run.on_progress("running the trained model")
    if model.kind == "tflite":
        return _measure_tflite(run, model, signature)
    outputs = Path(tempfile.mkdtemp(prefix="baseline-", dir=run.scratch))
    task = start_task(
        run_baseline,
        BaselineJob(
            path=model.path,
            kind=model.kind,
            signature=signature if model.kind == "saved_model" else None,
            inputs=str(run.stored),
            outputs=str(outputs),
            warmup=run.measuring.timing.warmup,
            repeats=run.measuring.timing.repeats,
            threads=run.measuring.threads,
        ),
        label="the trained model in TensorFlow",
        scratch=run.scratch,
        allowance=run.execution.allowance,
    )
    done = task.result(run.on_progress)
    answers = {name: np.load(outputs / f"{i}.npy") for i, name in enumerate(done.names)}
    latency = _latency(done)
    runtime = f"tensorflow {tool_versions()['tensorflow']}"
    return _row(run, model, runtime, latency, task.peak_memory_bytes, answers)


def _latency(done: BaselineRun) -> Latency:
    return make_latency(
        (done.samples_us,),
        load_us=(done.load_us,),
        first_us=(done.first_us,),
        threads=done.threads,
        batch=done.latency_batch,
    )


def _measure_tflite(run: Bench, model: SourceModel, signature: str) -> Measurement:
    runs: list[Run] = []
    answers: Mapping[str, NDArray[np.generic]] = {}
    for timing in (run.measuring.timing, None):
        with start_model(run, Path(model.path), signature, timing) as running:
            runs.append(running.result())
            answers = running.outputs(runs[-1]) if timing is None else {}
    latency = latency_of(runs[:1], threads=run.measuring.threads, batch=run.batch)
    runtime = f"{runs[0].runtime} {runs[0].version}"
    return _row(run, model, runtime, latency, runs[0].model_memory_bytes, answers)


def _row(
    run: Bench,
    model: SourceModel,
    runtime: str,
    latency: Latency,
    peak_memory_bytes: int | None,
    answers: Mapping[str, NDArray[np.generic]],
) -> Measurement:
    labels = run.samples.labels
    return Measurement(
        name=NAME,
        role="baseline",
        runtime=runtime,
        sha256=model.sha256,
        size_bytes=model.size_bytes,
        latency=latency,
        peak_memory_bytes=peak_memory_bytes,
        accuracy=top1(answers, labels, run.measuring.output) if labels is not None else None,
    )
