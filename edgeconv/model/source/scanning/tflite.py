"""The scan of a .tflite: its structure, and operators of TensorFlow in it."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from edgeconv.model.source.scanning.nodes import NodeCheck, families
from edgeconv.model.tflite.flat_table import BrokenFlatbuffer
from edgeconv.model.tflite.flatbuffer import malformed
from edgeconv.model.tflite.structure import structure

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.model.source.scanning.findings import Findings

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
