"""The scan of a SavedModel directory: its files, graphs and Keras layers."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from edgeconv.model.source.saved_model import garbled, number_of_graph
from edgeconv.model.source.scanning.copying import write_keras_metadata, write_saved_model
from edgeconv.model.source.scanning.graphs import MetaGraph, read_meta_graphs
from edgeconv.model.source.scanning.keras_config import UNREADABLE_LAYERS, scan_config
from edgeconv.model.source.scanning.nodes import Findings, NodeCheck
from edgeconv.model.source.scanning.paths import PathCheck, asset_files
from edgeconv.model.source.wire import MalformedWire, TooMuchWire, mapped, messages
from edgeconv.system.store.hashes import leads_out

_GRAPH_FILE = "saved_model.pb"
# TensorFlow reads it first; no exporter writes it below 2 GiB.
_CHUNKED_FILE = "saved_model.cpb"
# tf_keras writes it, and makes layers of it.
_KERAS_METADATA = "keras_metadata.pb"
_METADATA_NODES = 1
_MOST_BYTES = 2**31 - 1
_MOST_FILES = 100_000
_OUTSIDE = "reads a file that is not in the model"


class Copy(NamedTuple):
    """Where the graph with these tags is written anew, () the one for serving."""

    target: Path
    tags: tuple[str, ...]


def scan_saved_model(
    directory: Path,
    findings: Findings,
    known: frozenset[str],
    *,
    reads_layers: bool,
    copy: Copy | None = None,
) -> None:
    """Scan all files and graphs of a SavedModel, and write `copy` if nothing was found.

    `reads_layers`: tf_keras builds its layers, to train them. Raises `InputRefused` for a graph
    that cannot be read, `OSError`, and `OutputRefused`.
    """
    from google.protobuf.message import DecodeError

    kept = None
    _scan_files(directory, findings)
    path = directory / _GRAPH_FILE
    if leads_out(path, directory.resolve()):
        # It is a finding, and not read.
        return
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes > _MOST_BYTES:
                raise TooMuchWire(f"{size_bytes} bytes, and protocol buffers end at 2 GiB")
            if not size_bytes:
                raise MalformedWire("it is empty (0 bytes)")
            with mapped(file) as data:
                keep = number_of_graph(directory, copy.tags) if copy else None
                kept = _scan_graphs(directory, data, findings, keep)
    except TooMuchWire as error:
        findings.add("structure", _GRAPH_FILE, str(error), "takes all memory or time to read")
    except (MalformedWire, DecodeError) as error:
        raise garbled(path, str(error)) from error
    metadata = directory / _KERAS_METADATA
    if metadata.is_file():
        scan_keras_metadata(metadata, findings, known, is_read=reads_layers)
    if copy and kept and not findings.has_error:
        write_saved_model(directory, kept, copy.target)
        if reads_layers and metadata.is_file():
            write_keras_metadata(metadata, copy.target / _KERAS_METADATA)


def _scan_graphs(
    directory: Path, data: memoryview, findings: Findings, keep: int | None
) -> MetaGraph | None:
    """Scan all graphs; returns number `keep`, to be written."""
    check = NodeCheck(findings)
    kept = None
    for graph in read_meta_graphs(data, check, keep):
        check.finish(set(graph.bodies) - {""})
        for node in graph.rest.object_graph_def.nodes:
            for holder in (node.variable, node.resource):
                if holder.device:
                    check.check_device("object graph", holder.device)
        for asset in asset_files(graph.rest):
            _check_asset(directory, asset.filename, findings)
        PathCheck(graph, findings).run()
        kept = graph if graph.kept else kept
    return kept


def _check_asset(directory: Path, name: str, findings: Findings) -> None:
    parts = Path(name).parts
    is_plain = len(parts) == 1 and name == parts[0] and name not in (".", "..") and "\0" not in name
    if not is_plain:
        findings.add("asset", "asset_file_def", f"asset {name!r}", _OUTSIDE)
    elif not (directory / "assets" / name).is_file():
        findings.add(
            "asset", "asset_file_def", f"asset {name!r}", "is not in assets/", is_error=False
        )


def _scan_files(directory: Path, findings: Findings) -> None:
    root = directory.resolve()
    for count, entry in enumerate(_below(str(directory))):
        where = os.path.relpath(entry.path, directory)
        if count >= _MOST_FILES:
            findings.add("structure", where, f"more than {_MOST_FILES} files", "is not a model")
            return
        if where == _CHUNKED_FILE:
            findings.add("structure", where, "a second graph", "TensorFlow may load it instead")
        if entry.is_symlink():
            if leads_out(Path(entry.path), root):
                what = f"symbolic link to {Path(entry.path).resolve()}"
                findings.add("path", where, what, _OUTSIDE)
        elif not entry.is_dir() and not stat.S_ISREG(entry.stat().st_mode):
            findings.add("structure", where, "a device, pipe or socket", _OUTSIDE)


def _below(directory: str) -> Iterator[os.DirEntry[str]]:
    """All entries below a directory; links are not followed."""
    waiting = [directory]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def scan_keras_metadata(
    path: Path, findings: Findings, known: frozenset[str], *, is_read: bool
) -> None:
    """Scan the layers in a keras_metadata.pb.

    Custom classes are common there, and the SavedModel has their graph. The layers are built
    (`is_read`) only for a training. Raises `OSError`.
    """
    from google.protobuf.message import DecodeError

    from edgeconv.model.source.graph_pb2 import KerasLayer

    data = path.read_bytes()
    try:
        for start, stop in messages(data, 0, len(data), _METADATA_NODES):
            node = KerasLayer.FromString(data[start:stop])
            held = msgspec.json.decode(node.metadata) if node.metadata else {}
            where = f"{path.name}:{node.node_path}"
            scan_config(held, findings, known, where=where, is_read=is_read, has_graph=True)
    except (MalformedWire, DecodeError, msgspec.DecodeError, RecursionError) as error:
        what = f"{UNREADABLE_LAYERS}: {error}"
        findings.add("structure", path.name, what, "may be anything", is_error=is_read)
