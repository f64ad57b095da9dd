"""What the gate promises of its statistics, by simulated checks of which the truth is known.

    python -m benchmarks.gate [--checks 2000]

A model of so much accuracy answers samples, and another one answers so many of them otherwise:
as many better as worse (no drop), or more worse by the limit, or by twice the limit. Each check
has its own samples. Told are how often a check fails, and how often it passes:

- `no_drop`, `at_the_limit`: sets of several sizes. A failure is a false one.
- `enough`: sets of as many samples as the gate says are enough, without a drop and with one of
  twice the limit; where it knows how many answers differ, and (`after_50`) where it has seen 50
  samples and says it from those, each time anew.
- `whole_budget`: all of `edgeconv.check` on reports with a lock, classes and six limits.
- `relative`, `flips`: likewise, for a drop as a share of the accuracy, and for flips.
- `bootstrap`: a drop of exactly the limit in a metric that is a mean of numbers, or no mean.

Next to rates of failure at the limit is `exact`: the same from the probabilities of all outcomes.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measuring import write_result
from edgeconv.gate.budget import check
from edgeconv.measure.metrics.classes import AUC
from edgeconv.statistics.bootstrap import MeanOf, Resampling
from edgeconv.statistics.drop import MatchedDrop, RelativeDrop, enough_pairs, is_above
from edgeconv.statistics.estimate import Flips, Levels
from edgeconv.types import (
    Accuracy,
    Budget,
    DataIdentity,
    Environment,
    Limits,
    LockedModel,
    LockedStage,
    Measurement,
    Report,
    Verdict,
)

LEVELS = Levels(0.05, 0.05, 0.05)
# Accuracy, share of answers that differ, limit.
SETTINGS = (
    (0.99, 0.004, 0.005),
    (0.98, 0.02, 0.01),
    (0.90, 0.03, 0.01),
    (0.90, 0.10, 0.02),
    (0.70, 0.05, 0.02),
    (0.70, 0.20, 0.05),
    (0.50, 0.30, 0.05),
    (0.95, 0.02, 0.05),
)
SIZES = (50, 200, 1000, 5000)
PILOT = 50
RIGHT = 0.9


class World(NamedTuple):
    """The truth: accuracy before, share of answers that differ, and the drop."""

    accuracy: float
    differ: float
    drop: float

    def cells(self) -> tuple[float, float, float, float]:
        """Probabilities: right before alone, after alone, both, neither."""
        differ = max(self.differ, self.drop)
        lost, won = (differ + self.drop) / 2, (differ - self.drop) / 2
        return lost, won, self.accuracy - lost, 1 - self.accuracy - won


class Rates(NamedTuple):
    """Of all checks, how many failed, and how many passed."""

    failed: float
    passed: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", type=int, default=2000)
    options = parser.parse_args()
    started = time.perf_counter()
    parts = simulated(options.checks, progress=True)
    result = {
        "checks": options.checks,
        "confidence": 0.95,
        "worst": worst(parts),
        **parts,
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(write_result("gate", result).read_text(encoding="utf-8"))


def simulated(checks: int, *, progress: bool = False) -> dict[str, Any]:
    """Every part, by its name: one record for each setting."""
    rng = np.random.default_rng(6)
    makers: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "no_drop": lambda: by_size(rng, checks, 0.0),
        "at_the_limit": lambda: by_size(rng, checks, 1.0),
        "enough": lambda: with_enough(rng, checks),
        "relative": lambda: relative(rng, checks),
        "flips": lambda: flips(rng, checks),
        "bootstrap": lambda: bootstrap(rng, checks),
        "whole_budget": lambda: whole(rng, checks),
    }
    found: dict[str, Any] = {}
    for name, make in makers.items():
        found[name] = []
        for record in make():
            found[name].append(record)
            if progress:
                print(name, record, flush=True)
    return found


def worst(parts: dict[str, Any]) -> dict[str, float]:
    """The worst rate of each promise."""
    enough = [*parts["enough"], *parts["relative"], *parts["flips"]]
    return {
        "failed_without_a_drop": max(one["failed"] for one in parts["no_drop"]),
        "failed_at_the_limit": max(one["failed"] for one in parts["at_the_limit"]),
        "failed_at_the_limit_exact": max(one.get("exact", 0.0) for one in parts["at_the_limit"]),
        "whole_budget_failed_without_a_drop": max(
            one["failed"] for one in parts["whole_budget"] if not one["drop"]
        ),
        "caught_with_enough": min(one["caught"] for one in enough),
        "passed_with_enough": min(one["passed"] for one in enough),
        "caught_after_50": min(one["after_50"]["caught"] for one in parts["enough"]),
        "passed_after_50": min(one["after_50"]["passed"] for one in parts["enough"]),
        "bootstrap_failed_at_the_limit": max(one["failed"] for one in parts["bootstrap"]),
    }


def by_size(rng: np.random.Generator, checks: int, times: float) -> Iterator[dict[str, Any]]:
    """Sets of several sizes, with a drop of so many times the limit."""
    for (accuracy, differ, limit), samples in itertools.product(SETTINGS, SIZES):
        world = World(accuracy, differ, times * limit)
        rates = matched(rng, world, np.full(checks, samples), limit)
        exact = {"exact": round(exact_rate(world, samples, limit), 4)} if times else {}
        yield {**_named(accuracy, differ, limit), "samples": samples, **_rates(rates), **exact}


def with_enough(rng: np.random.Generator, checks: int) -> Iterator[dict[str, Any]]:
    """Sets of as many samples as are said to be enough."""
    for accuracy, differ, limit in SETTINGS:
        enough = enough_pairs(differ, limit, LEVELS)
        assert enough is not None
        worlds = World(accuracy, differ, 0.0), World(accuracy, differ, 2 * limit)
        held, caught = (matched(rng, world, np.full(checks, enough), limit) for world in worlds)
        told = [pilots(rng, world, checks, limit) for world in worlds]
        held_50, caught_50 = (
            matched(rng, world, sizes, limit) for world, sizes in zip(worlds, told, strict=True)
        )
        yield {
            **_named(accuracy, differ, limit),
            "samples": enough,
            "caught": caught.failed,
            "passed": held.passed,
            "after_50": {
                "samples_median": int(np.median(told[0])),
                "caught": caught_50.failed,
                "passed": held_50.passed,
            },
        }


def pilots(rng: np.random.Generator, world: World, checks: int, limit: float) -> Any:
    """How many samples are said to be enough after so few of them, once for each check."""
    draws = rng.multinomial(PILOT, world.cells(), size=checks)
    found = []
    for lost, won, _, _ in draws:
        enough = MatchedDrop(int(lost), int(won), PILOT).enough(limit, LEVELS)
        assert enough is not None
        found.append(enough)
    return np.array(found)


def matched(rng: np.random.Generator, world: World, sizes: Any, limit: float) -> Rates:
    """Checks of the drop alone, each with a set of its own of this size."""
    failed = passed = 0
    known: dict[tuple[int, int, int], tuple[bool, bool]] = {}
    for samples in sizes.tolist():
        lost, won, *_ = rng.multinomial(samples, world.cells()).tolist()
        key = (lost, won, samples)
        if key not in known:
            evidence = MatchedDrop(*key)
            above, below = (
                evidence.is_above(limit, LEVELS.fail),
                evidence.is_below(limit, LEVELS.hold),
            )
            known[key] = above, below
        failed += known[key][0]
        passed += known[key][1]
    return Rates(failed / len(sizes), passed / len(sizes))


def exact_rate(world: World, samples: int, limit: float) -> float:
    """The probability that a check fails, not by simulation: over all outcomes that matter."""
    from scipy.stats import binom

    lost, won, *_ = world.cells()
    first, last = binom.ppf([1e-6, 1 - 1e-6], samples, won).astype(int)
    total, least = 0.0, 0
    for count in range(first, last + 1):
        least = max(least, int(np.floor(count + samples * limit)))
        while least <= samples - count and not is_above(least, count, samples, limit, LEVELS.fail):
            least += 1
        rest = samples - count
        total += binom.pmf(count, samples, won) * binom.sf(least - 1, rest, lost / (1 - won))
    return float(total)


def relative(rng: np.random.Generator, checks: int) -> Iterator[dict[str, Any]]:
    """A drop as a share of the accuracy before, with as many samples as are enough."""
    for accuracy, differ, limit in ((0.9, 0.05, 0.02), (0.7, 0.1, 0.05), (0.3, 0.1, 0.2)):
        enough = enough_pairs(differ, limit, LEVELS, accuracy)
        assert enough is not None
        rates = [
            _relative(rng, World(accuracy, differ, times * limit * accuracy), enough, limit, checks)
            for times in (0, 1, 2)
        ]
        yield {
            **_named(accuracy, differ, limit),
            "samples": enough,
            "failed_at_the_limit": rates[1].failed,
            "caught": rates[2].failed,
            "passed": rates[0].passed,
        }


def _relative(
    rng: np.random.Generator, world: World, samples: int, limit: float, checks: int
) -> Rates:
    failed = passed = 0
    for lost, won, both, _ in rng.multinomial(samples, world.cells(), size=checks).tolist():
        evidence = RelativeDrop(MatchedDrop(lost, won, samples), lost + both)
        failed += evidence.is_above(limit, LEVELS.fail)
        passed += evidence.is_below(limit, LEVELS.hold)
    return Rates(failed / checks, passed / checks)


def flips(rng: np.random.Generator, checks: int) -> Iterator[dict[str, Any]]:
    """The share of samples of another class."""
    for limit in (0.005, 0.02, 0.1):
        enough = Flips(0, 1).enough(limit, LEVELS)
        assert enough is not None
        outcomes = []
        for times in (0, 1, 2):
            counts = rng.binomial(enough, times * limit, size=checks).tolist()
            found = [Flips(one, enough) for one in counts]
            failed = sum(one.is_above(limit, 0.05) for one in found) / checks
            outcomes.append(Rates(failed, sum(one.is_below(limit, 0.05) for one in found) / checks))
        yield {
            "limit": limit,
            "samples": enough,
            "failed_at_the_limit": outcomes[1].failed,
            "caught": outcomes[2].failed,
            "passed": outcomes[0].passed,
        }


def bootstrap(rng: np.random.Generator, checks: int) -> Iterator[dict[str, Any]]:
    """A drop of exactly the limit, in the mean of numbers and in an area under the curve."""
    shapes: dict[str, Callable[[int], Any]] = {
        "normal": lambda n: rng.normal(size=n),
        "laplace": lambda n: rng.laplace(size=n),
        "difference of squares": lambda n: rng.normal(size=n) ** 2 - rng.normal(size=n) ** 2,
    }
    for (shape, draw), samples in itertools.product(shapes.items(), (50, 200)):
        failed = 0
        for number in range(checks):
            values = 1.0 + draw(samples)
            evidence = MeanOf(tuple(values.tolist()), 10.0, Resampling(500, number))
            failed += evidence.is_above(1.0, LEVELS.fail)
        yield {"numbers": shape, "samples": samples, "failed": failed / checks}
    for samples in (100, 400):
        failed = 0
        for number in range(checks):
            evidence = MeanOf(_auc_difference(rng, samples), 1.0, Resampling(500, number))
            failed += evidence.is_above(0.0, LEVELS.fail)
        yield {"numbers": "area under the curve", "samples": samples, "failed": failed / checks}


def _auc_difference(rng: np.random.Generator, samples: int) -> tuple[float, ...]:
    """What each sample adds to the difference of two equally good models' areas."""
    labels = np.arange(samples) % 2
    common = rng.normal(size=samples) + 2.0 * labels
    # Logits, some below 0.
    scores = (common + 0.3 * rng.normal(size=samples) - 1.0 for _ in range(2))
    first, second = (AUC.score(one[:, None], labels).values for one in scores)
    return tuple((first - second).tolist())


def whole(rng: np.random.Generator, checks: int) -> Iterator[dict[str, Any]]:
    """All of a check: two models, two references, classes, slices, and six limits or two."""
    all_at_0 = Limits(
        max_accuracy_drop=0.0,
        max_relative_accuracy_drop=0.0,
        max_class_drop=0.0,
        max_slice_drop=0.0,
        max_flip_rate=0.3,
        min_accuracy=0.8,
    )
    yield _whole(rng, World(RIGHT, 0.1, 0.0), 100, all_at_0, checks)
    limit = 0.05
    few = Limits(max_accuracy_drop=limit, max_flip_rate=0.4)
    enough = _said_to_be_enough(rng, World(RIGHT, 0.1, 0.0), few)
    for drop in (0.0, 2 * limit):
        yield _whole(rng, World(RIGHT, 0.1, drop), enough, few, max(1, checks // 4))


def _whole(
    rng: np.random.Generator, world: World, samples: int, limits: Limits, checks: int
) -> dict[str, Any]:
    verdicts = [_verdict(rng, world, samples, limits) for _ in range(checks)]
    outcomes = [{one.outcome for one in verdict.findings} for verdict in verdicts]
    return {
        "samples": samples,
        "drop": world.drop,
        "limits": {name: limit.limit for name, limit in limits.by_name().items()},
        "checks": checks,
        "findings": len(verdicts[0].findings),
        "failed": sum("failed" in one for one in outcomes) / checks,
        "passed": sum(one == {"passed"} for one in outcomes) / checks,
    }


def _said_to_be_enough(rng: np.random.Generator, world: World, limits: Limits) -> int:
    """The most that any limit needs, as one check says of `PILOT` samples."""
    needed = [one.samples_needed for one in _verdict(rng, world, PILOT, limits).findings]
    return max(one for one in needed if one is not None)


def _verdict(rng: np.random.Generator, world: World, samples: int, limits: Limits) -> Verdict:
    """One check of a report with a lock; only the artifact dropped."""
    labels = rng.integers(0, 4, samples)
    right = rng.random(samples) < world.accuracy
    sound = world._replace(drop=0.0)
    was, before, trained = (_answers(rng, labels, right, sound) for _ in range(3))
    after = _answers(rng, labels, right, world)
    rows = [_row("trained", "baseline", trained, labels), _row("int8", "artifact", after, labels)]
    stages = tuple(
        LockedStage(
            name=row.name,
            role=row.role,
            recipe=row.recipe,
            sha256="0",
            size_bytes=1,
            accuracy=_accuracy(said, labels),
        )
        for row, said in zip(rows, (was, before), strict=True)
    )
    report = Report(
        title="simulated",
        environment=Environment(machine="", cpu="", cores=1, system="", python="", tools={}),
        data=DataIdentity(source="", samples=samples, sha256="d"),
        baseline=rows[0],
        measurements=(rows[1],),
        labels=tuple(labels.tolist()),
    )
    locked = LockedModel(
        name="simulated", inputs={}, test_sha256="d", test_samples=samples, stages=stages
    )
    slices = ["even" if i % 2 == 0 else "odd" for i in range(samples)]
    return check(report, Budget(every=limits), locked=locked, slices=slices)


def _answers(rng: np.random.Generator, labels: Any, right: Any, world: World) -> Any:
    """Classes said: right where `right`, but for some that are otherwise, more of them wrong."""
    lost, won, *_ = world.cells()
    share = np.where(right, lost / world.accuracy, won / (1 - world.accuracy))
    is_right = right ^ (rng.random(len(right)) < share)
    return np.where(is_right, labels, (labels + 1) % 4)


def _accuracy(said: Any, labels: Any) -> Accuracy:
    correct = "".join("1" if one else "0" for one in said == labels)
    return Accuracy(
        value=correct.count("1") / len(correct),
        samples=len(correct),
        correct=correct,
        predicted=tuple(said.tolist()),
    )


def _row(name: str, role: Any, said: Any, labels: Any) -> Measurement:
    return Measurement(
        name=name,
        role=role,
        recipe=None if role == "baseline" else "int8",
        runtime="",
        sha256=name,
        size_bytes=1,
        accuracy=_accuracy(said, labels),
    )


def _named(accuracy: float, differ: float, limit: float) -> dict[str, float]:
    return {"accuracy": accuracy, "differ": differ, "limit": limit}


def _rates(rates: Rates) -> dict[str, float]:
    return {"failed": round(rates.failed, 4), "passed": round(rates.passed, 4)}


if __name__ == "__main__":
    main()
