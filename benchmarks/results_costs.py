"""The sections of docs/results.md on time and memory, and on how often the gate is wrong."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.results_tables import percent, table, targets


def convert(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{result['model']}; {result['calibration_samples']} calibration samples; whole processes, "
        f"interleaved; medians of {result['repeats']} rounds. The script calls TFLiteConverter as "
        "its guide shows; the script verifies nothing, and makes no weight-only int8.\n"
    )
    yield from table(
        ("", "wall", "peak RSS, all processes", "peak PSS"),
        [
            (
                name,
                f"{row['median_wall_s']:.2f} s",
                _memory(row["median_peak_rss_mib"]),
                _memory(row["median_peak_pss_mib"]),
            )
            for name, row in result["contenders"].items()
        ],
    )
    ms = result["calibration_ms_per_sample"]
    speed, both = (
        result["calibration_times_faster_per_sample"],
        result["calibration_of_both_passes_times_faster_per_sample"],
    )
    five = result["times_faster_than_the_script_of_five"]
    wall = result["wall_beside_the_float32_script"]
    memory = result["peak_rss_of_all_processes_beside_the_float32_script"]
    again, start = result["unchanged_convert_s"], result["help_over_bare_python_s"]
    yield from targets(
        [
            ("six formats ≥ 4 × faster than the script of five", f"{five:.2f} ×", five >= 4),
            ("six formats ≤ 0.6 × the script of float32 alone", f"{wall:.3f} ×", wall <= 0.6),
            (
                "calibration ≥ 8 × faster per sample than TFLiteConverter's",
                f"{speed:.2f} × ({ms['edgeconv']:.1f} ms, {ms['tflite']:.1f} ms)",
                speed >= 8,
            ),
            (
                "with histograms, in two passes, ≥ 2 × faster than its one",
                f"{both:.2f} × ({ms['edgeconv_histograms']:.1f} ms)",
                both >= 2,
            ),
            ("peak memory ≤ 1.1 × the float32 script's", f"{memory:.3f} ×", memory <= 1.1),
            ("an unchanged second `convert` ≤ 0.2 s", f"{again:.2f} s", again <= 0.2),
            ("`edgeconv --help` ≤ 0.15 s over bare Python", f"{start:.2f} s", start <= 0.15),
        ]
    )


def latency(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"p50 compared with LiteRT's own `litert-benchmark`, interleaved, {result['rounds']} "
        f"rounds, {result['threads']} thread.\n"
    )
    yield from table(
        ("model", "litert-benchmark", "interpreter", "compiled"),
        [
            (name, *(f"{us / 1000:.2f} ms" for us in each["median_us"].values()))
            for name, each in result["medians"].items()
        ],
    )
    worst = result["largest_difference"]
    yield from targets(
        [
            (f"`{name}` within 5 %", f"within {percent(value)}", value <= 0.05)
            for name, value in worst.items()
        ]
    )


def defaults_cost(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        "CPU seconds of `edgeconv convert`, divided by those with `--methods none`. Six recipes "
        "are `all`, eight have the two 4-bit ones too."
    )
    most = {"six": 2.5, "eight": 3.0, "int8": 2.5}

    def ratio(model: Mapping[str, Any], case: str) -> str:
        value = model[f"{case}_default_beside_{case}_none"]["cpu_s"]
        return f"{value:.2f}" if value <= most[case] else f"**{value:.2f}**"

    yield ""
    yield from table(
        ("model", *(f"{case}, ≤ {limit:g}" for case, limit in most.items())),
        [
            (name, *(ratio(model, case) for case in most))
            for name, model in result["models"].items()
        ],
    )


def evaluate(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"{result['model']}, {result['samples']:,} images, {result['usable_cores']} cores."
    names = {
        "all_formats": "four formats at once",
        "float32_alone": "float32 alone",
        "float32_alone_of_float32_samples": "float32 alone, samples stored as float32",
    }
    rows = []
    for key, name in names.items():
        rate = result[key]["rate_beside_cores_times_the_invoke_rate"]["median"]
        loop = result[key]["times_faster_than_a_loop"]["median"]
        rows += [
            (f"{name}: ≥ 0.9 × cores × the invoke rate", f"{rate:.2f} ×", rate >= 0.9),
            (f"{name}: ≥ 1.8 × a plain Python loop", f"{loop:.2f} ×", loop >= 1.8),
        ]
    yield from targets(rows)
    memory = result["memory"]
    yield (
        f"\n{memory['images']:,} images, {memory['image_bytes_as_the_model_takes_them'] / 1e9:.1f} "
        f"GB as floats: {memory['peak_rss_mib_of_this_process']:.0f} MiB in `bench`, "
        f"{memory['peak_pss_mib_of_all_processes']:.0f} MiB with all its runners."
    )


def gate(result: Mapping[str, Any]) -> Iterator[str]:
    worst = result["worst"]
    yield f"{result['checks']:,} simulated checks for each setting; the worst setting is shown."
    most, least = 0.05, 0.95
    error = 0.01  # What 2,000 checks leave open.
    yield from targets(
        [
            (text, percent(worst[key]), good(worst[key]))
            for text, key, good in (
                ("no drop: fails in ≤ 5 %", "failed_without_a_drop", lambda v: v <= most),
                (
                    "a budget of 16 findings, no drop: fails in ≤ 5 %",
                    "whole_budget_failed_without_a_drop",
                    lambda v: v <= most,
                ),
                (
                    "a drop of exactly the limit: fails in ≤ 5 %, simulated (±1 point)",
                    "failed_at_the_limit",
                    lambda v: v <= most + error,
                ),
                (
                    "a drop of exactly the limit: fails in ≤ 5 %, computed",
                    "failed_at_the_limit_exact",
                    lambda v: v <= most,
                ),
                (
                    "the bootstrap at the limit: fails in ≤ 5 %",
                    "bootstrap_failed_at_the_limit",
                    lambda v: v <= most,
                ),
                (
                    "twice the limit, enough samples: fails in ≥ 95 %",
                    "caught_with_enough",
                    lambda v: v >= least,
                ),
                (
                    "no drop, enough samples: passes in ≥ 95 %",
                    "passed_with_enough",
                    lambda v: v >= least,
                ),
                (
                    "twice the limit, the sample count named after 50 samples: fails in ≥ 95 %",
                    "caught_after_50",
                    lambda v: v >= least,
                ),
                (
                    "no drop, the sample count named after 50 samples: passes in ≥ 95 %",
                    "passed_after_50",
                    lambda v: v >= least,
                ),
            )
        ]
    )


def build(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{result['model']} to int8, {result['calibration_samples']} samples, whole processes, "
        f"interleaved, medians of {result['repeats']} rounds.\n"
    )
    yield from table(
        ("", "wall"),
        [(name, f"{row['median_wall_s']:.2f} s") for name, row in result["contenders"].items()],
    )
    again, ratio = result["unchanged_build_s"], result["times_faster_than_the_script"]
    yield from targets(
        [
            ("an unchanged build ≤ 0.3 s", f"{again:.2f} s", again <= 0.3),
            ("≥ 100 × faster than the script", f"{ratio:.0f} ×", ratio >= 100),
        ]
    )


def sweep(result: Mapping[str, Any]) -> Iterator[str]:
    rounds, is_quiet = result["repeats"], result.get("load_average", [9])[0] < 1
    yield (
        f"{result['models']} small Keras models with three recipes, {result['cells']} cells, whole "
        f"processes with an empty cache, {rounds} round{'s' if rounds > 1 else ''}"
        + ("" if is_quiet else ", on a machine with other work: no more than an order of magnitude")
        + ".\n"
    )
    yield from table(
        ("", "wall", "peak memory (PSS)"),
        [
            (name, f"{row['median_wall_s']:.1f} s", f"{row['median_peak_pss_mib']:.0f} MiB")
            for name, row in result["contenders"].items()
        ],
    )
    cost, share = max(result["scheduling_ms_per_cell"].values()), result["efficiency_of_two"]
    times = f", median of {result.get('efficiency_rounds', 1)}"
    name = f"two processes ≥ 0.9 of linear (twice one on one core){times}"
    linear = [(name, f"{share:.2f}", share >= 0.9)]
    if apart := result.get("efficiency_of_two_apart"):
        name = f"≥ 0.9 of two separate sweeps, which get {apart:.2f} of linear on these cores"
        linear.append((name, f"{share / apart:.2f}", share / apart >= 0.9))
    yield from targets(
        [
            *(linear if is_quiet else ()),
            ("scheduling ≤ 20 ms per cell, 64 jobs at once", f"{cost:.1f} ms", cost <= 20),
        ]
    )


def scheduling(result: Mapping[str, Any]) -> Iterator[str]:
    least, most = result["lengths_s"]
    runs = [*result["runs"].values()]
    yield (
        f"Jobs of one cell sleep {least:g} to {most:g} s in workers of Ray {result['ray']}, and "
        "write a result; the cores are simulated by nodes on one machine. After the slash: the "
        "same jobs as plain tasks of Ray, submitted at once. *Overhead* is the wall time beyond a "
        "schedule that costs nothing.\n"
    )
    yield from table(
        ("cores", "", "efficiency", "overhead per cell", "processor per cell"),
        [
            (
                run["cores"],
                {"driver": "`--on ray`", "client": "`--on ray://`"}[run["connection"]],
                _both(run, "efficiency", ".3f"),
                _both(run, "wall_overhead_ms_per_cell", ".1f", " ms"),
                _both(run, "driver_cpu_ms_per_cell", ".1f", " ms"),
            )
            for run in runs
        ],
    )
    overhead, busy = "wall_overhead_ms_per_cell", "driver_cpu_ms_per_cell"
    own = max(run["edgeconv"][overhead] - run["plain_tasks"][overhead] for run in runs)
    most_busy = max(run["edgeconv"][busy] for run in runs)
    yield from targets(
        [
            ("overhead beyond plain tasks ≤ 20 ms per cell", f"{own:.1f} ms", own <= 20),
            ("processor ≤ 20 ms per cell, Ray's included", f"{most_busy:.1f} ms", most_busy <= 20),
        ]
    )
    cores = max(run["cores"] for run in runs)
    of_most = [run["edgeconv"] for run in runs if run["cores"] == cores]
    wall_ms, cpu_ms = (max(run[key] for run in of_most) for key in (overhead, busy))
    idle_s = wall_ms * cores / 1e3
    yield (
        f"\nOn paper, 10,000 cells cost the scheduler {10 * cpu_ms:.0f} s of processor time, and "
        f"the sweep {10 * wall_ms:.0f} s of wall time. With {cores} cores and cells of 10 s "
        f"({10_000 * 10 / cores / 60:.0f} minutes of work), that is an efficiency of "
        f"{10 / (10 + idle_s):.2f}."
    )


def _both(run: Mapping[str, Any], key: str, digits: str, unit: str = "") -> str:
    return f"{run['edgeconv'][key]:{digits}} / {run['plain_tasks'][key]:{digits}}{unit}"


def scan(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"{result['model']}; medians of {result['repeats']} runs.\n"
    yield from table(
        ("weights stored as", "model", "whole command", "beyond start"),
        [
            (
                name,
                f"{result['size_bytes'][name] / 1e6:.0f} MB",
                f"{seconds:.2f} s",
                f"{result['beyond_start_s'][name]:.2f} s",
            )
            for name, seconds in result["scan_s"].items()
        ],
    )


def sandbox(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"{result['wall']}; medians of {result['repeats']} runs.\n"
    names = {
        "child": "starting a child process",
        "convert_unchanged": "an unchanged `convert`",
        "bench": "`bench`",
    }
    yield from table(
        ("", "sandbox", "wall", "cost"),
        [
            (title, how, f"{each['wall_ms']['median']:.0f} ms", _cost(each["wall_ms"]))
            for key, title in names.items()
            for how, each in result[key].items()
        ],
    )


def _cost(times: Mapping[str, float]) -> str:
    return f"{times['median_cost']:+.1f} ms"


def _memory(peak_mib: float) -> str:
    """A peak of memory, where the process lived long enough for it to be seen."""
    return f"{peak_mib:.0f} MiB" if peak_mib else "not seen"
