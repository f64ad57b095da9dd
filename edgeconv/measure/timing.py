"""Latency: a fresh process for every model and round, the models taking turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeconv.nouns import Latency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.runtimes.local import Run


def latency_of(runs: Sequence[Run], *, threads: int, batch: int) -> Latency:
    """One value from the runs of one model, one run a round; nothing is averaged away."""
    rounds_us = tuple(run.samples_us for run in runs)
    return make_latency(
        rounds_us,
        load_us=tuple(run.load_us for run in runs),
        first_us=tuple(run.first_us or 0.0 for run in runs),
        threads=threads,
        batch=batch,
    )


def make_latency(
    rounds_us: tuple[tuple[float, ...], ...],
    *,
    load_us: tuple[float, ...],
    first_us: tuple[float, ...],
    threads: int,
    batch: int,
) -> Latency:
    """A latency with its percentiles, over the samples of all rounds, linearly interpolated."""
    p50_us, p90_us = np.percentile(np.concatenate([np.asarray(r) for r in rounds_us]), [50, 90])
    return Latency(
        rounds_us=rounds_us,
        load_us=load_us,
        first_us=first_us,
        threads=threads,
        batch=batch,
        p50_us=float(p50_us),
        p90_us=float(p90_us),
    )
