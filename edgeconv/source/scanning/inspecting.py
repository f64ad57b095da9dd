"""The verb `inspect`: what is in a model file, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.source import inspect_model

if TYPE_CHECKING:
    from edgeconv.requests.looking import InspectRequest
    from edgeconv.types import Inspection


def inspect(asked: InspectRequest) -> Inspection:
    """Signatures, operators or layers, and weights of a model. Raises `InputRefused`."""
    return inspect_model(asked.model, asked.opening)
