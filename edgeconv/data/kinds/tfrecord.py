"""The kind `tfrecord`: tf.train.Example records in one TFRecord file, or in all that a glob finds.

`spec=FILE.toml` declares what is in them, a table for each feature that is read:

    [features.image]
    encoding = "jpeg"          # or "png": uint8 (height, width, channels)
    channels = 3               # optional: as in the stored image
    [features.pixels]
    encoding = "raw"           # the bytes of an array, little-endian
    dtype = "uint8"
    shape = [28, 28, 1]
    [features.label]
    dtype = "int64"            # a list of floats ("float32"), of integers or of "string"
    shape = []                 # optional: one number
    [features.samples]
    dtype = "float32"
    variable = true            # a first dimension that differs from record to record

`labels=NAME` is the feature that has the class numbers. Records are counted from 1.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.data.arrays import Arrays, opened, sha256_of
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.decoding import ready
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

if TYPE_CHECKING:
    from edgeconv.data.examples import Feature

OPTIONS = frozenset({"spec", "labels"})

_LARGEST_SPEC_BYTES = 1 << 20


class _SpecFeature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    encoding: str = "list"
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    variable: bool = False
    channels: int | None = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    features: dict[str, _SpecFeature]


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hash of the files, in the order of their names, and of the spec.

    Raises `InputRefused`, or `UsageError` without a spec.
    """
    spec = sha256_of(Path(_spec_path(location, options)))
    return hash_of(spec, *(sha256_of(path) for path in _files(location)))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The features called `array_names` (None: all but the labels), each (n, ...), and the labels.

    Raises `UsageError` for a spec that is wrong or lacks a name, `InputRefused` for
    records that are damaged or not as the spec says.
    """
    from edgeconv.data.examples import read_examples
    from edgeconv.data.records import open_records

    spec = _spec_path(location, options)
    features = _features(Path(spec))
    labels = options.get("labels")
    for name in (*(array_names or ()), *([labels] if labels else [])):
        if name not in features:
            raise unknown_name(f"feature in {spec}", name, features)
    names = (
        [name for name in features if name != labels]
        if array_names is None
        else sorted(array_names)
    )
    return read_examples(open_records(_files(location)), features, names, labels)


def _spec_path(location: str, options: Mapping[str, str]) -> str:
    if "spec" not in options:
        raise UsageError(
            f"{location} needs a feature spec: TFRecord files do not declare their content",
            hint="tfrecord:FILE?spec=FILE.toml, with lines such as [features.image] and "
            'encoding = "jpeg"',
        )
    return options["spec"]


def _files(location: str) -> list[Path]:
    path = Path(location)
    if path.exists() or not glob.has_magic(location):
        return [path]
    # Path.glob takes no absolute patterns.
    paths = (Path(name) for name in glob.glob(location))  # noqa: PTH207
    files = sorted(path for path in paths if path.is_file())
    if not files:
        raise InputRefused(f"no file is called {location}", hint="check the path and the pattern")
    return files


def _features(path: Path) -> dict[str, Feature]:
    from edgeconv.data.examples import check_feature

    with opened(path) as (file, size_bytes):
        if size_bytes > _LARGEST_SPEC_BYTES:
            raise InputRefused(f"{path} has {size_bytes:,} bytes and is not a feature spec")
        data = file.read()
    try:
        spec = msgspec.toml.decode(data, type=ready(_Spec))
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path} is not a feature spec: {error}",
            hint="each [features.NAME] takes encoding, dtype, shape, variable and channels",
        ) from error
    # Not msgspec.DecodeError alone: a number of five thousand digits is another ValueError.
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"{path} is not a TOML file: {error}") from error
    if not spec.features:
        raise UsageError(f"{path} declares no features", hint="begin with [features.NAME]")
    features = {name: _feature(f"{path}, {name!r}", spec.features[name]) for name in spec.features}
    for name, feature in features.items():
        check_feature(f"{path}, {name!r}", feature)
    return features


def _feature(where: str, declared: _SpecFeature) -> Feature:
    from edgeconv.data.examples import Feature

    encodings = ("jpeg", "png", "raw", "list")
    if declared.encoding not in encodings:
        raise unknown_name(f"encoding in {where}", declared.encoding, encodings)
    is_image = declared.encoding in ("jpeg", "png")
    if not is_image and declared.dtype is None:
        raise UsageError(f"{where} has no dtype", hint='for example dtype = "float32"')
    if not is_image and declared.channels is not None:
        raise UsageError(f"{where}: channels are for images only", hint="put them into shape")
    if is_image and declared.variable:
        raise UsageError(f"{where}: images differ in size anyway", hint="remove variable")
    if -1 in declared.shape:
        raise UsageError(
            f"{where}: shape {list(declared.shape)} has -1",
            hint="variable = true, and the other sizes in shape",
        )
    values: dict[str, Any] = {"encoding": declared.encoding, "channels": declared.channels}
    shape = (-1, *declared.shape) if declared.variable else declared.shape
    return Feature(dtype=declared.dtype or "uint8", shape=shape, **values)
