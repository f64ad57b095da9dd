"""Full int8 the way TensorFlow's guide has it: TFLiteConverter, true minima and maxima.

python int8_tflite_converter.py MODEL SAMPLES.npz TARGET.tflite

MODEL is a SavedModel, or a file that tf_keras reads.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

model, samples, target = sys.argv[1:]
with np.load(samples) as archive:
    data = {name: archive[name] for name in archive.files}
count = len(next(iter(data.values())))


def representative():
    for index in range(count):
        sample = {name: array[index : index + 1] for name, array in data.items()}
        yield sample if len(sample) > 1 else list(sample.values())


if Path(model).is_dir():
    converter = tf.lite.TFLiteConverter.from_saved_model(model)
else:
    loaded = tf_keras.models.load_model(model, compile=False)
    converter = tf.lite.TFLiteConverter.from_keras_model(loaded)
converter.optimizations = [tf.lite.Optimize.DEFAULT]
converter.representative_dataset = representative
converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
Path(target).write_bytes(converter.convert())
