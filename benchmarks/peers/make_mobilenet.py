"""MobileNetV2-224 with random weights as a SavedModel, and samples to calibrate with.

python make_mobilenet.py DIRECTORY CALIBRATION_SAMPLES
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

directory, count = Path(sys.argv[1]), int(sys.argv[2])
tf_keras.utils.set_random_seed(0)
model = tf_keras.applications.MobileNetV2(weights=None)
tf.saved_model.save(model, str(directory / "mobilenet_v2"))
# A few more than are calibrated with, for edgeconv to hold back and verify with.
samples = np.random.default_rng(0).uniform(-1, 1, (count + 8, 224, 224, 3)).astype(np.float32)
np.savez(directory / "samples.npz", **{model.input_names[0]: samples})
