"""The models of one bench in their runtimes, and what was measured of each so far."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.handover import RowsFile
from edgeconv.measure.timing import NAME, check_pace
from edgeconv.runtimes.choice import compared_with, leased, open_runtime
from edgeconv.runtimes.interface import Model, Runtime, Timed
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.types import Environment, RuntimeChoice, SourceModel
from edgeconv.types.errors import EdgeconvError, InputRefused, ToolFailed, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.model_files import CommonNames, ModelFile

# The runtime that serves the trained model, and the one that it has by default.
_SERVING, _TRAINED = "tfserving", RuntimeChoice(name="tensorflow")
_DEFAULT = RuntimeChoice(name="litert")


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
        import numpy as np

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
