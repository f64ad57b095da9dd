"""Where the models of one measuring run: the runtimes that were asked for, opened."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import UsageError
from edgeconv.measure.models import MeasuredModel
from edgeconv.measure.trained import NAME
from edgeconv.runtimes.choice import choice_text, open_runtime, parse_choice
from edgeconv.runtimes.interface import Model, RuntimeChoice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.model_files import ModelFile
    from edgeconv.measure.names import CommonNames
    from edgeconv.runtimes.interface import Runtime
    from edgeconv.types import Environment, SourceModel

# The runtime that serves the trained model, and the one that it has without being asked for.
_SERVING, _TRAINED = "tfserving", RuntimeChoice(name="tensorflow")
_DEFAULT = RuntimeChoice(name="litert")


@dataclass(frozen=True)
class OpenedRuntimes:
    """The opened runtimes: those of .tflite files by their text, and the serving one if any."""

    running: dict[str, Runtime]
    serving: Runtime | None

    @property
    def environment(self) -> Environment:
        """The machine that the .tflite files run on."""
        return next(iter(self.running.values())).environment

    @property
    def is_here(self) -> bool:
        """Whether that is this machine."""
        return not self.environment.place

    @property
    def notes(self) -> tuple[str, ...]:
        """What cannot be had of these runtimes."""
        return tuple(
            f"{text} gives no outputs, so that there is no accuracy and no agreement"
            for text, runtime in self.running.items()
            if not runtime.sessions
        )

    def models(
        self,
        run: BenchRun,
        trained: SourceModel | None,
        model_files: Sequence[ModelFile],
        names: CommonNames,
    ) -> list[MeasuredModel]:
        """Every file in every runtime, those of the first runtime first.

        Before them the trained model, where it is not measured in TensorFlow.
        """
        batch = run.samples.batch
        found = []
        if trained is not None and (self.serving or trained.kind == "tflite"):
            runtime = self.serving or next(iter(self.running.values()))
            if self.serving:
                model = Model(file=Path(trained.path), signature=names.key, batch=batch)
            else:
                model = names.trained(trained, batch, run.scratch)
            found.append(MeasuredModel(NAME, model, runtime))
            if self.serving and batch == 1:
                many = run.samples.first.count
                found[0].batched = msgspec.structs.replace(model, batch=many)
        for text, runtime in self.running.items():
            for one in model_files:
                name = one.name if len(self.running) == 1 else f"{one.name} in {text}"
                model = names.model(one.file, one.signature, batch, run.scratch)
                found.append(MeasuredModel(name, model, runtime, one))
        return found


@contextlib.contextmanager
def open_runtimes(run: BenchRun, trained: SourceModel | None) -> Iterator[OpenedRuntimes]:
    """The runtimes that `--runtime` names, LiteRT where it names none for .tflite files.

    Raises `UsageError` for what cannot be measured together, and as the runtimes do.
    """
    choices = [parse_choice(text) for text in run.measuring.runtimes]
    serving = [one for one in choices if one.name == _SERVING]
    running = [one for one in choices if one.name != _SERVING and one != _TRAINED]
    if len(serving) > 1 or (serving and trained is None):
        raise UsageError(
            f"{choice_text(serving[-1])} is to be the baseline, and "
            + ("another is as well" if len(serving) > 1 else "no trained model is known"),
            hint="name one server, and the model that it serves with --baseline",
        )
    with contextlib.ExitStack() as stack:
        settings = run.settings()
        opened = {
            choice_text(one): stack.enter_context(open_runtime(one, settings))
            for one in running or [_DEFAULT]
        }
        _check_one_place(opened)
        served = [stack.enter_context(open_runtime(one, settings)) for one in serving]
        yield OpenedRuntimes(opened, served[0] if served else None)


def _check_one_place(opened: dict[str, Runtime]) -> None:
    places = {runtime.environment.place for runtime in opened.values()}
    if len(places) > 1:
        raise UsageError(
            f"{' and '.join(opened)} are different machines, and a report is of one",
            hint="measure on each, and show the reports together with edgeconv report",
        )
