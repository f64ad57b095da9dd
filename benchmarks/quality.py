"""Quantization by default, compared with TFLiteConverter and litert-quantizer, on trained models.

    python -m benchmarks.quality DATA [--models point_history,mnist_cnn,...] [--work DIRECTORY]

DATA is a directory with hand_gesture/, mnist/mnist.npz, audio_fsdd/fsdd.npz, cifar10_jpeg_dev/,
flowers128/flowers128.tar, text_rt_polarity/ and wikitext2_valid_test/. Everyone quantizes the same
trained model with the same 500 training samples, and is evaluated once on all test samples; their
labels are used for that alone. edgeconv converts without any option, and once more with
`--methods none`; both peers have their defaults. A model's results stay when others are
measured, as long as they are of the same machine and versions; `package` tells by which state of
edgeconv's code they were. DIRECTORY keeps trained models, their float32 .tflite and the peers'
files, which do not change with edgeconv's code.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import edgeconv
from benchmarks.measuring import cpu_seconds
from benchmarks.quality_models import CALIBRATION_SAMPLES, TrainedModel, run
from benchmarks.quality_summary import BOTH_PEERS, FLOAT, MODES, RECIPES, summary
from edgeconv import bench, convert
from edgeconv.measure.machine import environment
from edgeconv.requests.recipes import make_recipes
from edgeconv.statistics.comparison import drop_of
from edgeconv.types import Artifact, Execution, Measurement, Measuring, Report, Timing
from edgeconv.types.words import first_line

PEERS = Path(__file__).parent / "peers"
_QUICK = Measuring(rounds=1, timing=Timing(repeats=20, seconds=0.05))
# Published whatever it is worth: how much is lost is what is to be seen.
_ANY_SNR_DB = -200.0


@dataclass(frozen=True)
class Conversion:
    """The file of a contender, and what it cost; `failed` says why there is none.

    `cost` has seconds, and by what edgeconv made the file.
    """

    file: Path | None
    cost: Mapping[str, Any] = field(default_factory=dict)
    failed: str = ""


def main() -> None:
    run("quality", __doc__.splitlines()[0], measure, summary)


def measure(model: TrainedModel, scratch: Path) -> dict[str, Any]:
    """Every contender of a model, converted and evaluated."""
    load = [os.getloadavg()[0]]
    floating = kept(
        model, "float32", lambda directory: by_edgeconv(model, model.file, directory, "float32")
    )
    assert floating.file is not None, floating.failed
    conversions = {}
    for name, make in contenders(model, floating.file).items():
        print(f"{model.name}: {name}", flush=True)
        conversions[name] = make(scratch / name)
    rows = evaluated(model, scratch, floating.file, conversions)
    load.append(os.getloadavg()[0])
    return {
        "package": package_state(),
        "load_average": [round(value, 1) for value in load],
        "metric": model.metric,
        "calibration_samples": CALIBRATION_SAMPLES,
        "convolutional": model.convolutional,
        "least": model.least,
        "float_conversion_s": floating.cost["wall_s"],
        "training": _training(model),
        "contenders": rows,
    }


def package_state() -> str:
    """The beginning of a hash of edgeconv's code."""
    root = Path(edgeconv.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def contenders(model: TrainedModel, floating: Path) -> dict[str, Callable[[Path], Conversion]]:
    """How each of them is made: called with a directory for its file.

    TFLiteConverter starts from the trained model, the others from the float32 .tflite; edgeconv
    from the trained model where it needs TFLiteConverter as well.
    """
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    source = model.file if model.needs_converter else floating

    def peer(script: str, start: Path, *recipe: str) -> Callable[[Path], Conversion]:
        command = [PEERS / script, start, model.calibration]
        name = "-".join((Path(script).stem, *recipe))
        return lambda _: kept(
            model, name, lambda directory: by_peer(command, directory, recipe, quiet)
        )

    def own(recipe: str, mode: str) -> Callable[[Path], Conversion]:
        options: dict[str, Any] = {}
        if mode == "none":
            options |= {"methods": ("none",), "min_snr_db": _ANY_SNR_DB}
        return lambda directory: by_edgeconv(model, source, directory, recipe, **options)

    return {
        BOTH_PEERS[0]: peer("int8_tflite_converter.py", model.file),
        BOTH_PEERS[1]: peer("quantizer_defaults.py", floating, "static_wi8_ai8"),
        "int4 weights of litert-quantizer": peer(
            "quantizer_defaults.py", floating, "weight_only_wi4_afp32"
        ),
        **{f"{recipe}, {mode}": own(recipe, mode) for recipe in RECIPES for mode in MODES},
    }


def kept(model: TrainedModel, name: str, make: Callable[[Path], Conversion]) -> Conversion:
    """What is the same whatever edgeconv's code: made once for these versions of the tools."""
    directory = model.calibration.parent / "kept" / name
    record = directory / "conversion.json"
    tools = environment().tools
    if record.is_file():
        before = msgspec.json.decode(record.read_bytes())
        if before["tools"] == tools:
            file = directory / before["file"] if before["file"] else None
            return Conversion(file, before["cost"], before["failed"])
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(exist_ok=True)
    conversion = make(directory)
    directory.mkdir(exist_ok=True)
    content = {
        "tools": tools,
        "file": conversion.file.name if conversion.file else "",
        "cost": conversion.cost,
        "failed": conversion.failed,
    }
    record.write_bytes(msgspec.json.encode(content))
    return conversion


def by_peer(
    command: list[Path], directory: Path, recipe: tuple[str, ...], variables: Mapping[str, str]
) -> Conversion:
    """What a peer's script makes, in its own process."""
    directory.mkdir()
    target = directory / "model.tflite"
    started_s = time.perf_counter()
    process = subprocess.run(
        [sys.executable, *command, target, *recipe],
        env=variables,
        check=False,
        capture_output=True,
        text=True,
    )
    cost = {"wall_s": round(time.perf_counter() - started_s, 1)}
    if process.returncode:
        return Conversion(None, cost, failed=process.stderr.strip().rpartition("\n")[2])
    return Conversion(target, cost)


def by_edgeconv(
    model: TrainedModel, source: Path, directory: Path, to: str, **options: Any
) -> Conversion:
    """What `edgeconv convert` publishes, with nothing in its cache."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["EDGECONV_CACHE_DIR"] = cache
        recipes = make_recipes([to], **options)
        started_s, cpu_s = time.perf_counter(), cpu_seconds()
        conversion = convert(source, out=directory, to=recipes, calibration=str(model.calibration))
        cost = {
            "wall_s": round(time.perf_counter() - started_s, 2),
            "cpu_s": round(cpu_seconds() - cpu_s, 2),
        }
    if conversion.failures:
        return Conversion(None, cost, failed=first_line(conversion.failures[0].message))
    (artifact,) = conversion.artifacts
    return Conversion(directory / artifact.file, {**cost, **_methods(artifact)})


def _methods(artifact: Artifact) -> dict[str, Any]:
    post_training = artifact.post_training
    if post_training is None:
        return {"methods": [], "trials": 0}
    return {
        "trials": len(post_training.trials),
        "closeness": post_training.closeness,
        "calibration_range": post_training.calibration_range,
        "methods": list(post_training.methods),
        "layers_of_4_bits": len(post_training.four_bit),
    }


def evaluated(
    model: TrainedModel, scratch: Path, floating: Path, conversions: Mapping[str, Conversion]
) -> dict[str, dict[str, Any]]:
    """The accuracy of each on the test samples, and what it cost."""
    files = scratch / "files"
    files.mkdir()
    for name, conversion in conversions.items():
        if conversion.file is not None:
            shutil.copy(conversion.file, files / f"{name}.tflite")
    measuring = msgspec.structs.replace(_QUICK, metrics=(model.metric,))
    report = bench(
        [files],
        data=str(model.test),
        baseline=floating,
        measuring=measuring,
        # The metrics of `benchmarks.trained`.
        execution=Execution(allow_code=True),
    )
    measured = _by_name(report)
    rows = {FLOAT: _row(measured[FLOAT], measured, floating)}
    for name, conversion in conversions.items():
        row = measured.get(name)
        if conversion.file is None or row is None or row.accuracy is None:
            reason = conversion.failed or (row.error if row else "")
            rows[name] = {"failed": reason, **conversion.cost}
            continue
        rows[name] = {**_row(row, measured, conversion.file), **conversion.cost}
    return rows


def _by_name(report: Report) -> dict[str, Measurement]:
    assert report.baseline is not None, "it was given"
    return {FLOAT: report.baseline, **{row.name: row for row in report.measurements}}


def _row(row: Measurement, others: Mapping[str, Measurement], file: Path) -> dict[str, Any]:
    """Its accuracy and size, and its difference from float and the peers, paired."""
    assert row.accuracy is not None, row.error
    content = file.read_bytes()
    result: dict[str, Any] = {
        "accuracy": round(row.accuracy.value, 5),
        "samples": row.accuracy.samples,
        "bytes": len(content),
        "gzip_bytes": len(gzip.compress(content, mtime=0)),
    }
    if row.agreement:
        (agreement, *_) = row.agreement
        has_classes = agreement.flips is not None and row.accuracy.metric == "top1"
        result["agreement"] = (
            round(1 - (agreement.flips or 0) / agreement.samples, 5) if has_classes else None
        )
        result["snr_db"] = round(agreement.snr_db, 2)
    result["less"] = {
        name: _difference(row, other)
        for name, other in others.items()
        if name in (FLOAT, *BOTH_PEERS) and other is not row and other.accuracy
    }
    return result


def _difference(a: Measurement, b: Measurement) -> dict[str, Any]:
    """The accuracy of a minus that of b, and its 95 % interval."""
    assert a.accuracy is not None
    assert b.accuracy is not None
    value, interval = drop_of(a.accuracy, b.accuracy)
    assert interval is not None, "there are many samples"
    return {"difference": round(value, 5), "interval": [round(bound, 5) for bound in interval]}


def _training(model: TrainedModel) -> dict[str, Any]:
    record = model.training
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
