"""What a model file is, found without TensorFlow and without running it."""

from edgeconv.model.source.loading import (
    artifact_of_file as artifact_of_file,
    chosen_signature as chosen_signature,
    code_files as code_files,
    distinct_signatures as distinct_signatures,
    identify as identify,
    inspect_model as inspect_model,
    keras_file_signature as keras_file_signature,
    load as load,
    load_to_run as load_to_run,
    opening_key as opening_key,
    refuse_quantized as refuse_quantized,
    refuse_unusable as refuse_unusable,
    serving_path as serving_path,
)
