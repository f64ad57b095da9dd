"""The model that an app ships: the published one with the standard TFLite metadata in it.

Other tools for TFLite models can read its labels and its normalization. The file differs from the
published one: the generated code checks its own hash and size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeconv.data.preprocessing import describe
from edgeconv.embedding.accessors import normalization
from edgeconv.embedding.app_files import check_labels
from edgeconv.tflite.metadata import (
    ImageMetadata,
    ModelMetadata,
    TensorMetadata,
    graph_names,
    with_metadata,
)

if TYPE_CHECKING:
    from edgeconv.embedding.interface import Embedding, Port
    from edgeconv.types import Artifact, Preprocessing

LABELS_FILE = "labels.txt"


def shipped_model(embedding: Embedding) -> bytes:
    """The .tflite with metadata and labels. Raises `InputRefused` for a label of several lines."""
    data = embedding.model.read_bytes()
    named = {port.name: port for port in (*embedding.inputs, *embedding.outputs)}
    labeled = None if embedding.labeled is None else embedding.outputs[embedding.labeled].name
    inputs, outputs = graph_names(data)
    metadata = ModelMetadata(
        name=embedding.name,
        description=_description(embedding.artifact),
        inputs=tuple(_input(name, named.get(name)) for name in inputs),
        outputs=tuple(
            TensorMetadata(name=name, labels=LABELS_FILE if name == labeled else "")
            for name in outputs
        ),
    )
    labels = {LABELS_FILE: _labels_text(embedding)} if embedding.labels else {}
    return with_metadata(data, metadata, labels)


def _description(artifact: Artifact) -> str:
    # Only edgeconv's own files have a key.
    return f"Converted to {artifact.recipe.name} by edgeconv." if artifact.key else ""


def _labels_text(embedding: Embedding) -> bytes:
    check_labels(embedding.labels)
    return "".join(f"{label}\n" for label in embedding.labels).encode("utf-8", "replace")


def _input(name: str, port: Port | None) -> TensorMetadata:
    steps = port.preprocessing if port else None
    if port is None or steps is None:
        return TensorMetadata(name=name)
    image = _image(port, steps)
    mean, std = _mean_and_std(port)
    # Readers reject an image of floats without normalization.
    if image and not mean and normalization(port) is None:
        mean, std = (0.0,), (1.0,)
    prepared = describe({"": steps})
    return TensorMetadata(
        name=name, description=f"Prepared by {prepared}", image=image, mean=mean, std=std
    )


def _image(port: Port, steps: Preprocessing) -> ImageMetadata | None:
    """The image that an input is by its preprocessing; None for anything else."""
    of_pixels = steps.channels in ("rgb", "gray") or steps.resize or steps.crop
    if not of_pixels or steps.channels == "bgr" or steps.mel_bins or len(port.fixed) != 4:
        return None
    _, height, width, channels = port.fixed
    if channels not in (1, 3):
        return None
    return ImageMetadata(color="rgb" if channels == 3 else "gray", height=height, width=width)


def _mean_and_std(port: Port) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(x * scale - mean) / std as (x - mean') / std', as the metadata has it; () if impossible."""
    step = normalization(port)
    if step is None or not step["scale"] or 0.0 in step["std"]:
        return (), ()
    count = max(len(step["mean"]), len(step["std"]))
    mean = tuple(float(m) / step["scale"] for m in _repeated(step["mean"], count))
    std = tuple(float(s) / step["scale"] for s in _repeated(step["std"], count))
    return (mean, std) if all(math.isfinite(v) for v in (*mean, *std)) else ((), ())


def _repeated(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return values * count if len(values) == 1 else values
