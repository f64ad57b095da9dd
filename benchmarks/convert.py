"""Six formats of MobileNetV2-224 in one `edgeconv convert`, beside TFLiteConverter by hand.

    python -m benchmarks.convert [--repeats 3] [--samples 100]

Whole processes, all contenders in turn in every round, medians of the rounds. edgeconv starts each
round with an empty stage cache and an empty output directory, except where the repeated conversion
itself is what is measured. The script has no post-training methods, so it is compared with
`--methods none`; what the default costs, which chooses methods, is recorded too. Its peak memory is
that of all its processes together: the sum of their resident sets (RSS), and the same with pages
that they share counted once (PSS).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import Contender, in_rounds, median_wall, write_result

PEERS = Path(__file__).parent / "peers"
FIVE = ("float32", "float16", "dynamic", "int8", "int16x8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.repeats, options.samples)
    print(write_result("convert", result).read_text(encoding="utf-8"))


def measure(scratch: Path, repeats: int, samples: int) -> dict[str, object]:
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(scratch / "cache")}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    run_python(PEERS / "make_mobilenet.py", scratch, samples, environment=environment)
    contenders = make_contenders(scratch, samples, environment)
    in_rounds(list(contenders.values()), repeats)
    again, start_up = quick_contenders(scratch, samples, environment)
    in_rounds([again, *start_up], max(repeats, 5))
    per_sample = calibration(scratch, samples, repeats, environment)
    edgeconv, five, one = contenders["edgeconv"], contenders["five"], contenders["one"]
    rss = [statistics.median(c.rss_bytes) for c in (edgeconv, one)]
    pss = [statistics.median(c.pss_bytes) for c in (edgeconv, one)]
    return {
        "model": "MobileNetV2-224, tf_keras.applications, random weights",
        "calibration_samples": samples,
        "repeats": repeats,
        "times_faster_than_the_script_of_five": round(median_wall(five) / median_wall(edgeconv), 2),
        "wall_beside_the_float32_script": round(median_wall(edgeconv) / median_wall(one), 3),
        "peak_rss_of_all_processes_beside_the_float32_script": round(rss[0] / rss[1], 3),
        "peak_pss_of_all_processes_beside_the_float32_script": round(pss[0] / pss[1], 3),
        "calibration_times_faster_per_sample": round(
            per_sample["tflite"] / per_sample["edgeconv"], 2
        ),
        "calibration_of_both_passes_times_faster_per_sample": round(
            per_sample["tflite"] / per_sample["edgeconv_histograms"], 2
        ),
        "calibration_ms_per_sample": {k: round(v * 1e3, 2) for k, v in per_sample.items()},
        "unchanged_convert_s": round(median_wall(again), 3),
        "help_over_bare_python_s": round(median_wall(start_up[0]) - median_wall(start_up[1]), 3),
        "contenders": {c.name: c.record() for c in (*contenders.values(), again, *start_up)},
    }


def edgeconv_command(scratch: Path, samples: int, methods: str = "none") -> list[str]:
    return [
        *(sys.executable, "-m", "edgeconv", "convert", str(scratch / "mobilenet_v2")),
        *("-o", str(scratch / "edgeconv"), "--to", "all", "-q", "--methods", methods),
        *("--calibration", str(scratch / "samples.npz"), "--samples", str(samples)),
    ]


def make_contenders(
    scratch: Path, samples: int, environment: dict[str, str]
) -> dict[str, Contender]:
    out = scratch / "by_hand"
    out.mkdir()
    by_hand = [sys.executable, str(PEERS / "tflite_converter.py"), str(scratch / "mobilenet_v2")]
    by_hand += [str(scratch / "samples.npz"), str(samples), str(out)]

    def forget() -> None:
        shutil.rmtree(scratch / "cache", ignore_errors=True)
        shutil.rmtree(scratch / "edgeconv", ignore_errors=True)

    return {
        "default": Contender(
            "edgeconv convert --to all (the same, methods chosen)",
            edgeconv_command(scratch, samples, "auto"),
            environment,
            forget,
        ),
        "edgeconv": Contender(
            "edgeconv convert --to all --methods none (six formats, verified)",
            edgeconv_command(scratch, samples),
            environment,
            forget,
        ),
        "five": Contender("TFLiteConverter script, five formats", [*by_hand, *FIVE], environment),
        "one": Contender(
            "TFLiteConverter script, float32 alone", [*by_hand, "float32"], environment
        ),
    }


def quick_contenders(
    scratch: Path, samples: int, environment: dict[str, str]
) -> tuple[Contender, list[Contender]]:
    again = Contender(
        "edgeconv convert --to all --methods none, unchanged",
        edgeconv_command(scratch, samples),
        environment,
    )
    start_up = [
        Contender("edgeconv --help", [sys.executable, "-m", "edgeconv", "--help"], environment),
        Contender("python -c pass", [sys.executable, "-c", "pass"], environment),
    ]
    return again, start_up


def calibration(
    scratch: Path, samples: int, repeats: int, environment: dict[str, str]
) -> dict[str, float]:
    """Median seconds per calibration sample, by tool; the tools in turn."""
    converted = scratch / "edgeconv" / "mobilenet_v2.float32.tflite"
    models = {
        "tflite": scratch / "mobilenet_v2",
        "edgeconv": converted,
        "edgeconv_histograms": converted,
    }
    seconds: dict[str, list[float]] = {tool: [] for tool in models}
    for number in range(repeats):
        for tool, model in models.items():
            print(f"round {number + 1}/{repeats}: calibration, {tool}", flush=True)
            arguments = (tool, model, scratch / "samples.npz", samples)
            printed = run_python(PEERS / "calibrate.py", *arguments, environment=environment)
            seconds[tool].append(float(printed.split()[-1]))
    return {tool: statistics.median(values) for tool, values in seconds.items()}


def run_python(script: Path, *arguments: object, environment: dict[str, str]) -> str:
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return done.stdout.decode()


if __name__ == "__main__":
    main()
