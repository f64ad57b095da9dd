"""Quantization-aware training as a stage: from a Keras model and labeled samples to a candidate,
verified against the model that was trained and against the float one.
"""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv import data
from edgeconv.conversion.batches import verify_batches
from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.conversion.climb import SessionResult
from edgeconv.conversion.graph_checks import verify_graph
from edgeconv.conversion.ladder import Rung, combined_error, first_rung
from edgeconv.conversion.prepare import Part, PreparedModel, prepare
from edgeconv.conversion.run import Run
from edgeconv.conversion.session import Session
from edgeconv.conversion.target import has_target, verify_on_target
from edgeconv.conversion.verify import verify_float, verify_outputs
from edgeconv.data.samples import evenly, mapped_arrays
from edgeconv.model.source import code_files
from edgeconv.model.tflite.cut import input_fronts
from edgeconv.runtimes.local import start_run
from edgeconv.statistics.comparison import paired_difference, paired_mean_difference
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import (
    cache_directory,
    owned,
    publish_sealed,
    read_sealed,
    remove_directory,
)
from edgeconv.tf.qat.annotate import NORMALIZED_IN_FLOAT
from edgeconv.tf.qat.labels import LabelKind, labels_by_output, metric_name, right_shares
from edgeconv.tf.qat.member import QatJob, QatResult, train_qat
from edgeconv.tf.qat.opened import refuse_without_layers
from edgeconv.tf.shapes import FixedShapes
from edgeconv.training.cluster import Cluster
from edgeconv.training.members import ProcessSettings, clusters_of, launch, workers_of
from edgeconv.types import Qat, QatRecord, Recipe, Signature, Validated
from edgeconv.types.errors import (
    BatchRefused,
    ConversionRefused,
    EdgeconvError,
    UnsupportedOperators,
    VerificationFailed,
)

# A loss that no training with quantization explains: it went wrong. The interval must be
# wholly beyond it.
_MOST_LOST = 0.1
_MARKER = "made-here"
_FILE, _OUTPUTS = "qat.tflite", "qat-outputs"
# Of how many training samples is seen whether they differ.
_LOOKED_AT = 2000


class _QatSamples(NamedTuple):
    """Directories of stored samples: to train on, and to validate with.

    `notes` say what is suspicious about the former.
    """

    train: Path
    validation: Path | None
    notes: tuple[str, ...] = ()


def make_qat(run: Run, recipe: Recipe) -> SessionResult | EdgeconvError:
    """Train, convert and verify the recipe `qat`; the error that it ended in."""
    try:
        return _make(run, recipe)
    except EdgeconvError as error:
        return error


def _make(run: Run, recipe: Recipe) -> SessionResult:
    refuse_without_layers(run.plan.model.path, run.plan.model.kind)
    session = _session(run)
    prepared = session.prepared
    (part,) = prepared.parts
    samples = _stored(run, part.signature, _settings(recipe))
    candidate, trained = _trained(run, prepared, recipe, samples)
    run.on_progress(f"verifying {recipe.name}")
    expected = {part.signature.key: mapped_arrays(run.scratch / _OUTPUTS, trained.outputs)}
    graph = verify_graph(candidate, prepared.keys)
    answers = session.answers(candidate.file, session.where)
    examined = verify_outputs(
        session,
        candidate,
        graph,
        answers,
        expected,
        reference="model trained with quantization, in TensorFlow",
    )
    verify_batches(session, candidate, graph.signatures, answers.outputs)
    record = msgspec.structs.replace(
        _record(trained), validated=_validated(run, prepared, examined, samples, trained.labels)
    )
    candidate = msgspec.structs.replace(examined.candidate, qat=record)
    examined = msgspec.structs.replace(examined, candidate=candidate)
    if has_target(run):
        proven = verify_on_target(session, examined, expected)
        if isinstance(proven, EdgeconvError):
            raise proven
        examined = proven
    return SessionResult(session, examined)


def _session(run: Run) -> Session:
    """The session of a float32 model that is right, its batch fixed to 1 where it is not else."""
    rung = first_rung(run.plan.request.batch, {})
    try:
        return _at_rung(run, rung)
    except (BatchRefused, ConversionRefused, UnsupportedOperators) as error:
        if run.plan.request.batch is not None:
            raise
        failures = [(rung.text, error)]
    text = "batch fixed to 1"
    run.on_progress(f"trying again: {text}")
    fixed = FixedShapes(batch=1, only_open=True)
    try:
        return _at_rung(run, msgspec.structs.replace(rung, text=text, fixed=fixed, step=2))
    except EdgeconvError as error:
        raise combined_error([*failures, (text, error)]) from error


def _at_rung(run: Run, rung: Rung) -> Session:
    with contextlib.ExitStack() as children:
        prepared = prepare(run, rung, children, quantizes=False)
        session = children.enter_context(Session(run, prepared))
        run.on_progress("verifying float32 against the trained model")
        verify_float(session)
    return session


def _settings(recipe: Recipe) -> Qat:
    assert recipe.qat is not None, "make_recipes sees to it"
    return recipe.qat


def _record(trained: QatResult) -> QatRecord:
    assert trained.record is not None, "the chief has one"
    return trained.record


def _stored(run: Run, signature: Signature, settings: Qat) -> _QatSamples:
    """The samples, preprocessed, checked and stored, some kept apart to validate with.

    Both have every class in the same share.
    """
    request = run.plan.request
    assert request.training is not None, "refuse_options sees to it"
    with data.opened_samples(
        request.training,
        signature.inputs,
        preprocessing=request.preprocess.by_input,
        allow_code=run.execution.allow_code,
        labels=data.LabelUse(
            needs="numbers" if settings.target == "labels" else "none",
            outputs=tuple(spec.name for spec in signature.outputs),
        ),
        allowance=run.execution.allowance,
    ) as source:
        stored, kept = run.scratch / "samples" / "training", None
        indices = np.arange(source.count)
        apart = round(source.count * settings.validation_fraction)
        if apart:
            kept = stored.with_name("validation")
            indices, others = data.split_calibration(source, source.count - apart, held_back=apart)
            source.write(others, kept)
        train = source.write(indices, stored)
    looked_at = train.take(evenly(train.count, min(train.count, _LOOKED_AT)))
    notes = tuple(f"training samples: {each.reason}" for each in data.set_suspicions(looked_at))
    if source.labels is None and settings.target == "labels":
        notes += (f"{request.training} has no labels: trained to the float model's outputs",)
    return _QatSamples(train=stored, validation=kept, notes=notes)


def _trained(
    run: Run, prepared: PreparedModel, recipe: Recipe, samples: _QatSamples
) -> tuple[Candidate, QatResult]:
    """The .tflite, whose training goes on where one that was killed had come to."""
    distribution = _settings(recipe).distribution
    clusters = clusters_of(distribution)
    with _checkpoints(run, recipe) as checkpoints:
        trained = launch(
            clusters,
            train_qat,
            functools.partial(_job, run, prepared, recipe, samples, checkpoints, clusters),
            distribution,
            ProcessSettings(
                label="quantization-aware training",
                scratch=run.scratch,
                access=_access(run, prepared, samples, checkpoints),
                allowance=run.execution.allowance,
                on_progress=run.on_progress,
            ),
            resumes=run.execution.use_cache,
        )
        assert trained is not None, "the chief is among the processes started here"
        remove_directory(checkpoints)
    file = run.scratch / _OUTPUTS / _FILE
    notes = (*samples.notes, *trained.notes, *_notes(trained))
    in_float = [x for x in _record(trained).layers if x.reason == NORMALIZED_IN_FLOAT]
    fronts = input_fronts(file.read_bytes()) if in_float else ()
    outputs = tuple(layer for front in fronts for layer in front.layers)
    candidate = Candidate(
        recipe=recipe, file=file, engine="tflite", float_outputs=outputs, notes=notes
    )
    return candidate, trained


def _notes(trained: QatResult) -> tuple[str, ...]:
    left = [layer for layer in _record(trained).layers if layer.treatment == "float"]
    if not left:
        return ()
    names = "; ".join(f"{layer.name} ({layer.reason})" for layer in left)
    return (f"left float in the training: {names}",)


@contextlib.contextmanager
def _checkpoints(run: Run, recipe: Recipe) -> Iterator[Path]:
    """Where a training keeps how far it has come, so that the next run finds it."""
    if not run.execution.use_cache:
        yield run.scratch / "checkpoints"
        return
    directory = cache_directory() / "trainings" / run.plan.key(recipe)
    waiting = "waiting for another run that trains the same"
    with owned(directory, on_wait=lambda: run.on_progress(waiting)):
        checkpoints = _made_here(directory / "checkpoints")
        try:
            yield checkpoints
        finally:
            with contextlib.suppress(FileNotFoundError):
                if [path.name for path in checkpoints.iterdir()] == [_MARKER]:
                    remove_directory(checkpoints)


def _made_here(checkpoints: Path) -> Path:
    """The directory of checkpoints, empty where a cache from elsewhere brought it.

    What is in it changes while a child trains, so the seal is of the directory's number on this
    machine's disk, which no copy has.
    """
    marker = checkpoints / _MARKER
    if checkpoints.exists():
        if read_sealed(marker, str(checkpoints)) == _number_of(checkpoints):
            return checkpoints
        remove_directory(checkpoints)
    checkpoints.mkdir()
    publish_sealed(_number_of(checkpoints), marker, str(checkpoints))
    return checkpoints


def _number_of(directory: Path) -> bytes:
    state = directory.stat()
    return f"{state.st_dev} {state.st_ino}".encode("ascii")


def _access(run: Run, prepared: PreparedModel, samples: _QatSamples, checkpoints: Path) -> Access:
    model, (part,) = run.plan.model, prepared.parts
    stored = (samples.train, samples.validation, part.split.held_back)
    return Access(
        profile="training",
        reads=(
            run.loaded,
            *code_files(model.opening),
            *(path for path in stored if path is not None),
        ),
        writes=(checkpoints, run.scratch / _OUTPUTS),
    )


def _job(
    run: Run,
    prepared: PreparedModel,
    recipe: Recipe,
    samples: _QatSamples,
    checkpoints: Path,
    clusters: tuple[Cluster, ...],
    chief: bool,
) -> QatJob:
    plan, (part,) = run.plan, prepared.parts
    outputs = run.scratch / _OUTPUTS
    outputs.mkdir(exist_ok=True)
    return QatJob(
        path=str(run.loaded),
        name=plan.model.name,
        kind=plan.model.kind,
        opening=plan.model.opening,
        recipe=recipe,
        settings=_settings(recipe),
        source=str(plan.request.training),
        train=str(samples.train),
        validation=str(samples.validation) if samples.validation else None,
        held_back=str(part.split.held_back),
        batch=prepared.rung.fixed.batch,
        checkpoints=str(checkpoints),
        target=str(outputs / _FILE),
        outputs=str(outputs),
        workers=workers_of(clusters),
        is_chief=chief,
    )


def _validated(
    run: Run,
    prepared: PreparedModel,
    examined: VerifiedCandidate,
    samples: _QatSamples,
    kinds: Mapping[str, LabelKind],
) -> Validated | None:
    """How far the two models are right on the samples that were kept apart.

    `kinds` are those of the outputs that have labels. Raises `VerificationFailed` where so much is
    lost that the training went wrong.
    """
    if samples.validation is None or not kinds:
        return None
    (part,) = prepared.parts
    outputs = [spec.name for spec in part.signature.outputs]
    labels = labels_by_output(data.read_samples(samples.validation).labels, outputs)
    files = (prepared.float_model, examined.candidate.file)
    before, after = (
        _right(_answers(run, file, part, samples.validation), kinds, labels) for file in files
    )
    drop, low, high = _difference(before, after)
    metric = metric_name(kinds.values())
    if low > _MOST_LOST:
        raise VerificationFailed(
            f"quantization-aware training went wrong: on {len(after)} samples that were held back, "
            f"{metric.replace('_', ' ')} is {after.mean():.3f}, and the float model's "
            f"{before.mean():.3f}",
            hint="lower --qat-learning-rate, or train for more --qat-epochs",
        )
    return Validated(
        samples=len(before),
        float_accuracy=float(before.mean()),
        accuracy=float(after.mean()),
        drop=drop,
        interval=(low, high),
        metric=metric,
    )


def _answers(run: Run, file: Path, part: Part, samples: Path) -> dict[str, NDArray[Any]]:
    """The outputs (samples, ...) of a file, by name."""
    with start_run(
        file,
        samples,
        scratch=run.scratch,
        signature=part.signature.key,
        batch=part.split.batch,
        threads=run.execution.threads,
        allowance=run.execution.allowance,
    ) as running:
        return dict(running.result().outputs)


def _right(
    answers: Mapping[str, NDArray[Any]],
    kinds: Mapping[str, LabelKind],
    labels: Mapping[str, NDArray[Any]],
) -> NDArray[np.float64]:
    """How far the outputs are right in each sample, (samples,), in the mean over them."""
    shares = [right_shares(kind, answers[name], labels[name]) for name, kind in kinds.items()]
    mean: NDArray[np.float64] = np.mean(shares, axis=0)
    return mean


def _difference(
    before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, float, float]:
    """The mean that is lost with its interval: (difference, low, high)."""
    if np.isin([before, after], (0.0, 1.0)).all():
        first, second = ("".join("01"[int(right)] for right in each) for each in (before, after))
        return paired_difference(first, second)
    if len(before) == 1:
        drop = float(before[0] - after[0])
        return drop, drop, drop
    return paired_mean_difference(before.tolist(), after.tolist())
