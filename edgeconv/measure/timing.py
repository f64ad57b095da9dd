"""Latency: raw times kept by rounds, and what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.statistics.rounds import median_interval
from edgeconv.types import Latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.runtimes.interface import Timed


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
