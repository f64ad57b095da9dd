"""What a model file is, found without TensorFlow and without running it."""

from edgeconv.source.loading import (
    artifact_of_file,
    identify,
    inspect_model,
    keras_file_signature,
    load,
    load_to_run,
    refuse_quantized,
    serving_path,
)
from edgeconv.source.opening import code_directories, opening_key
from edgeconv.source.signatures import chosen_signature, distinct_signatures, refuse_unusable

__all__ = [
    "chosen_signature",
    "keras_file_signature",
    "distinct_signatures",
    "identify",
    "inspect_model",
    "load",
    "load_to_run",
    "opening_key",
    "code_directories",
    "artifact_of_file",
    "refuse_quantized",
    "refuse_unusable",
    "serving_path",
]
