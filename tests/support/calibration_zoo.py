"""Models that calibration sets with faults are given to, and what is made of each set.

python calibration_zoo.py PHOTOS.npz DIRECTORY: trains small models on x_train, y_train of the file
and on signals made up here, and writes NAME/ (a SavedModel) and NAME.npz (samples and labels) of
each into the directory. Printed is a table for docs/data.md, and JSON as the last line: by model
and set, whether the check takes the samples ("-"), warns of them ("doubtful") or refuses them
("wrong"), and the accuracy on right samples of the int8 file that they give (TRAINED: of float).
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"})

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from calibration_faults import RIGHT, TRAINED, faulty
from keras import layers
from tensorflow.python.framework import errors_impl

from edgeconv.conversion.calibration_checks import verify_samples
from edgeconv.data import Samples, input_ranges, read_samples, set_suspicions, write_samples
from edgeconv.data.samples import evenly, is_image, mapped_arrays
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.requests.recipes import make_recipes
from edgeconv.tf import reference
from edgeconv.tf.statistics_probe import Probe
from edgeconv.types import CalibrationRecord

KEY = "serving_default"
MODELS = ("photos", "sensors", "plain_photos", "plain_sensors")
# How many samples calibrate an int8 file.
CALIBRATE = 100
WORDS = {"wrong": "refused", "doubtful": "warning", "-": "not seen"}
Array = np.ndarray[Any, Any]


def main(photos: str, directory: str) -> None:
    keras.utils.set_random_seed(2)
    root = Path(directory)
    with np.load(photos) as stored:
        x, y = stored["x_train"][:6000], stored["y_train"][:6000].astype(np.int64).ravel()
    images = {"image": (x / 255).astype(np.float32)}
    trained(root / "photos", photo_model(normalizes=True), images, y)
    trained(root / "plain_photos", photo_model(normalizes=False), images, y)
    trained(root / "sensors", sensor_model(normalizes=True), *windows(4000))
    trained(root / "plain_sensors", sensor_model(normalizes=False), *windows(4000))
    found = {name: verdicts(root, name) for name in MODELS}
    print("\n".join(rows(found)))
    print(json.dumps(found))


def photo_model(*, normalizes: bool) -> keras.Model:
    image = x = layers.Input((32, 32, 3), name="image")
    for filters in (16, 32, 48):
        x = layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = layers.BatchNormalization(momentum=0.9)(x) if normalizes else x
        x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="scores")(x))


def sensor_model(*, normalizes: bool) -> keras.Model:
    """Two inputs of one shape."""
    inputs = [layers.Input((64, 3), name=name) for name in ("accelerometer", "gyroscope")]
    parts = []
    for each in inputs:
        x = layers.Conv1D(12, 5, strides=2)(each)
        parts.append(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x) if normalizes else x))
    x = layers.Conv1D(24, 3, strides=2, activation="relu")(layers.Concatenate()(parts))
    x = layers.Dense(16, activation="relu")(layers.GlobalAveragePooling1D()(x))
    return keras.Model(inputs, layers.Dense(4, activation="softmax", name="scores")(x))


def windows(count: int) -> tuple[dict[str, Array], Array]:
    """Vibrations of four frequencies, as an accelerometer and a gyroscope have them."""
    random = np.random.default_rng(5)
    y = random.integers(0, 4, count)
    time = np.arange(64) / 64
    angle = 4 * np.pi * (y + 1)[:, None, None] * time[:, None]
    angle = angle + random.uniform(0, 6.3, (count, 1, 3))
    accelerometer = np.sin(angle) * [0.5, 1, 1.5] + [0, 0, 9.8]
    accelerometer += random.normal(0, 0.3, (count, 64, 3))
    gyroscope = 40 * np.cos(angle) + random.normal(0, 15, (count, 64, 3))
    inputs = {"accelerometer": accelerometer, "gyroscope": gyroscope}
    return {name: x.astype(np.float32) for name, x in inputs.items()}, y


def trained(target: Path, model: keras.Model, x: dict[str, Array], y: Array) -> None:
    model.compile(keras.optimizers.Adam(3e-3), "sparse_categorical_crossentropy")
    data = x if len(x) > 1 else next(iter(x.values()))
    model.fit(data, y, batch_size=64, epochs=3, verbose=0)
    model.export(str(target), format="tf_saved_model", verbose=False)
    np.savez(f"{target}.npz", labels=y[:400], **{name: each[:400] for name, each in x.items()})


def verdicts(root: Path, name: str) -> dict[str, tuple[str, float]]:
    """What is made of each set, by its name, and what its int8 file is worth."""
    with np.load(root / f"{name}.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    labels = arrays.pop("labels")
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session(graph=graph) as running:
        # The graph is loaded once for all of them.
        loaded = reference.load(running, str(root / name), inlined=True)
        probe = Probe(running, loaded, KEY)
        reference.Probe = lambda *_: probe  # type: ignore[assignment,misc]
        sets = faulty(arrays, labels)
        said = {fault: verdict(running, loaded, x) for fault, x in sets.items()}
    model = tf.lite.TFLiteConverter.from_saved_model(str(root / name)).convert()
    worth = {fault: accuracy(quantized(model, x), arrays, labels) for fault, x in sets.items()}
    of_float = (TRAINED, accuracy(model, arrays, labels))
    return {fault: (said[fault], worth[fault]) for fault in sets} | {TRAINED: of_float}


def quantized(model: bytes, arrays: dict[str, Array]) -> bytes:
    """The plain int8 file of a float one, calibrated with some of the samples."""
    count = len(next(iter(arrays.values())))
    some = evenly(count, min(count, CALIBRATE))
    feeds = {KEY: Feed({name: array[some] for name, array in arrays.items()}, 1)}
    graph = CalibratedGraph(model, feeds, threads=1)
    (recipe,) = make_recipes(["int8"], methods=["none"])
    return make_file(graph, recipe, MethodSettings("minmax", ())).model


def accuracy(model: bytes, arrays: dict[str, Array], labels: Array) -> float:
    """The share of samples for which a file's best class is the label."""
    run = Interpreter(model_content=model).get_signature_runner(KEY)
    answers = [
        next(
            iter(run(**{name: array[[index]] for name, array in arrays.items()}).values())
        ).argmax()
        for index in range(len(labels))
    ]
    return float((np.array(answers) == labels).mean())


def rows(found: dict[str, dict[str, tuple[str, float]]]) -> Iterator[str]:
    """The rows of the table: what is said of each fault, and what its int8 file is worth."""
    faults = dict.fromkeys(fault for of_model in found.values() for fault in of_model)
    for fault in faults:
        if fault.startswith(RIGHT):
            continue
        cells = [of_model.get(fault) for of_model in found.values()]
        yield "| " + " | ".join([fault, *(_cell(each) for each in cells)]) + " |"


def _cell(found: tuple[str, float] | None) -> str:
    if found is None:
        return "–"
    said, worth = found
    return f"{WORDS[said]}, {worth:.3f}" if said in WORDS else f"{worth:.3f}"


def verdict(running: Any, loaded: Any, arrays: dict[str, Array]) -> str:
    """What `convert` would make of unlabeled samples."""
    samples = Samples(arrays, None, "samples.npz")
    record = CalibrationRecord(
        signature=KEY,
        source="samples.npz",
        samples=samples.count,
        sha256="",
        range="minmax",
        inputs=input_ranges(samples),
        suspicions=set_suspicions(samples),
    )
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / reference.CHECKED).mkdir()
        write_samples(samples, Path(scratch) / "samples")
        part = reference.ReferencePart(
            signature=KEY,
            samples="",
            batch=1,
            directory=scratch,
            calibration=f"{scratch}/samples",
            is_open=True,
        )
        try:
            statistics = reference.check_samples(running, loaded, part)
        except errors_impl.OpError:
            return "wrong"
        outputs = mapped_arrays(Path(scratch) / reference.CHECKED, ["scores"])
        labels = read_samples(Path(scratch) / "samples").labels
        assert evenly(samples.count, statistics.samples).size == len(outputs["scores"])
        images = [name for name, array in arrays.items() if is_image(array.shape)]
        check = verify_samples(record, outputs, labels, statistics, images=images)
    if check.is_wrong:
        return "wrong"
    return "doubtful" if check.suspicions else "-"


if __name__ == "__main__":
    main(*sys.argv[1:])
