"""Settings of a process that runs TensorFlow; they have to be made before it is imported."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from edgeconv.errors import ToolFailed

# Dependencies of this package, which somebody may have taken away all the same.
_DISTRIBUTION = {
    "tf_keras": "tf-keras",
    "tensorflow_model_optimization": "tensorflow-model-optimization",
}


def use_cpu_only() -> None:
    """Hide accelerators from TensorFlow and lower its log to warnings.

    What edgeconv measures and trains here is the CPU; a visible GPU would be claimed
    whole by the mere import.
    """
    os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"})


def use_tf_keras() -> None:
    """Make `tf.keras` the Keras 2 of tf_keras, which is all that tfmot knows.

    To be called before TensorFlow is imported. Raises `ToolFailed` where what
    quantization-aware training needs is not installed.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    for name in _DISTRIBUTION:
        if importlib.util.find_spec(name) is None:
            raise _not_installed(name)


def model_optimization() -> Any:
    """The module tensorflow_model_optimization. Raises `ToolFailed` where it is not installed."""
    use_tf_keras()
    import tensorflow_model_optimization

    return tensorflow_model_optimization


def _not_installed(name: str) -> ToolFailed:
    return ToolFailed(
        f"quantization-aware training needs {_DISTRIBUTION[name]}, which is not installed",
        hint=f"pip install {_DISTRIBUTION[name]}",
    )
