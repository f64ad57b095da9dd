"""Seconds per calibration sample, in this process: (time for N) less (time for 10), shared.

python calibrate.py tflite SAVED_MODEL SAMPLES.npz COUNT
python calibrate.py edgeconv FLOAT.tflite SAMPLES.npz COUNT
"""

import sys
import time

import numpy as np

tool, model, samples, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
FEW = 10
archive = np.load(samples)
name = archive.files[0]
data = archive[name]


def tflite_seconds(number):
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([x[np.newaxis]] for x in data[:number])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    started = time.perf_counter()
    converter.convert()
    return time.perf_counter() - started


def edgeconv_seconds(number):
    from pathlib import Path

    from edgeconv.quantize.calibrate import Feed, activation_ranges

    content = Path(model).read_bytes()
    started = time.perf_counter()
    activation_ranges(
        content,
        {"serving_default": Feed({name: data[:number]}, 1)},
        calibration_range="minmax",
        threads=2,
    )
    return time.perf_counter() - started


seconds = {"tflite": tflite_seconds, "edgeconv": edgeconv_seconds}[tool]
seconds(FEW)  # Imports and first-time work are in neither figure.
few = seconds(FEW)
print((seconds(count) - few) / (count - FEW))
