"""The kind `tfds`: a TensorFlow data set that is on disk already. Nothing is ever downloaded.

`tfds:NAME`, `NAME/CONFIG` or either with `:VERSION` is read from `dir=DIR`, else in
TFDS_DATA_DIR, else in ~/tensorflow_datasets; the location may also be the directory of a
version itself. `split=test` chooses the split, and `split=test[:100]` or `test[10%:20%]` a
part of it, as in TensorFlow Datasets. `labels=NAME` is needed only where not exactly one
feature is a ClassLabel. Features inside another are called `outer/inner`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.data.arrays import Arrays, read_json, sha256_of
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from edgeconv.data.examples import DeclaredFeatures, Feature
    from edgeconv.data.records import Records

OPTIONS = frozenset({"split", "dir", "labels"})


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hash of the split's files and of what describes them. Raises as `read` does."""
    prepared = find(location, options.get("dir"))
    split, _first, _count = part_of(prepared, options.get("split"))
    described = sorted(
        path.name
        for path in prepared.directory.iterdir()
        if path.suffix == ".json" or path.name.endswith(".labels.txt")
    )
    names = [*described, *(path.name for path, length in prepared.shards(split) if length)]
    paths = [
        *(prepared.directory / name for name in described),
        *(path for path, length in prepared.shards(split) if length),
    ]
    return hash_of(names, *(sha256_of(path) for path in paths))


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The features (n, ...) called `array_names` (None: all that can be read), and the labels.

    Raises `UsageError` for a name that does not exist, `InputRefused` for a data set that
    is not there, damaged, or in a format that is not read.
    """
    from edgeconv.data.examples import read_examples, read_features

    prepared = find(location, options.get("dir"))
    declared = read_features(prepared.directory)
    labels = _labels(prepared, declared, options.get("labels"))
    names = _names(prepared, declared, array_names, labels)
    needed = [*names, *([labels] if labels else [])]
    features = {name: _usable(prepared, declared, name) for name in needed}
    arrays = read_examples(_records(prepared, options.get("split")), features, names, labels)
    class_names = declared.class_names.get(labels, ()) if labels else ()
    return Arrays(arrays.by_name, arrays.labels, class_names=class_names)


def _labels(
    prepared: PreparedDataSet, declared: DeclaredFeatures, labels: str | None
) -> str | None:
    if labels is not None:
        if labels not in declared.names:
            raise unknown_name(f"feature in {prepared.directory}", labels, declared.names)
        return labels
    return declared.class_labels[0] if len(declared.class_labels) == 1 else None


def _names(
    prepared: PreparedDataSet,
    declared: DeclaredFeatures,
    array_names: Iterable[str] | None,
    labels: str | None,
) -> list[str]:
    if array_names is None:
        return [name for name in declared.features if name != labels]
    for name in array_names:
        if name not in declared.names:
            raise unknown_name(f"feature in {prepared.directory}", name, declared.names)
    return sorted(array_names)


def _usable(prepared: PreparedDataSet, declared: DeclaredFeatures, name: str) -> Feature:
    if name in declared.refused:
        raise InputRefused(
            f"{prepared.directory}: the feature {name!r} is not read: {declared.refused[name]}",
            hint=f"choose among: {', '.join(declared.features) or 'none'}",
        )
    return declared.features[name]


def _records(prepared: PreparedDataSet, text: str | None) -> Records:
    from edgeconv.data.records import Records, Spool, indexed

    split, first, count = part_of(prepared, text)
    files, spool = [], Spool()
    for path, length in prepared.shards(split):
        # A shard without records may have no file.
        if not length:
            continue
        file = indexed(path, spool)
        if len(file.starts) != length:
            raise InputRefused(
                f"{path} has {len(file.starts)} records, and dataset_info.json says {length}",
                hint="prepare or copy the data set again",
            )
        files.append(file)
    if not count:
        raise UsageError(f"split={text} has no samples")
    return Records(files, first, count)


INFO = "dataset_info.json"
_NAME = re.compile(r"(?P<name>\w+)(?:/(?P<config>[\w.+-]+))?(?::(?P<version>\d+\.\d+\.\d+))?")
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BOUND = r"-?\d+(?:\.\d+)?%?|"
_PART = re.compile(rf"(?P<split>[\w.-]+)(?:\[(?P<first>{_BOUND}):(?P<last>{_BOUND})\])?")
_VARIABLE = re.compile(r"\{(\w+)\}")
# In one split, and in one file of it.
_MOST_FILES = 1 << 16
_MOST_RECORDS = 1 << 40


class DataSplit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One split: its name, and how many records each of its files has."""

    name: str
    shard_lengths: tuple[int, ...] = ()
    filepath_template: str = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


class _Info(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    version: str = ""
    config_name: str = ""
    file_format: str = "tfrecord"
    splits: tuple[DataSplit, ...] = ()


@dataclass(frozen=True)
class PreparedDataSet:
    """A version of a data set on disk."""

    directory: Path
    info: _Info

    def shards(self, split: DataSplit) -> list[tuple[Path, int]]:
        """The files of a split, in order, and how many records each has."""
        count = len(split.shard_lengths)
        return [
            (self._shard(split, index, count), length)
            for index, length in enumerate(split.shard_lengths)
        ]

    def _shard(self, split: DataSplit, index: int, count: int) -> Path:
        digits = max(5, len(str(count)))
        values = {
            "DATASET": self.info.name,
            "CONFIG": self.info.config_name,
            "VERSION": self.info.version,
            "SPLIT": split.name,
            "FILEFORMAT": "tfrecord",
            "SHARD_INDEX": f"{index:0{digits}}",
            "NUM_SHARDS": f"{count:0{digits}}",
            "SHARD_X_OF_Y": f"{index:0{digits}}-of-{count:0{digits}}",
        }
        relative = Path(_VARIABLE.sub(lambda m: values.get(m[1], m[0]), split.filepath_template))
        if relative.is_absolute() or ".." in relative.parts:
            raise InputRefused(f"{self.directory / INFO} names a file outside it: {relative}")
        return self.directory / relative


def find(location: str, root: str | None) -> PreparedDataSet:
    """The data set that `location` names or is the directory of.

    Without a version it is the newest, without a configuration the only one. Raises
    `UsageError`, or `InputRefused` if it is not on disk or not as TFRecord files.
    """
    path = Path(location)
    directory = path if (path / INFO).is_file() else _named(location, root)
    info = read_json(directory / INFO, _Info)
    if info.file_format != "tfrecord":
        raise InputRefused(
            f"{directory} is stored as {info.file_format}, and only tfrecord is read",
            hint='prepare it again with file_format="tfrecord"',
        )
    for split in info.splits:
        lengths = split.shard_lengths
        if len(lengths) > _MOST_FILES or not all(0 <= each < _MOST_RECORDS for each in lengths):
            raise InputRefused(
                f"{directory / INFO} is damaged: the split {split.name[:40]!r} has impossible files"
            )
    return PreparedDataSet(directory, info)


def part_of(prepared: PreparedDataSet, text: str | None) -> tuple[DataSplit, int, int]:
    """What `split=` says: the split, the first of its samples, and how many.

    Percentages are rounded to the nearest sample, as TensorFlow Datasets does. Raises
    `UsageError` for a split that does not exist or a part that it does not have.
    """
    splits = {split.name: split for split in prepared.info.splits}
    if not splits:
        raise InputRefused(f"{prepared.directory} has no splits")
    if text is None and len(splits) > 1:
        raise UsageError(
            f"{prepared.directory} has several splits: {', '.join(splits)}",
            hint=f"choose one: split={[*splits][-1]}",
        )
    match = _PART.fullmatch(text if text is not None else next(iter(splits)))
    if not match:
        raise UsageError(
            f"split={text} is not understood",
            hint="a name, with at most one slice: test, test[:100], test[10%:20%]",
        )
    if match["split"] not in splits:
        raise unknown_name(f"split of {prepared.directory}", match["split"], splits)
    split = splits[match["split"]]
    total = sum(split.shard_lengths)
    first = _bound(match["first"] or "", total, 0)
    last = _bound(match["last"] or "", total, total)
    if not 0 <= first < last <= total:
        raise UsageError(f"split={text} is not a part of the split, which has {total} samples")
    return split, first, last - first


def _bound(text: str, total: int, default: int) -> int:
    """A place in the split; -1 or less, or more than `total`, where it lies outside."""
    if not text:
        return default
    number = float(text.removesuffix("%"))
    if text.endswith("%"):
        position = round(number * total / 100) if abs(number) <= 100 else total + 1
    elif number != int(number):
        raise UsageError(f"a slice from or to {text}: samples are whole", hint=f"or {text}%")
    else:
        position = int(number)
    # A negative number, -0 included, is taken from the end.
    return position + total if position < 0 else position


def _named(location: str, root: str | None) -> Path:
    match = _NAME.fullmatch(location)
    if not match:
        raise UsageError(
            f"{location} is neither the directory of a prepared data set nor a name",
            hint="tfds:NAME, tfds:NAME/CONFIG, tfds:NAME:1.0.0, or the directory of a version",
        )
    base = data_directory(root)
    directory = base / match["name"]
    if not directory.is_dir():
        known = ", ".join(sorted(p.name for p in base.glob("*") if p.is_dir())[:20])
        raise InputRefused(
            f"there is no data set {match['name']!r} in {base}",
            hint=f"edgeconv downloads nothing; prepare it with tfds.load({match['name']!r}) "
            f"or choose another directory with dir=DIR; there are: {known or 'none'}",
        )
    if match["config"]:
        directory /= match["config"]
    return _version(location, directory, match["version"])


def data_directory(root: str | None) -> Path:
    """Where prepared data sets are: at `root`, else where TensorFlow Datasets has them."""
    directory = root or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(directory).expanduser()


def _version(location: str, directory: Path, version: str | None) -> Path:
    versions = _versions(directory)
    if not versions:
        configurations = sorted(p for p in directory.glob("*") if _versions(p))
        if len(configurations) > 1:
            names = listed(path.name for path in configurations)
            raise UsageError(
                f"{location} has several configurations: {names}",
                hint=f"choose one: tfds:{directory.name}/{configurations[0].name}",
            )
        if not configurations:
            raise InputRefused(
                f"{directory} holds no prepared version: no {INFO} in a directory like 1.0.0",
                hint="its preparation may not have ended",
            )
        versions = _versions(configurations[0])
    if version is None:
        return max(versions.values(), key=lambda p: tuple(map(int, p.name.split("."))))
    if version not in versions:
        raise unknown_name(f"version of {location.partition(':')[0]}", version, versions)
    return versions[version]


def _versions(directory: Path) -> dict[str, Path]:
    return {
        path.name: path
        for path in directory.glob("*")
        if _VERSION.fullmatch(path.name) and (path / INFO).is_file()
    }
