"""The tutorial's training by hand, in one process: python tutorial_loop.py MNIST.npz SEEDS

Its network, optimizer, global batch and steps, with logits and their loss as there. Prints the
training accuracies of the epochs of each seed, as JSON.
"""

import json
import sys

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras import layers

BATCH, STEPS, EPOCHS = 128, 70, 3

with np.load(sys.argv[1]) as archive:
    images = archive["x_train"].astype(np.float32) / np.float32(255)
    labels = archive["y_train"].astype(np.int64)


def train(seed):
    tf_keras.utils.set_random_seed(seed)
    model = tf_keras.Sequential(
        [
            layers.InputLayer((28, 28)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    optimizer = tf_keras.optimizers.RMSprop(0.001)
    loss_of = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.nn.compute_average_loss(loss_of(y, logits), global_batch_size=BATCH)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == y, tf.float32))

    def epoch():
        chosen = np.random.permutation(len(labels))[: BATCH * STEPS].reshape(STEPS, BATCH)
        right = [step(tf.constant(images[rows]), tf.constant(labels[rows])) for rows in chosen]
        return float(np.mean([one.numpy() for one in right]))

    return [epoch() for _ in range(EPOCHS)]


print(json.dumps([train(seed) for seed in range(int(sys.argv[2]))]))
