"""Post-training quantisation beside TFLiteConverter and ai-edge-quantizer, on trained models.

    python -m benchmarks.quality DATA [--models point_history,mnist_cnn,...] [--work DIRECTORY]

DATA is a directory with hand_gesture/, mnist/mnist.npz, audio_fsdd/fsdd.npz, cifar10_jpeg_dev/,
flowers128/flowers128.tar and wikitext2_valid_test/. Every contender quantises the same trained
model with the same 500 training samples, and is judged once on all test samples; their labels
are used for that alone. Both peers are used as they come, each in a process of its own. What a
model has recorded stays when others are measured, as long as it is of the same machine and
versions.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.quality_models import CALIBRATION_SAMPLES, run
from benchmarks.quality_summary import BOTH_PEERS, FLOAT, summary
from edgeconv import bench, convert
from edgeconv.measure.baseline_comparison import drop_of
from edgeconv.quantize.recipes import make_recipes
from edgeconv.types import CALIBRATED, Measuring, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.quality_models import Subject
    from edgeconv.types import Artifact, Measurement, Report

PEERS = Path(__file__).parent / "peers"
_QUICK = Measuring(rounds=1, timing=Timing(repeats=20, seconds=0.05))
# Published whatever it is worth: how much is lost is what is to be seen.
_ANY_SNR_DB = -200.0


@dataclass(frozen=True)
class Made:
    """What a contender gave, and how long it took; `failed` says why there is nothing."""

    file: Path | None
    wall_s: float
    how: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


def main() -> None:
    run("quality", __doc__.splitlines()[0], measure, summary)


def measure(subject: Subject, scratch: Path) -> dict[str, Any]:
    """Every contender of a model, made and judged."""
    load = [os.getloadavg()[0]]
    floating = by_edgeconv(subject, subject.model, scratch / "float", "float32")
    assert floating.file is not None, floating.failed
    made = {}
    for name, make in contenders(subject, floating.file).items():
        print(f"{subject.name}: {name}", flush=True)
        made[name] = make(scratch / name)
    rows = judged(subject, scratch, floating.file, made)
    load.append(os.getloadavg()[0])
    return {
        "load_average": [round(value, 1) for value in load],
        "metric": subject.metric,
        "calibration_samples": CALIBRATION_SAMPLES,
        "convolutional": subject.convolutional,
        "least": subject.least,
        "float_conversion_s": round(floating.wall_s, 1),
        "training": _training(subject),
        "contenders": rows,
    }


def contenders(subject: Subject, floating: Path) -> dict[str, Callable[[Path], Made]]:
    """How each of them is made: called with a directory of its own.

    TFLiteConverter starts from the trained model, the others from the float32 .tflite. The
    recipes of edgeconv are those of `benchmarks.quality_summary`, without any method and with
    those that it chooses.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}

    def peer(script: str, model: Path, *recipe: str) -> Callable[[Path], Made]:
        command = [PEERS / script, model, subject.calibration]
        return lambda place: by_peer(command, place, recipe, environment)

    def own(recipe: str, methods: str) -> Callable[[Path], Made]:
        # Plain is plain altogether; weights alone have no ranges to choose.
        ranges = "auto" if methods == "auto" and recipe in CALIBRATED else "minmax"
        chosen = {"methods": (methods,), "calibration_range": ranges}
        return lambda place: by_edgeconv(subject, floating, place, recipe, **chosen)

    return {
        BOTH_PEERS[0]: peer("int8_tflite_converter.py", subject.model),
        BOTH_PEERS[1]: peer("quantizer_defaults.py", floating, "static_wi8_ai8"),
        "int4 weights of ai-edge-quantizer": peer(
            "quantizer_defaults.py", floating, "weight_only_wi4_afp32"
        ),
        **{
            f"{recipe}, {methods}": own(recipe, methods)
            for recipe in ("int8", "weight-only-int4", "int8x4")
            for methods in ("none", "auto")
        },
    }


def by_peer(
    command: list[Path], place: Path, recipe: tuple[str, ...], environment: Mapping[str, str]
) -> Made:
    """What a peer's script makes, in a process of its own."""
    place.mkdir()
    target = place / "model.tflite"
    started_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command, target, *recipe],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    wall_s = time.perf_counter() - started_s
    if done.returncode:
        return Made(None, wall_s, failed=done.stderr.strip().rpartition("\n")[2])
    return Made(target, wall_s)


def by_edgeconv(subject: Subject, model: Path, place: Path, to: str, **options: Any) -> Made:
    """What `edgeconv convert` publishes, with nothing in its cache."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["EDGECONV_CACHE_DIR"] = cache
        if to != "float32":
            options["allow_float"] = subject.allow_float
        recipes = make_recipes([to], min_snr_db=_ANY_SNR_DB, **options)
        started_s = time.perf_counter()
        conversion = convert(model, place, recipes, calibration=str(subject.calibration))
        wall_s = time.perf_counter() - started_s
    if conversion.failures:
        return Made(None, wall_s, failed=conversion.failures[0].message)
    (artifact,) = conversion.artifacts
    return Made(place / artifact.file, wall_s, _how(artifact))


def _how(artifact: Artifact) -> dict[str, Any]:
    found = artifact.post_training
    if found is None:
        return {}
    return {
        "calibration_range": found.calibration_range,
        "methods": list(found.methods),
        "layers_of_4_bits": len(found.four_bit),
    }


def judged(
    subject: Subject, scratch: Path, floating: Path, made: Mapping[str, Made]
) -> dict[str, dict[str, Any]]:
    """The accuracy of each on the test samples, and what it cost."""
    files = scratch / "files"
    files.mkdir()
    for name, one in made.items():
        if one.file is not None:
            shutil.copy(one.file, files / f"{name}.tflite")
    measuring = msgspec.structs.replace(_QUICK, metrics=(subject.metric,))
    report = bench([files], data=str(subject.test), baseline=floating, measuring=measuring)
    found = _by_name(report)
    rows = {FLOAT: _row(found[FLOAT], found, floating)}
    for name, one in made.items():
        measured = found.get(name)
        if one.file is None or measured is None or measured.accuracy is None:
            reason = one.failed or (measured.error if measured else "")
            rows[name] = {"failed": reason, "wall_s": round(one.wall_s, 1)}
            continue
        cost = {"wall_s": round(one.wall_s, 1), **one.how}
        rows[name] = {**_row(measured, found, one.file), **cost}
    return rows


def _by_name(report: Report) -> dict[str, Measurement]:
    assert report.baseline is not None, "it was given"
    return {FLOAT: report.baseline, **{row.name: row for row in report.measurements}}


def _row(row: Measurement, others: Mapping[str, Measurement], file: Path) -> dict[str, Any]:
    """Its accuracy and size, and how much better it is than float and the peers, paired."""
    assert row.accuracy is not None, row.error
    content = file.read_bytes()
    found: dict[str, Any] = {
        "accuracy": round(row.accuracy.value, 5),
        "samples": row.accuracy.samples,
        "bytes": len(content),
        "gzip_bytes": len(gzip.compress(content, mtime=0)),
    }
    if row.agreement:
        one = row.agreement[0]
        found["agreement"] = None if one.flips is None else round(1 - one.flips / one.samples, 5)
        found["snr_db"] = round(one.snr_db, 2)
    found["less"] = {
        name: _difference(row, other)
        for name, other in others.items()
        if name in (FLOAT, *BOTH_PEERS) and other is not row and other.accuracy
    }
    return found


def _difference(a: Measurement, b: Measurement) -> dict[str, Any]:
    """The accuracy of a minus that of b, and its 95 % interval."""
    assert a.accuracy is not None
    assert b.accuracy is not None
    value, interval = drop_of(a.accuracy, b.accuracy)
    assert interval is not None, "there are many samples"
    return {"difference": round(value, 5), "interval": [round(bound, 5) for bound in interval]}


def _training(subject: Subject) -> dict[str, Any]:
    record = subject.training
    if record is None:
        return {"by": "the authors of its data"}
    return {
        "epochs": len(record.epochs),
        "seed": record.seed,
        "samples": record.train_samples,
        "validation_samples": record.validation_samples,
        "test_metrics": {name: round(value, 5) for name, value in record.test_metrics.items()},
    }


if __name__ == "__main__":
    main()
