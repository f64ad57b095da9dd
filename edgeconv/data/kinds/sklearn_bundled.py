"""The kind `sklearn`: data sets that come inside scikit-learn, so nothing is downloaded.

`sklearn:digits` has 1,797 handwritten digits: "image", float32 (n, 8, 8, 1) scaled from
the stored 0..16 to 0..1, with labels 0..9. `iris`, `wine`, `breast_cancer` and `diabetes`
are tables: "x", float32 (n, features) as stored, with class labels but for diabetes.
"""

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from edgeconv.data.arrays import Arrays
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import unknown_name

OPTIONS: frozenset[str] = frozenset()


def identity(location: str, options: Mapping[str, str]) -> str:  # noqa: ARG001
    """The hash of the set's name and scikit-learn's version, which fix its content."""
    _check_name(location)
    return hash_of(location, metadata.version("scikit-learn"))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:  # noqa: ARG001
    """The arrays (n, ...) of the set called `location`. Raises `UsageError` for an unknown name."""
    from sklearn import datasets

    _check_name(location)
    arrays = _SETS[location](getattr(datasets, f"load_{location}")())
    for name in array_names or ():
        if name not in arrays.by_name:
            raise unknown_name(f"array in sklearn:{location}", name, arrays.by_name)
    return arrays


def _digits(loaded: Any) -> Arrays:
    import numpy as np

    return Arrays({"image": (loaded.images / 16.0).astype(np.float32)[..., None]}, loaded.target)


def _diabetes(loaded: Any) -> Arrays:
    import numpy as np

    # It predicts a quantity, not a class.
    return Arrays({"x": loaded.data.astype(np.float32)})


def _classes(loaded: Any) -> Arrays:
    import numpy as np

    names = tuple(str(name) for name in loaded.target_names)
    return Arrays({"x": loaded.data.astype(np.float32)}, loaded.target, class_names=names)


_SETS = {
    "digits": _digits,
    "iris": _classes,
    "wine": _classes,
    "breast_cancer": _classes,
    "diabetes": _diabetes,
}


def _check_name(name: str) -> None:
    if name not in _SETS:
        raise unknown_name("data set of scikit-learn", name, _SETS)
