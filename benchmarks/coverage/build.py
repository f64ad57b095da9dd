"""Build one architecture, in a process of its own.

    python -m benchmarks.coverage.build NAME DIRECTORY

Writes the model and its samples to DIRECTORY, and the model's path as the last line of the
output. Only here are TensorFlow and Keras imported.
"""

import os
import sys
import warnings
from pathlib import Path


def main(name: str, directory: str) -> None:
    os.environ.update(
        {"CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
    )
    warnings.simplefilter("ignore")
    from benchmarks.coverage.architectures import ARCHITECTURES

    Path(directory).mkdir(parents=True, exist_ok=True)
    print(ARCHITECTURES[name].build(Path(directory)))


if __name__ == "__main__":
    main(*sys.argv[1:])
