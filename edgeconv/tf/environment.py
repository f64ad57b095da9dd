"""Settings of a process that runs TensorFlow, to be made before it is imported."""

import importlib.util
import os
from typing import Any

from edgeconv.types.errors import ToolFailed

# Dependencies of this package, which may have been uninstalled all the same.
_DISTRIBUTION = {
    "tf_keras": "tf-keras",
    "tensorflow_model_optimization": "tensorflow-model-optimization",
}


def use_cpu_only() -> None:
    """Hide accelerators from TensorFlow, which would claim a whole GPU, and log only warnings."""
    os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"})


def use_tf_keras() -> None:
    """Make `tf.keras` the Keras 2 of tf_keras, the only one that tfmot knows.

    Call it before TensorFlow is imported. Raises `ToolFailed` if a package that
    quantization-aware training needs is not installed.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    for name, distribution in _DISTRIBUTION.items():
        if importlib.util.find_spec(name) is None:
            raise ToolFailed(
                f"quantization-aware training needs {distribution}, which is not installed",
                hint=f"pip install {distribution}",
            )


def model_optimization() -> Any:
    """The module tensorflow_model_optimization. Raises `ToolFailed` if it is not installed."""
    use_tf_keras()
    import tensorflow_model_optimization

    return tensorflow_model_optimization
