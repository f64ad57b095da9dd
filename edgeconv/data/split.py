"""Which samples calibrate, and which are held back to verify the result with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.samples import check_whole_batches
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from edgeconv.data.samples import Samples
    from edgeconv.data.source import DataSet

_SEED = 20240607
# Verification needs samples as well as calibration: 14 of 100, and 64 of 448 or more.
_HELD_BACK_SHARE = 7
Indices = np.ndarray[tuple[int], np.dtype[np.intp]]


def split_calibration(
    samples: Samples | DataSet, count: int | None, *, held_back: int = 64, batch: int = 1
) -> tuple[Samples, Samples]:
    """`count` calibration samples, and up to `held_back` others for verification.

    With a count of None a seventh, from one to `held_back`, is held back, and all others
    calibrate.
    The choice is by a fixed seed, in equal shares of every label, in the order of the source. Both
    parts are whole batches. Where `count` leaves none, the last calibration samples are used for
    both.

    Raises `UsageError` for a count below 1, `InputRefused` for one that is too large.
    """
    total = samples.count
    if count is None:
        check_whole_batches("the source has", total, batch)
        count = total - _held_back_of(total, held_back, batch) or total
    _check_count(count, total, batch)
    rng = np.random.default_rng(_SEED)
    chosen = _choose(rng, np.arange(total), samples.labels, count)
    others = np.setdiff1d(np.arange(total), chosen)
    spare = min(_whole(held_back, batch), others.size // batch * batch)
    if spare:
        kept = _choose(rng, others, samples.labels, spare)
    else:
        kept = chosen[-min(_whole(held_back, batch), count) :]
    return samples.take(chosen), samples.take(kept)


def seeded_choice(samples: Samples | DataSet, count: int) -> Samples:
    """`count` samples by a fixed seed, in equal shares of every label where there are labels.

    They are in the order of the source. Raises as `split_calibration` does.
    """
    return samples.take(chosen_indices(samples, count))


def chosen_indices(samples: Samples | DataSet, count: int) -> Indices:
    """Which ones `seeded_choice` takes, ascending. Raises as it does."""
    _check_count(count, samples.count, 1)
    rng = np.random.default_rng(_SEED)
    return _choose(rng, np.arange(samples.count), samples.labels, count)


def _held_back_of(total: int, most: int, batch: int) -> int:
    return min(_whole(min(most, max(1, total // _HELD_BACK_SHARE)), batch), total)


def _whole(count: int, batch: int) -> int:
    """`count` rounded up to whole batches."""
    return -(-count // batch) * batch


def _check_count(count: int, total: int, batch: int) -> None:
    if count < 1:
        raise UsageError(f"the request is for {count} samples", hint="at least 1 is needed")
    if count > total:
        raise InputRefused(
            f"the request is for {count} samples, the source has {total}", hint=f"at most {total}"
        )
    check_whole_batches("the request is for", count, batch)


def _choose(
    rng: np.random.Generator, pool: Indices, labels: np.ndarray[Any, Any] | None, count: int
) -> Indices:
    """`count` of the indices in `pool`, ascending."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind == "f":
        return np.sort(rng.permutation(pool)[:count])
    classes, class_of, sizes = np.unique(labels[pool], return_inverse=True, return_counts=True)
    shares = _shares(rng, sizes, count)
    parts = [
        rng.permutation(pool[class_of == index])[: shares[index]] for index in range(len(classes))
    ]
    return np.sort(np.concatenate(parts))


def _shares(rng: np.random.Generator, sizes: np.ndarray[Any, Any], count: int) -> list[int]:
    """How many of each class: the largest-remainder method, ties in random order.

    Each share is less than 1 away from count * size / sum(sizes); they add up to count.
    """
    total = int(sizes.sum())
    whole, remainders = np.divmod(sizes * count, total)
    order = np.lexsort((rng.random(len(sizes)), -remainders))
    whole[order[: count - int(whole.sum())]] += 1
    return [int(share) for share in whole]
