"""`edgeconv build` where nothing changed, beside a script that calls TFLiteConverter each time.

    python -m benchmarks.build [--repeats 5] [--samples 100]

MobileNetV2-224 in int8, with calibration, into C files. Whole processes, all contenders in turn in
every round, medians of the rounds. The script makes the .tflite only. Also measured: a build after
one file was touched, in a checkout that finds everything in the cache, and from nothing.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.convert import PEERS, run_python
from benchmarks.measuring import Contender, in_rounds, median_wall, write_result

CONFIG = """\
[model.mobilenet]
source = "mobilenet_v2"
[convert]
to = "int8"
calibration = "samples.npz"
samples = {samples}
[model.mobilenet.embed]
target = "c"
out = "app"
# The softmax of tflite-micro asserts where 257 classes and more are about as likely.
option = ["bytes=file", "golden=litert"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.repeats, options.samples)
    print(write_result("build", result).read_text(encoding="utf-8"))


def measure(scratch: Path, repeats: int, samples: int) -> dict[str, object]:
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(scratch / "cache")}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    run_python(PEERS / "make_mobilenet.py", scratch, samples, environment=environment)
    (scratch / "edgeconv.toml").write_text(CONFIG.format(samples=samples), encoding="utf-8")
    contenders = make_contenders(scratch, samples, environment)
    in_rounds(list(contenders.values()), repeats)
    unchanged, script = contenders["unchanged"], contenders["script"]
    return {
        "model": "MobileNetV2-224, tf_keras.applications, random weights",
        "calibration_samples": samples,
        "repeats": repeats,
        "unchanged_build_s": round(median_wall(unchanged), 3),
        "times_faster_than_the_script": round(median_wall(script) / median_wall(unchanged), 1),
        "contenders": {one.name: one.record() for one in contenders.values()},
    }


def make_contenders(
    scratch: Path, samples: int, environment: dict[str, str]
) -> dict[str, Contender]:
    config = str(scratch / "edgeconv.toml")
    build = [sys.executable, "-m", "edgeconv", "build", "--config", config]
    by_hand = scratch / "by_hand"
    by_hand.mkdir()
    script = [sys.executable, str(PEERS / "tflite_converter.py"), str(scratch / "mobilenet_v2")]
    script += [str(scratch / "samples.npz"), str(samples), str(by_hand), "int8"]

    def forget_the_tree() -> None:
        for name in ("app", "mobilenet.tflites", "cache/builds"):
            shutil.rmtree(scratch / name, ignore_errors=True)

    def forget_all() -> None:
        forget_the_tree()
        shutil.rmtree(scratch / "cache", ignore_errors=True)

    # In this order: each but the first finds what the one before it left.
    return {
        "nothing": Contender("edgeconv build, from nothing", build, environment, forget_all),
        "unchanged": Contender("edgeconv build, unchanged", build, environment),
        "touched": Contender(
            "edgeconv build, the samples touched",
            build,
            environment,
            lambda: os.utime(scratch / "samples.npz"),
        ),
        "checkout": Contender(
            "edgeconv build, everything in the cache", build, environment, forget_the_tree
        ),
        "script": Contender("TFLiteConverter script, int8", script, environment),
    }


if __name__ == "__main__":
    main()
