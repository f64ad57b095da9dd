"""The accuracy of a .tflite on a part of the samples, and its latency."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from edgeconv.data.evaluation import EvaluationSet
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
from edgeconv.plugins.scale.tune_search import loss_of
from edgeconv.runtimes.choice import verified_in
from edgeconv.runtimes.interface import Arrays, Model, Runtime, RuntimeSession
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.system.store import scratch_directory
from edgeconv.types import Accuracy, Execution, Latency, Loss, Measuring, Signature, Timing
from edgeconv.types.errors import InputRefused, ToolFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgeconv.data.source import DataSet
    from edgeconv.runtimes.conversation import RunnerSession

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


class _ReusingRuntime:
    """A runtime of this machine whose processes load one file after another.

    To start a process takes longer than to evaluate most files. `time` is in a fresh process.
    """

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime
        self._idle: list[RunnerSession] = []
        self.environment = runtime.environment
        self.has_times, self.has_pace = runtime.has_times, runtime.has_pace
        self.gpu = runtime.gpu
        self.sessions = runtime.sessions
        self.time = runtime.time

    def start(self, model: Model) -> RuntimeSession:
        """Load the model for its outputs. Raises `ToolFailed`."""
        if not self._idle:
            return _ReusedSession(self._runtime.start(model), self._idle)
        session = self._idle.pop()
        try:
            self._runtime.load(session, model)
        except ToolFailed:
            session.close()
            raise
        return _ReusedSession(session, self._idle)

    def close(self) -> None:
        """End the idle processes."""
        for session in self._idle:
            session.close()


class _ReusedSession:
    """A session that becomes idle when it is closed, unless it failed."""

    def __init__(self, session: RunnerSession, idle: list[RunnerSession]) -> None:
        self._session: RunnerSession | None = session
        self._idle = idle

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, [samples, ...]. Raises `ToolFailed`."""
        assert self._session is not None, "it is not run once it is closed"
        try:
            return self._session.run(inputs)
        except ToolFailed:
            self._session.close()
            self._session = None
            raise

    def close(self) -> None:
        """Make the process idle."""
        if self._session is not None:
            self._idle.append(self._session)
            self._session = None


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
                _quiet,
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
        is_one = reference is runtime
        if isinstance(runtime, LocalRuntime):
            runtime = _ReusingRuntime(runtime)
            stack.callback(runtime.close)
        yield {
            name: Evaluator(run, runtime, runtime if is_one else reference, floating, signature)
            for name, run in runs.items()
        }


def _quiet(_: str) -> None:
    pass


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
