"""What a user ought to know of a search, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.tuning.chances import enough_samples
from edgeconv.tuning.search import cheapest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.tuning.asked import Wanted
    from edgeconv.tuning.samples import Samples
    from edgeconv.types import Loss, Objective, TuningTrial

_MIB = 1 << 20


def progress_line(trials: Sequence[TuningTrial], objective: Objective) -> str:
    """The last trial, and the best so far."""
    last = trials[-1]
    best = cheapest(trials, objective)
    return f"trial {len(trials)}: {_said(last)}; best so far: {_said(best) if best else 'none'}"


def notes_on(wanted: Wanted, losses: tuple[Loss, Loss], samples: Samples) -> tuple[str, ...]:
    """Notes on the samples: too few for such a budget, no labels, whose calibration it was."""
    notes = []
    least = min(loss.samples for loss in losses)
    enough = enough_samples(wanted.max_drop)
    if wanted.max_drop and 2 * least < enough:
        notes.append(
            f"one answer of {least} is more than the budget of {wanted.max_drop:g}: "
            f"{enough} samples would let one differ"
        )
    if samples.parts.search.labels is None:
        notes.append(
            "there are no labels: the budget is of the agreement with the float32 model, right or "
            "wrong; give labels to tune by accuracy"
        )
    if not wanted.calibration:
        count = samples.calibrating.count
        notes.append(f"{count} of the samples that search calibrate, their labels unused")
    return tuple(notes)


def _said(trial: TuningTrial) -> str:
    if trial.error or trial.loss is None:
        return f"{trial.name} failed"
    cost = f"{trial.size_bytes / _MIB:.3g} MiB"
    if trial.latency_us is not None:
        cost += f", {trial.latency_us / 1000:.3g} ms"
    return f"{trial.name}, {cost}, drop {trial.loss.drop:+.4f}"
