"""The verb `bench`: every model and the baseline, on the same samples and machine."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv import data
from edgeconv.data import input_ranges
from edgeconv.data.evaluation import EvaluationSet
from edgeconv.measure.machine import LoadMonitor, load_warnings
from edgeconv.measure.matrix import version_matrix
from edgeconv.measure.metrics.scoring import (
    Scorer,
    commonest_share,
    flips,
    make_scorer,
    wants_labels,
)
from edgeconv.measure.model_files import (
    CommonNames,
    ModelFile,
    find_baseline,
    find_model_files,
    given_states,
    npu_estimates,
    preprocessing_of,
    record_of,
    warned,
    with_npu,
)
from edgeconv.measure.models import BenchRun, MeasuredModel, OpenedRuntimes, evaluate, open_runtimes
from edgeconv.measure.rows import Rows
from edgeconv.measure.timing import measure_trained, time_batched, time_cold, time_in_rounds
from edgeconv.requests.bench import BenchRequest
from edgeconv.runtimes.choice import most_samples
from edgeconv.runtimes.interface import Arrays
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.statistics.comparison import drop_of, latency_ratio_interval
from edgeconv.system.store import read_noun, refuse_inputs, scratch_directory, writable_directory
from edgeconv.types import (
    Accuracy,
    Artifact,
    Comparison,
    Conditions,
    DataIdentity,
    DataSource,
    InputRange,
    Measurement,
    Measuring,
    Preprocessing,
    Report,
    SourceModel,
    TensorSpec,
    TrainingRecord,
    VersionResult,
)
from edgeconv.types.errors import InputRefused
from edgeconv.types.measurement import UNTIMED
from edgeconv.types.words import listed

_SYNTHETIC_SAMPLES = 8
_SYNTHETIC_SEED = 7
_MADE_UP = "the samples are made up: outputs that differ on noise may agree on real ones (--data)"


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
        samples, limited = _sampled(stack, request, names, steps)
        run = BenchRun(samples, measuring, execution, scratch, on_progress)
        scorer = _scorer(run, source, names.outputs)
        estimates = npu_estimates(run, model_files)
        runtimes = stack.enter_context(open_runtimes(run, trained))
        matrix = version_matrix(run, model_files, names) if measuring.versions is not None else ()
        rows, watch = _measure(run, scorer, runtimes, trained, model_files, names)
        measured = with_npu(rows.artifacts(), estimates)
        identity = _identity(samples, steps if source else {})
    first = rows.baseline
    accuracies = (row.accuracy for row in (first, *measured) if row)
    labels = scorer.labels_of(next(filter(None, accuracies), None))
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
        labels=_class_labels(labels),
        class_names=samples.class_names,
        command=("edgeconv", "bench", *request.words()),
        notes=(
            *notes,
            *preprocessing_notes,
            *measurement_warnings(first, samples, labels, training, artifacts),
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
        samples, _ = _sampled(stack, request, names, steps)
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
    names: CommonNames,
    steps: Mapping[str, Preprocessing],
) -> tuple[EvaluationSet, tuple[str, ...]]:
    """The samples to measure on: of a SOURCE, open as long as the stack, or made up.

    Where their number is not chosen, slow runtimes get fewer; a note says how many.
    """
    if request.data is None:
        batch = data.batch_size(data.synthetic_inputs(names.inputs))
        made_up = data.synthetic_samples(names.inputs, _SYNTHETIC_SAMPLES, _SYNTHETIC_SEED)
        return EvaluationSet(made_up, None, batch), (_MADE_UP,)
    opened = data.opened_samples(
        request.data,
        names.inputs,
        preprocessing=steps,
        allow_code=request.execution.allow_code,
        labels=data.LabelUse(
            needs="numbers" if request.measuring.metrics else "either",
            outputs=tuple(spec.name for spec in names.outputs),
        ),
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


def _scorer(run: BenchRun, source: DataSource | None, outputs: tuple[TensorSpec, ...]) -> Scorer:
    """The metrics to compute. Raises `InputRefused` without labels for them, `UsageError`."""
    scorer = make_scorer(run, outputs)
    for name, metric in scorer.metrics.items():
        if wants_labels(metric) and not scorer.labels:
            raise InputRefused(
                f"the metric {name} needs labels, and {source or 'made-up data'} has none",
                hint="--data SOURCE?labels=ARRAY, or remove the metric: the outputs are compared "
                "with the baseline's anyway",
            )
    return scorer


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


def _class_labels(labels: NDArray[np.generic] | None) -> tuple[int, ...]:
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


def difference(there: Arrays, here: Arrays, specs: Sequence[TensorSpec] = ()) -> str:
    """How the outputs of other kernels, (n, ...) by name, differ from this processor's.

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


# Below this many times what guessing the commonest class gives, a model is next to useless.
_NEAR_CHANCE = 1.5
# A test set is rarely this much harder than another of the same kind.
_FAR_BELOW = 0.1
# Sets of one kind are seldom this many times as wide as one another, or this many deviations apart.
_SCALES_APART = 4.0
# Nor this many times where only one of both has values below zero, and many of them.
_SIGNED_APART, _BELOW_ZERO = 1.5, 0.25
# What Keras calls the share of samples whose best class is the label.
_TOP1 = ("accuracy", "sparse_categorical_accuracy", "categorical_accuracy")


def with_baseline(
    row: Measurement, baseline: Measurement | None, rows: Sequence[Measurement]
) -> Measurement:
    """The row compared with the trained model and with the float32 .tflite."""
    floating = row.float_latency(rows)
    ratio = row.latency.p50_us / floating.p50_us if row.latency and floating else None
    interval = None
    if row.latency and floating and floating is not row.latency:
        interval = latency_ratio_interval(row.latency, floating)
    row = msgspec.structs.replace(row, latency_ratio=ratio, latency_ratio_interval=interval)
    if baseline is None:
        return row
    metrics = tuple(_with_drop(each, baseline.metrics) for each in row.metrics)
    size_ratio = row.size_bytes / baseline.size_bytes
    row = msgspec.structs.replace(row, size_ratio=size_ratio, metrics=metrics)
    if not (row.accuracy and baseline.accuracy):
        return row
    is_same = row.sha256 == baseline.sha256 and row.accuracy == baseline.accuracy
    drop, bounds = (0.0, (0.0, 0.0)) if is_same else drop_of(baseline.accuracy, row.accuracy)
    counts = flips(baseline.accuracy, row.accuracy) if row.accuracy.correct else (None, None)
    return msgspec.structs.replace(
        row, accuracy_drop=drop, accuracy_drop_interval=bounds, fixed=counts[0], broken=counts[1]
    )


def _with_drop(metric: Accuracy, others: Sequence[Accuracy]) -> Accuracy:
    """A further metric with its drop from the baseline's."""
    before = next((each for each in others if each.title == metric.title), None)
    if before is None:
        return metric
    drop, interval = drop_of(before, metric)
    return msgspec.structs.replace(metric, drop=drop, drop_interval=interval)


def compared(
    rows: Sequence[Measurement], artifacts: Sequence[Artifact | None]
) -> tuple[Comparison, ...]:
    """What quantization-aware training gained over plain int8, for every model that has both.

    `artifacts` belong to the rows, in their order.
    """
    by_recipe = {
        (row.group, artifact.name, artifact.recipe.name): row
        for row, artifact in zip(rows, artifacts, strict=True)
        if artifact
    }
    pairs = [
        (row, by_recipe.get((group, name, "int8")))
        for (group, name, to), row in by_recipe.items()
        if to == "qat"
    ]
    return tuple(
        _comparison(row, other) for row, other in pairs if other and row.accuracy and other.accuracy
    )


def _comparison(row: Measurement, other: Measurement) -> Comparison:
    assert row.accuracy is not None
    assert other.accuracy is not None
    fixed, broken = flips(other.accuracy, row.accuracy)
    gain, interval = drop_of(row.accuracy, other.accuracy)
    return Comparison(
        model=row.name,
        other=other.name,
        difference=gain,
        interval=interval or (gain, gain),
        fixed=fixed,
        broken=broken,
    )


def measurement_warnings(
    baseline: Measurement | None,
    samples: EvaluationSet,
    labels: NDArray[np.generic] | None,
    training: TrainingRecord | None,
    artifacts: Sequence[Artifact],
) -> tuple[str, ...]:
    """All signs of that in what was measured on these samples; the accuracy is of `labels`."""
    is_table = all(array.ndim <= 2 for array in samples.first.arrays.values())
    return (
        *accuracy_warnings(baseline, labels, training, is_table=is_table),
        *training_data_warnings(artifacts, samples.text),
        *range_warnings(artifacts, () if samples.is_made_up else _float_ranges(samples)),
    )


def _float_ranges(samples: EvaluationSet) -> tuple[InputRange, ...]:
    """Those of inputs that are not quantized yet, over the first samples."""
    arrays = samples.first.arrays
    return tuple(r for r in input_ranges(samples.first) if arrays[r.name].dtype.kind == "f")


def accuracy_warnings(
    baseline: Measurement | None,
    labels: NDArray[np.generic] | None,
    training: TrainingRecord | None,
    *,
    is_table: bool = False,
) -> tuple[str, ...]:
    """A warning of a trained model that is far worse on `labels`, (n,), than it should be."""
    measured = baseline.accuracy if baseline else None
    if measured is None or measured.metric != "top1" or labels is None:
        return ()
    accuracy = measured.value
    stated = _stated(training) if training else None
    advice = "`edgeconv doctor MODEL DATA` finds which preprocessing it was trained with"
    if stated is not None and accuracy < stated - _FAR_BELOW:
        return (
            f"the trained model has {accuracy:.3f} here and {stated:.3f} in its record: {advice}",
        )
    commonest = commonest_share(labels)
    # A model of a table may be weak: only one that is no better than guessing is doubted.
    near = commonest if is_table else min(_NEAR_CHANCE * commonest, (1 + commonest) / 2)
    if accuracy <= near:
        return (
            f"the trained model has {accuracy:.3f}, and always guessing the commonest label "
            f"{commonest:.3f}: {advice}",
        )
    return ()


def training_data_warnings(artifacts: Sequence[Artifact], source: str) -> tuple[str, ...]:
    """Warnings of artifacts that were trained on the SOURCE that they are measured on."""
    return tuple(
        f"{artifact.recipe.name} was trained on {source}, the samples it is measured on here: "
        "measure it on others"
        for artifact in artifacts
        if artifact.qat is not None and artifact.qat.source == source
    )


def _stated(training: TrainingRecord) -> float | None:
    """The top-1 accuracy on the test samples in a record."""
    return next((training.test_metrics[n] for n in _TOP1 if n in training.test_metrics), None)


def range_warnings(
    artifacts: Sequence[Artifact], measured: Sequence[InputRange]
) -> tuple[str, ...]:
    """Warnings of artifacts that were calibrated in another scale than `measured`.

    The ranges belong to the inputs of the model that is measured.
    """
    by_name = {each.name: each for each in measured}
    pairs = {
        (calibrated.text, by_name[calibrated.name].text): artifact.recipe.name
        for artifact in artifacts
        for record in artifact.calibration
        for calibrated in record.inputs
        if calibrated.name in by_name and _is_other_scale(calibrated, by_name[calibrated.name])
    }
    return tuple(
        f"{recipe} was calibrated on samples at a different scale than those here: {calibrated}; "
        f"here {here}: one of the two has the wrong preprocessing"
        for (calibrated, here), recipe in pairs.items()
    )


def _is_other_scale(calibrated: InputRange, measured: InputRange) -> bool:
    low, high = sorted((calibrated.deviation, measured.deviation))
    apart = abs(calibrated.mean - measured.mean)
    if high > _SCALES_APART * low or apart > _SCALES_APART * high:
        return True
    signed, unsigned = sorted((calibrated, measured), key=lambda each: each.low)
    is_signed = -signed.low > _BELOW_ZERO * (signed.high - signed.low) and unsigned.low >= 0
    return is_signed and high > _SIGNED_APART * low
