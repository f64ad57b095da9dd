"""What is made of calibration sets with faults, for the models of `keras_zoo.calibrated`.

python calibration_zoo.py DIRECTORY: for NAME/ (a SavedModel) and NAME.npz (samples and labels) of
each model in the directory, JSON is the last line: by model and set, whether the check takes the
samples ("-"), warns of them ("doubtful") or refuses them ("wrong"), and the accuracy on right
samples of the int8 file that they give (TRAINED: of float).
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"})

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from calibration_faults import TRAINED, faulty
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
Array = np.ndarray[Any, Any]


def main(directory: str) -> None:
    print(json.dumps({name: verdicts(Path(directory), name) for name in MODELS}))


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
