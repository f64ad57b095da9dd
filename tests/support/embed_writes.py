"""Writes of an embedding."""

from pathlib import Path

from edgeconv.embedding.embedding import listed, write_embedding
from edgeconv.types import Embedded


def write(directory: Path, files: dict[str, bytes | Path], key: str = "k") -> None:
    embedded = Embedded(
        target="c", name="n", symbol="s", key=key, model_sha256="m", files=listed(files)
    )
    write_embedding(directory, files, embedded)
