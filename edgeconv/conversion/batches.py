"""Whether an open batch is one: a file runs several samples at once as it runs each alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeconv.data import read_samples, write_samples
from edgeconv.model.tflite import output_steps
from edgeconv.runtimes.local import start_run
from edgeconv.statistics.outputs import TOGETHER, differing_outputs
from edgeconv.types.errors import BatchRefused, InputRefused, ToolFailed
from edgeconv.types.words import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from edgeconv.conversion.candidate import Candidate
    from edgeconv.conversion.prepare import Part
    from edgeconv.conversion.session import Outputs, Session
    from edgeconv.types import Signature

_HINT = "convert with --batch 1"


def refuse_dependent_samples(session: Session) -> None:
    """Raise where the trained model does not compute each sample of an open batch for itself.

    `BatchRefused` for a model that is right with one sample at a time, which its batch can be
    fixed to, and `InputRefused` for one that gives single samples nothing.
    """
    if session.reference is None:
        return
    for wrong in session.reference.answer.together.values():
        if wrong.failed:
            raise BatchRefused(
                f"the model takes one sample at a time, though its batch is open: {wrong.batch} "
                f"samples at once fail in TensorFlow: {wrong.failed}",
                hint=_HINT,
            )
        outputs = quoted(wrong.differing)
        if wrong.same:
            raise InputRefused(
                f"the model's samples depend on each other: {quoted(wrong.same)} of each sample "
                f"alone is the same for all samples, and differs in a batch of {wrong.batch}",
                hint="an app that runs one sample at a time gets nothing from it: take out what is "
                "computed over the batch, such as a mean or a normalization in training mode",
            )
        raise BatchRefused(
            f"the model's samples depend on each other: {outputs} of a sample is another one in a "
            f"batch of {wrong.batch} than alone",
            hint=_HINT,
        )


def verify_batches(
    session: Session, candidate: Candidate, signatures: Sequence[Signature], answers: Outputs
) -> None:
    """Raise `BatchRefused` if a file with an open batch is wrong for several samples at once.

    `answers` has what it gives for the held-back samples, each alone, by signature and output.
    """
    by_key = {signature.key: signature for signature in signatures}
    for part in session.prepared.parts:
        inputs = by_key[part.signature.key].inputs
        is_open = all(spec.shape[:1] == (-1,) for spec in inputs)
        if is_open and part.split.batch == 1 and not part.split.stacked:
            _verify_part(session, candidate, part, answers[part.signature.key])


def _verify_part(
    session: Session, candidate: Candidate, part: Part, answers: Mapping[str, NDArray[Any]]
) -> None:
    key, most = part.signature.key, TOGETHER[-1]
    ran = session.samples_of(part, candidate.recipe)
    steps = output_steps(candidate.file.read_bytes(), key)
    # Answers to enough samples are there, unless each depends on those before it.
    is_known = not part.split.states and min(map(len, answers.values()), default=0) >= most
    alone: Mapping[str, NDArray[Any]] | None = answers if is_known else None
    for batch in session.batches_of(candidate.recipe):
        where = f"{candidate.recipe.name}: the batch is open, and {batch} samples at once"
        try:
            together = _answers(session, candidate, part, ran, batch, batch=batch)
        except ToolFailed as error:
            raise BatchRefused(f"{where} do not run: {error.headline}", hint=_HINT) from error
        # Answers to all samples are filled up where their sizes differ.
        if alone is None or (alone is answers and _differing(alone, together, batch, steps)):
            alone = _answers(session, candidate, part, ran, most, batch=1)
        if differing := _differing(alone, together, batch, steps):
            raise BatchRefused(
                f"{where} have other answers than each alone in {listed(map(repr, differing))}",
                hint=_HINT,
            )


def _differing(
    alone: Mapping[str, NDArray[Any]],
    together: Mapping[str, NDArray[Any]],
    batch: int,
    steps: Mapping[str, float],
) -> tuple[str, ...]:
    own = {name: values[:batch] for name, values in alone.items()}
    return differing_outputs(own, together, steps)


def _answers(
    session: Session, candidate: Candidate, part: Part, ran: Path, count: int, *, batch: int
) -> Mapping[str, NDArray[Any]]:
    running = start_run(
        candidate.file,
        _some(part, ran, count),
        scratch=session.run.scratch,
        signature=part.signature.key,
        batch=batch,
        threads=session.run.execution.threads,
        target=session.where,
        allowance=session.run.execution.allowance,
        idle=session.idle,
    )
    return running.result().outputs


def _some(part: Part, ran: Path, count: int) -> Path:
    """Where the first `count` of seven samples are stored.

    They are those in `ran`, or calibration samples if there are too few.
    """
    import numpy as np

    directory = ran.with_name(f"{ran.name}-first-{count}")
    if not directory.exists():
        places = [ran, part.split.calibration]
        stored = [read_samples(path) for path in places if path is not None]
        # The same for every count.
        samples = max(stored, key=lambda each: min(each.count, TOGETHER[-1]))
        write_samples(samples.take(np.arange(count) % samples.count), directory)
    return directory
