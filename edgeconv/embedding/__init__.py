"""A published model into a project of an app or of firmware: `embed` and its targets.

`embedding` is the verb, `request` what it is asked for, `published` the model it takes;
`golden` makes the vectors that a self-test compares with, `accessors` what every language says of
the model's inputs and outputs, `writing` puts the files in place. A target is a module in
`targets/`; `interface` says what it has. `c_files` is what the targets in C have in common.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeconv.embedding.embedding import embed

__all__ = ["embed"]


def __getattr__(name: str) -> Any:
    if name != "embed":
        raise AttributeError(f"module 'edgeconv.embedding' has no attribute {name!r}")
    return import_module("edgeconv.embedding.embedding").embed
