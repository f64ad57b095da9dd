"""The kind `tfds`: a TensorFlow data set that is on disk already. Nothing is ever downloaded.

`tfds:NAME`, `NAME/CONFIG` or either with `:VERSION` is read from `dir=DIR`, else in
TFDS_DATA_DIR, else in ~/tensorflow_datasets; the location may also be the directory of a
version itself. `split=test` chooses the split, and `split=test[:100]` or `test[10%:20%]` a
part of it, as in TensorFlow Datasets. `labels=NAME` is needed only where not exactly one
feature is a ClassLabel. Features inside another are called `outer/inner`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.data.arrays import Arrays, sha256_of
from edgeconv.data.tfds_layout import PreparedDataSet, find, part_of
from edgeconv.system.store.hashes import hash_of
from edgeconv.types.errors import InputRefused, UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
