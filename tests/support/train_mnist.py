"""Train the tutorial's MNIST network for one epoch: python train_mnist.py MNIST.npz TARGET."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras import layers

tf_keras.utils.set_random_seed(1)
with np.load(sys.argv[1]) as archive:
    images = (archive["x_train"][:20000] / 255).astype(np.float32)[..., np.newaxis]
    labels = archive["y_train"][:20000]
image = layers.Input((28, 28, 1), name="image")
x = layers.Conv2D(32, 3, activation="relu")(image)
x = layers.Flatten()(x)
x = layers.Dense(128, activation="relu")(x)
model = tf_keras.Model(image, layers.Dense(10, activation="softmax", name="digit")(x))
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(images, labels, batch_size=64, epochs=1, verbose=0)
tf.saved_model.save(model, sys.argv[2])
