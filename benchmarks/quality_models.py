"""What `benchmarks.quality` quantizes: trained models, calibration samples and test samples."""

import argparse
import importlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import edgeconv
from benchmarks import trained
from benchmarks.measuring import recorded, write_result
from benchmarks.qat_tasks import gestures
from edgeconv.plugins import baseline_model
from edgeconv.types import Distribution, Training, TrainingRecord

Array = np.ndarray[Any, Any]

CALIBRATION_SAMPLES = 500
_CHOICE_SEED = 1
_TRAINED = Path(trained.__file__).parent


@dataclass(frozen=True)
class TrainedModel:
    """A trained model and its samples, all of them files.

    `calibration` has the inputs of 500 training samples by name, `test` the inputs of all test
    samples and their `labels`. `metric` is what `edgeconv bench --metric` takes. Of `convolutional`
    models the accuracy at 4 bits is required. `least` is the accuracy that is required of int8,
    where one is. Where it `needs_converter`, edgeconv starts from the trained model and not from
    its float32 .tflite: litert-quantizer leaves some of its operators in float.
    """

    name: str
    file: Path
    calibration: Path
    test: Path
    metric: str = "top1"
    convolutional: bool = True
    needs_converter: bool = False
    least: float = 0.0
    training: TrainingRecord | None = None


def run(
    benchmark: str,
    about: str,
    measure: Callable[[TrainedModel, Path], dict[str, Any]],
    summary: Callable[[Mapping[str, Mapping[str, Any]]], dict[str, Any]],
    usual: Sequence[str] = (),
) -> None:
    """A benchmark over the models, `usual` of them or all, from its command line to its record."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", help="comma-separated; the others stay as recorded")
    parser.add_argument("--work", type=Path, help="where trained models are kept, to use again")
    options = parser.parse_args()
    makers = trained_models(options.data.absolute())
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


def trained_models(data: Path) -> dict[str, Callable[[Path], TrainedModel]]:
    """How each model is trained, or found in `data`: called with the directory that keeps it."""
    cifar, flowers = data / "cifar10_jpeg_dev", data / "flowers128"
    gesture_rows, mnist = data / "hand_gesture", data / "mnist" / "mnist.npz"
    digits = data / "audio_fsdd" / "fsdd.npz"
    module = trained.__name__

    def trained_on(samples: Path, name: str, **more: Any) -> Callable[[Path], TrainedModel]:
        return lambda directory: baseline(name, samples, directory, **more)

    own_metric = {
        name: {"metric": f"{module}.{name}:score"}
        for name in ("mnist_detector", "mnist_autoencoder")
    }
    return {
        "point_history": lambda directory: point_history(gesture_rows, directory),
        **{
            name: trained_on(samples, name, **own_metric.get(name, {}))
            for name, samples in (
                ("mnist_cnn", mnist),
                ("spoken_digits", digits),
                ("cifar_mobilenet", cifar),
                ("cifar_mobilenet_quarter", cifar),
                ("cifar_resnet8", cifar),
                ("flowers_mobilenet", flowers),
                ("cifar_mobilenetv2", cifar),
                ("cifar_mobilenetv3", cifar),
                ("cifar_resnetv2", cifar),
                ("spoken_waveform", digits),
                ("gesture_windows", gesture_rows),
                ("polarity_cnn", data / "text_rt_polarity"),
                ("mnist_detector", mnist),
                ("mnist_autoencoder", mnist),
            )
        },
        "spoken_transformer": trained_on(digits, "spoken_transformer", convolutional=False),
        "spoken_lstm": trained_on(digits, "spoken_lstm", convolutional=False, needs_converter=True),
        "gesture_gru": trained_on(
            gesture_rows, "gesture_gru", convolutional=False, needs_converter=True
        ),
        "bert_mlm": trained_on(
            data / "wikitext2_valid_test",
            "bert_mlm",
            metric="masked_accuracy",
            # Of the layer normalization of Keras.
            convolutional=False,
        ),
    }


def point_history(data: Path, place: Path) -> TrainedModel:
    """The trained model of the hand gesture repository; the first training rows calibrate."""
    task = gestures(data, "point_history", place, least=0.966)
    with np.load(task.train) as archive:
        inputs = {name: archive[name] for name in archive.files if name != "labels"}
    calibration = stored(
        place / "calibration.npz", {name: x[:CALIBRATION_SAMPLES] for name, x in inputs.items()}
    )
    model = Path(shutil.copy(task.model, place))
    return TrainedModel(
        task.name, model, calibration, task.test, least=task.least, convolutional=False
    )


def baseline(name: str, data: Path, place: Path, **more: Any) -> TrainedModel:
    """A model of edgeconv's or of `benchmarks.trained`; trained once, in a single process."""
    record = _trained(name, data, place / "trained")
    calibration, test = _samples(name, data, place)
    model = place / "trained" / name / "1"
    return TrainedModel(name, model, calibration, test, training=record, **more)


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
    record = edgeconv.train(training=training, out=str(place))
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
        stored(test, {**found.x_test, "labels": _labels(found.y_test)})
    return calibration, test


def _labels(labels: Array) -> Array:
    return labels.astype(np.int64) if labels.dtype.kind in "biu" else labels


def _module(name: str) -> Any:
    if (_TRAINED / f"{name}.py").is_file():
        return importlib.import_module(f"{trained.__name__}.{name}")
    return baseline_model(name)


def stored(path: Path, arrays: Mapping[str, Array]) -> Path:
    """The path, now an .npz with these arrays."""
    np.savez(path, **dict(arrays))  # type: ignore[arg-type]
    return path
