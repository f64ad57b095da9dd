"""Trials made one after another in one session, each kept as soon as it is complete."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.conversion.candidate import Candidate
from edgeconv.conversion.climb import SessionResult, verify_in_session
from edgeconv.conversion.plan import FinishedArtifact, Plan, find_published
from edgeconv.conversion.publish import finish_artifact, publish
from edgeconv.data.evaluation import EvaluationSet
from edgeconv.data.source import DataSet
from edgeconv.measure.metrics.scores import Scored, SimilarityMetric, blocks
from edgeconv.measure.metrics.scoring import (
    Scorer,
    accuracy_of,
    chosen_output,
    make_scorer,
    wants_labels,
)
from edgeconv.measure.models import BenchRun, MeasuredModel, evaluate, open_runtimes
from edgeconv.measure.timing import latency_of, time_in_rounds
from edgeconv.plugins import npu_compiler
from edgeconv.plugins.scale.tune_search import LIKELY, chance_within, loss_of
from edgeconv.quantize.worker import Sensitivities, SensitivityJob, measure_sensitivities
from edgeconv.runtimes.choice import verified_in
from edgeconv.runtimes.interface import Arrays, Model, Runtime
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.system.store import (
    code_hash,
    hash_of,
    publish_bytes,
    read_noun,
    scratch_directory,
    sha256_file,
)
from edgeconv.types import (
    Accuracy,
    Artifact,
    Execution,
    Latency,
    Loss,
    Measuring,
    NpuChoice,
    NpuEstimate,
    Objective,
    Precision,
    Recipe,
    Sensitivity,
    Signature,
    Timing,
    TuningTrial,
)
from edgeconv.types.errors import (
    InputRefused,
    ToolFailed,
    UsageError,
    VerificationFailed,
    WorkerTimedOut,
)

# The first trial may be completed even where less time is left.
_LEAST_S = 10.0


class TimeIsUp(Exception):
    """The time of the search ended during a trial, which is lost."""


@dataclass(frozen=True)
class TrialRunner:
    """Makes trials, evaluates them and keeps them.

    `floating` is the float32 model, in whose session they are made as `plan` says. `directory` is
    this search's alone, and what an earlier run left in it is used again; `end_s` is on the clock
    of `time.monotonic`; `fresh` counts the fresh samples. `npu` is that of the objective
    npu-latency.
    """

    floating: SessionResult
    plan: Plan
    directory: Path
    evaluator: Evaluator
    objective: Objective
    budget: float
    fresh: int
    end_s: float
    execution: Execution
    npu: NpuChoice | None
    on_progress: Callable[[str], None]

    @property
    def model(self) -> Path:
        """The float32 .tflite."""
        return self.floating.session.prepared.float_model

    def trial(self, recipe: Recipe) -> TuningTrial:
        """The trial of a recipe: a kept one, or a new one. Raises `TimeIsUp`."""
        record = self.directory / "trials" / f"{_key(recipe)}.json"
        # Other code may not refuse it.
        refused = record.with_suffix(f".{code_hash()[:16]}.json")
        trial = self._read(record, recipe) or self._read(refused, recipe)
        if trial is None:
            started_s = time.monotonic()
            trial = self._run(recipe)
            trial = msgspec.structs.replace(trial, seconds=round(time.monotonic() - started_s, 2))
        trial = self._with_estimate(self._with_latency(trial))
        record.parent.mkdir(parents=True, exist_ok=True)
        publish_bytes(msgspec.json.encode(trial), refused if trial.error else record)
        return msgspec.structs.replace(trial, chance=self._chance(trial))

    def file(self, recipe: Recipe) -> Path:
        """The .tflite of a recipe that was tried."""
        return self._plan(recipe).target(recipe.name)

    def finished(self, recipe: Recipe) -> FinishedArtifact:
        """The artifact of a recipe that was tried, as `convert` would publish it."""
        artifact = find_published(self._plan(recipe), recipe)
        if artifact is None:
            artifact = self._publish(self._candidate(recipe))
        return FinishedArtifact(artifact=artifact, file=self.file(recipe))

    def sensitivities(self, precision: Precision) -> Sequence[Sensitivity]:
        """What each layer loses in this precision; kept as well. Raises `TimeIsUp`."""
        record = self.directory / f"sensitivity-{precision}.json"
        with contextlib.suppress(InputRefused):
            return read_noun(record, Sensitivities, what="ranking").layers
        self._limit_session("")
        session = self.floating.session
        job = SensitivityJob(graph=session.graph, precisions=(precision,))
        try:
            measured = session.result(measure_sensitivities, job)
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        publish_bytes(msgspec.json.encode(measured), record)
        return measured.layers

    def _read(self, record: Path, recipe: Recipe) -> TuningTrial | None:
        try:
            trial = read_noun(record, TuningTrial, what="trial")
        except InputRefused:
            return None
        artifact = None if trial.error else find_published(self._plan(recipe), recipe)
        is_whole = artifact is not None and artifact.sha256 == trial.sha256
        return trial if trial.error or is_whole else None

    def _run(self, recipe: Recipe) -> TuningTrial:
        failed = TuningTrial(name=name_of(recipe), recipe=recipe)
        try:
            candidate = self._candidate(recipe)
            trial = msgspec.structs.replace(
                failed,
                size_bytes=candidate.file.stat().st_size,
                sha256=sha256_file(candidate.file),
                post_training=candidate.post_training,
            )
            try:
                self._publish(candidate)
            except VerificationFailed as error:
                if error.cause.snr_db is None:
                    raise
                loss = self._loss_of_refused(candidate)
                return msgspec.structs.replace(trial, error=error.message, refused=True, loss=loss)
            self.on_progress(f"evaluating {trial.name}")
            return msgspec.structs.replace(trial, loss=self.evaluator.loss(self.file(recipe)))
        except WorkerTimedOut as error:
            raise self._timed_out(error) from error
        except (ToolFailed, UsageError) as error:
            return msgspec.structs.replace(failed, error=error.message)

    def _candidate(self, recipe: Recipe) -> Candidate:
        self._limit_session(f"{name_of(recipe)}: ")
        return self.floating.session.candidate(recipe)

    def _publish(self, candidate: Candidate) -> Artifact:
        """Verify the candidate and publish it in its own directory."""
        plan = self._plan(candidate.recipe)
        artifact = finish_artifact(plan, verify_in_session(self.floating, candidate))
        plan.directory.mkdir(parents=True, exist_ok=True)
        publish(plan, [artifact])
        return artifact.artifact

    def _loss_of_refused(self, candidate: Candidate) -> Loss:
        """What a file loses that failed its verification; it is deleted."""
        self.on_progress(f"evaluating {name_of(candidate.recipe)}, which verification refused")
        file = self.directory / "refused.tflite"
        shutil.copyfile(candidate.file, file)
        try:
            return self.evaluator.loss(file)
        finally:
            file.unlink()

    def _plan(self, recipe: Recipe) -> Plan:
        """What `convert` would plan for this recipe alone, published in its own directory."""
        directory = self.directory / "made" / _key(recipe)
        return msgspec.structs.replace(self.plan, recipes=(recipe,), directory=directory)

    def _limit_session(self, prefix: str) -> None:
        """Give the session's children no more time than is left, and its messages a prefix."""
        left_s = max(_LEAST_S, self.end_s - time.monotonic())
        allowance = self.execution.allowance
        allowance = msgspec.structs.replace(allowance, timeout_s=min(left_s, allowance.timeout_s))
        session = self.floating.session
        session.run = dataclasses.replace(
            session.run,
            execution=msgspec.structs.replace(self.execution, allowance=allowance),
            on_progress=lambda line: self.on_progress(f"{prefix}{line}" if prefix else line),
        )

    def _timed_out(self, error: WorkerTimedOut) -> Exception:
        """What it means: the search's time, or the user's limit for a child."""
        return TimeIsUp() if time.monotonic() >= self.end_s else error

    def _with_latency(self, trial: TuningTrial) -> TuningTrial:
        if self.objective != "latency" or trial.error or trial.latency_us is not None:
            return trial
        if self._chance(trial) < LIKELY:
            return trial
        self.on_progress(f"timing {trial.name}")
        try:
            latency = self.evaluator.latency(self.file(trial.recipe))
        except ToolFailed as error:
            return msgspec.structs.replace(trial, error=error.message)
        return msgspec.structs.replace(
            trial, latency_us=latency.p50_us, latency_interval_us=latency.p50_interval_us
        )

    def _with_estimate(self, trial: TuningTrial) -> TuningTrial:
        """With what is estimated for the NPU; an error where that is not the time of an invoke."""
        if self.npu is None or trial.error or trial.npu is not None:
            return trial
        self.on_progress(f"{trial.name} on {self.npu}")
        try:
            with scratch_directory() as scratch:
                file, allowance = self.file(trial.recipe), self.execution.allowance
                compiled = npu_compiler().compile_for(
                    self.npu, file, scratch=scratch, allowance=allowance
                )
        except (InputRefused, ToolFailed) as error:
            return msgspec.structs.replace(trial, error=f"on {self.npu}: {error.message}")
        estimate = compiled.estimate
        return msgspec.structs.replace(trial, npu=estimate, error=untimed(estimate))

    def _chance(self, trial: TuningTrial) -> float:
        """How probable it is that the fresh samples confirm the trial."""
        if trial.error or trial.loss is None:
            return 0.0
        # The float32 model loses nothing to itself.
        if trial.recipe.name == "float32":
            return 1.0
        return chance_within(trial.loss, self.budget, self.fresh)


def untimed(estimate: NpuEstimate) -> str:
    """Why an estimated time is not the time of an invoke; "" if it is."""
    if estimate.whole_latency_us is not None:
        return ""
    if not estimate.on_npu:
        return f"no operator is on {estimate.npu}"
    left = 1 - (estimate.work_share or 0.0)
    names = ", ".join(each.operator for each in estimate.left)
    return (
        f"{left:.1%} of the multiplications are not on {estimate.npu}, and have no estimate: "
        f"{names} stay on the processor"
    )


def name_of(recipe: Recipe) -> str:
    """The recipe's name, its ranges and methods, and how many layers have which other precision."""
    is_plain = recipe.calibration_range == "minmax" or recipe.methods == ("auto",)
    ranges = [] if is_plain else [f"{recipe.calibration_range} ranges"]
    name = " + ".join((recipe.name, *ranges, *recipe.methods))
    if not recipe.layers:
        return name
    precisions = [rule.precision for rule in recipe.layers]
    counts = [f"{precisions.count(each)} in {each}" for each in sorted(set(precisions))]
    return f"{name}, {' and '.join(counts)}"


def _key(recipe: Recipe) -> str:
    return hash_of(recipe)[:24]


# The accuracy of a .tflite on a part of the samples, and its latency.

AGREEMENT = "agreement"
# Quick, and the median of many: the times rank candidates and are not published.
_TIMING = Timing(repeats=200, seconds=0.3, warmup_seconds=1.0)
_ROUNDS = 3


class Evaluator:
    """Compares the answers of files to one part of the samples with the float32 model's.

    Files run in `runtime`, and the float32 model in `reference`, where it was verified against the
    trained model: other kernels may refuse it, or compute something else.
    """

    def __init__(
        self,
        run: BenchRun,
        runtime: Runtime,
        reference: Runtime,
        floating: Path,
        signature: Signature,
    ) -> None:
        """Runs the float32 model. Raises as `make_scorer` and `evaluate` do."""
        self._run = run
        self._runtime, self._has_own_kernels = runtime, reference is not runtime
        self._signature = signature.key
        self._scorer = make_scorer(run, signature.outputs)
        self.metric = next(iter(self._scorer.metrics), AGREEMENT)
        _refuse_metric(self._scorer, run)
        self._float_classes: NDArray[np.int64] | None = None
        self._float_accuracy = self._accuracy(floating, reference)
        self.float_loss = loss_of(self._float_accuracy, self._float_accuracy)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self._run.samples.count

    def loss(self, file: Path) -> Loss:
        """What the file loses to the float32 model. Raises `ToolFailed` where it does not run."""
        return loss_of(self._float_accuracy, self._accuracy(file, self._runtime))

    def kernels_loss(self, floating: Path) -> Loss | None:
        """What the float32 model itself loses by the runtime's kernels.

        None where it is their own reference, or does not run there.
        """
        if self._has_own_kernels:
            with contextlib.suppress(ToolFailed):
                return self.loss(floating)
        return None

    def latency(self, file: Path) -> Latency:
        """The times of an invoke. Raises `ToolFailed` where it does not run."""
        with self._own_scratch() as run:
            measured = self._measured_model(file, self._runtime)
            time_in_rounds(run, [measured])
            if measured.error is not None:
                raise measured.error
            batch = run.samples.batch
            return latency_of(measured.timed, threads=run.measuring.threads, batch=batch)

    def _accuracy(self, file: Path, runtime: Runtime) -> Accuracy:
        with self._own_scratch() as run:
            measured = self._measured_model(file, runtime)
            evaluate(run, [measured])
            if measured.error is not None:
                raise measured.error
            if self.metric == AGREEMENT:
                return self._agreement(measured.outputs)
            return self._scorer.accuracies(measured.outputs, None)[0]

    def _agreement(self, outputs: Arrays) -> Accuracy:
        """How often the file and the float32 model, which is run first, predict the same."""
        classes = predicted_classes(outputs, self._run.measuring.output)
        if self._float_classes is None:
            self._float_classes = classes
        same = (classes == self._float_classes).reshape(len(classes), -1)
        counts = same.shape[1] == 1
        values = same[:, 0] if counts else same.mean(axis=1)
        return accuracy_of(AGREEMENT, Scored(values.astype(np.float64)), counts=counts)

    def _measured_model(self, file: Path, runtime: Runtime) -> MeasuredModel:
        model = Model(file=file, signature=self._signature or None, batch=self._run.samples.batch)
        return MeasuredModel(file.stem, model, runtime)

    @contextlib.contextmanager
    def _own_scratch(self) -> Iterator[BenchRun]:
        """The outputs of one file are deleted with it: there may be gigabytes of them."""
        with tempfile.TemporaryDirectory(dir=self._run.scratch) as name:
            yield dataclasses.replace(self._run, scratch=Path(name))


def predicted_classes(outputs: Arrays, output: str | None) -> NDArray[np.int64]:
    """The class of each score vector, int64 [samples, ...] without the last dimension.

    Raises `InputRefused` for an output of single numbers, of which none is a class.
    """
    scores = chosen_output(outputs, output)
    if scores.ndim < 2 or scores.shape[-1] < 2:
        raise InputRefused(
            f"without labels the predicted classes are compared with the float32 model's, and an "
            f"output of shape {scores.shape} has none",
            hint="give labels, --data SOURCE?labels=ARRAY, and name a metric: --metric mae",
        )
    classes = np.empty(scores.shape[:-1], np.int64)
    for rows, block in blocks(scores):
        classes[rows] = block.argmax(axis=-1)
    return classes


@contextlib.contextmanager
def open_evaluators(
    sources: Mapping[str, DataSet],
    floating: Path,
    signature: Signature,
    batch: int,
    measuring: Measuring,
    execution: Execution,
    directory: Path,
) -> Iterator[dict[str, Evaluator]]:
    """An evaluator of each source, all on one runtime. Files are in `directory`, or `floating`.

    The float32 model, `floating`, runs where it was verified, see `verified_in`.

    Raises as `open_runtimes` and `Evaluator` do.
    """
    (chosen,) = measuring.runtimes
    verifying = verified_in(chosen)
    runtimes = (verifying, chosen) if verifying != chosen else (chosen,)
    measuring = msgspec.structs.replace(
        measuring, runtimes=runtimes, rounds=_ROUNDS, timing=_TIMING
    )
    reads = (directory, floating)
    with scratch_directory() as scratch, contextlib.ExitStack() as stack:
        runs = {
            name: BenchRun(
                EvaluationSet(source, None, batch),
                measuring,
                execution,
                scratch,
                lambda _: None,
                reads,
            )
            for name, source in sources.items()
        }
        places = stack.enter_context(open_runtimes(next(iter(runs.values())), None))
        reference, runtime = (places.running[str(each)] for each in (verifying, chosen))
        if not runtime.sessions:
            raise InputRefused(
                f"{chosen} gives no outputs, so there is no accuracy to keep",
                hint="tune with another --runtime, and measure on this one with edgeconv bench",
            )
        if measuring.is_timed and not runtime.has_times:
            raise InputRefused(
                f"{chosen} has no times, and --objective latency compares them",
                hint="tune for size there, or on another --runtime",
            )
        for each in (reference, runtime):
            # To start a process takes longer than to evaluate most files.
            if isinstance(each, LocalRuntime):
                stack.callback(each.idle.close)
        yield {
            name: Evaluator(run, runtime, reference, floating, signature)
            for name, run in runs.items()
        }


def _refuse_metric(scorer: Scorer, run: BenchRun) -> None:
    for name, metric in scorer.metrics.items():
        if isinstance(metric, SimilarityMetric):
            raise InputRefused(
                f"the metric {name} compares outputs, and a search needs an accuracy",
                hint="remove --metric: without labels the agreement with float32 counts",
            )
        if wants_labels(metric) and run.samples.labels is None:
            raise InputRefused(
                f"the metric {name} needs labels, and {run.samples.text} has none",
                hint="--data SOURCE?labels=ARRAY, or remove --metric: then the agreement with the "
                "float32 model counts",
            )
