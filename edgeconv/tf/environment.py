"""Settings of a process that runs TensorFlow; they have to be made before it is imported."""

from __future__ import annotations

import os


def use_cpu_only() -> None:
    """Hide accelerators from TensorFlow and lower its log to warnings.

    What edgeconv measures and trains here is the CPU; a visible GPU would be claimed
    whole by the mere import.
    """
    os.environ.update({"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "1"})
