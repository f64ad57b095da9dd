"""One float32 graph with its samples, and all that is made of it.

The graph is run once, and calibrated once, in a child that stays; recipes are made of it and
verified, together or one after the other. `convert` has a session for each rung of the ladder that
it tries; `debug` and `tune` go on with the one whose float32 graph is right.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.conversion.calibration_checks import CalibrationCheck, check_calibration
from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.data import read_samples, write_samples
from edgeconv.model.tflite import multiplications
from edgeconv.plugins import runtime_module
from edgeconv.quantize.half_floats import HalfFloatJob, layer_magnitudes, overflow_warning
from edgeconv.quantize.worker import (
    ENVIRONMENT,
    GraphFile,
    LoadJob,
    QuantizeAnswer,
    QuantizeJob,
    QuantizePart,
    load_engine,
    quantize,
)
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import IdleRunners, RuntimePython, StoredRun, start_run
from edgeconv.statistics.outputs import TOGETHER
from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import start_ahead
from edgeconv.tf.tflite_converter import EngineJob, EnginePart, quantize_with_tflite, refuse_recipe
from edgeconv.types import CalibrationRecord, Recipe, TargetRuntime
from edgeconv.types.conversion import NOT_TRIED
from edgeconv.types.errors import (
    EdgeconvError,
    InputRefused,
    ToolFailed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from edgeconv.conversion.prepare import Part, PreparedModel, Reference
    from edgeconv.conversion.run import Run
    from edgeconv.system.processes.tasks import Answer, PendingCall, PersistentChild

    # By signature, then by output.
    Outputs = Mapping[str, dict[str, NDArray[np.generic]]]
    Candidates = Iterator[tuple[Recipe, Candidate | EdgeconvError]]


# A reference kernel does about 10^9 multiplications a second. 8 samples say little, but fewer less.
_MOST_PRODUCTS = 3 * 10**9
# What a delegate computes is worth a minute.
_MOST_PRODUCTS_ON_TARGET = 6 * 10**10
_FEWEST = 8
_MANY_PRODUCTS = 2 * 10**7
# About half a second of these kernels.
_MANY_PRODUCTS_SLOW = 5 * 10**8
# That one answer in a hundred is another one shows in a hundred samples at least.
_MOST_CALIBRATING = 200

# What stopped one recipe would stop the next: the user's own limits, or somebody.
_STOPPED = (WorkerTimedOut, WorkerOutOfMemory, WorkerKilled)
# The last TensorFlow for Python whose interpreter links the Select-TF (Flex) delegate.
_WITH_SELECT_TF = TargetRuntime(name="tensorflow", version="2.15.1")
_GPU = "gpu"
_NOT_CHECKED = "whether layers overflow in the 16-bit floats of a GPU was not checked"


class Answers(NamedTuple):
    """What a file answers to the held-back samples, and the runtime that said it."""

    outputs: Outputs
    runtime: str


class StoredAnswers(NamedTuple):
    """Stored samples of a signature, and what the float32 graph answers to them."""

    part: Part
    samples: Path
    outputs: Mapping[str, NDArray[np.generic]]


class Session:
    """A prepared model at work. Leaving it as a context manager ends its children.

    It can still be used after that, or after a crash of the child: the next call starts another
    child, which calibrates anew, and ends with the run. A process that runs a file then runs only
    that.
    """

    def __init__(self, run: Run, prepared: PreparedModel) -> None:
        self.run = run
        self.prepared = prepared
        self._standing = prepared.engine
        # By the recipe that they were verified for.
        self.float_models: dict[Recipe, VerifiedCandidate] = {}
        self.idle = IdleRunners(keeps=False)

    def __enter__(self) -> Self:
        # All files that are run are in these.
        self.idle = IdleRunners(self.run.scratch, self.prepared.float_model)
        return self

    def __exit__(self, *_: object) -> None:
        self.idle.close()
        if self._standing is not None:
            self._standing.close()

    def candidate(self, recipe: Recipe) -> Candidate:
        """The file of a recipe from the first engine, which is not verified.

        Raises the `EdgeconvError` that it ended in.
        """
        if recipe.name == "float32":
            return Candidate(recipe=recipe, file=self.prepared.float_model, engine="litert")
        ((_, outcome),) = start_quantizing(self, [recipe])
        if isinstance(outcome, EdgeconvError):
            raise outcome
        return outcome

    def child(self) -> PersistentChild:
        """The child that has the graph: it reads that and the samples, and writes to its own place.

        A new one if there is none, or none any more.
        """
        if self._standing is None or not self._standing.is_at_work:
            self._standing = start_engine(
                self.run, self.prepared.float_model, *self.prepared.calibration
            )
        self._standing.allow(self.run.execution.allowance)
        return self._standing

    def result(self, call: Callable[[Any], Answer], job: msgspec.Struct) -> Answer:
        """What a function of `edgeconv.quantize` answers that is called in the child."""
        return self.run.result(self.child().start(call, job))

    @property
    def graph(self) -> GraphFile:
        """The float32 graph and the samples that calibrate it, as the child takes them."""
        return GraphFile(
            float_model=str(self.prepared.float_model),
            parts=tuple(
                QuantizePart(
                    signature=part.signature.key,
                    samples=str(part.split.calibration) if part.split.calibration else None,
                    batch=part.split.batch,
                    stacked=part.split.stacked,
                    states=tuple(part.split.states.items()),
                )
                for part in self.prepared.parts
            ),
            threads=self.run.execution.threads,
        )

    @cached_property
    def where(self) -> RuntimePython:
        """The runtime that verifies."""
        return verifying_runtime(self.run, self.prepared.select_ops)

    @cached_property
    def target(self) -> RuntimePython:
        """The runtime that artifacts are for. Raises as `isolated_target` and `gpu_target` do."""
        run = self.run
        runtime = run.plan.request.target_runtime
        if runtime.name != _GPU:
            return isolated_target(runtime, run.on_progress)
        settings = RuntimeSettings(
            scratch=run.scratch, allowance=run.execution.allowance, on_progress=run.on_progress
        )
        python: RuntimePython = runtime_module(_GPU).gpu_target(settings)[0]
        return python

    @cached_property
    def overflows(self) -> list[str]:
        """Of a GPU: the layers that may overflow in its 16-bit floats, or why none is known."""
        if not self.target.gpu:
            return []
        graph = self.graph
        if not any(part.samples for part in graph.parts):
            return [f"{_NOT_CHECKED}: there are no calibration samples (--calibration)"]
        try:
            answer = self.result(layer_magnitudes, HalfFloatJob(graph=graph))
        except EdgeconvError as error:
            return [f"{_NOT_CHECKED}: {error.headline}"]
        return [warning] if (warning := overflow_warning(answer.layers)) else []

    @cached_property
    def expected(self) -> Answers:
        """What the float32 graph answers; it is run once."""
        return self.answers(self.prepared.float_model, self.where)

    @cached_property
    def reference(self) -> Reference | None:
        """What the trained model answers in TensorFlow; None if the source is the graph."""
        return self.prepared.reference.result() if self.prepared.reference else None

    @property
    def has_reference(self) -> bool:
        """Whether `reference` need not wait."""
        return self.prepared.reference is None or self.prepared.reference.is_there()

    @cached_property
    def calibration(self) -> dict[str, CalibrationCheck]:
        """The check of the calibration samples, by signature; {} where none were given."""
        return check_calibration(self)

    def checked(self, record: CalibrationRecord) -> CalibrationRecord:
        """The record of calibration samples with what their check gave."""
        check = self.calibration[record.signature]
        return msgspec.structs.replace(record, distance=check.distance, suspicions=check.suspicions)

    def answers(self, file: Path, target: RuntimePython, recipe: Recipe | None = None) -> Answers:
        """What a file of a recipe answers. Raises as `collect` does."""
        return self.collect(start_ahead(self.starts(file, target, recipe)))

    def answers_to(
        self,
        part: Part,
        samples: Path,
        file: Path | None = None,
        target: RuntimePython | None = None,
    ) -> Mapping[str, NDArray[np.generic]]:
        """What a file (None: the float32 graph) answers to stored samples of a signature.

        Raises as `collect`.
        """
        started = self._start(
            part, file or self.prepared.float_model, target or self.where, samples
        )
        return started.result().outputs

    def starts(
        self, file: Path, target: RuntimePython, recipe: Recipe | None = None
    ) -> list[Callable[[], StoredRun]]:
        """What starts a file on the held-back samples, a process for each signature.

        A recipe with slow kernels runs on some of them, see `some_outputs`.
        """
        return [
            functools.partial(
                self._start, part, file, target, self.samples_of(part, recipe), recipe
            )
            for part in self.prepared.parts
        ]

    def some_outputs(self, outputs: Outputs, recipe: Recipe) -> Outputs:
        """The outputs for the held-back samples that a recipe runs on."""
        rows = {part.signature.key: self._rows(part, recipe) for part in self.prepared.parts}
        return {
            key: of_key
            if rows[key] is None
            else {name: array[rows[key]] for name, array in of_key.items()}
            for key, of_key in outputs.items()
        }

    def batches_of(self, recipe: Recipe) -> tuple[int, ...]:
        """How many samples a recipe runs on at once, each in its turn, to prove an open batch.

        Slow kernels of a large model show with two what the float32 graph shows with more.
        """
        is_slow = recipe.name == "int16x8" and sum(TOGETHER) * self.products > _MANY_PRODUCTS_SLOW
        return TOGETHER[:1] if is_slow else TOGETHER

    def _rows(self, part: Part, recipe: Recipe | None) -> NDArray[np.intp] | None:
        """The held-back samples that a recipe runs on; None for all."""
        return self._affordable(part, recipe, part.split.held_back_count, _MOST_PRODUCTS)

    def _affordable(
        self, part: Part, recipe: Recipe | None, count: int, most_products: int
    ) -> NDArray[np.intp] | None:
        """Which of `count` samples a recipe runs on, in whole batches; None for all.

        The runtime has only reference kernels for int16x8, which take far longer than all others
        together: they get about `most_products` multiplications.
        """
        if recipe is None or recipe.name != "int16x8":
            return None
        batch = part.split.batch
        batches = count // batch
        most = max(-(-_FEWEST // batch), most_products // max(1, self.products * batch))
        if batches <= most:
            return None
        if part.split.states:
            return np.arange(most * batch)
        chosen = np.linspace(0, batches - 1, most).astype(np.intp)
        rows: NDArray[np.intp] = (chosen[:, None] * batch + np.arange(batch)).reshape(-1)
        return rows

    def samples_of(self, part: Part, recipe: Recipe | None) -> Path:
        """Where the held-back samples are stored that a recipe runs on."""
        rows = self._rows(part, recipe)
        if rows is None:
            return part.split.held_back
        directory = part.split.held_back.with_name("held-back-some")
        if not directory.exists():
            write_samples(read_samples(part.split.held_back).take(rows), directory)
        return directory

    @cached_property
    def calibrating(self) -> tuple[StoredAnswers, ...]:
        """Some of the samples that calibrate, with the float32 graph's answers, by signature."""
        stored = []
        for part in self.prepared.parts:
            if part.split.calibration is None:
                continue
            samples = read_samples(part.split.calibration)
            batch = part.split.batch
            count = min(samples.count, _MOST_CALIBRATING) // batch * batch
            chosen = np.linspace(0, samples.count - 1, count).astype(np.intp)
            directory = part.split.calibration.with_name("calibrating-some")
            write_samples(samples.take(chosen), directory)
            stored.append(StoredAnswers(part, directory, self.answers_to(part, directory)))
        return tuple(stored)

    def affordable(self, recipe: Recipe, stored: StoredAnswers) -> StoredAnswers:
        """Those of these samples that a recipe's kernels are fast enough for on a target."""
        count = min(map(len, stored.outputs.values()))
        rows = self._affordable(stored.part, recipe, count, _MOST_PRODUCTS_ON_TARGET)
        if rows is None:
            return stored
        directory = stored.samples.with_name("calibrating-few")
        if not directory.exists():
            write_samples(read_samples(stored.samples).take(rows), directory)
        few = {name: array[rows] for name, array in stored.outputs.items()}
        return stored._replace(samples=directory, outputs=few)

    @cached_property
    def products(self) -> int:
        """How many multiplications one sample takes."""
        return multiplications(self.prepared.float_model.read_bytes())

    def collect(self, running: Iterator[StoredRun]) -> Answers:
        """The answers of the next processes of `running`, one for each signature.

        Raises what the first that failed raised, once all of them have had their turn.
        """
        outputs: dict[str, dict[str, NDArray[np.generic]]] = {}
        failed: EdgeconvError | None = None
        runtime = ""
        for part in self.prepared.parts:
            each = next(running)
            try:
                run = each.result()
                outputs[part.signature.key] = run.outputs
                runtime = f"gpu {run.gpu.device}" if run.gpu else f"{run.runtime} {run.version}"
            except EdgeconvError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return Answers(outputs, runtime)

    def _start(
        self,
        part: Part,
        file: Path,
        target: RuntimePython,
        samples: Path,
        recipe: Recipe | None = None,
    ) -> StoredRun:
        # Threads in the kernels of 4 bits wait for each other by spinning, far longer than they
        # work. Another process is worth that for a large model only.
        spins = recipe is not None and recipe.name == "int8x4" and self.products > _MANY_PRODUCTS
        # Samples that calibrate have the states that the float32 graph gave.
        states = part.split.states if samples.name.startswith("held-back") else {}
        # Reference kernels have one thread, and keep it long enough for another interpreter.
        is_slow = recipe is not None and recipe.name == "int16x8" and self.products > _MANY_PRODUCTS
        return start_run(
            file,
            samples,
            scratch=self.run.scratch,
            signature=part.signature.key,
            batch=part.split.batch,
            threads=1 if spins else self.run.execution.threads,
            target=target,
            allowance=self.run.execution.allowance,
            idle=self.idle,
            states=states,
            others=self.run.execution.threads - 1 if is_slow and not states else 0,
        )


@dataclass(frozen=True)
class _PendingFile:
    """A recipe that the session's child makes, and where it puts the file."""

    recipe: Recipe
    file: Path
    call: PendingCall[QuantizeAnswer]


def start_engine(run: Run, *reads: Path) -> PersistentChild:
    """A child that loads litert-quantizer, for calls that may read these files and directories.

    It writes to its own place.
    """
    child = run.start_persistent(
        "litert-quantizer", access=Access(reads=reads), environment=ENVIRONMENT
    )
    child.start(load_engine, LoadJob())
    return child


def start_quantizing(
    session: Session, recipes: Sequence[Recipe], *, dense_per_tensor: bool = False
) -> Candidates:
    """Start litert-quantizer on all of `recipes`, one after the other in the session's child.

    `dense_per_tensor` gives the weights of dense layers one scale, for older runtimes. What comes
    back has a candidate or an error for each, in order, and waits for the next one only. Where the
    child crashes, the recipe that it was at has that error, and another child makes the rest.
    """
    started = [_start(session, recipe, dense_per_tensor) for recipe in recipes]
    return _candidates(session, started, dense_per_tensor)


def _candidates(
    session: Session, started: Sequence[_PendingFile], dense_per_tensor: bool
) -> Candidates:
    lost = False
    for number, pending in enumerate(started):
        recipe = pending.recipe
        session.run.on_progress(CountedLine(f"quantizing to {recipe.name}", number, len(started)))
        again = _start(session, recipe, dense_per_tensor) if lost else pending
        try:
            outcome: Candidate | EdgeconvError = _candidate_or_plain(
                session, again, dense_per_tensor
            )
        except _STOPPED as error:
            yield from ((each.recipe, error) for each in started[number:])
            return
        except (InputRefused, ToolFailed) as error:
            outcome = error
        lost = lost or not again.call.is_finished
        yield recipe, outcome


def _start(
    session: Session,
    recipe: Recipe,
    dense_per_tensor: bool = False,
    *,
    converted: Path | None = None,
) -> _PendingFile:
    """Start a recipe; its methods act on `converted` where TFLiteConverter made that."""
    child = session.child()
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=child.directory))
    file = directory / f"{recipe.name}.tflite"
    graph = session.graph
    if converted is not None:
        # The child reads nothing else of what the session wrote.
        own = shutil.copyfile(converted, directory / "converted.tflite")
        graph = msgspec.structs.replace(graph, quantized=str(own))
    job = QuantizeJob(graph=graph, recipe=recipe, file=str(file), dense_per_tensor=dense_per_tensor)
    return _PendingFile(recipe, file, child.start(quantize, job))


def _candidate_or_plain(
    session: Session, pending: _PendingFile, dense_per_tensor: bool
) -> Candidate:
    """The candidate; without methods where the child crashed, maybe of one that auto tried."""
    recipe = pending.recipe
    try:
        return _candidate(session, pending)
    except _STOPPED:
        raise
    except ToolFailed as error:
        if pending.call.is_finished or recipe.methods != ("auto",):
            raise
        reason = error.headline
    ranges = recipe.calibration_range
    plain = msgspec.structs.replace(
        recipe, methods=(), calibration_range="minmax" if ranges == "auto" else ranges
    )
    candidate = _candidate(session, _start(session, plain, dense_per_tensor))
    details = (*candidate.details, f"{NOT_TRIED}: {reason}")
    return msgspec.structs.replace(candidate, recipe=recipe, details=details)


def _candidate(session: Session, pending: _PendingFile) -> Candidate:
    attempt = session.run.result(pending.call)
    # The child goes on, and what it may write to is not what is verified and published.
    file = Path(tempfile.mkdtemp(prefix="made-", dir=session.run.scratch), pending.file.name)
    shutil.copyfile(pending.file, file)
    shutil.rmtree(pending.file.parent)
    return Candidate(
        recipe=pending.recipe,
        file=file,
        engine="litert",
        notes=attempt.notes,
        details=attempt.details,
        post_training=attempt.post_training,
        float_outputs=attempt.float_outputs,
        shared_scales=attempt.shared_scales,
        choosing_s=attempt.choosing_s,
    )


def quantize_with_converter(
    session: Session, recipe: Recipe, most_samples: int | None = None
) -> Candidate:
    """TFLiteConverter's candidate for `recipe`, with the recipe's methods for layers.

    With `most_samples` it is calibrated with no more, and without methods. Raises an
    `EdgeconvError` where it has none.
    """
    run, prepared = session.run, session.prepared
    refuse_recipe(recipe, is_tflite=prepared.saved_model is None)
    model = Path(prepared.saved_model or prepared.float_model)
    run.on_progress(f"quantizing to {recipe.name} with TFLiteConverter")
    directory = Path(tempfile.mkdtemp(prefix="made-", dir=run.scratch))
    target = directory / f"{recipe.name}.tflite"
    job = EngineJob(
        model=str(model),
        is_tflite=prepared.saved_model is None,
        parts=tuple(
            EnginePart(
                signature=part.signature.key,
                samples=str(part.split.calibration) if part.split.calibration else None,
                batch=part.split.batch,
                stacked=part.split.stacked,
            )
            for part in prepared.parts
        ),
        recipe=recipe,
        select_ops=run.plan.request.select_ops,
        target=str(target),
        most_samples=most_samples,
    )
    access = Access(reads=(model, *prepared.calibration), writes=(directory,))
    with run.start(quantize_with_tflite, job, "TFLiteConverter", access=access) as task:
        run.result(task)
    if not recipe.methods or most_samples:
        return Candidate(recipe=recipe, file=target, engine="tflite")
    try:
        refined = _candidate(session, _start(session, recipe, converted=target))
    except _STOPPED:
        raise
    except EdgeconvError as error:
        if recipe.methods != ("auto",):
            raise
        # What auto tries never costs the file.
        details = (f"{NOT_TRIED}: {error.headline}",)
        return Candidate(recipe=recipe, file=target, engine="tflite", details=details)
    return msgspec.structs.replace(refined, engine="tflite")


def verifying_runtime(run: Run, select_ops: tuple[str, ...]) -> RuntimePython:
    """The runtime that verifies: the installed one, or one that has TensorFlow's operators.

    Raises an `EdgeconvError` where that cannot be installed.
    """
    return isolated_target(_WITH_SELECT_TF, run.on_progress) if select_ops else RuntimePython()
