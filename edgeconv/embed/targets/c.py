"""The target `c`: the model as C for firmware and any other program, with what TensorFlow Lite for
Microcontrollers needs of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embed.c_files import BYTES_OPTION, c_files
from edgeconv.embed.micro import MICRO_OPTION, micro_files, micro_notes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edgeconv.embed.interface import Embedding

OPTIONS = {**BYTES_OPTION, **MICRO_OPTION}


def files(embedding: Embedding) -> Mapping[str, bytes | Path]:
    """See `edgeconv.embed.interface`."""
    return {**c_files(embedding), **micro_files(embedding)}


def notes(embedding: Embedding) -> tuple[str, ...]:
    """See `edgeconv.embed.interface`."""
    return micro_notes(embedding)
