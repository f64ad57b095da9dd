"""Operators of TensorFlow within a .tflite, which a runtime with the Flex delegate runs."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from edgeconv.source.scanning.nodes import NodeCheck
from edgeconv.source.scanning.operators import families

if TYPE_CHECKING:
    from edgeconv.source.scanning.findings import Findings

PREFIX = "Flex"
# All that the readers of flexbuffers and of messages raised on damaged options, found by fuzzing.
_BAD_OPTIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)


def check_flex(where: str, name: str, options: bytes, findings: Findings) -> None:
    """Look at one operator: the delegate runs the node in its options, whatever it is called."""
    from flatbuffers import flexbuffers
    from google.protobuf.message import DecodeError

    from edgeconv.source.scanning.nodes_pb2 import NodeDef

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
    for each in {operator, node.op, name.removeprefix(PREFIX)}:
        family = families().get(each)
        if family is None or family.reach not in ("computes", "state"):
            reason = family.reason if family else "is not an operator of TensorFlow"
            findings.add("operator", where, f"operator {each}", reason)
