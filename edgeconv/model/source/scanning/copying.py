"""A SavedModel written anew from what the scan has read, for TensorFlow to load.

What the scan does not look at is not written: other graphs, other collections, fields that it does
not know, files that no graph declares. So TensorFlow cannot read the file another way.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv.model.source.keras_files import decoded
from edgeconv.model.source.saved_model import GRAPH_FILE, SCHEMA_VERSION, SERVING_TAG
from edgeconv.model.source.scanning.paths import COLLECTIONS, asset_files, asset_tensors
from edgeconv.model.source.wire import delimited, messages
from edgeconv.types.errors import OutputRefused

if TYPE_CHECKING:
    from edgeconv.model.source.graph_pb2 import MetaGraphDef
    from edgeconv.model.source.scanning.graphs import MetaGraph


_VARIABLES, _ASSETS = "variables", "assets"
_META_GRAPH, _GRAPH = 2, 2
# A file that cannot be: the loader feeds the paths of assets.
_NO_FILE = b"/dev/null/assets"
# Parts of a Keras configuration that no loader of a model without its optimizer needs.
UNREAD = frozenset({"compile_config", "training_config"})


def write_saved_model(directory: Path, graph: MetaGraph, target: Path) -> None:
    """Write a graph that was kept to `target`, with the variables and its assets, for serving.

    Raises `OutputRefused` where it cannot be written.
    """
    assert graph.kept is not None
    rest = graph.rest
    names = [asset.filename for asset in asset_files(rest)]
    content = list(graph.kept.content(asset_tensors(rest), _NO_FILE))
    held = _without_others(rest).SerializeToString()
    size_bytes = sum(map(len, content))
    message = delimited(_GRAPH, size_bytes)
    whole_bytes = len(held) + len(message) + size_bytes
    try:
        target.mkdir(parents=True)
        with (target / GRAPH_FILE).open("wb") as file:
            file.write(SCHEMA_VERSION + delimited(_META_GRAPH, whole_bytes) + held + message)
            file.writelines(content)
        _copy_files(directory / _VARIABLES, target / _VARIABLES, None)
        _copy_files(directory / _ASSETS, target / _ASSETS, names)
    except OSError as error:
        # The scan has read the model: what fails here is the machine's.
        raise OutputRefused(
            f"{target} cannot be written: {error.strerror or error}",
            hint="free some space, or set TMPDIR to a directory that has some",
        ) from error


def _without_others(rest: MetaGraphDef) -> MetaGraphDef:
    """All but the graph, with the collections and assets that a loader takes, tagged to serve."""
    from edgeconv.model.source.graph_pb2 import MetaGraphDef

    message = MetaGraphDef()
    message.CopyFrom(rest)
    assets = list(asset_files(rest))
    for key in set(message.collection_def) - COLLECTIONS:
        del message.collection_def[key]
    del message.asset_file_def[:]
    message.asset_file_def.extend(assets)
    message.meta_info_def.tags[:] = [SERVING_TAG]
    return message


def _copy_files(source: Path, target: Path, names: list[str] | None) -> None:
    """Copy the plain files of a directory, None for all; a name that is not there is left out."""
    if not source.is_dir():
        return
    target.mkdir()
    inside = (path.name for path in source.iterdir()) if names is None else names
    for name in dict.fromkeys(inside):
        path = source / name
        if path.is_file():
            shutil.copyfile(path, target / name)


def write_keras_metadata(path: Path, target: Path) -> None:
    """Write the layers in a keras_metadata.pb anew, see `without_inner`."""
    from edgeconv.model.source.graph_pb2 import KerasLayer

    data = path.read_bytes()
    with target.open("wb") as file:
        for start, stop in messages(data, 0, len(data), 1):
            node = KerasLayer.FromString(data[start:stop])
            node.DiscardUnknownFields()
            if node.metadata:
                held = without_inner(msgspec.json.decode(node.metadata))
                node.metadata = msgspec.json.encode(held).decode()
            content = node.SerializeToString()
            file.write(delimited(1, len(content)) + content)


def without_inner(config: Any) -> Any:
    """A configuration without what compiles the models in it.

    Keras reads that at any depth. The outermost is not read by a loader that does not compile, and
    says by which losses a model was trained.
    """
    if not isinstance(config, dict):
        return _without(config)
    return {k: v if k in UNREAD else _without(v) for k, v in config.items()}


def _without(config: Any) -> Any:
    if isinstance(config, dict):
        return {k: _without(v) for k, v in config.items() if k not in UNREAD}
    if isinstance(config, list):
        return [_without(each) for each in config]
    return config


# A .keras or HDF5 file written anew from what the scan has read, for Keras to load.

_HDF5 = (".h5", ".hdf5")
_CONFIG = "model_config"
# Parts of an HDF5 model that compile and train it, and are not read.
_TRAINING = frozenset({"optimizer_weights"})


def write_archive(path: Path, target: Path, scratch: Path) -> None:
    """Write a .keras file with the same entries: texts and weights as they were read.

    Raises `OSError`.
    """
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
        for entry in archive.infolist():
            name = entry.filename
            if entry.is_dir():
                continue
            if name.endswith(".json"):
                content = decoded(path, name, archive.read(entry))
                copy.writestr(name, json.dumps(without_inner(content)))
            elif name.endswith(_HDF5):
                packed, anew = scratch / "packed.h5", scratch / "anew.h5"
                with archive.open(entry) as source, packed.open("wb") as unpacked:
                    shutil.copyfileobj(source, unpacked)
                _write_hdf5(packed, anew, {})
                copy.write(anew, name)
            else:
                with archive.open(entry) as source, copy.open(name, "w") as written:
                    shutil.copyfileobj(source, written)


def write_hdf5_model(path: Path, target: Path) -> None:
    """Write an HDF5 model: its configuration and weights as they were read. Raises `OSError`."""
    import h5py

    with h5py.File(path, "r") as file:
        config = decoded(path, _CONFIG, file.attrs[_CONFIG])
    _write_hdf5(path, target, {_CONFIG: json.dumps(without_inner(config))})


def _write_hdf5(path: Path, target: Path, attributes: dict[str, str]) -> None:
    """Write all groups and data sets; the file itself also gets these attributes."""
    import h5py

    with h5py.File(path, "r") as source, h5py.File(target, "w") as copy:
        _write_group(source, copy, {})
        copy.attrs.update(attributes)


def _write_group(source: Any, copy: Any, written: dict[Any, str]) -> None:
    """Write attributes, data sets and groups; each group once, a second link to it as a link."""
    import h5py

    written[_address(source)] = copy.name
    _write_attributes(source, copy)
    for name in source:
        link = source.get(name, getlink=True)
        if isinstance(link, h5py.SoftLink):
            copy[name] = h5py.SoftLink(link.path)
        elif name in _TRAINING and source.name == "/":
            continue
        elif isinstance(link, h5py.HardLink):
            inner = source[name]
            known = written.get(_address(inner))
            if known is not None:
                copy[name] = copy.file[known]
            elif isinstance(inner, h5py.Group):
                _write_group(inner, copy.create_group(name), written)
            elif isinstance(inner, h5py.Dataset):
                made = copy.create_dataset(name, data=inner[()], dtype=inner.dtype)
                written[_address(inner)] = made.name
                _write_attributes(inner, made)


def _write_attributes(source: Any, copy: Any) -> None:
    for name, value in source.attrs.items():
        copy.attrs[name] = value


def _address(item: Any) -> Any:
    import h5py

    return h5py.h5o.get_info(item.id).addr
