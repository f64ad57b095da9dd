"""One float32 graph with its samples, and all that is made of it.

The graph is run once, and calibrated once, in a child that stays; recipes are made of it and
verified, together or one after the other. `convert` has a session for each rung of the ladder that
it tries; `debug` and `tune` go on with the one whose float32 graph is right.
"""

from __future__ import annotations

import functools
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.conversion.quantize import start_quantizing
from edgeconv.conversion.target import verifying_runtime
from edgeconv.conversion.verify import verify_candidates, verify_float
from edgeconv.errors import EdgeconvError
from edgeconv.processes.persistent import PersistentChild
from edgeconv.processes.sandbox import Access
from edgeconv.processes.workers import start_ahead
from edgeconv.quantize.worker import ENVIRONMENT, GraphFile, QuantizePart
from edgeconv.runtimes.local import start_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Self

    import msgspec
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.conversion.candidate import VerifiedCandidate
    from edgeconv.conversion.prepare import Part, PreparedModel
    from edgeconv.conversion.run import Run
    from edgeconv.conversion.tensorflow import Reference
    from edgeconv.processes.tasks import Answer
    from edgeconv.runtimes.local import RuntimePython, StoredRun
    from edgeconv.types import Recipe

    # By signature, then by output.
    Outputs = Mapping[str, dict[str, NDArray[np.generic]]]


class Answers(NamedTuple):
    """What a file answers to the held-back samples, and the runtime that said it."""

    outputs: Outputs
    runtime: str


class Session:
    """A prepared model at work. Leaving it as a context manager ends its child.

    It can be used on after that, as after a crash of the child: the next call starts another,
    which calibrates anew, and ends with the session itself.
    """

    def __init__(self, run: Run, prepared: PreparedModel) -> None:
        self.run = run
        self.prepared = prepared
        self._standing: PersistentChild | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._standing is not None:
            self._standing.close()

    def make(self, recipe: Recipe) -> VerifiedCandidate:
        """The verified file of a recipe, from the first engine.

        Raises the `EdgeconvError` that it ended in.
        """
        if recipe.name == "float32":
            return verify_float(self, recipe)
        outcome = verify_candidates(self, start_quantizing(self, [recipe])())[recipe]
        if isinstance(outcome, EdgeconvError):
            raise outcome
        return outcome

    def child(self) -> PersistentChild:
        """The child that has the graph: it reads that and the samples, and writes to its own place.

        A new one where there is none, or none any more.
        """
        if self._standing is None or not self._standing.is_at_work:
            self._standing = PersistentChild(
                label="ai-edge-quantizer",
                scratch=self.run.scratch,
                access=Access(reads=(self.prepared.float_model, *self.prepared.calibration)),
                allowance=self.run.execution.allowance,
                environment=ENVIRONMENT,
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
    def expected(self) -> Answers:
        """What the float32 graph answers; it is run once."""
        return self.answers(self.prepared.float_model, self.where)

    @cached_property
    def reference(self) -> Reference | None:
        """What the trained model answers in TensorFlow; None where the source is the graph."""
        return self.prepared.reference() if self.prepared.reference else None

    def answers(self, file: Path, target: RuntimePython) -> Answers:
        """What a file answers. Raises as `collect` does."""
        return self.collect(start_ahead(self.starts(file, target)))

    def starts(self, file: Path, target: RuntimePython) -> list[Callable[[], StoredRun]]:
        """What starts a file on the held-back samples, a process for each signature."""
        return [functools.partial(self._start, part, file, target) for part in self.prepared.parts]

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
                runtime = f"{run.runtime} {run.version}"
            except EdgeconvError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return Answers(outputs, runtime)

    def _start(self, part: Part, file: Path, target: RuntimePython) -> StoredRun:
        return start_run(
            file,
            part.split.held_back,
            scratch=self.run.scratch,
            signature=part.signature.key,
            batch=part.split.batch,
            threads=self.run.execution.threads,
            target=target,
            allowance=self.run.execution.allowance,
        )
