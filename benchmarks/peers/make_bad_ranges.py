"""A CNN of four layers on MNIST, in Keras 3, of which plain 8-bit ranges make little.

python make_bad_ranges.py TRAIN.npz TARGET.keras

After the training four of the 64 units of the third layer, those that fire the most, are
multiplied by 100, and what the last makes of them divided by 100: the model computes the same,
but the other sixty are left with two or three of the 256 integers. (A whole layer times 100 costs
nothing: its range, and the size of a step, grow by as much as its numbers. The convolutions of
this model do not mind: with two or three integers they see almost all that they need of a digit.)
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
from keras import layers

FACTOR = 100
SCALED = 4

with np.load(sys.argv[1]) as archive:
    images, labels = archive["image"], archive["labels"]
keras.utils.set_random_seed(0)
image = layers.Input((28, 28), name="image")
x = layers.Reshape((28, 28, 1))(image)
x = layers.Conv2D(16, 3, strides=2, activation="relu")(x)
x = layers.Conv2D(32, 3, strides=2, activation="relu")(x)
x = layers.Dense(64, activation="relu", name="scaled_up")(layers.Flatten()(x))
model = keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(x))
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(images, labels, batch_size=64, epochs=5, verbose=0)

up, down = model.get_layer("scaled_up"), model.get_layer("probabilities")
highest = keras.Model(image, up.output).predict(images[:500], verbose=0).max(axis=0)
chosen = np.argsort(highest)[-SCALED:]
kernel, bias = up.get_weights()
kernel[:, chosen] *= FACTOR
bias[chosen] *= FACTOR
up.set_weights([kernel, bias])
kernel, bias = down.get_weights()
kernel[chosen] /= FACTOR
down.set_weights([kernel, bias])
model.save(sys.argv[2])
