"""Image networks with random weights as .tflite, batch 1: float32, and some of them int8.

python make_zoo.py DIRECTORY
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

SAMPLES = np.random.default_rng(0).uniform(-1, 1, (8, 1, 224, 224, 3)).astype(np.float32)
NETWORKS = {
    "mobilenet_v1": lambda: tf_keras.applications.MobileNet(weights=None),
    "mobilenet_v2": lambda: tf_keras.applications.MobileNetV2(weights=None),
    "mobilenet_v2_035": lambda: tf_keras.applications.MobileNetV2(weights=None, alpha=0.35),
    "mobilenet_v3_small": lambda: tf_keras.applications.MobileNetV3Small(weights=None),
    "efficientnet_b0": lambda: tf_keras.applications.EfficientNetB0(weights=None),
}
INT8 = ("mobilenet_v1", "mobilenet_v2")

directory = Path(sys.argv[1])
for name, make in NETWORKS.items():
    tf_keras.utils.set_random_seed(0)
    model = make()
    spec = tf.TensorSpec((1, 224, 224, 3), tf.float32, "x")
    function = tf.function(lambda x, model=model: {"y": model(x)}, input_signature=[spec])
    concrete = [function.get_concrete_function()]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(concrete, model)
    (directory / f"{name}.tflite").write_bytes(converter.convert())
    if name in INT8:
        converter = tf.lite.TFLiteConverter.from_concrete_functions(concrete, model)
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([sample] for sample in SAMPLES)
        (directory / f"{name}_int8.tflite").write_bytes(converter.convert())
