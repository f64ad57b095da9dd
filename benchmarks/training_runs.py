"""The trainings that `benchmarks.train` compares: one `edgeconv train` each, and what it left."""

import hashlib
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import h5py
import msgspec
import numpy as np

import edgeconv
from edgeconv.types import Distribution, LoopName, Training, TrainingRecord

MODEL = "mnist_cnn"
GLOBAL_BATCH = 128
STEPS_PER_EPOCH = 70
# What TensorFlow takes as the number of threads for the work inside an operator.
_THREADS = "TF_NUM_INTRAOP_THREADS"


@dataclass(frozen=True)
class Variant:
    """A way to train: what on, and by which loop. `threads` of 0: as many as there are cores."""

    name: str
    distribution: Distribution
    loop: LoopName
    threads: int = 0

    def training(self, data: str, *, epochs: int, seed: int) -> Training:
        """The training of the reference tutorial, this way."""
        return Training(
            module=MODEL,
            data=data,
            loop=self.loop,
            epochs=epochs,
            steps_per_epoch=STEPS_PER_EPOCH,
            global_batch=GLOBAL_BATCH,
            seed=seed,
            distribution=self.distribution,
        )


class Done(msgspec.Struct, frozen=True):
    """One training that has come to its end. `weights`: the digest of what it ended with."""

    record: TrainingRecord
    weights: str


def run(variant: Variant, data: str, place: Path, *, epochs: int, seed: int) -> Done:
    """Train in `place`; what is there already, of an earlier run of the benchmark, is taken."""
    kept = place / f"{variant.name}.{epochs}.{seed}.json".replace(" ", "_")
    if kept.exists():
        return msgspec.json.decode(kept.read_bytes(), type=Done)
    before = os.environ.pop(_THREADS, None)
    if variant.threads:
        os.environ[_THREADS] = str(variant.threads)
    try:
        training = variant.training(data, epochs=epochs, seed=seed)
        record = edgeconv.train(training=training, out=str(place))
    finally:
        os.environ.pop(_THREADS, None)
        if before is not None:
            os.environ[_THREADS] = before
    assert record is not None, "its processes are all started here"
    done = Done(record, weights_digest(Path(record.keras_file)))
    kept.write_bytes(msgspec.json.encode(done))
    return done


def weights_digest(keras_file: Path) -> str:
    """SHA-256 of all weights in a `.keras` file, in the order of their paths in it."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(keras_file) as archive:
        stored = BytesIO(archive.read("model.weights.h5"))
    with h5py.File(stored, "r") as file:
        for dataset in _datasets(file):
            digest.update(f"{dataset.name} {dataset.shape} {dataset.dtype}".encode())
            digest.update(np.ascontiguousarray(dataset[()]).tobytes())
    return digest.hexdigest()


def _datasets(group: h5py.Group) -> Iterator[h5py.Dataset]:
    for name in sorted(group):
        item = group[name]
        if isinstance(item, h5py.Dataset):
            yield item
        else:
            yield from _datasets(item)
