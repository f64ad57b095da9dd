"""ResNet50 with random weights, 98 MB of them: as variables of a SavedModel, and in its graph.

MobileNetV2 of 224 pixels likewise, as a SavedModel, a .keras and an .h5 file; a small CNN of Keras
3 as digits.keras; and two products of matrices in a `tf.Module`.

python make_large.py DIRECTORY
"""

import sys
from pathlib import Path

import keras
import tensorflow as tf
import tf_keras
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

directory = Path(sys.argv[1])
tf_keras.utils.set_random_seed(0)
model = tf_keras.applications.ResNet50(weights=None)
tf.saved_model.save(model, str(directory / "variables"))
traced = tf.function(
    lambda x: model(x, training=False), input_signature=[tf.TensorSpec((1, 224, 224, 3))]
)
module = tf.Module()
module.serve = tf.function(
    convert_variables_to_constants_v2(traced.get_concrete_function()),
    input_signature=[tf.TensorSpec((1, 224, 224, 3))],
)
tf.saved_model.save(module, str(directory / "constants"), signatures=module.serve)
small = tf_keras.applications.MobileNetV2(weights=None)
tf.saved_model.save(small, str(directory / "mobilenet"))
small.save(directory / "mobilenet.keras")
small.save(directory / "mobilenet.h5")
digits = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
digits.save(directory / "digits.keras")
products = tf.Module()
products.weights = [tf.Variable(tf.random.normal(shape)) for shape in ((64, 256), (256, 16))]
products.serve = tf.function(
    lambda x: tf.nn.relu(x @ products.weights[0]) @ products.weights[1],
    input_signature=[tf.TensorSpec((None, 64))],
)
tf.saved_model.save(products, str(directory / "module"), signatures=products.serve)
