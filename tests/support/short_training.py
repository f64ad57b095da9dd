"""Train a baseline model for some steps: python short_training.py NAME PLACE TARGET SAMPLES EPOCHS.

Makes TARGET with the SavedModel `saved_model`; `calibration.npz`, of training samples, and
`test.npz`, both with the inputs alone; `labels.npy` and `answers.npy`, of the test samples;
and `record.json`, with the metric before the training and after each epoch.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras

from edgeconv.plugins import baseline_model
from edgeconv.tf.export import export_inference

CALIBRATION, TESTED = 108, 500


def compiled(module: Any, model: Any, keras: Any, steps: int) -> Any:
    if hasattr(module, "optimizer"):
        optimizer = module.optimizer(module.LEARNING_RATE, steps, 1)
    else:
        rate = keras.optimizers.schedules.CosineDecay(module.LEARNING_RATE, steps)
        optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer=optimizer, loss=module.LOSS, metrics=[module.METRIC])
    return model


def export(model: Any, place: str) -> None:
    if isinstance(model, tf_keras.Model):
        export_inference(model, place)
    else:
        model.export(place, format="tf_saved_model", verbose=False)


def main(name: str, place: str, target: Path, samples: int, epochs: int) -> None:
    module: Any = baseline_model(name)
    data = module.data(place)
    # The files are in an order: the first of them could be of one class.
    rows = np.random.default_rng(0).permutation(len(data.y_train))[:samples]
    x, y = {key: array[rows] for key, array in data.x_train.items()}, data.y_train[rows]
    tested = np.random.default_rng(0).permutation(len(data.y_test))[:TESTED]
    x_test = {key: array[tested] for key, array in data.x_test.items()}
    tf_keras.utils.set_random_seed(0)
    model = module.build()
    keras: Any = tf_keras
    if not isinstance(model, tf_keras.Model):
        import keras

        keras.utils.set_random_seed(0)
        model = module.build()
    batch = module.GLOBAL_BATCH
    model = compiled(module, model, keras, epochs * -(-len(y) // batch))
    values = [model.evaluate(x_test, data.y_test[tested], verbose=0)[1]]
    for _ in range(epochs):
        model.fit(x, y, batch_size=batch, verbose=0)
        values.append(model.evaluate(x_test, data.y_test[tested], verbose=0)[1])
    target.mkdir(parents=True)
    export(model, str(target / "saved_model"))
    np.savez(target / "calibration.npz", **{key: array[:CALIBRATION] for key, array in x.items()})
    np.savez(target / "test.npz", **x_test)
    np.save(target / "labels.npy", data.y_test[tested])
    np.save(target / "answers.npy", model.predict(x_test, verbose=0))
    record = {"inputs": {i.name: list(i.shape) for i in model.inputs}, "metric": values}
    (target / "record.json").write_text(json.dumps(record))


main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
