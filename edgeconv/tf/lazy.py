"""TensorFlow and both Keras, imported at their first use, which is in a child process."""

from importlib import import_module
from typing import Any


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._lazy_name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._lazy_name), attribute)


tf: Any = _LazyModule("tensorflow")
keras: Any = _LazyModule("keras")
tf_keras: Any = _LazyModule("tf_keras")
