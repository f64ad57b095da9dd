"""mnist_cnn trained under every strategy: its accuracy, and the samples a second.

    python -m benchmarks.train MNIST.npz [--part accuracy|scaling|all] [--keep DIRECTORY]

Each training is one `edgeconv train` of 70 steps an epoch at global batch 128, as in TensorFlow's
tutorial on training with several workers. `accuracy` holds the custom loop on two local workers
against what that tutorial prints, and every strategy and loop against a single process; it may
share the machine with others. `scaling` wants it for itself: all contenders in turn in every
round, the median of all epochs but the first, in which TensorFlow traces. The load of the
machine before and after goes into the record. What one part has recorded stays when the other
one is run, as long as it is of the same machine and versions.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import recorded, write_result
from benchmarks.training_runs import GLOBAL_BATCH, MODEL, STEPS_PER_EPOCH, Done, Variant, run
from edgeconv.types import Distribution, LoopName

PEERS = Path(__file__).parent / "peers"
EPOCHS = 3
# Training accuracy of each epoch, as the tutorial prints them, and how far seeds may be off.
TUTORIAL, TUTORIAL_ALLOWED = (0.826, 0.938, 0.960), 0.02
# How far below the single process the mean test accuracy of a strategy may be.
ALLOWED_DROP = 0.005
TWO_CPUS = ("CPU:0", "CPU:1")
DISTRIBUTIONS: dict[str, Distribution] = {
    "none": Distribution(strategy="none"),
    "mirrored, 2 replicas": Distribution(strategy="mirrored", devices=TWO_CPUS),
    "central-storage, 2 replicas": Distribution(strategy="central-storage", devices=TWO_CPUS),
    "multiworker, 2 workers": Distribution(strategy="multiworker", workers=2),
    "parameter-server, 2 workers": Distribution(strategy="parameter-server", workers=2),
}
# To scale from: the same strategy, with one to do the work.
ALONE: dict[str, Distribution] = {
    "mirrored, 1 replica": Distribution(strategy="mirrored", devices=("CPU:0",)),
    "multiworker, 1 worker": Distribution(strategy="multiworker", workers=1),
    "parameter-server, 1 worker": Distribution(strategy="parameter-server", workers=1),
}
LOOPS: tuple[LoopName, ...] = ("fit", "custom")
REFERENCE = "multiworker, 2 workers, custom"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="MNIST in Keras' layout")
    parser.add_argument("--part", choices=["accuracy", "scaling", "all"], default="all")
    parser.add_argument("--seeds", type=int, default=5, help="of the reference run")
    parser.add_argument("--strategy-seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="rounds of scaling")
    parser.add_argument("--keep", type=Path, help="where trainings are kept, to go on from")
    options = parser.parse_args()
    data = str(Path(options.data).absolute())
    with tempfile.TemporaryDirectory() as scratch:
        place = options.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        parts: dict[str, object] = {}
        if options.part in ("accuracy", "all"):
            seeds = (options.seeds, options.strategy_seeds)
            parts["accuracy"] = with_load(lambda: accuracy(data, place, *seeds))
        if options.part in ("scaling", "all"):
            parts["scaling"] = with_load(lambda: scaling(data, Path(scratch), options.repeats))
    path = write_result("train", {"model": MODEL, **other_parts("train"), **parts})
    print(path.read_text(encoding="utf-8"))


def with_load(measure: Any) -> dict[str, object]:
    """What `measure` gives, with the machine's load average over a minute before and after."""
    before = os.getloadavg()[0]
    measured = measure()
    return {"load_average": [round(before, 1), round(os.getloadavg()[0], 1)], **measured}


def other_parts(name: str) -> dict[str, object]:
    """What was recorded before, on this machine and with these versions."""
    before = recorded(name)
    return {part: before[part] for part in ("accuracy", "scaling") if part in before}


def variants(distributions: Mapping[str, Distribution]) -> list[Variant]:
    """Every distribution with every loop."""
    return [
        Variant(f"{name}, {loop}", distribution, loop)
        for name, distribution in distributions.items()
        for loop in LOOPS
    ]


def accuracy(data: str, place: Path, seeds: int, strategy_seeds: int) -> dict[str, object]:
    done: dict[str, list[Done]] = {}
    for variant in sorted(variants(DISTRIBUTIONS), key=lambda one: one.name != REFERENCE):
        wanted = max(seeds, strategy_seeds) if variant.name == REFERENCE else strategy_seeds
        for seed in range(wanted):
            print(f"{variant.name}: seed {seed}", flush=True)
            one = run(variant, data, place, epochs=EPOCHS, seed=seed)
            done.setdefault(variant.name, []).append(one)
    compared = {name: ones[:strategy_seeds] for name, ones in done.items()}
    return {
        "global_batch": GLOBAL_BATCH,
        "epochs": EPOCHS,
        "steps_per_epoch": STEPS_PER_EPOCH,
        "reference": {**reference(done[REFERENCE]), "by_hand": by_hand(data, seeds)},
        "strategies": beside_single_process(compared),
        "same_weights_bit_by_bit": same_weights(compared),
    }


def reference(done: Sequence[Done]) -> dict[str, object]:
    """The training accuracies of each seed beside the tutorial's."""
    seeds = [[epoch.metrics["accuracy"] for epoch in one.record.epochs] for one in done]
    least = [min(values) for values in zip(*seeds, strict=True)]
    means = [statistics.fmean(values) for values in zip(*seeds, strict=True)]
    return {
        "run": REFERENCE,
        "tutorial": TUTORIAL,
        "allowed": TUTORIAL_ALLOWED,
        "lowest": [round(value, 4) for value in least],
        "mean": [round(value, 4) for value in means],
        "mean_reaches_it": reaches_tutorial(means),
        "every_seed_reaches_it": reaches_tutorial(least),
        "training_accuracy": {
            f"seed {one.record.seed}": [round(value, 4) for value in values]
            for one, values in zip(done, seeds, strict=True)
        },
        "test_accuracy": [round(one.record.test_metrics["accuracy"], 4) for one in done],
    }


def reaches_tutorial(accuracies: Sequence[float]) -> bool:
    """Whether the accuracies of the epochs are the tutorial's, less what is allowed, or above."""
    pairs = zip(accuracies, TUTORIAL, strict=True)
    return all(value >= wanted - TUTORIAL_ALLOWED for value, wanted in pairs)


def by_hand(data: str, seeds: int) -> dict[str, object]:
    """The same training without edgeconv: what the seeds of the tutorial's own network give."""
    print("the tutorial's training by hand", flush=True)
    command = [sys.executable, str(PEERS / "tutorial_loop.py"), data, str(seeds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    accuracies = json.loads(done.stdout)
    return {
        "mean": [round(statistics.fmean(values), 4) for values in zip(*accuracies, strict=True)],
        "training_accuracy": [[round(value, 4) for value in values] for values in accuracies],
    }


def beside_single_process(done: Mapping[str, Sequence[Done]]) -> dict[str, object]:
    """Test accuracies, and the mean over the seeds less that of the single process, same loop."""
    means = {name: statistics.fmean(tested(ones)) for name, ones in done.items()}
    rows: dict[str, object] = {}
    for name, ones in sorted(done.items()):
        less = means[name] - means[f"none, {ones[0].record.loop}"]
        rows[name] = {
            "strategy": ones[0].record.strategy,
            "replicas": ones[0].record.replicas,
            "workers": ones[0].record.workers,
            "test_accuracy": [round(value, 4) for value in tested(ones)],
            "mean": round(means[name], 5),
            "less_single_process": round(less, 5),
            "within_allowed": abs(less) <= ALLOWED_DROP,
        }
    return rows


def tested(done: Sequence[Done]) -> list[float]:
    return [one.record.test_metrics["accuracy"] for one in done]


def same_weights(done: Mapping[str, Sequence[Done]]) -> list[list[str]]:
    """The runs that ended with the very same weights, of every seed; those alone are left out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, ones in done.items():
        groups.setdefault(tuple(one.weights for one in ones), []).append(name)
    return [sorted(names) for names in groups.values() if len(names) > 1]


def scaling(data: str, scratch: Path, repeats: int) -> dict[str, object]:
    """Samples a second; once with all cores for each replica, once with one thread for each."""
    contenders = [
        Variant(f"{name}, {cores}", distribution, "custom", threads)
        for threads, cores in enumerate(("all cores", "one thread each"))
        for name, distribution in sorted({**ALONE, **DISTRIBUTIONS}.items())
    ]
    rates: dict[str, list[float]] = {}
    for number in range(repeats):
        for variant in contenders:
            print(f"round {number + 1}/{repeats}: {variant.name}", flush=True)
            place = Path(tempfile.mkdtemp(dir=scratch))
            done = run(variant, data, place, epochs=EPOCHS, seed=number)
            later = done.record.epochs[1:]
            rates.setdefault(variant.name, []).extend(one.samples_per_second for one in later)
    return {"loop": "custom", "rounds": repeats, "contenders": table(rates)}


def table(rates: Mapping[str, Sequence[float]]) -> dict[str, object]:
    """The median rate of each contender, beside the single process with as many threads."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    rows: dict[str, object] = {}
    for name, median in medians.items():
        strategy, _, threads = name.rpartition(", ")
        row: dict[str, object] = {
            "samples_per_second": round(median),
            "times_single_process": round(median / medians[f"none, {threads}"], 3),
        }
        alone = f"{strategy.partition(',')[0]}, 1 {strategy.split()[-1].rstrip('s')}, {threads}"
        if ", 2 " in strategy and alone in medians:
            row["times_one_of_them"] = round(median / medians[alone], 3)
        rows[name] = {**row, "all": [round(value) for value in rates[name]]}
    return rows


if __name__ == "__main__":
    main()
