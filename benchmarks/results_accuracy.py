"""The sections of docs/results.md on accuracy: quantization, QAT, tune, methods, training."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.quality_summary import MAX_COST_CLOSE, MAX_COST_SEARCHED, RECIPES
from benchmarks.results_tables import percent, table, targets, three


def quality(result: Mapping[str, Any]) -> Iterator[str]:
    columns = {
        "float": "float32",
        "TFLiteConverter int8": "int8 of TFLiteConverter",
        "litert-quantizer int8": "int8 of litert-quantizer",
        "`int8`, none": "int8, none",
        "`int8`": "int8, default",
        "`weight-only-int4`, none": "weight-only-int4, none",
        "`weight-only-int4`": "weight-only-int4, default",
        "`int8x4`, none": "int8x4, none",
        "`int8x4`": "int8x4, default",
    }
    rows = {name: model["contenders"] for name, model in result["models"].items()}
    yield (
        "Columns with a recipe's name are edgeconv's, with the defaults or (none) with `--methods "
        "none`; the peers have their defaults. All calibrate with the same 500 training samples. "
        "Models were chosen by family, some after a look at what peers lose, so the peers' means "
        "do not hold for models in general.\n"
    )
    yield from table(
        ("accuracy", *columns, "test samples"),
        [
            (
                name,
                *(_accuracy(row.get(column, {})) for column in columns.values()),
                row["float32"]["samples"],
            )
            for name, row in rows.items()
        ],
    )
    refused = [
        f"{name}, `{recipe}`: {row[f'{recipe}, default']['failed']}"
        for name, row in rows.items()
        for recipe in RECIPES
        if "failed" in row.get(f"{recipe}, default", {})
    ]
    if refused:
        yield "\n–: no file. Without options, edgeconv refuses:\n"
        yield from (f"- {each}" for each in refused)
    yield ""
    yield from _quality_summary(result["summary"])


def _accuracy(row: Mapping[str, Any]) -> str:
    return three(row["accuracy"]) if "accuracy" in row else "–"


def _quality_summary(summary: Mapping[str, Any]) -> Iterator[str]:
    int8 = summary["int8"]
    losses, agreement = int8["mean_losses"], int8["mean_agreement"]
    yield from table(
        ("int8, mean of the models", "accuracy lost", "samples with the class that float gives"),
        [(name, f"{losses[name]:+.4f}", percent(agreement[name])) for name in losses],
    )
    yield ""
    yield from table(
        ("4 bits", "where rounding to nearest loses accuracy", "recovered, mean"),
        [
            (f"`{recipe}`", f"{each['models_that_lose']} models", _recovered(each))
            for recipe, each in summary["int4"].items()
        ],
    )
    yield "\nMore than 100 % is chance. 300 test samples are too few to show a small loss.\n"
    yield from table(
        ("CPU seconds of the default over those of `--methods none`", "median", "highest"),
        [
            (f"`{recipe}`", f"{each['median']:.2f} ×", f"{each['highest']:.2f} ×")
            for recipe, each in summary["cost"].items()
        ],
    )
    yield from targets(_quality_targets(summary))
    if len(summary["package_states"]) > 1:
        yield (
            f"\nThe models were measured by {len(summary['package_states'])} states of "
            "edgeconv's code; the JSON file says which."
        )


def _recovered(recipe: Mapping[str, Any]) -> str:
    share = recipe["mean_recovered"]
    return "–" if share is None else f"{100 * share:.0f} %"


def _quality_targets(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    int8 = summary["int8"]
    worse = int8["worse_than_better_peer"]
    yield (
        "no int8 worse than the better peer beyond the paired 95 % interval",
        ", ".join(worse) or "none",
        not worse,
    )
    yield (
        "int8: mean agreement with float ≥ 98 %",
        percent(int8["mean_agreement_of_default"]),
        int8["mean_agreement_is_enough"],
    )
    for recipe, each in summary["int4"].items():
        beyond = each["beyond_a_point"]
        yield (
            f"`{recipe}` within 1 point of float on every convolutional model",
            f"beyond: {', '.join(beyond)}" if beyond else f"{len(each['models'])} models",
            not beyond,
        )
    beyond = summary["cost"]["int8"]["beyond"]
    yield (
        f"`int8`: CPU ≤ {MAX_COST_CLOSE} × where the plain file is close enough, "
        f"else ≤ {MAX_COST_SEARCHED} ×",
        f"beyond: {', '.join(beyond)}" if beyond else "all models",
        not beyond,
    )


def qat(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "`edgeconv convert --to qat` with the defaults, three seeds; 500 calibration samples for "
        "plain int8. QAT trains the model further, so it can end up better than the float model. "
        "bad_ranges is a CNN on MNIST in which four units of the third layer are multiplied by "
        "100, and divided again in the fourth.\n"
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
        f"`edgeconv tune --max-drop {summary['budget']}`; one half of the test samples is for the "
        "search, the other for confirmation.\n"
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
    by_samples, by_layers = result["seconds_by_samples"], result["seconds_by_layers"]
    samples, layers = [*by_samples][-2:], [*by_layers][-1]
    yield (
        f"Seconds in addition to those of `minmax`: {result['model']}; by samples with 8 layers, "
        "by layers with 128 samples. The last column has the powers of samples and of layers with "
        "which the time grows.\n"
    )
    rows = (*(by_samples[n] for n in samples), by_layers[layers])
    yield from table(
        ("", *(f"{n} samples" for n in samples), f"{layers} layers", "power"),
        [
            (
                name,
                *(f"{row[name]:.2f}" for row in rows),
                f"{result['exponent_by_samples'][name]:.2f}, "
                f"{result['exponent_by_layers'][name]:.2f}",
            )
            for name in rows[0]
            if name != "minmax"
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
    by_loop = {
        name.rpartition(", ")[::2]: f"{each['mean']:.4f}"
        for name, each in accuracy["strategies"].items()
    }
    names = dict.fromkeys(name for name, _ in by_loop)
    yield from table(
        ("strategy", "custom loop", "`fit`"),
        [(name, *(by_loop[name, loop] for loop in ("custom", "fit"))) for name in names],
    )
    yield (
        "\nSamples per second with the custom loop, and how many times those of a single process. "
        "The machine has two cores and no accelerator, and replicas share them: this shows the "
        "cost of distribution, not its gain.\n"
    )
    by_threads = {
        name.rpartition(", ")[::2]: (
            f"{each['samples_per_second']:,}, {each['times_single_process']:.2f} ×"
        )
        for name, each in result["scaling"]["contenders"].items()
    }
    names = dict.fromkeys(name for name, _ in by_threads)
    threads = tuple(dict.fromkeys(each for _, each in by_threads))
    yield from table(
        ("", *threads), [(name, *(by_threads[name, each] for each in threads)) for name in names]
    )
