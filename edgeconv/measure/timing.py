"""Latency: every model timed in rounds, its raw times kept, and their percentiles."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np

from edgeconv.errors import ToolFailed
from edgeconv.processes.progress import CountedLine
from edgeconv.statistics.rounds import median_interval
from edgeconv.types import Latency, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.measure.models import MeasuredModel
    from edgeconv.runtimes.interface import Timed

_ONE_INVOKE = Timing(warmup=1, warmup_seconds=0.0, repeats=1)


def time_in_rounds(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Time every model once a round; each round begins with another one.

    So a drift of the machine hits all alike, and so does what the one before leaves behind.
    One that fails has its error, keeps what was measured, and is left out from then on. Where
    nothing is to be timed, each only says which runtime it runs in.
    """
    is_timed = run.measuring.is_timed
    rounds, timing = (run.measuring.rounds, run.measuring.timing) if is_timed else (1, _ONE_INVOKE)
    what, done = "timing" if is_timed else "running every model", 0
    for number in range(rounds):
        first = number % len(models)
        for one in (*models[first:], *models[:first]):
            run.on_progress(CountedLine(what, done, rounds * len(models)))
            done += 1
            if one.error is None:
                try:
                    inputs = run.samples.first.arrays
                    one.timed.append(one.runtime.time(one.model, inputs, timing))
                except ToolFailed as error:
                    one.error = error


def time_batched(run: BenchRun, models: Sequence[MeasuredModel]) -> None:
    """Time what takes many samples at once, once."""
    for one in models if run.measuring.is_timed else ():
        if one.batched is not None and one.error is None:
            try:
                inputs = run.samples.first.arrays
                timed = one.runtime.time(one.batched, inputs, run.measuring.timing)
            except ToolFailed as error:
                one.error = error
            else:
                one.batched_us = timed.samples_us


def memory_bytes_of(timed: Sequence[Timed]) -> int | None:
    """The median over the rounds, None where no round could say."""
    known = [one.memory_bytes for one in timed if one.memory_bytes is not None]
    return round(statistics.median(known)) if known else None


def latency_of(runs: Sequence[Timed], *, threads: int, batch: int) -> Latency:
    """One value from the runs of one model, one process a round."""
    return make_latency(
        tuple(run.samples_us for run in runs),
        load_us=tuple(run.load_us for run in runs),
        first_us=tuple(run.first_us for run in runs),
        threads=threads,
        batch=batch,
        warmup=tuple(run.warmup for run in runs if run.warmup is not None),
    )


def make_latency(
    rounds_us: tuple[tuple[float, ...], ...],
    *,
    load_us: tuple[float, ...],
    first_us: tuple[float, ...],
    threads: int,
    batch: int,
    warmup: tuple[int, ...] = (),
) -> Latency:
    """A latency with its percentiles, over the samples of all rounds, linearly interpolated.

    Nothing is averaged away: `rounds_us` has one tuple of samples a process, none of them empty.
    """
    samples_us = np.concatenate([np.asarray(one, np.float64) for one in rounds_us])
    p50_us, p90_us, p99_us = (float(value) for value in np.percentile(samples_us, [50, 90, 99]))
    return Latency(
        rounds_us=rounds_us,
        load_us=load_us,
        first_us=first_us,
        threads=threads,
        batch=batch,
        p50_us=p50_us,
        p90_us=p90_us,
        p99_us=p99_us,
        p50_interval_us=median_interval(rounds_us),
        warmup=warmup,
    )
