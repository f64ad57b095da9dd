"""The scan of one node of a TensorFlow graph, by what its operator may access."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgeconv.source.scanning.operators import (
    ATTRIBUTES,
    SETTINGS,
    SETTINGS_ATTRIBUTE,
    families,
    is_allowed_attribute,
    strange_settings,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from edgeconv.source.scanning.findings import Findings
    from edgeconv.source.scanning.nodes_pb2 import AttrEntry, NameAttrList, NodeDef
    from edgeconv.types.scanning import FindingKind

# Constants of these types hold handles and programs of another process.
_HANDLES = {20: "a resource", 21: "a variant"}
# They make tensors from bytes; of the types above only in a hostile graph.
_MAKES_TENSORS = {"Const": "dtype", "ParseTensor": "out_type"}
_JOB = re.compile(r"/job:([^/]*)")
_WITH_ATTRIBUTES = (
    frozenset(operator for operator, _ in ATTRIBUTES) | _MAKES_TENSORS.keys() | SETTINGS
)
_MOST_DEPTH = 16


class NodeCheck:
    """Scans each node of a graph and its functions, and adds findings."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        # Unknown operators and called functions, with a node: at the end of the graph it is known
        # whether they are its functions.
        self.unknown: dict[str, str] = {}
        self.called: dict[str, str] = {}

    def __call__(self, body: str, node: NodeDef) -> tuple[str, ...]:
        """Check a node; returns the functions that it names."""
        operator = node.op
        where = f"{body}/{node.name}" if body else node.name
        family = families().get(operator)
        calls = tuple(_functions(node.attr, 0))
        for name in calls:
            self.called.setdefault(name, where)
        if family is None:
            self.unknown.setdefault(operator, where)
            calls = (*calls, operator)
        elif family.reach in ("outside", "never"):
            self._findings.add("operator", where, f"operator {operator}", family.reason)
        if node.device:
            self.check_device(where, node.device)
        if operator in _WITH_ATTRIBUTES:
            self._check_attributes(where, node)
        return calls

    def check_device(self, where: str, device: str) -> None:
        """Add a finding where a device is on another machine."""
        if any(job != "localhost" for job in _JOB.findall(device)):
            self._findings.add(
                "device", where, f"device {device!r}", "sends its work to another machine"
            )

    def finish(self, functions: set[str]) -> None:
        """Add a finding for each operator or function that the graph does not have."""
        checks: tuple[tuple[FindingKind, dict[str, str], str], ...] = (
            ("operator", self.unknown, "is not an operator of TensorFlow"),
            ("function", self.called, "is not in the graph: an operator of this name would run"),
        )
        for kind, names, why in checks:
            for name, where in names.items():
                if name not in functions:
                    self._findings.add(kind, where, f"{kind} {name}", why)
            names.clear()

    def _check_attributes(self, where: str, node: NodeDef) -> None:
        for attr in node.attr:
            if (node.op, attr.key) in ATTRIBUTES:
                value = attr.value.s.decode("latin-1")
                if not is_allowed_attribute(node.op, attr.key, value):
                    self._findings.add(
                        "path",
                        where,
                        f"operator {node.op} with {attr.key} {value!r}",
                        "reads or writes a file that the graph names",
                    )
            elif attr.key == SETTINGS_ATTRIBUTE:
                if strange := strange_settings(attr.value.s):
                    what = f"operator {node.op} with {SETTINGS_ATTRIBUTE}: {strange}"
                    self._findings.add("device", where, what, "may reach other machines")
            elif attr.key == _MAKES_TENSORS.get(node.op):
                self._check_type(where, node.op, attr.value.type)
            elif attr.key == "value" and node.op == "Const":
                self._check_type(where, node.op, attr.value.tensor.dtype)

    def _check_type(self, where: str, operator: str, dtype: int) -> None:
        if dtype in _HANDLES:
            self._findings.add(
                "operator",
                where,
                f"operator {operator} that makes {_HANDLES[dtype]}",
                "is a handle to something that is not in the model",
            )


def _functions(attrs: Iterable[AttrEntry], depth: int) -> Iterator[str]:
    for attr in attrs:
        value = attr.value
        if value.HasField("func"):
            yield from _named(value.func, depth)
        for function in value.list.func:
            yield from _named(function, depth)


def _named(function: NameAttrList, depth: int) -> Iterator[str]:
    yield function.name
    if depth < _MOST_DEPTH:
        yield from _functions(function.attr, depth + 1)
    else:
        # No tool nests functions this deep.
        yield f"{function.name} within {_MOST_DEPTH} others"
