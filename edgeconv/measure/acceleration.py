"""What other kernels did with a file: what a delegate took, and whether the answers are right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeconv.measure.kernels import refused_operator
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.reporting import units
from edgeconv.reporting.closeness import snr, worst_snr
from edgeconv.runtimes.local import LocalRuntime
from edgeconv.statistics.outputs import (
    ALONE_DB,
    LEAST_AGREEMENT,
    is_another,
    loses_answers,
)
from edgeconv.types import Acceleration, Agreement, Measurement
from edgeconv.types.errors import (
    InputRefused,
    ToolFailed,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimedOut,
)
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.models import MeasuredModel

# Errors of a process that ended without an answer.
_ENDED = (WorkerCrashed, WorkerTimedOut, WorkerOutOfMemory)
_OPERATOR = re.compile(r"(?:Node number \d+ \(|not supported by GPU delegate:\W+)([\w-]+)")


def acceleration(
    run: BenchRun, there: MeasuredModel, here: MeasuredModel | None, floating: MeasuredModel | None
) -> tuple[Acceleration, tuple[Agreement, ...]]:
    """What the delegate did with a model, and the agreement with the same file on the processor.

    `here` is the same file, `floating` the float32 model, both on the processor.
    """
    device = there.runtime.gpu
    if there.error is not None:
        is_crash = isinstance(there.error, _ENDED)
        return Acceleration(
            state="crashed" if is_crash else "refused",
            device=device,
            on_cpu=() if is_crash else _refused(run, there, str(there.error)),
            reason=there.error.message,
        ), ()
    taken = next((timed.gpu for timed in there.timed if timed.gpu), None)
    kernels = _agreement(there, here)
    mistake = _mistake(kernels, _agreement(there, floating), _agreement(here, floating))
    left = taken.left if taken else ()
    return Acceleration(
        state="wrong" if mistake else "full" if taken and taken.is_full else "partial",
        device=device,
        on_cpu=left or _counted(taken.on_cpu if taken else None),
        reason=mistake,
    ), kernels


def other_kernels(
    there: MeasuredModel, here: MeasuredModel | None, floating: MeasuredModel | None
) -> tuple[tuple[Agreement, ...], str]:
    """The agreement with the same file on the processor, and what a device's kernels get wrong.

    `here` is the same file, `floating` the float32 model, both on the processor.
    """
    kernels = _agreement(there, here)
    return kernels, kernel_mistake(kernels, _agreement(there, floating), _agreement(here, floating))


def kernel_mistake(
    kernels: Sequence[Agreement], there: Sequence[Agreement], here: Sequence[Agreement]
) -> str:
    """Why kernels compute something else, by output; "" if they only round differently.

    `kernels` compares the same file there and here, the others each with float32. Without float32
    the file here stands for it.
    """
    own = {each.output: each for each in here}
    to_float = {each.output: each for each in there}
    mistakes = (
        _output_mistake(same, to_float.get(same.output), own.get(same.output)) for same in kernels
    )
    return next(filter(None, mistakes), "")


def _output_mistake(same: Agreement, there: Agreement | None, here: Agreement | None) -> str:
    if there is None or here is None:
        ratio = snr(same)
        is_other = ratio is not None and is_another(ratio, ALONE_DB)
        return f"SNR {units.decibels(ratio)} against {same.reference}" if is_other else ""
    there_db, here_db = snr(there), snr(here)
    if there_db is not None and here_db is not None and is_another(there_db, here_db):
        return (
            f"SNR {units.decibels(there_db)} against {there.reference}, and "
            f"{units.decibels(here_db)} on the processor"
        )
    if same.flips is None or there.flips is None or here.flips is None:
        return ""
    if not loses_answers(there.flips - here.flips, same.flips, same.samples):
        return ""
    return (
        f"{there.flips} of {same.samples} answers are not those of {there.reference}, and "
        f"{here.flips} on the processor"
    )


def acceleration_note(row: Measurement) -> str:
    """What a reader must know of a file on a GPU; "" if it is wholly and rightly there."""
    outcome = row.acceleration
    if outcome is None or (outcome.state == "full" and not outcome.begins_at):
        return ""
    operators = "; ".join(outcome.on_cpu)
    parts = {
        "full": "",
        "partial": f"partly on the GPU; on the processor: {operators}",
        "wrong": f"wrong on the GPU: {outcome.reason}",
        "refused": f"refused by the GPU delegate{operators and f': {operators}'}",
        "crashed": "it crashes the process when it runs with the GPU delegate",
    }
    begins = outcome.begins_at and f"the error of its kernels begins at {outcome.begins_at}"
    return f"{row.name}: {'; '.join(filter(None, (parts[outcome.state], begins)))}"


def open_batch_notes(models: Sequence[MeasuredModel]) -> tuple[str, ...]:
    """A note on the files that a GPU delegate may refuse for their open batch; () for none."""
    names = [
        model.name
        for model in models
        if model.runtime.gpu
        and model.error is not None
        and model.model_file is not None
        and model.model_file.signature.has_open_batch
    ]
    if not names:
        return ()
    return (
        f"{listed(names)}: the batch is open, and a GPU delegate refuses graphs that compute "
        "shapes: edgeconv convert --batch 1 fixes it",
    )


def _counted(number: int | None) -> tuple[str, ...]:
    return (units.counted(number, "operator"),) if number else ()


def _refused(run: BenchRun, measured: MeasuredModel, message: str) -> tuple[str, ...]:
    """The operator that a delegate refuses, where it names one or cutting the model shows it."""
    operator = _OPERATOR.search(message)
    if operator is not None:
        return (operator[1],)
    if not isinstance(measured.runtime, LocalRuntime):
        return ()
    run.on_progress(f"the operator of {measured.name} that is refused")
    samples = run.samples.first.arrays
    try:
        name = refused_operator(measured.model, samples, measured.runtime, run.scratch)
    except (InputRefused, ToolFailed):
        return ()
    return (name,) if name else ()


def _agreement(
    measured: MeasuredModel | None, reference: MeasuredModel | None
) -> tuple[Agreement, ...]:
    if not (measured and reference and measured.outputs and reference.outputs):
        return ()
    return agreements(measured.outputs, reference.outputs, reference.name)


def _mistake(
    kernels: Sequence[Agreement],
    there: Sequence[Agreement],
    here: Sequence[Agreement],
) -> str:
    """Why the answers there are not the float32 model's, and what did it; "" if they are.

    `kernels` compares the same file there and here, the others compare it with float32. Without
    float32 the same file stands for it.
    """
    share, ratio = _share(there or kernels), worst_snr(there or kernels)
    if share is not None:
        if share >= LEAST_AGREEMENT:
            return ""
        own = _share(here) if there else None
        with_processor = "" if own is None else f", and {units.percent(own, 1)} on the processor"
        what = f"{units.percent(share, 1)} of the answers are those of float32{with_processor}"
        if not there:
            what = f"{units.percent(share, 1)} of the answers are those of the processor"
        return f"{what}: {_culprit(_share(kernels), own)}"
    own_snr = worst_snr(here) if there else None
    if ratio is None or own_snr is None or not is_another(ratio, own_snr):
        return ""
    return (
        f"SNR {units.decibels(ratio)} against float32, and {units.decibels(own_snr)} on the "
        "processor: the delegate did it"
    )


def _culprit(same: float | None, own: float | None) -> str:
    """Who did it: `same` answers as on the processor, where `own` are float32's."""
    by_kernels = same is None or same < LEAST_AGREEMENT
    by_quantizer = own is not None and own < LEAST_AGREEMENT
    if by_kernels == by_quantizer:
        return "the delegate and the quantizer did it"
    return f"the {'delegate' if by_kernels else 'quantizer'} did it"


def _share(compared: Sequence[Agreement]) -> float | None:
    """The smallest share of samples with the same class; None without classes."""
    shares = [
        1 - each.flips / each.samples
        for each in compared
        if each.flips is not None and each.samples and snr(each) is not None
    ]
    return min(shares, default=None)
