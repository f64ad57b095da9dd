"""The hand-written way: one TFLiteConverter per format, one after the other.

python tflite_converter.py SAVED_MODEL SAMPLES.npz COUNT OUT FORMAT [FORMAT ...]
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

model, samples, count, out, *formats = sys.argv[1:]


def representative():
    for sample in data[: int(count)]:
        yield [sample[np.newaxis]]


def float16(converter):
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_types = [tf.float16]


def dynamic(converter):
    converter.optimizations = [tf.lite.Optimize.DEFAULT]


def int8(converter):
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]


def int16x8(converter):
    int8(converter)
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
    ]


CONFIGURE = {"float16": float16, "dynamic": dynamic, "int8": int8, "int16x8": int16x8}

if {"int8", "int16x8"} & set(formats):
    archive = np.load(samples)
    data = archive[archive.files[0]]
for name in formats:
    converter = tf.lite.TFLiteConverter.from_saved_model(model)
    if name in CONFIGURE:
        CONFIGURE[name](converter)
    Path(out, f"{name}.tflite").write_bytes(converter.convert())
