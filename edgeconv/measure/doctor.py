"""The verb `doctor`: which preprocessing a model was trained with, by trying the plausible ones."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from edgeconv import data
from edgeconv.data import Samples
from edgeconv.data.checks import check_labels
from edgeconv.data.preprocessing import describe
from edgeconv.data.source import DataSet, LocalDataSet
from edgeconv.data.suspects import classes_of
from edgeconv.measure.doctor_trials import (
    LEAST_SAMPLES,
    STANDARDIZED,
    CandidateSamples,
    Outputs,
    SearchScores,
    joined,
    pick_samples,
    score_candidates,
    stored_of,
    try_candidates,
)
from edgeconv.measure.metrics.scoring import labels_of_one
from edgeconv.measure.model_files import find_model_files, float_inputs, preprocessing_of
from edgeconv.measure.timing import run_trained
from edgeconv.model import source
from edgeconv.model.source.scanning import admit_model, loadable
from edgeconv.requests.looking import DoctorRequest
from edgeconv.runtimes.local import start_run
from edgeconv.statistics.comparison import is_better
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.system.store import scratch_directory, tool_versions
from edgeconv.tf.baseline import BaselineJob
from edgeconv.tf.keras_files import ExportJob, export_file
from edgeconv.types import (
    DataIdentity,
    DataSource,
    Diagnosis,
    Execution,
    Opening,
    Preprocessing,
    Signature,
    SourceKind,
    SourceModel,
    TensorSpec,
    Trial,
)
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import SERVING_DEFAULT


def doctor(
    request: DoctorRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Diagnosis:
    """Try the plausible preprocessings of labeled samples, and find which the model works with.

    A model that works with none is a result, not an error. Raises an `EdgeconvError` for several or
    integer inputs, no labels, a single label, fewer than 8 samples, or an output without a score
    for each class.
    """
    model, data_source, samples = request.model, request.data, request.samples
    execution = request.execution
    if samples is not None and samples < LEAST_SAMPLES:
        raise UsageError(f"the request is for {samples} samples", hint=f"at least {LEAST_SAMPLES}")
    chosen_steps = None if request.preprocess is None else request.preprocess.by_input
    _refuse_early(request, chosen_steps)
    with scratch_directory() as scratch:
        context = SearchContext(scratch=scratch, execution=execution, on_progress=on_progress)
        searched = open_model(context, model, request.signature, request.opening)
        # With steps, even empty ones, samples can be opened that do not fit the model as stored.
        steps = (searched.declared if chosen_steps is None else chosen_steps) or {
            "": Preprocessing()
        }
        with _opened(data_source, searched.spec, searched.outputs, steps, execution) as opened:
            whole, output = _of_classes(opened, searched.outputs, request.output)
            chosen = pick_samples(whole, samples, searched.batch)
        base = steps.get(searched.spec.name, steps.get("", Preprocessing()))
        tried = try_candidates(chosen, stored_of(chosen), base)
        on_progress(f"running the model with {len(tried)} preprocessings")
        outputs, runtime = run_model(context, searched, joined(tried, chosen))
    assert whole.labels is not None
    assert chosen.labels is not None
    limits = int(whole.labels.min()), int(whole.labels.max())
    parts = _parts(outputs, len(tried), chosen.count)
    scored = score_candidates(parts, chosen.labels, label_limits=limits, output=output)
    return _diagnosis(model, runtime, whole, chosen, tried, scored)


def _refuse_early(request: DoctorRequest, steps: Mapping[str, Preprocessing] | None) -> None:
    """Refuse a Keras file's input, or the samples for it, before the model is loaded."""
    signature = source.keras_file_signature(request.model)
    if signature is None or data.runs_code(request.data):
        return
    spec = only_float_input(request.model, signature)
    neutral = steps or {"": Preprocessing()}
    outputs = tuple(each.name for each in signature.outputs)
    with _opened(request.data, spec, outputs, neutral, request.execution) as opened:
        _of_classes(opened, outputs, request.output)


def _of_classes(
    samples: DataSet, outputs: Sequence[str], output: str | None
) -> tuple[DataSet, str | None]:
    """The samples with the labels of the output that is judged, and its name.

    Without a name it is the only one that has labels, or class numbers. Raises `InputRefused` for
    samples without labels.
    """
    labels = samples.labels
    if labels is not None and labels.dtype.names:
        judged = [name for name in labels.dtype.names if classes_of(labels, name) is not None]
        of_classes = labels[judged] if judged and output is None else labels
        labels, output = labels_of_one(of_classes, outputs, output)
    if labels is None:
        raise InputRefused(
            f"{samples.text} has no labels, which the search needs to know the right class",
            hint="name them: data.npz?labels=ARRAY, or a directory with one folder per class; in "
            "Python data=(samples, labels)",
        )
    labels = check_labels(samples.text, labels, samples.count)
    return dataclasses.replace(samples, labels=labels), output


def _opened(
    source: DataSource,
    spec: TensorSpec,
    outputs: tuple[str, ...],
    steps: Mapping[str, Preprocessing],
    execution: Execution,
) -> AbstractContextManager[DataSet]:
    return data.opened_samples(
        source,
        (spec,),
        preprocessing=steps,
        allow_code=execution.allow_code,
        labels=data.LabelUse(outputs=outputs),
        allowance=execution.allowance,
    )


def _parts(outputs: Outputs, parts: int, count: int) -> list[Outputs]:
    """The outputs of each candidate, cut out of the outputs of all in a row."""
    return [
        {name: array[part * count : (part + 1) * count] for name, array in outputs.items()}
        for part in range(parts)
    ]


def _diagnosis(
    model: str,
    runtime: str,
    whole: DataSet,
    source: LocalDataSet,
    tried: Sequence[CandidateSamples],
    scored: SearchScores,
) -> Diagnosis:
    stored = stored_of(source)
    trials = [
        Trial(
            name=attempt.candidate.name,
            preprocess=describe({"": attempt.candidate.steps}),
            accuracy=result.accuracy,
            interval=result.interval,
            fits=result.fits,
            is_current=attempt.is_current,
        )
        for attempt, result in zip(tried, scored.candidates, strict=True)
    ]
    trials = likeliest_first(trials)
    return Diagnosis(
        model=model,
        runtime=runtime,
        data=_identity(source, next(attempt for attempt in tried if attempt.is_current)),
        available=whole.count,
        stored_dtype=stored.dtype.name,
        stored_limits=stored.limits,
        classes=scored.classes,
        scores=scored.scores,
        label_offset=scored.label_offset,
        guessing=scored.guessing,
        chance=scored.chance,
        trials=tuple(trials),
        notes=tuple(_notes(trials, source)),
    )


def _identity(source: LocalDataSet, now: CandidateSamples) -> DataIdentity:
    used = dataclasses.replace(source, preprocessing={"": now.candidate.steps})
    digest = data.SamplesHash()
    for _ in used.chunks(np.arange(used.count), used.count, digest):
        pass
    return DataIdentity(
        source=used.text,
        samples=used.count,
        sha256=digest.hexdigest(),
        preprocessing=describe({"": now.candidate.steps}),
    )


def likeliest_first(trials: Sequence[Trial]) -> list[Trial]:
    """The trials, the best first, but a usual preprocessing before one computed from these samples,
    unless the latter is better by a test of the two.
    """
    ordered = sorted(trials, key=lambda trial: (not trial.fits, -trial.accuracy.value))
    usual = next((each for each in ordered if each.fits and not _is_computed(each)), None)
    if usual and not is_better(ordered[0].accuracy, usual.accuracy, 1):
        ordered.remove(usual)
        ordered.insert(0, usual)
    return ordered


def _is_computed(trial: Trial) -> bool:
    return trial.name.startswith(STANDARDIZED)


def _notes(trials: Sequence[Trial], source: LocalDataSet) -> Iterator[str]:
    if trials[0].fits and _is_computed(trials[0]):
        yield (
            f"the mean and std of {trials[0].name!r} are those of these {source.count} samples: "
            "use those of the training samples instead"
        )


Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """Where and how a model is run, and where progress goes."""

    scratch: Path
    execution: Execution
    on_progress: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SearchedModel:
    """A model with one float input.

    `path` and `kind` say what is run: a Keras file was exported as a SavedModel.
    `declared` is the preprocessing in its manifest, by input.
    """

    path: Path
    kind: SourceKind
    key: str
    spec: TensorSpec
    outputs: tuple[str, ...]
    declared: Mapping[str, Preprocessing]

    @property
    def batch(self) -> int:
        """How many samples the model takes at once."""
        return data.batch_size((self.spec,))


def open_model(
    context: SearchContext, model: str | Path, key: str | None, opening: Opening = Opening()
) -> SearchedModel:
    """The model at a path. Raises an `EdgeconvError` for one that cannot be searched."""
    allow_code = context.execution.allow_code
    admit_model(model, opening, allow_code=allow_code, trusted=context.execution.trusted)
    loaded = source.load_to_run(model, opening, allow_code=allow_code)
    declared: Mapping[str, Preprocessing] = {}
    if loaded.kind == "tflite":
        model_files = find_model_files((loaded.path,), key, context.execution.trusted)
        signature = model_files[0].signature
        declared, _ = preprocessing_of(model_files, None)
    else:
        loaded = _exported(context, loaded)
        signature = source.chosen_signature(loaded, key)
    return SearchedModel(
        path=Path(loaded.path),
        kind=loaded.kind,
        key=signature.key,
        spec=only_float_input(str(model), signature),
        outputs=tuple(each.name for each in signature.outputs),
        declared=declared,
    )


def run_model(
    context: SearchContext, searched: SearchedModel, samples: Samples
) -> tuple[dict[str, Array], str]:
    """The outputs (n, ...) by name, and the runtime. Raises an `EdgeconvError`."""
    if searched.kind == "tflite":
        stored = context.scratch / "samples"
        data.write_samples(samples, stored)
        return _run_tflite(context, searched, stored)
    return _run_tensorflow(context, searched, samples)


def _exported(context: SearchContext, model: SourceModel) -> SourceModel:
    """A SavedModel as TensorFlow takes it; a Keras file is exported as one."""
    target = context.scratch / "loaded" / "exported"
    copy = loadable(model, context.scratch / "copy", trusted=context.execution.trusted)
    if model.kind == "saved_model":
        return msgspec.structs.replace(model, path=str(copy))
    context.on_progress("loading the Keras file")
    job = ExportJob(path=str(copy), kind=model.kind, target=str(target), opening=model.opening)
    with start_task(
        export_file,
        job,
        label="loading the Keras file",
        scratch=context.scratch,
        access=Access(reads=(copy, *source.code_files(model.opening)), writes=(target.parent,)),
        allowance=context.execution.allowance,
        shown={str(copy): model.path},
    ) as task:
        task.result(context.on_progress)
    exported = source.load(target)
    signatures = tuple(s for s in exported.signatures if s.key == SERVING_DEFAULT)
    return msgspec.structs.replace(exported, signatures=signatures)


def only_float_input(model: str, signature: Signature) -> TensorSpec:
    """The one input of a signature. Raises `InputRefused` for several, or one of integers."""
    inputs = float_inputs(signature)
    if len(inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in inputs) or "none"
        raise InputRefused(
            f"{model} has {len(inputs)} inputs ({names}), and doctor tries preprocessings of one",
            hint="compare them one by one: edgeconv bench --preprocess 'INPUT.scale=1/255'",
        )
    (spec,) = inputs
    if not spec.dtype.startswith("float"):
        raise InputRefused(
            f"{model}: its input {spec.name!r} takes {spec.dtype}, so there is no scale to find",
            hint="whole numbers and strings go in as they are: if the accuracy is wrong, look at "
            "the labels and, for tokens and words, at the vocabulary",
        )
    return spec


def _run_tflite(
    context: SearchContext, searched: SearchedModel, stored: Path
) -> tuple[dict[str, Array], str]:
    with start_run(
        searched.path,
        stored,
        scratch=context.scratch,
        signature=searched.key or None,
        batch=searched.batch,
        threads=context.execution.threads,
        allowance=context.execution.allowance,
    ) as running:
        run = running.result()
        return run.outputs, f"{run.runtime} {run.version}"


def _run_tensorflow(
    context: SearchContext, searched: SearchedModel, samples: Samples
) -> tuple[dict[str, Array], str]:
    job = BaselineJob(
        path=str(searched.path),
        kind=searched.kind,
        signature=searched.key,
        inputs="",
        outputs="",
        samples=samples.count,
        warmup=0,
        repeats=0,
        threads=context.execution.threads,
    )
    _, outputs, _ = run_trained(
        job,
        [samples],
        scratch=context.scratch,
        allowance=context.execution.allowance,
        on_progress=context.on_progress,
    )
    return outputs, f"tensorflow {tool_versions()['tensorflow']}"
