"""Seconds per calibration sample, in this process: (time for N) less (time for 10), shared.

python calibrate.py tflite SAVED_MODEL SAMPLES.npz COUNT
python calibrate.py edgeconv FLOAT.tflite SAMPLES.npz COUNT
python calibrate.py edgeconv_histograms FLOAT.tflite SAMPLES.npz COUNT

edgeconv is the pass for minimum and maximum, edgeconv_histograms that and the second one, which
every other range is chosen by.
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


def edgeconv_seconds(number, passes=1):
    from pathlib import Path

    from edgeconv.quantize.calibrate import Feed, activation_ranges
    from edgeconv.quantize.ranges.histograms import histograms

    content = Path(model).read_bytes()
    feeds = {"serving_default": Feed({name: data[:number]}, 1)}
    started = time.perf_counter()
    ranges = activation_ranges(content, feeds, calibration_range="minmax", threads=2)
    if passes == 2:
        histograms(content, feeds, ranges, threads=2)
    return time.perf_counter() - started


def edgeconv_histograms_seconds(number):
    return edgeconv_seconds(number, passes=2)


seconds = {
    "tflite": tflite_seconds,
    "edgeconv": edgeconv_seconds,
    "edgeconv_histograms": edgeconv_histograms_seconds,
}[tool]
seconds(FEW)  # Imports and first-time work are in neither figure.
few = seconds(FEW)
print((seconds(count) - few) / (count - FEW))
