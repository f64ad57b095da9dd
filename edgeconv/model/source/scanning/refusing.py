"""Scanning a model before it is loaded, and refusing one that its user does not trust."""

from __future__ import annotations

import mmap
import shlex
import struct
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edgeconv.model import source
from edgeconv.model.source.kinds import find_model, unreadable
from edgeconv.model.source.scanning.keras_config import RUNS_CODE, UNREADABLE_LAYERS
from edgeconv.model.source.scanning.nodes import Findings, NodeCheck, families
from edgeconv.model.tflite.flatbuffer import malformed
from edgeconv.model.tflite.structure import BrokenFlatbuffer, structure
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
    model: SourceModel,
    *,
    trusted: Collection[str] = (),
    reads_layers: bool = False,
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
    model: SourceModel,
    target: Path,
    *,
    trusted: Collection[str] = (),
    reads_layers: bool = False,
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
            from edgeconv.model.source.scanning.saved_model import Copy, scan_saved_model

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
