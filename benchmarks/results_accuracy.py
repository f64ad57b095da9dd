"""The sections of docs/results.md on accuracy: quantization, QAT, tune, methods, training."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.results_tables import percent, table, targets, three

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def quality(result: Mapping[str, Any]) -> Iterator[str]:
    columns = {
        "float": "float32",
        "TFLiteConverter int8": "int8 of TFLiteConverter",
        "ai-edge-quantizer int8": "int8 of ai-edge-quantizer",
        "edgeconv int8": "int8, auto",
        "int4 weights, rounded to nearest": "weight-only-int4, none",
        "edgeconv `weight-only-int4`": "weight-only-int4, auto",
        "int4 and int8, rounded to nearest": "int8x4, none",
        "edgeconv `int8x4`": "int8x4, auto",
    }
    yield (
        "The same 500 training samples calibrate for everyone; accuracy is on all test samples; "
        "the peers have their defaults. Test labels are used for evaluation only. "
        "cifar_mobilenet_quarter was added, and flowers_mobilenet trained for longer, after a look "
        "at what the peers' files lose on the others.\n"
    )
    yield from table(
        ("accuracy", *columns, "test samples"),
        [
            (
                name,
                *(
                    three(rows[column]["accuracy"]) if column in rows else "–"
                    for column in columns.values()
                ),
                rows["float32"]["samples"],
            )
            for name, rows in (
                (name, each["contenders"]) for name, each in result["models"].items()
            )
        ],
    )
    summary = result["summary"]["int8"]
    losses, classes = summary["mean_losses"], summary["mean_share_of_other_classes"]
    worse = sum(each["is_worse"] for each in summary["beside_better_peer"].values())
    yield ""
    yield from table(
        ("int8, mean of the models", "accuracy lost", "samples with another class than float"),
        [(name, f"{losses[name]:+.4f}", percent(classes[name])) for name in losses],
    )
    yield (
        f"\nWorse than the better peer beyond the paired 95 % interval: edgeconv's int8 of {worse} "
        "models. Nearly all of the mean difference is from point_history.\n"
    )
    yield from table(
        ("4 bits, where rounding to nearest loses accuracy", "models", "recovered, mean"),
        [
            (f"`{recipe}`", each["models_that_lose"], f"{100 * each['mean_recovered']:.0f} %")
            for recipe, each in result["summary"]["int4"].items()
        ],
    )
    yield "\nMore than 100 % is chance. 300 or 863 test samples are too few to show a small loss."


def qat(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "`edgeconv convert --to qat` with the defaults, three seeds; 500 calibration samples for "
        "plain int8; the same test samples for all. QAT trains further, so it can end above the "
        "float model. bad_ranges is a CNN on MNIST; four units of its third layer are multiplied "
        "by 100 and divided again in the fourth.\n"
    )
    yield from table(
        ("accuracy", "float", "TFLiteConverter int8", "edgeconv int8", "edgeconv QAT", "wall"),
        [_qat_row(name, task["contenders"]) for name, task in result["tasks"].items()],
    )


def _qat_row(name: str, rows: Mapping[str, Any]) -> Sequence[str]:
    seeds = [row for key, row in rows.items() if key.startswith("qat, seed")]
    accuracies = [row["accuracy"] for row in seeds]
    walls = sorted(row["wall_s"] for row in seeds)
    return (
        name,
        *(three(rows[key]["accuracy"]) for key in ("float", "int8 of TFLiteConverter", "int8")),
        f"{three(statistics.fmean(accuracies))} ({', '.join(map(three, accuracies))})",
        f"{walls[0]:.0f}–{walls[-1]:.0f} s",
    )


def tune(result: Mapping[str, Any]) -> Iterator[str]:
    summary = result["summary"]
    yield (
        f"`edgeconv tune --max-drop {summary['budget']}`; one half of the test samples searches, "
        "the other confirms.\n"
    )
    yield from table(
        ("model", "recommended", "size", "of float32", "drop on fresh samples", "wall"),
        [
            (
                name,
                f"`{each['recommended']}`",
                f"{each['bytes'] / 1000:,.1f} kB",
                percent(each["bytes"] / each["float_bytes"], 0),
                _confirmation(each),
                f"{each['wall_s']:.0f} s",
            )
            for name, each in result["models"].items()
        ],
    )
    met = summary["all_met_on_fresh_samples"]
    yield from targets([("the budget holds on fresh samples", "all" if met else "not all", met)])


def _confirmation(model: Mapping[str, Any]) -> str:
    last = model["confirmations"][-1]
    low, high = last["fresh_interval"]
    samples = f"{model['fresh_samples']} samples"
    return f"{last['fresh_drop']:+.4f} ({low:+.4f} to {high:+.4f}), {samples}"


def methods(result: Mapping[str, Any]) -> Iterator[str]:
    samples, layers = result["seconds_by_samples"], result["seconds_by_layers"]
    yield (
        f"Seconds more than `minmax` takes: {result['model']}; by samples with 8 layers, by layers "
        "with 128 samples. The last column is the power of samples and of layers that the time "
        "grows with.\n"
    )
    names = [name for name in next(iter(samples.values())) if name != "minmax"]
    yield from table(
        ("", *(f"{n} samples" for n in samples), *(f"{n} layers" for n in layers), "power"),
        [
            (
                name,
                *(f"{row[name]:.2f}" for row in (*samples.values(), *layers.values())),
                f"{result['exponent_by_samples'][name]:.2f}, "
                f"{result['exponent_by_layers'][name]:.2f}",
            )
            for name in names
        ],
    )


def train(result: Mapping[str, Any]) -> Iterator[str]:
    accuracy = result["accuracy"]
    reference = accuracy["reference"]
    yield (
        f"TensorFlow's multi-worker tutorial: {result['model']}, {reference['run']}, "
        f"{accuracy['epochs']} epochs of {accuracy['steps_per_epoch']} steps, global batch "
        f"{accuracy['global_batch']}. Training accuracy:\n"
    )
    rows = (
        ("the tutorial prints", reference["tutorial"]),
        ("edgeconv, mean of five seeds", reference["mean"]),
        ("edgeconv, the lowest of them", reference["lowest"]),
        ("the tutorial's code without edgeconv, mean of five seeds", reference["by_hand"]["mean"]),
    )
    epochs = [f"epoch {n + 1}" for n in range(accuracy["epochs"])]
    yield from table(("", *epochs), [(name, *map(three, row)) for name, row in rows])
    allowed = reference["allowed"]
    yield from targets(
        [
            (f"the mean is within {allowed}", "", reference["mean_reaches_it"]),
            (f"every seed is within {allowed}", "", reference["every_seed_reaches_it"]),
        ]
    )
    yield "\nTest accuracy by strategy, mean of three seeds:\n"
    yield from table(
        ("strategy", "accuracy"),
        [(name, f"{each['mean']:.4f}") for name, each in accuracy["strategies"].items()],
    )
    yield (
        "\nThroughput. The machine has two cores and no accelerator, and replicas share them: this "
        "shows the cost of distribution, not its gain.\n"
    )
    yield from table(
        ("custom loop", "samples per second", "of a single process"),
        [
            (name, f"{each['samples_per_second']:,}", f"{each['times_single_process']:.2f} ×")
            for name, each in result["scaling"]["contenders"].items()
        ],
    )
