"""The kind `sklearn`: data sets that come inside scikit-learn, so nothing is downloaded.

`sklearn:digits` has 1,797 handwritten digits: "image", float32 (n, 8, 8, 1) scaled from
the stored 0..16 to 0..1, with labels 0..9. `iris`, `wine`, `breast_cancer` and `diabetes`
are tables: "x", float32 (n, features) as stored, with class labels but for diabetes.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays
from edgeconv.errors import unknown_name
from edgeconv.store.hashes import hash_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS: frozenset[str] = frozenset()


def identity(place: str, options: Mapping[str, str]) -> str:  # noqa: ARG001
    """The hash of the set's name and scikit-learn's version, which fix its content."""
    _reader(place)
    return hash_of(place, metadata.version("scikit-learn"))


def read(place: str, options: Mapping[str, str], wanted: frozenset[str] | None) -> Arrays:  # noqa: ARG001
    """The arrays of the set called `place`. Raises `UsageError` for an unknown name."""
    arrays = _reader(place)()
    for name in wanted or ():
        if name not in arrays.by_name:
            raise unknown_name(f"array in sklearn:{place}", name, arrays.by_name)
    return arrays


def _digits() -> Arrays:
    import numpy as np
    from sklearn.datasets import load_digits

    digits = load_digits()
    image = (digits.images / 16.0).astype(np.float32)[..., None]
    return Arrays({"image": image}, digits.target)


def _iris() -> Arrays:
    from sklearn.datasets import load_iris

    return _classes(load_iris())


def _wine() -> Arrays:
    from sklearn.datasets import load_wine

    return _classes(load_wine())


def _breast_cancer() -> Arrays:
    from sklearn.datasets import load_breast_cancer

    return _classes(load_breast_cancer())


def _diabetes() -> Arrays:
    import numpy as np
    from sklearn.datasets import load_diabetes

    # What it predicts is a quantity, and no class.
    return Arrays({"x": load_diabetes().data.astype(np.float32)})


def _classes(loaded: Any) -> Arrays:
    import numpy as np

    names = tuple(str(name) for name in loaded.target_names)
    return Arrays({"x": loaded.data.astype(np.float32)}, loaded.target, class_names=names)


_SETS = {
    "digits": _digits,
    "iris": _iris,
    "wine": _wine,
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
}


def _reader(place: str) -> Callable[[], Arrays]:
    if place not in _SETS:
        raise unknown_name("data set of scikit-learn", place, _SETS)
    return _SETS[place]
