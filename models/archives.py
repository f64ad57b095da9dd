"""Files with the models' data: where Keras stores them, and their checked content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from edgeconv.models import Data
    from numpy.typing import NDArray

PARTS = ("x_train", "y_train", "x_test", "y_test")


def keras_datasets() -> Path:
    """The directory Keras downloads its data sets to: below `KERAS_HOME`, else ~/.keras."""
    home = os.environ.get("KERAS_HOME")
    return (Path(home) if home else Path.home() / ".keras") / "datasets"


def images_of(path: Path, input_name: str, shape: tuple[int, ...], classes: int) -> Data:
    """The images and labels of an .npz in Keras' layout, in its order.

    That has `x_train` and `x_test`, uint8 (n, *shape), and `y_train` and `y_test`, integers
    (n,) or (n, 1). Raises as `read_npz` and `as_images` do.
    """
    return as_images(read_npz(path, PARTS), path, input_name, shape, classes)


def read_npz(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The named arrays of an .npz, of any shape and dtype, each read once.

    Raises `FileNotFoundError` where there is no file, and `ValueError` where it is not an
    .npz, lacks one of the arrays or has one of Python objects, which are not read.
    """
    import zipfile
    import zlib

    import numpy as np

    needed = ", ".join(names)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; it should have {needed}")
    try:
        with zipfile.ZipFile(path) as archive:
            lacking = [name for name in names if f"{name}.npy" not in archive.namelist()]
        if not lacking:
            with np.load(path, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in names}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from error
    raise ValueError(f"{path} has no {lacking[0]}; needed: {needed}")


def unpickled_arrays(path: Path) -> Any:
    """The plain values and numpy arrays of a pickle; strings of Python 2 are bytes.

    Other objects are refused, so no code in the file runs. Raises `FileNotFoundError` for no file,
    and `ValueError` for another or a broken pickle.
    """
    import pickle

    import numpy as np

    rebuild = np.empty(0).__reduce__()[0]
    known = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("numpy.core.multiarray", "_reconstruct"): rebuild,
        ("numpy._core.multiarray", "_reconstruct"): rebuild,
    }

    class ArrayUnpickler(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str) -> Any:
            if (module_name, global_name) not in known:
                raise pickle.UnpicklingError(f"it contains {module_name}.{global_name}")
            return known[module_name, global_name]

    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    with path.open("rb") as file:
        try:
            return ArrayUnpickler(file, encoding="bytes").load()
        except (pickle.UnpicklingError, LookupError, EOFError) as error:
            raise ValueError(f"{path} is not a pickle of arrays: {error}") from error
        except (AttributeError, TypeError, ValueError, OverflowError, MemoryError) as error:
            raise ValueError(f"{path} is a broken pickle: {error}") from error


def as_images(
    arrays: dict[str, NDArray[Any]],
    path: Path,
    input_name: str,
    shape: tuple[int, ...],
    classes: int,
) -> Data:
    """Images as float32 (n, *shape) in [0, 1] and labels as int64 (n,).

    `arrays` has them by the names of `PARTS`, the images as uint8. Raises `ValueError`, which
    names `path`, for other types, shapes or classes than these.
    """
    import numpy as np
    from edgeconv.models import Data

    for part in ("train", "test"):
        _check_images(arrays[f"x_{part}"], arrays[f"y_{part}"], f"{path}: {part}", shape)
        _check_labels(arrays[f"y_{part}"], f"{path}: y_{part}", classes)
    x_train, x_test = (_scaled(arrays[name]) for name in ("x_train", "x_test"))
    y_train, y_test = (arrays[name].ravel().astype(np.int64) for name in ("y_train", "y_test"))
    return Data({input_name: x_train}, y_train, {input_name: x_test}, y_test)


def _check_images(
    images: NDArray[Any], labels: NDArray[Any], where: str, shape: tuple[int, ...]
) -> None:
    expected = ", ".join(map(str, ("n", *shape)))
    if images.dtype != "uint8" or images.shape[1:] != shape or not len(images):
        actual = f"{images.dtype} {images.shape}"
        raise ValueError(f"{where} images are {actual}, where uint8 ({expected}) is needed")
    if labels.shape not in ((len(images),), (len(images), 1)):
        raise ValueError(f"{where} labels are {labels.shape}, for {len(images)} images")


def _check_labels(labels: NDArray[Any], where: str, classes: int) -> None:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"{where} is {labels.dtype}, where integers are needed")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"{where} has {labels.min()} to {labels.max()}, where 0 to {classes - 1} is needed"
        )


def _scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    import numpy as np

    # In place, to save the memory of a second copy.
    scaled = images.astype(np.float32)
    scaled /= 255.0
    return scaled
