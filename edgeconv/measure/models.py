"""The models of one bench in their runtimes, and what was measured of each so far.

Their outputs are computed in parallel, and never all in memory. The samples are read once, part by
part, and every part goes to every model. Each worker runs one part at a time, and has a session for
each model, started when it is first needed. Models that would need too many sessions wait for a
later pass.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.data import Samples
from edgeconv.data.evaluation import EvaluationSet
from edgeconv.data.handover import RowsFile
from edgeconv.measure.model_files import CommonNames, ModelFile
from edgeconv.measure.timing import NAME, check_pace
from edgeconv.runtimes.choice import compared_with, leased, open_runtime
from edgeconv.runtimes.interface import Model, Runtime, RuntimeSession, RuntimeSettings, Timed
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.system.processes.progress import CountedLine
from edgeconv.types import Environment, Execution, Measuring, RuntimeChoice, SourceModel
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed, UsageError
from edgeconv.types.words import listed

# The runtime that serves the trained model, and the one that it has by default.
_SERVING, _TRAINED = "tfserving", RuntimeChoice(name="tensorflow")
_DEFAULT = RuntimeChoice(name="litert")


@dataclass(frozen=True)
class BenchRun:
    """One bench: the evaluation set, what to measure, and how.

    `reads` are directories of models that one process is to run one after the other.
    """

    samples: EvaluationSet
    measuring: Measuring
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]
    reads: tuple[Path, ...] = ()

    def settings(self) -> RuntimeSettings:
        """The settings of the runtimes."""
        return RuntimeSettings(
            scratch=self.scratch,
            threads=self.measuring.threads,
            accelerator=self.measuring.accelerator,
            python=self.measuring.python,
            binary=self.measuring.binary,
            allowance=self.execution.allowance,
            reads=self.reads,
            on_progress=self.on_progress,
        )


@dataclass(eq=False)
class MeasuredModel:
    """One model in one runtime: what was measured of it, and the error that ended that.

    `name` is the row's, and `runtime_text` the runtime as it was given, "" for the trained model.
    `paced` are the timings of invokes in a fixed period, `cold` those of fresh processes.
    `model_file` is None for the trained model; where a server runs it,
    `batched` is that model with many samples an invoke, and `batched_us` their times.
    """

    name: str
    model: Model
    runtime: Runtime
    model_file: ModelFile | None = None
    runtime_text: str = ""
    timed: list[Timed] = field(default_factory=list)
    paced: list[Timed] = field(default_factory=list)
    cold: list[Timed] = field(default_factory=list)
    outputs: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    error: EdgeconvError | None = None
    batched: Model | None = None
    batched_us: tuple[float, ...] = ()


class OutputFiles:
    """The outputs of one model over `count` samples, in files of a new directory."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._count = count
        self._files: dict[str, RowsFile] | None = None

    def begin(self, outputs: Mapping[str, NDArray[np.generic]], samples: int) -> None:
        """Make the files, for outputs like these of `samples` samples.

        An output without one row for each sample is left out.
        """
        each = {n: a for n, a in outputs.items() if a.shape[:1] == (samples,)}
        self._files = {
            name: RowsFile(self._directory / f"{index}.npy", self._count, array)
            for index, (name, array) in enumerate(each.items())
        }

    @property
    def is_begun(self) -> bool:
        """Whether the files are there."""
        return self._files is not None

    def put(self, start: int, outputs: Mapping[str, NDArray[np.generic]], samples: int) -> None:
        """Keep the outputs of the samples from `start` on. Raises `ToolFailed`."""
        assert self._files is not None
        for name, file in self._files.items():
            array = outputs.get(name)
            if array is None or len(array) != samples:
                raise ToolFailed(f"the output {name!r} is missing for samples {start} and after")
            try:
                file.write(start, array)
            except InputRefused as error:
                raise ToolFailed(f"the output {name!r} has {error.message}") from error

    def close(self) -> dict[str, NDArray[np.generic]]:
        """The outputs by name, (count, ...), mapped from the files."""
        for file in (self._files or {}).values():
            file.close()
        return {
            name: np.load(file.path, mmap_mode="r") for name, file in (self._files or {}).items()
        }


@dataclass(frozen=True)
class OpenedRuntimes:
    """The runtimes of .tflite files by their text, and the one that serves, if any."""

    running: dict[str, Runtime]
    serving: Runtime | None

    @property
    def environment(self) -> Environment:
        """The machine that the .tflite files run on."""
        return next(iter(self.running.values())).environment

    @property
    def is_here(self) -> bool:
        """Whether that is this machine."""
        return not self.environment.host

    @property
    def notes(self) -> tuple[str, ...]:
        """What these runtimes do not give."""
        silent = (text for text, runtime in self.running.items() if not runtime.sessions)
        untimed = [each for each in self.running.items() if not each[1].has_times]
        emulated = (text for text, runtime in self.running.items() if is_emulated(runtime))
        return (
            *(f"{text} gives no outputs: there is no accuracy and no agreement" for text in silent),
            *(
                f"{text} runs a device's kernels on this processor: the outputs are the device's, "
                "and no times are shown"
                for text, runtime in untimed
                if not runtime.gpu
            ),
            *(
                f"{text} is {runtime.gpu}, which computes on this processor: it runs the program "
                "of LiteRT's GPU delegate, but not with a phone's driver or its 16-bit floats, and "
                "no times are shown"
                for text, runtime in untimed
                if runtime.gpu
            ),
            *(f"{text} is emulated by QEMU: 20 to 200 times slower than here" for text in emulated),
        )

    def models(
        self,
        run: BenchRun,
        trained: SourceModel | None,
        model_files: Sequence[ModelFile],
        names: CommonNames,
    ) -> list[MeasuredModel]:
        """The trained model, unless it is measured in TensorFlow; every file in every runtime."""
        batch = run.samples.batch
        models = []
        if trained is not None and (self.serving or trained.kind == "tflite"):
            runtime = self.serving or next(iter(self.running.values()))
            if self.serving:
                model = Model(file=Path(trained.path), signature=names.key, batch=batch)
            else:
                model = names.trained(trained, batch, run.scratch)
            models.append(MeasuredModel(NAME, model, runtime))
            if self.serving and batch == 1:
                many = run.samples.first.count
                models[0].batched = msgspec.structs.replace(model, batch=many)
        for text, runtime in self.running.items():
            for file in model_files:
                name = file.name if len(self.running) == 1 else f"{file.name} in {text}"
                model = names.model(file.file, file.signature, batch, run.scratch)
                models.append(MeasuredModel(name, model, runtime, file, text))
        return models


@contextlib.contextmanager
def open_runtimes(run: BenchRun, trained: SourceModel | None) -> Iterator[OpenedRuntimes]:
    """The runtimes that `--runtime` names, with LiteRT for .tflite files by default.

    Those that their answers are compared with are added. Another run on the same device is waited
    for.

    Raises `UsageError` for what cannot be measured together, and as the runtimes do.
    """
    choices: list[RuntimeChoice] = []
    chosen = run.measuring.runtimes
    others = [compared_with(choice, run.measuring.accelerator) for choice in chosen]
    for each in (*others, *chosen):
        if each is not None and each not in choices:
            choices.append(each)
    serving = [choice for choice in choices if choice.name == _SERVING]
    running = [c for c in choices if c.name != _SERVING and c != _TRAINED]
    if len(serving) > 1 or (serving and trained is None):
        raise UsageError(
            f"{serving[-1]} is to be the baseline, and "
            + ("another is as well" if len(serving) > 1 else "no trained model is known"),
            hint="name one server, and the model that it serves with --baseline",
        )
    with contextlib.ExitStack() as stack:
        settings = run.settings()
        running = running or [_DEFAULT]
        stack.enter_context(leased(running, run.on_progress))
        # First those that others are opened for, which may refuse the settings.
        in_order = sorted(running, key=lambda choice: choice in others)
        plain = msgspec.structs.replace(settings, accelerator="interpreter")
        entered = {
            str(choice): stack.enter_context(
                open_runtime(choice, plain if choice in others else settings)
            )
            for choice in in_order
        }
        opened = {str(choice): entered[str(choice)] for choice in running}
        _check_one_machine(opened)
        check_pace(run.measuring, opened)
        served = [stack.enter_context(open_runtime(choice, settings)) for choice in serving]
        yield OpenedRuntimes(opened, served[0] if served else None)


def is_emulated(runtime: Runtime) -> bool:
    """Whether a runtime's processor is emulated, so that it is slow."""
    return isinstance(runtime, LocalRuntime) and runtime.is_emulated


def _check_one_machine(opened: dict[str, Runtime]) -> None:
    machines = {runtime.environment.host for runtime in opened.values()}
    if len(machines) > 1:
        raise UsageError(
            f"{' and '.join(opened)} are different machines, but a report covers one",
            hint="measure on each, and show the reports together with edgeconv report",
        )


# A session is a process of some tens of megabytes and the model.
_MOST_SESSIONS = 32
# Parts that wait, so that no worker ever does.
_AHEAD = 2
# Fewer samples are done before it is known whether more at once are quicker.
_WORTHWHILE = 256
_TRIED = 8
# Quick models spend their time between invokes, slow ones in them.
_WIDE, _WIDER = 8, 64
_QUICK_S = 0.0005
# A larger batch only saves the time between invokes, a small part of slower ones than these.
_SLOW_S = 0.002
_GAIN = 0.95
_RUNS = 3


def evaluate(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Set the outputs over all samples, (samples, ...), or the error, of every model."""
    able = [model for model in models if model.error is None and model.runtime.sessions]
    workers = _workers(run, able)
    each = max(1, _MOST_SESSIONS // workers)
    for start in range(0, len(able), each):
        _pass(run, able[start : start + each], workers)


def _workers(run: BenchRun, models: Sequence[MeasuredModel]) -> int:
    sessions = [model.runtime.sessions for model in models]
    per_session = max(1, run.execution.threads // run.measuring.threads)
    return max(1, min([per_session, *sessions]))


def _pass(run: BenchRun, models: Sequence[MeasuredModel], workers: int) -> None:
    line = f"outputs of {listed(model.name for model in models)}"
    run.on_progress(line)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(ThreadPoolExecutor(workers))
        lanes = [_Lane(run, model) for model in models]
        for lane in lanes:
            # Called before the workers are waited for: it ends their sessions.
            stack.callback(lane.close)
        list(executor.map(_Lane.begin, lanes))
        _feed(run, lanes, executor, workers, line)
        for lane in lanes:
            if lane.measured.error is None:
                lane.measured.outputs = lane.kept.close()


def _feed(
    run: BenchRun, lanes: Sequence[_Lane], executor: ThreadPoolExecutor, workers: int, line: str
) -> None:
    """Give every part to every lane, a few at a time, and wait for the last."""
    size = run.samples.part_size(max(lane.model.batch for lane in lanes), workers)
    at_work: deque[Future[None]] = deque()
    start = 0
    for part in run.samples.parts(size):
        for lane in lanes:
            if len(at_work) == workers + _AHEAD:
                at_work.popleft().result()
            at_work.append(executor.submit(lane.run, start, part))
        start += part.count
        run.on_progress(CountedLine(line, start, run.samples.count))
    while at_work:
        at_work.popleft().result()


class _Lane:
    """One model in a pass: its sessions, and the files of its outputs."""

    def __init__(self, run: BenchRun, measured: MeasuredModel) -> None:
        self.measured = measured
        self.model = measured.model
        directory = Path(tempfile.mkdtemp(prefix="outputs-", dir=run.scratch))
        self.kept = OutputFiles(directory, run.samples.count)
        self._idle: list[RuntimeSession] = []
        self._busy: list[RuntimeSession] = []
        self._is_closed = False
        self._lock = threading.Lock()
        self._samples = run.samples

    def begin(self) -> None:
        """Start the first session, and choose how many samples an invoke takes."""
        first, count = self._samples.first, self._samples.count
        try:
            wide = widened(self.measured.runtime, self.measured.model, first, count)
        except ToolFailed as error:
            self.measured.error = error
        else:
            self.model = wide.model
            self._idle.append(wide.session)

    def run(self, start: int, part: Samples) -> None:
        """Keep the outputs of a part; what fails is the model's error."""
        if self.measured.error is not None or self._is_closed:
            return
        try:
            self._keep(start, part)
        except ToolFailed as error:
            self.measured.error = self.measured.error or error

    def close(self) -> None:
        """End all sessions; nothing more is run."""
        self._is_closed = True
        for session in (*self._idle, *self._busy):
            session.close()

    def _keep(self, start: int, part: Samples) -> None:
        whole = part.count // self.model.batch * self.model.batch
        if whole:
            with self._session() as session:
                self._put(start, session.run(_rows(part, 0, whole)), whole)
        if whole < part.count:
            # The last part is not a multiple of the batch.
            session = self.measured.runtime.start(self.measured.model)
            try:
                rest = session.run(_rows(part, whole, part.count))
                self._put(start + whole, rest, part.count - whole)
            finally:
                session.close()

    def _put(self, start: int, outputs: dict[str, NDArray[np.generic]], samples: int) -> None:
        with self._lock:
            if not self.kept.is_begun:
                self.kept.begin(outputs, samples)
        self.kept.put(start, outputs, samples)

    @contextlib.contextmanager
    def _session(self) -> Iterator[RuntimeSession]:
        """An idle session, or a new one."""
        with self._lock:
            session = self._idle.pop() if self._idle else None
        session = session or self.measured.runtime.start(self.model)
        self._busy.append(session)
        yield session
        with self._lock:
            self._busy.remove(session)
            self._idle.append(session)


def _rows(part: Samples, start: int, stop: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[start:stop] for name, array in part.arrays.items()}


class Widened(NamedTuple):
    """A model with the batch that is best for it, and a session that has it loaded."""

    model: Model
    session: RuntimeSession


def widened(runtime: Runtime, model: Model, samples: Samples, count: int) -> Widened:
    """The model with several samples an invoke, where that gives the same bits and is quicker.

    It is tried on the first `samples`; `count` are to be run. A model of a fixed batch other than 1
    keeps it. Raises `ToolFailed` if the model does not run at all.
    """
    session = runtime.start(model)
    if model.batch != 1 or count < _WORTHWHILE or samples.count < _TRIED:
        return Widened(model, session)
    some = {name: array[:_TRIED] for name, array in samples.arrays.items()}
    seconds = _seconds(session, some, runs=2) / _TRIED
    if seconds > _SLOW_S and not runtime.environment.host:
        return Widened(model, session)
    batch = _WIDER if seconds < _QUICK_S and samples.count >= _WIDER else _WIDE
    wide = _tried(runtime, msgspec.structs.replace(model, batch=batch), session, samples)
    if wide is None:
        return Widened(model, session)
    session.close()
    return wide


def _tried(
    runtime: Runtime, model: Model, plain: RuntimeSession, samples: Samples
) -> Widened | None:
    """The model with its batch; None if it fails, gives other bits, or is not quicker."""
    some = {name: array[: model.batch] for name, array in samples.arrays.items()}
    try:
        session = runtime.start(model)
    except ToolFailed:
        return None
    try:
        is_better = _are_equal(session.run(some), plain.run(some)) and (
            _seconds(session, some) < _GAIN * _seconds(plain, some)
        )
    except ToolFailed:
        is_better = False
    if is_better:
        return Widened(model, session)
    session.close()
    return None


def _are_equal(
    outputs: Mapping[str, NDArray[np.generic]], others: Mapping[str, NDArray[np.generic]]
) -> bool:
    return outputs.keys() == others.keys() and all(
        array.shape == others[name].shape and array.tobytes() == others[name].tobytes()
        for name, array in outputs.items()
    )


def _seconds(
    session: RuntimeSession, samples: Mapping[str, NDArray[np.generic]], runs: int = _RUNS
) -> float:
    """The shortest of a few runs: other work of the machine only makes them longer."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        session.run(samples)
        seconds.append(time.perf_counter() - began)
    return min(seconds)
