"""What a model file is, found without TensorFlow and without running it."""

from edgeconv.source.loading import declared, identify, inspect_model, load, refuse_quantized
from edgeconv.source.ready_made import ready_made
from edgeconv.source.signatures import chosen_signature, distinct_signatures, shape_text

__all__ = [
    "chosen_signature",
    "declared",
    "distinct_signatures",
    "identify",
    "inspect_model",
    "load",
    "ready_made",
    "refuse_quantized",
    "shape_text",
]
