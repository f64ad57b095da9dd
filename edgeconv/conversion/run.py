"""One conversion at work: its plan, its temporary files, and which of them are kept."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgeconv import data
from edgeconv.conversion.samples import inputs_key, split_samples
from edgeconv.model import source
from edgeconv.model.source.scanning import loadable
from edgeconv.system.processes.tasks import PersistentChild, start_task
from edgeconv.system.store import keep_log
from edgeconv.types.errors import EdgeconvError, InputRefused, InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    import msgspec

    from edgeconv.conversion.plan import Plan
    from edgeconv.conversion.samples import Split
    from edgeconv.system.processes.sandbox import Access
    from edgeconv.system.processes.tasks import Task
    from edgeconv.system.store import Cache
    from edgeconv.types import Execution, Signature

    # The samples of a signature, with the vocabularies that made-up strings are taken from.
    ReadSamples = Callable[["Run", Signature, Sequence[Sequence[bytes]]], Split]

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Run:
    """One conversion at work: its plan, its temporary files, and who is told of progress.

    `read_samples` gives the samples of a signature, usually the samples that the plan names.
    Leaving it as a context manager ends the children that stayed.
    """

    plan: Plan
    cache: Cache
    execution: Execution
    scratch: Path
    on_progress: Callable[[str], None]
    read_samples: ReadSamples = split_samples
    _splits: dict[str, Split] = field(default_factory=dict, init=False)
    _children: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._children.close()

    @cached_property
    def loaded(self) -> Path:
        """What TensorFlow and Keras load of the model, see `loadable`. Raises as that does."""
        return loadable(
            self.plan.model,
            self.scratch / "loaded",
            trusted=self.execution.trusted,
            reads_layers=any(recipe.qat for recipe in self.plan.recipes),
        )

    def admit(self) -> None:
        """Raise `InputRefused` if the scan refuses the model, before anything loads it."""
        _ = self.loaded

    @property
    def samples(self) -> Path:
        """The directory of the stored samples."""
        return self.scratch / "samples"

    def start(
        self,
        function: Callable[[Any], Answer],
        job: msgspec.Struct,
        label: str,
        *,
        access: Access,
    ) -> Task[Answer]:
        """Start a function of the package in a child, within the run's allowance."""
        return start_task(
            function,
            job,
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.execution.allowance,
            shown={str(self.loaded): self.plan.model.path},
        )

    def start_persistent(
        self, label: str, *, access: Access, environment: Mapping[str, str]
    ) -> PersistentChild:
        """Start a child that stays until it is closed, at the latest with the run."""
        child = PersistentChild(
            label=label,
            scratch=self.scratch,
            access=access,
            allowance=self.execution.allowance,
            environment=environment,
        )
        self._children.callback(child.close)
        return child

    def result(self, task: Task[Answer]) -> Answer:
        """A child's answer; its whole log is kept where it ended in an error, which names it."""
        try:
            return task.result(self.on_progress)
        except InternalError:
            raise
        except EdgeconvError as error:
            kept = keep_log(task.child.log, f"{self.plan.model.name}-{self.plan.float_key[:8]}")
            if kept is None:
                raise
            message = f"{error.message}\n  the whole log: {kept}"
            raise error.with_message(message) from error

    def split(self, signature: Signature, words: Sequence[Sequence[bytes]] = ()) -> Split:
        """The stored samples of a signature, which are read once.

        `words` are the vocabularies that made-up strings are taken from.
        """
        key = inputs_key(self, signature)
        if key not in self._splits:
            self._splits[key] = self.read_samples(self, signature, words)
        return self._splits[key]

    def keep(self, stage: str, key: str, files: Mapping[str, Path]) -> None:
        """Keep what was made in the cache, by name, under a key of the plan.

        Raises `InputRefused` if the model or the samples have changed since the plan was made.
        Everything that is kept or published passes through here.
        """
        self._refuse_changed()
        self.cache.keep(stage, key, files)

    def _refuse_changed(self) -> None:
        plan, model = self.plan, self.plan.model
        now = source.identify(model.path, model.opening, allow_code=True)
        if (now.sha256, now.opening) != (model.sha256, model.opening):
            raise _changed(model.path)
        identities = [(plan.request.sources[k], v) for k, v in plan.calibration_identity.items()]
        if plan.request.training:
            identities.append((plan.request.training, plan.training_identity))
        for samples, identity in identities:
            # Code may give other samples each time, so its identity now proves nothing.
            if not data.runs_code(samples) and data.identity(samples) != identity:
                raise _changed(str(samples))


def _changed(what: str) -> InputRefused:
    return InputRefused(
        f"{what} changed while it was read, so the result cannot be trusted",
        hint="run it again, once nothing writes to it",
    )
