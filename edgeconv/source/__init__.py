"""What a model file is, found without TensorFlow and without running it."""

from edgeconv.source.loading import (
    declared,
    identify,
    inspect_model,
    load,
    load_to_run,
    refuse_quantized,
    served,
)
from edgeconv.source.opening import opening_key, places_of_code
from edgeconv.source.ready_made import ready_made
from edgeconv.source.signatures import chosen_signature, distinct_signatures, refuse_unusable

__all__ = [
    "chosen_signature",
    "declared",
    "distinct_signatures",
    "identify",
    "inspect_model",
    "load",
    "load_to_run",
    "opening_key",
    "places_of_code",
    "ready_made",
    "refuse_quantized",
    "refuse_unusable",
    "served",
]
