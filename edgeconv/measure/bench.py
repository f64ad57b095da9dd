"""The verb `bench`: every model on the same samples and machine, beside the baseline."""

from __future__ import annotations

import functools
import gzip
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv import data
from edgeconv.errors import EdgeconvError, InputRefused, ToolFailed
from edgeconv.measure.accuracy import top1
from edgeconv.measure.beside import beside, compared
from edgeconv.measure.doubts import doubts
from edgeconv.measure.environment import environment
from edgeconv.measure.measuring import Bench, Measuring, start_model
from edgeconv.measure.subjects import (
    Subject,
    find_baseline,
    find_subjects,
    float_inputs,
    preprocessing_of,
)
from edgeconv.measure.timing import latency_of
from edgeconv.measure.trained import measure_trained
from edgeconv.nouns import DataIdentity, Measurement, Report, TrainingRecord
from edgeconv.stages import Execution
from edgeconv.workers import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.nouns import Accuracy, TensorSpec
    from edgeconv.runtimes.local import Run

_SYNTHETIC_SAMPLES = 8
_SYNTHETIC_SEED = 7


def bench(
    models: Sequence[str | Path],
    *,
    data_source: str | None = None,
    preprocess: str | None = None,
    samples: int | None = None,
    baseline: str | Path | None = None,
    signature: str | None = None,
    training: TrainingRecord | None = None,
    measuring: Measuring = Measuring(),
    execution: Execution = Execution(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Measure .tflite files, and the trained model they came from, on the same samples.

    `models`: files, or directories that `convert` published in. `data_source`: samples,
    with labels for accuracy; without it latency is measured on made-up ones. `preprocess`:
    what is done to each stored sample; None takes what the manifests say. `samples`: how many,
    by a fixed seed; None takes all. `baseline`:
    the trained model; None takes the one that the manifests name. A model that does not
    run has its `error` set, and the others are measured. Raises an `EdgeconvError` for
    input that cannot be taken.
    """
    subjects = find_subjects(models, signature)
    trained, notes = find_baseline(subjects, baseline)
    inputs = _common_inputs(subjects)
    steps, said = preprocessing_of(subjects, preprocess)
    if data_source:
        opened = data.open_samples(
            data_source, inputs, preprocessing=steps, allow_code=execution.allow_code
        )
        taken = data.seeded_choice(opened, opened.count if samples is None else samples)
    else:
        taken = data.synthetic_samples(inputs, _SYNTHETIC_SAMPLES, _SYNTHETIC_SEED)
    with tempfile.TemporaryDirectory(prefix="edgeconv-") as scratch:
        stored = Path(scratch, "samples")
        data.write_samples(taken, stored)
        batch = data.batch_size(inputs)
        run = Bench(taken, stored, batch, measuring, execution, Path(scratch), on_progress)
        first = measure_trained(run, trained, subjects[0].signature.key) if trained else None
        rows = _measure(run, subjects)
    artifacts = tuple(subject.artifact for subject in subjects if subject.artifact)
    return Report(
        title=measuring.title or subjects[0].file.parent.name,
        environment=environment(),
        data=DataIdentity(
            source=taken.source,
            samples=taken.count,
            sha256=data.sha256_samples(taken),
            preprocessing=data.describe(steps) if data_source and steps else "",
        ),
        baseline=first,
        measurements=tuple(beside(row, first, rows) for row in rows),
        comparisons=compared(rows, [subject.artifact for subject in subjects]),
        training=training,
        artifacts=artifacts,
        notes=(*notes, *said, *doubts(first, taken, training, artifacts)),
    )


def _common_inputs(subjects: Sequence[Subject]) -> tuple[TensorSpec, ...]:
    """The inputs of all the subjects, as samples are given for them."""
    inputs = float_inputs(subjects[0].signature)
    for subject in subjects:
        if float_inputs(subject.signature) != inputs:
            raise InputRefused(
                f"{subject.file.name} has other inputs than {subjects[0].file.name}",
                hint="measure models of different inputs in separate runs",
            )
    return inputs


def _measure(run: Bench, subjects: Sequence[Subject]) -> list[Measurement]:
    timed: dict[str, list[Run]] = {subject.name: [] for subject in subjects}
    failed: dict[str, EdgeconvError] = {}
    for number in range(run.measuring.rounds):
        run.on_progress(f"timing, round {number + 1} of {run.measuring.rounds}")
        for subject in (s for s in subjects if s.name not in failed):
            try:
                timed[subject.name].append(_time(run, subject))
            except ToolFailed as error:
                failed[subject.name] = error
    running = [subject for subject in subjects if subject.name not in failed]
    accuracies = _accuracies(run, running, failed) if run.samples.labels is not None else {}
    return [
        _row(run, subject, timed[subject.name], accuracies.get(subject.name), failed)
        for subject in subjects
    ]


def _time(run: Bench, subject: Subject) -> Run:
    with start_model(run, subject.file, subject.signature.key, run.measuring.timing) as running:
        return running.result()


def _accuracies(
    run: Bench, subjects: Sequence[Subject], failed: dict[str, EdgeconvError]
) -> dict[str, Accuracy]:
    labels = run.samples.labels
    assert labels is not None
    starts = [
        functools.partial(start_model, run, subject.file, subject.signature.key, None)
        for subject in subjects
    ]
    accuracies = {}
    for subject, running in zip(subjects, in_turn(starts), strict=True):
        run.on_progress(f"accuracy of {subject.name}")
        try:
            outputs = running.outputs(running.result())
        except ToolFailed as error:
            failed[subject.name] = error
        else:
            accuracies[subject.name] = top1(outputs, labels, run.measuring.output)
    return accuracies


def _row(
    run: Bench,
    subject: Subject,
    runs: Sequence[Run],
    accuracy: Accuracy | None,
    failed: dict[str, EdgeconvError],
) -> Measurement:
    content = subject.file.read_bytes()
    error = failed.get(subject.name)
    return Measurement(
        name=subject.name,
        role="artifact",
        runtime="" if error else f"{runs[0].runtime} {runs[0].version}",
        sha256=subject.sha256,
        size_bytes=len(content),
        gzip_size_bytes=len(gzip.compress(content, mtime=0)),
        recipe=subject.artifact.recipe.name if subject.artifact else None,
        latency=None if error else latency_of(runs, threads=run.measuring.threads, batch=run.batch),
        peak_memory_bytes=None if error else runs[0].model_memory_bytes,
        accuracy=accuracy,
        error=str(error) if error else "",
    )
