"""The verb `bench`: every model and the baseline, on the same samples and machine."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgeconv import data
from edgeconv.measure.baseline_comparison import compared, measurement_warnings, with_baseline
from edgeconv.measure.bench_run import BenchRun, EvaluationSet
from edgeconv.measure.evaluate import evaluate
from edgeconv.measure.machine import LoadMonitor, load_warnings
from edgeconv.measure.matrix import version_matrix
from edgeconv.measure.metrics.accuracy import chosen_name
from edgeconv.measure.metrics.scoring import Scorer, metrics_of, wants_labels
from edgeconv.measure.model_files import (
    find_baseline,
    find_model_files,
    given_states,
    preprocessing_of,
    record_of,
    warned,
)
from edgeconv.measure.models import open_runtimes
from edgeconv.measure.names import CommonNames
from edgeconv.measure.npu import npu_estimates, with_npu
from edgeconv.measure.rows import Rows
from edgeconv.measure.timing import time_batched, time_cold, time_in_rounds
from edgeconv.measure.trained import measure_trained
from edgeconv.runtimes.choice import most_samples
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.system.store import read_noun, refuse_inputs, scratch_directory, writable_directory
from edgeconv.types import TOP1, DataIdentity, Report, TrainingRecord
from edgeconv.types.errors import InputRefused
from edgeconv.types.measurement import UNTIMED
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from edgeconv.measure.model_files import ModelFile
    from edgeconv.measure.models import MeasuredModel, OpenedRuntimes
    from edgeconv.requests.bench import BenchRequest
    from edgeconv.types import (
        Conditions,
        DataSource,
        Measuring,
        Preprocessing,
        Signature,
        SourceModel,
        TensorSpec,
        VersionResult,
    )

    Outputs = Mapping[str, NDArray[np.generic]]

_SYNTHETIC_SAMPLES = 8
_SYNTHETIC_SEED = 7


def bench(request: BenchRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Report:
    """Measure .tflite files, and the trained model they came from, on the same samples.

    A file that does not run has its `error` set. Raises an `EdgeconvError`.
    """
    execution, measuring, source = request.execution, request.measuring, request.data
    if request.directory is not None:
        refuse_inputs(Path(request.directory, f"report.{each}") for each in ("json", "html"))
    training_record = _record(Path(request.training)) if request.training else None
    model_files = find_model_files(request.models, request.signature, execution.trusted)
    trained, notes = find_baseline(model_files, request.baseline, request.opening, execution)
    training = training_record or record_of(trained)
    names = CommonNames(model_files, trained)
    steps, preprocessing_notes = preprocessing_of(model_files, request.preprocess)
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        samples, limited = _sampled(stack, request, names.inputs, steps)
        run = BenchRun(samples, measuring, execution, scratch, on_progress)
        scorer = _scorer(run, source, model_files[0].signature)
        estimates = npu_estimates(run, model_files)
        runtimes = stack.enter_context(open_runtimes(run, trained))
        matrix = version_matrix(run, model_files, names)
        rows, watch = _measure(run, scorer, runtimes, trained, model_files, names)
        measured = with_npu(rows.artifacts(), estimates)
        identity = _identity(samples, steps if source else {})
    first = rows.baseline
    conditions = watch.conditions if runtimes.is_here else None
    artifacts = tuple(file.artifact for file in model_files if file.artifact)
    report = Report(
        title=measuring.title or model_files[0].file.parent.name,
        environment=runtimes.environment,
        data=identity,
        baseline=first,
        measurements=tuple(with_baseline(row, first, measured) for row in measured),
        comparisons=compared(measured[: len(model_files)], [file.artifact for file in model_files]),
        matrix=matrix,
        training=training,
        artifacts=artifacts,
        conditions=conditions,
        labels=_class_labels(samples),
        class_names=samples.class_names,
        command=("edgeconv", "bench", *request.words()),
        notes=(
            *notes,
            *preprocessing_notes,
            *measurement_warnings(first, samples, training, artifacts),
            *_of_times(measuring, conditions),
            *runtimes.notes,
            *limited,
            *rows.notes,
        ),
    )
    if request.directory is not None:
        _write(report, Path(request.directory).absolute())
    return report


def bench_versions(
    request: BenchRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> tuple[VersionResult, ...]:
    """Each file in each version that the request names, and nothing else; see `version_matrix`.

    Raises an `EdgeconvError`.
    """
    execution = request.execution
    model_files = find_model_files(request.models, request.signature, execution.trusted)
    trained, _ = find_baseline(model_files, request.baseline, request.opening, execution)
    names = CommonNames(model_files, trained)
    steps, _ = preprocessing_of(model_files, request.preprocess)
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        samples, _ = _sampled(stack, request, names.inputs, steps)
        run = BenchRun(samples, request.measuring, execution, scratch, on_progress)
        return version_matrix(run, model_files, names)


def _write(report: Report, directory: Path) -> None:
    from edgeconv.reporting.files import write_report

    writable_directory(directory)
    write_report(report, directory)


def _record(path: Path) -> TrainingRecord:
    """The training record in a file. Raises `InputRefused`, also for one of an older version."""
    try:
        return read_noun(path, TrainingRecord, what="training record")
    except InputRefused as error:
        hint = "give the N.training.json that this version's `edgeconv train` wrote, or none"
        raise InputRefused(error.message, hint=hint) from error


def _of_times(measuring: Measuring, conditions: Conditions | None) -> tuple[str, ...]:
    if not measuring.is_timed:
        return (UNTIMED,)
    return load_warnings(conditions) if conditions else ()


def _sampled(
    stack: contextlib.ExitStack,
    request: BenchRequest,
    inputs: tuple[TensorSpec, ...],
    steps: Mapping[str, Preprocessing],
) -> tuple[EvaluationSet, tuple[str, ...]]:
    """The samples to measure on: of a SOURCE, open as long as the stack, or made up.

    Where their number is not chosen, slow runtimes get fewer; a note says how many.
    """
    if request.data is None:
        batch = data.batch_size(data.synthetic_inputs(inputs))
        made_up = data.synthetic_samples(inputs, _SYNTHETIC_SAMPLES, _SYNTHETIC_SEED)
        return EvaluationSet(made_up, None, batch), ()
    opened = data.opened_samples(
        request.data,
        inputs,
        preprocessing=steps,
        allow_code=request.execution.allow_code,
        labels=data.LabelUse(needs="numbers" if request.measuring.metrics else "classes"),
        allowance=request.execution.allowance,
    )
    source = stack.enter_context(opened)
    batch = data.batch_size(source.inputs)
    slow = most_samples(request.measuring.runtimes)
    if request.samples is not None or not slow or source.count <= min(slow.values()):
        return EvaluationSet(source, request.samples, batch), ()
    count = max(min(slow.values()) // batch, 1) * batch
    note = (
        f"{count} of {source.count:,} samples, because {listed(slow)} is slow; --samples N sets "
        "another number"
    )
    return EvaluationSet(source, count, batch), (note,)


def _identity(samples: EvaluationSet, steps: Mapping[str, Preprocessing]) -> DataIdentity:
    return DataIdentity(
        source=samples.text,
        samples=samples.count,
        sha256=samples.sha256,
        preprocessing=data.describe(steps) if steps else "",
    )


def _scorer(run: BenchRun, source: DataSource | None, signature: Signature) -> Scorer:
    """The metrics to compute. Raises `InputRefused` without labels for them, `UsageError`."""
    has_labels = run.samples.labels is not None
    choices = run.measuring.metrics or ((TOP1,) if has_labels else ())
    metrics = metrics_of(choices, allow_code=run.execution.allow_code)
    for name, metric in metrics.items():
        if wants_labels(metric) and not has_labels:
            raise InputRefused(
                f"the metric {name} needs labels, and {source or 'made-up data'} has none",
                hint="--data SOURCE?labels=ARRAY, or remove the metric: the outputs are compared "
                "with the baseline's anyway",
            )
    if run.measuring.output or any(map(wants_labels, metrics.values())):
        chosen_name({spec.name for spec in signature.outputs}, run.measuring.output)
    return Scorer(run, metrics)


def _measure(
    run: BenchRun,
    scorer: Scorer,
    runtimes: OpenedRuntimes,
    trained: SourceModel | None,
    model_files: Sequence[ModelFile],
    names: CommonNames,
) -> tuple[Rows, LoadMonitor]:
    """Everything measured of the trained model and of every .tflite in every runtime."""
    rows = Rows(run, scorer)
    if trained is not None and trained.kind != "tflite" and runtimes.serving is None:
        rows.add_trained(*measure_trained(run, trained, names.key))
    models = runtimes.models(run, trained, model_files, names)
    rows.notes += [*warned(model_files), *given_states(model_files), *names.notes]
    with LoadMonitor() as watch:
        time_in_rounds(run, models)
        time_batched(run, models)
        time_cold(run, models)
    evaluate(run, models)
    rows.add(models, trained)
    rows.notes += identity_notes(models)
    return rows, watch


def _class_labels(samples: EvaluationSet) -> tuple[int, ...]:
    labels = samples.labels
    if labels is None or labels.ndim != 1 or labels.dtype != np.int64 or labels.min() < 0:
        return ()
    return tuple(labels.tolist())


def identity_notes(models: Sequence[MeasuredModel]) -> tuple[str, ...]:
    """A note for each emulated row whose file ran in this environment's LiteRT too."""
    here = {
        _file(model): model
        for model in models
        if isinstance(model.runtime, LocalRuntime) and model.runtime.is_present_litert
    }
    emulated = [m for m in models if isinstance(m.runtime, LocalRuntime) and m.runtime.is_emulated]
    pairs = [(there, here.get(_file(there))) for there in emulated]
    return tuple(
        f"{there.name}: {difference(there.outputs, native.outputs, _outputs_of(there))}"
        for there, native in pairs
        if native is not None and there.outputs and native.outputs
    )


def difference(there: Outputs, here: Outputs, specs: Sequence[TensorSpec] = ()) -> str:
    """How the outputs of other kernels, (n, ...) by name, differ from those of this processor.

    Of quantized outputs, which have a scale in `specs`, the largest difference is in levels.
    """
    scales = {spec.name: spec.scale[0] for spec in specs if len(spec.scale) == 1}
    names = [name for name in there if name in here and there[name].shape == here[name].shape]
    count = sum(there[name].size for name in names)
    differing, texts = 0, []
    for name in names:
        a, b = (np.asarray(side[name]) for side in (there, here))
        is_equal = (a == b) | ((a != a) & (b != b))
        if is_equal.all():
            continue
        differing += int((~is_equal).sum())
        if np.issubdtype(a.dtype, np.number):
            largest = float(np.abs(a.astype(np.float64) - b.astype(np.float64))[~is_equal].max())
            scale = scales.get(name)
            texts.append(f"{largest / scale:.0f} levels" if scale else f"{largest:.2g}")
    if not differing:
        return f"identical to this processor's, bit for bit, in all {count:,} values"
    most = f"; the largest difference is {', '.join(texts)}" if texts else ""
    return f"{differing:,} of {count:,} values differ from this processor's{most}"


def _file(model: MeasuredModel) -> str:
    return str(model.model_file.file) if model.model_file else ""


def _outputs_of(model: MeasuredModel) -> tuple[TensorSpec, ...]:
    return model.model_file.signature.outputs if model.model_file else ()
