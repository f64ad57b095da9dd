"""Scanning a model before it is loaded, and refusing one that its user does not trust."""

from __future__ import annotations

import mmap
import os
import shlex
import stat
import struct
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.model import source
from edgeconv.model.source.kinds import find_model, unreadable
from edgeconv.model.source.saved_model import garbled, number_of_graph
from edgeconv.model.source.scanning.copying import write_keras_metadata, write_saved_model
from edgeconv.model.source.scanning.graphs import MetaGraph, read_meta_graphs
from edgeconv.model.source.scanning.keras_files import (
    QUANTIZED_BY_KERAS,
    RUNS_CODE,
    UNREADABLE_LAYERS,
    scan_config,
)
from edgeconv.model.source.scanning.nodes import Findings, NodeCheck, families
from edgeconv.model.source.scanning.paths import PathCheck, asset_files
from edgeconv.model.source.wire import MalformedWire, TooMuchWire, mapped, messages
from edgeconv.model.tflite.flatbuffer import malformed
from edgeconv.model.tflite.structure import BrokenFlatbuffer, structure
from edgeconv.system.store.files import leads_out
from edgeconv.system.store.user import read_user_config
from edgeconv.types import Opening, Scan, ScanFinding, SourceKind, SourceModel
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from edgeconv.requests.looking import ScanRequest

_SUFFIXES = {"keras": ".keras", "hdf5": ".h5"}


def admit_model(
    path: str | Path,
    opening: Opening = Opening(),
    *,
    allow_code: bool = False,
    trusted: Collection[str] = (),
) -> SourceModel:
    """The model at `path`, identified, if the scan or its user admits it.

    Every command that loads a model uses this or `refuse_findings`. Raises as these and
    `model.source.identify`.
    """
    model = source.identify(path, opening, allow_code=allow_code)
    refuse_findings(model, trusted=trusted)
    return model


def refuse_findings(
    model: SourceModel, *, trusted: Collection[str] = (), reads_layers: bool = False
) -> None:
    """Raise `InputRefused` for a model that the scan refuses and the user does not trust.

    `trusted` are content hashes, as `Scan.sha256`, in addition to those in the user's
    configuration. Classes of the model's `opening` are allowed. `reads_layers` is as in `scan`.
    """
    known = frozenset(model.opening.custom_objects)
    scan = _scanned(model, known, reads_layers)
    if model.sha256 not in trusted_models(trusted):
        _refuse(scan)


def loadable(
    model: SourceModel, target: Path, *, trusted: Collection[str] = (), reads_layers: bool = False
) -> Path:
    """What TensorFlow and Keras load for a model: a copy of what the scan has read, at `target`.

    It is of the kind that was scanned, under a name of its own, and has nothing else: no other
    graph, collection or field, and no file that is not the model's. What its user trusts is loaded
    as it is, and so is a .tflite, which the runtime gets as bytes. `target` is a directory that
    does not exist yet. Raises as `refuse_findings`, and `OutputRefused`.
    """
    path = Path(model.path)
    if model.kind == "tflite" or model.sha256 in trusted_models(trusted):
        refuse_findings(model, trusted=trusted, reads_layers=reads_layers)
        return Path(source.serving_path(model, target))
    known = frozenset(model.opening.custom_objects)
    # It has a name of its own, because Keras goes by that.
    copy = target if model.kind == "saved_model" else target / f"model{_SUFFIXES[model.kind]}"
    _refuse(scan_identified(model, known, reads_layers=reads_layers, target=copy))
    return copy if copy.exists() else path


def trusted_models(trusted: Collection[str] = ()) -> frozenset[str]:
    """The content hashes in `trusted` and in the user's configuration. Raises `UsageError`."""
    return frozenset((*trusted, *read_user_config().trusted))


@cache
def _scanned(model: SourceModel, known: frozenset[str], reads_layers: bool) -> Scan:
    # One command loads a model several times; `model` has the hash of its content.
    return scan_identified(model, known, reads_layers=reads_layers)


def _refuse(scan: Scan) -> None:
    if scan.is_refused:
        raise InputRefused(f"{scan.path} has {_summary(scan)}", hint=_hint(scan))


def _hint(scan: Scan) -> str:
    errors = [finding for finding in scan.findings if finding.severity == "error"]
    if all(each.kind == "path" and each.what.startswith("symbolic link") for each in errors):
        # As the cache of Hugging Face has them.
        return f"copy it with what its links lead to: cp -rL {shlex.quote(scan.path)} COPY"
    kinds = {each.kind for each in errors}
    if scan.kind == "tflite" and "structure" in kinds:
        # Trusted or not, the parser does not read such a file.
        return "give a file that a TFLite converter wrote"
    if scan.kind in ("keras", "hdf5") and any(each.why == RUNS_CODE for each in errors):
        # Trusted or not, Keras is told not to run it.
        return "export the model as a SavedModel where you trust it, and convert that"
    if scan.kind == "saved_model" and any(each.why == RUNS_CODE for each in errors):
        # Its layers are read for a training only, which does not run it either.
        return "replace it by a layer of Keras's own, and save the model as NAME.keras"
    if any(each.what.startswith(UNREADABLE_LAYERS) for each in errors):
        return "save the model as NAME.keras where it was trained, and give that"
    if all(each.what == QUANTIZED_BY_KERAS for each in errors):
        return "convert the model as it was before quantize()"
    is_code = "class" in kinds
    code = (
        "give the module that has it with --custom-objects MODULE, or export the model as a "
        "SavedModel where that code is, and convert that; or, "
    )
    export = code if is_code else ""
    return (
        f"{export}if you know who made it and what it does (edgeconv scan {scan.path}), allow "
        f"this one file with --trust-model {scan.sha256}"
    )


def _summary(scan: Scan) -> str:
    errors = [finding for finding in scan.findings if finding.severity == "error"]
    first = errors[0]
    others = len(errors) - 1
    more = f"; and {others} more finding{'s' * (others > 1)}" if others else ""
    return f"{first.what}: {first.why} ({first.where}){more}"


# From a path to a `Scan`.


def scan(request: ScanRequest) -> Scan:
    """What a model would access outside of itself when it is loaded and run.

    Raises `InputRefused` for what is not a model, or a damaged one.
    """
    location = find_model(request.path)
    known = frozenset(request.custom_objects)
    # Hashing in another thread leaves Python's lock to the scan.
    with ThreadPoolExecutor(1) as pool:
        identifying = pool.submit(source.identify, request.path)
        findings = _findings(location.path, location.kind, known, reads_layers=request.reads_layers)
    return _scan(identifying.result(), findings)


def scan_identified(
    model: SourceModel, known: frozenset[str], *, reads_layers: bool, target: Path | None = None
) -> Scan:
    """`scan` of an identified model, which is written anew at `target` if nothing is found.

    A .tflite is not written: it is read as bytes.
    """
    path, tags = Path(model.path), model.opening.tags
    return _scan(
        model,
        _findings(path, model.kind, known, reads_layers=reads_layers, target=target, tags=tags),
    )


def _scan(model: SourceModel, findings: tuple[ScanFinding, ...]) -> Scan:
    return Scan(path=model.path, kind=model.kind, sha256=model.sha256, findings=findings)


def _findings(
    path: Path,
    kind: SourceKind,
    known: frozenset[str],
    *,
    reads_layers: bool,
    target: Path | None = None,
    tags: tuple[str, ...] = (),
) -> tuple[ScanFinding, ...]:
    findings = Findings()
    try:
        if kind in ("keras", "hdf5"):
            from edgeconv.model.source.scanning.keras_files import scan_keras

            return scan_keras(path, is_archive=kind == "keras", known=known, target=target)
        if kind == "saved_model":
            copy = Copy(target, tags) if target else None
            scan_saved_model(path, findings, known, reads_layers=reads_layers, copy=copy)
        else:
            scan_tflite(path, findings)
    except OSError as error:
        raise unreadable(path, error) from error
    return findings.all()


_FLEX = "Flex"
# All that the readers of flexbuffers and of messages raised on damaged options, found by fuzzing.
_BAD_OPTIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
_CUSTOM = "the runtime needs code for it that is not in the file"


def scan_tflite(path: Path, findings: Findings) -> None:
    """Scan the structure of a .tflite. Raises `InputRefused` if it is damaged, `OSError`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            content = structure(data)
        except BrokenFlatbuffer as error:
            raise malformed(str(path), str(error)) from error
    for problem in content.problems:
        findings.add("structure", *problem)
    for where in content.external:
        findings.add("path", where, "weights in another file", "reads that file")
    for operator in content.custom:
        what = f"custom operator {operator.name}"
        findings.add("operator", operator.where, what, _CUSTOM, is_error=False)
        if operator.name.startswith(_FLEX):
            _check_flex(*operator, findings)


def _check_flex(where: str, name: str, options: bytes, findings: Findings) -> None:
    """Scan a Flex operator: the delegate runs the node in its options, under any name."""
    from flatbuffers import flexbuffers
    from google.protobuf.message import DecodeError

    from edgeconv.model.source.graph_pb2 import NodeDef

    check = NodeCheck(findings)
    try:
        parts = flexbuffers.GetRoot(options).AsVector
        operator, packed = str(parts[0].AsString), bytes(parts[1].AsStringBytes)
        node = NodeDef.FromString(packed)
    except (*_BAD_OPTIONS, DecodeError) as error:
        what = f"operator {name} that cannot be read: {error}"
        findings.add("operator", where, what, "may be any operator of TensorFlow")
        return
    check(where, node)
    check.finish(set())
    for each in {operator, node.op, name.removeprefix(_FLEX)}:
        family = families().get(each)
        if family is None or family.reach not in ("computes", "state"):
            reason = family.reason if family else "is not an operator of TensorFlow"
            findings.add("operator", where, f"operator {each}", reason)


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
