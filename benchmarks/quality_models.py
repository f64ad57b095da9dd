"""What `benchmarks.quality` quantises: trained models, calibration samples and test samples."""

from __future__ import annotations

import argparse
import importlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

import edgeconv
from benchmarks import trained
from benchmarks.measuring import recorded, write_result
from benchmarks.qat_tasks import gestures
from edgeconv.plugins import baseline_model
from edgeconv.types import Distribution, Training, TrainingRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Array = np.ndarray[Any, Any]

CALIBRATION_SAMPLES = 500
_CHOICE_SEED = 1
_TRAINED = Path(trained.__file__).parent


@dataclass(frozen=True)
class Subject:
    """A trained model and its samples, all of them files.

    `calibration` has the inputs of 500 training samples by name, `test` the inputs of all test
    samples and their `labels`. `metric` is a name of `edgeconv.plugins.METRICS`. `allow_float`
    names the operators that have no integer version. `convolutional` models are those of which
    the recovery at 4 bits is asked. `least` is the accuracy that is asked of int8, where one is.
    """

    name: str
    model: Path
    calibration: Path
    test: Path
    metric: str = "top1"
    allow_float: tuple[str, ...] = ()
    convolutional: bool = True
    least: float = 0.0
    training: TrainingRecord | None = None


def run(
    benchmark: str,
    about: str,
    measure: Callable[[Subject, Path], dict[str, Any]],
    summary: Callable[[Mapping[str, Mapping[str, Any]]], dict[str, Any]],
    usual: Sequence[str] = (),
) -> None:
    """A benchmark over the models, `usual` of them or all, from its command line to its record."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", help="comma-separated; the others stay as recorded")
    parser.add_argument("--work", type=Path, help="where trained models are kept, to use again")
    options = parser.parse_args()
    makers = subjects(options.data.absolute())
    names = options.models.split(",") if options.models else list(usual or makers)
    results = dict(recorded(benchmark).get("models", {}))
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            place = (options.work or Path(scratch, "work")).absolute() / name
            place.mkdir(parents=True, exist_ok=True)
            here = Path(scratch, name)
            here.mkdir()
            results[name] = measure(makers[name](place), here)
            ordered = {one: results[one] for one in makers if one in results}
            path = write_result(benchmark, {"summary": summary(ordered), "models": ordered})
    print(path.read_text(encoding="utf-8"))


def subjects(data: Path) -> dict[str, Callable[[Path], Subject]]:
    """How each model is trained, or found in `data`: called with the directory that keeps it."""
    cifar, flowers = data / "cifar10_jpeg_dev", data / "flowers128"
    return {
        "point_history": lambda place: point_history(data / "hand_gesture", place),
        "mnist_cnn": lambda place: baseline("mnist_cnn", data / "mnist" / "mnist.npz", place),
        "spoken_digits": lambda place: baseline(
            "spoken_digits", data / "audio_fsdd" / "fsdd.npz", place
        ),
        "cifar_mobilenet": lambda place: baseline("cifar_mobilenet", cifar, place),
        "cifar_mobilenet_quarter": lambda place: baseline("cifar_mobilenet_quarter", cifar, place),
        "cifar_resnet8": lambda place: baseline("cifar_resnet8", cifar, place),
        "flowers_mobilenet": lambda place: baseline("flowers_mobilenet", flowers, place),
        "bert_mlm": lambda place: baseline(
            "bert_mlm",
            data / "wikitext2_valid_test",
            place,
            metric="masked_accuracy",
            # Of Keras' layer normalisation.
            allow_float=("NEG",),
            convolutional=False,
        ),
    }


def point_history(data: Path, place: Path) -> Subject:
    """The trained model of the hand gesture repository; the first training rows calibrate."""
    task = gestures(data, "point_history", place, least=0.966)
    with np.load(task.train) as archive:
        inputs = {name: archive[name] for name in archive.files if name != "labels"}
    calibration = stored(
        place / "calibration.npz", {name: x[:CALIBRATION_SAMPLES] for name, x in inputs.items()}
    )
    model = Path(shutil.copy(task.model, place))
    return Subject(task.name, model, calibration, task.test, least=task.least, convolutional=False)


def baseline(name: str, data: Path, place: Path, **more: Any) -> Subject:
    """A model of edgeconv's or of `benchmarks.trained`; trained once, in a single process."""
    record = _trained(name, data, place / "trained")
    calibration, test = _samples(name, data, place)
    model = place / "trained" / name / "1"
    return Subject(name, model, calibration, test, training=record, **more)


def _trained(name: str, data: Path, place: Path) -> TrainingRecord:
    """The record of the training, of which there is one in `place` from then on."""
    kept = place / name / "1.training.json"
    if kept.is_file():
        return msgspec.json.decode(kept.read_bytes(), type=TrainingRecord)
    own = _TRAINED / f"{name}.py"
    training = Training(
        module=str(own) if own.is_file() else name,
        data=str(data),
        seed=0,
        distribution=Distribution(strategy="none"),
    )
    print(f"{name}: training", flush=True)
    record = edgeconv.train(training, str(place))
    assert record is not None, "its only process is started here"
    return record


def _samples(name: str, data: Path, place: Path) -> tuple[Path, Path]:
    """Files of the samples, made once: training ones drawn by a fixed seed, and all test ones."""
    calibration, test = place / "calibration.npz", place / "test.npz"
    if not (calibration.is_file() and test.is_file()):
        found = _module(name).data(str(data))
        order = np.random.default_rng(_CHOICE_SEED).permutation(len(found.y_train))
        chosen = order[:CALIBRATION_SAMPLES]
        stored(calibration, {key: x[chosen] for key, x in found.x_train.items()})
        stored(test, {**found.x_test, "labels": found.y_test.astype(np.int64)})
    return calibration, test


def _module(name: str) -> Any:
    if (_TRAINED / f"{name}.py").is_file():
        return importlib.import_module(f"{trained.__name__}.{name}")
    return baseline_model(name)


def stored(path: Path, arrays: Mapping[str, Array]) -> Path:
    """The path, now an .npz with these arrays."""
    np.savez(path, **dict(arrays))  # type: ignore[arg-type]
    return path
