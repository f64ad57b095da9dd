"""A project with a small model that `edgeconv build` converts and embeds, for its tests."""

from pathlib import Path

import numpy as np
from embed_models import SIGNED
from tiny_tflite import float_model, packed

CONFIG = """\
[model.net]
source = "net.tflite"
[convert]
to = "int8"
calibration = "cal.npz"
[model.net.embed]
target = "c"
out = "app/model"
"""
# Without the environment of tflite-micro, whose vectors are the usual ones.
OFFLINE_CONFIG = CONFIG + 'option = "golden=litert"\n'
RECORD = "app/model/edgeconv-embedded.json"


def calibrate(place: Path, seed: int = 1) -> None:
    """Write samples; those of another seed have another range, and give other scales."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(-2 - seed, 2 + seed, (32, 4)).astype(np.float32)
    np.savez(place, x=values)


def write_project(directory: Path, config: str = CONFIG) -> Path:
    """A float .tflite, samples, and a configuration that embeds it in C."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "net.tflite").write_bytes(packed(float_model(signature=SIGNED)))
    calibrate(directory / "cal.npz")
    (directory / "edgeconv.toml").write_text(config, encoding="utf-8")
    return directory


def write_offline_project(directory: Path, config: str = OFFLINE_CONFIG) -> Path:
    """One that needs no other runtime than LiteRT."""
    return write_project(directory, config)
