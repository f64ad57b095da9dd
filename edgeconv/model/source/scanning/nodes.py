"""The scan of one node of a TensorFlow graph, by what its operator may access."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from msgspec.structs import replace

from edgeconv.model.source.wire import MalformedWire, fields
from edgeconv.types import ScanFinding
from edgeconv.types.looking import FindingKind
from edgeconv.types.words import shortened

if TYPE_CHECKING:
    from edgeconv.model.source.graph_pb2 import AttrValue, NameAttrList, NodeDef

# A hostile model may have a million.
_MOST = 1000
# Names in a hostile model may be megabytes.
_MOST_CHARACTERS = 300


class Findings:
    """Collects findings, and counts equal ones."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, str], ScanFinding] = {}

    def add(
        self, kind: FindingKind, where: str, what: str, why: str, *, is_error: bool = True
    ) -> None:
        """Add a finding."""
        what = shortened(what, _MOST_CHARACTERS)
        key = (kind, what, why)
        known = self._findings.get(key)
        if known is not None:
            self._findings[key] = replace(known, count=known.count + 1)
        elif len(self._findings) < _MOST or (is_error and not self.has_error):
            self._findings[key] = ScanFinding(
                kind=kind,
                where=shortened(where, _MOST_CHARACTERS),
                what=what,
                why=why,
                severity="error" if is_error else "warn",
            )

    @property
    def has_error(self) -> bool:
        """Whether the model is refused."""
        return any(finding.severity == "error" for finding in self._findings.values())

    def all(self) -> tuple[ScanFinding, ...]:
        """All of them, errors first."""
        return tuple(sorted(self._findings.values(), key=lambda finding: finding.severity))


Reach = Literal["computes", "state", "saver", "asset", "outside", "never"]


class Family(NamedTuple):
    """Operators of one kind: what they can access, and why."""

    reach: Reach
    name: str
    reason: str


@cache
def families() -> dict[str, Family]:
    """The family of every operator that TensorFlow registers, by the operator's name."""
    known: dict[str, Family] = {}
    family = None
    text = Path(__file__).with_name("operators.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            reach, _, rest = line[1:].partition("] ")
            name, _, reason = rest.partition(": ")
            family = Family(cast("Reach", reach), name, reason)
        elif family is not None and not line.startswith("#"):
            known.update(dict.fromkeys(line.split(), family))
    return known


# Attributes of allowed operators that TensorFlow would follow: the values they may start with.
ATTRIBUTES: dict[tuple[str, str], tuple[str, ...]] = {
    # Else a file is written.
    ("PrintV2", "output_stream"): ("stdout", "stderr", "log(info)", "log(warning)", "log(error)"),
    # Else a file of descriptors is read.
    ("DecodeProtoV2", "descriptor_source"): ("", "local://", "bytes://"),
    ("EncodeProto", "descriptor_source"): ("", "local://", "bytes://"),
    # Else a file of words is read.
    ("FixedUnigramCandidateSampler", "vocab_file"): ("",),
}
_INLINE = "bytes://"
# Operators with the settings of a session (a ConfigProto) for the function that they call.
SETTINGS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
SETTINGS_ATTRIBUTE = "config_proto"
# Its fields, by number, that stay in this process: devices, threads, graph optimization. Those of
# other machines (device_filters, rpc_options, cluster_def) and names of thread pools are not among
# them. Experimental ones are only switches and numbers of the optimizer: others name executors,
# services of a cluster, ports, and a directory to write to (tf2xla_dump_dir).
_PLAIN_SETTINGS = frozenset({1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 15, 17, 18})
_EXPERIMENTAL = 16
_PLAIN_EXPERIMENTAL = frozenset({*range(4, 11), *range(12, 19), 21, 22, 24, 26, 31, 33, 34, 36})


def is_allowed_attribute(operator: str, attribute: str, value: str) -> bool:
    """Whether an attribute has a value that accesses nothing outside."""
    allowed = ATTRIBUTES.get((operator, attribute))
    if allowed is None or value in allowed:
        return True
    # The content follows.
    return _INLINE in allowed and value.startswith(_INLINE)


def strange_settings(packed: bytes) -> str:
    """The setting of a call that leads out of this process, or ""."""
    try:
        for field in fields(packed, 0, len(packed)):
            if field.number == _EXPERIMENTAL and field.is_message:
                inside = fields(packed, field.content, field.stop)
                numbers = {f.number for f in inside} - _PLAIN_EXPERIMENTAL
                if numbers:
                    return f"experimental setting {min(numbers)}"
            elif field.number not in _PLAIN_SETTINGS:
                return f"setting {field.number}"
    except MalformedWire as error:
        return str(error)
    return ""


# Constants of these types hold handles and programs of another process.
_HANDLES = {20: "a resource", 21: "a variant"}
# They make tensors from bytes; of the types above only in a hostile graph.
_MAKES_TENSORS = {"Const": "dtype", "ParseTensor": "out_type"}
_JOB = re.compile(r"/job:([^/]*)")
_WITH_ATTRIBUTES = (
    frozenset(operator for operator, _ in ATTRIBUTES) | _MAKES_TENSORS.keys() | SETTINGS
)
_MOST_DEPTH = 16
_HIDES = "is called like an operator, and TensorFlow would run it in that operator's place"


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
        for name in functions & families().keys():
            self._findings.add("function", name, f"function {name}", _HIDES)

    def _check_attributes(self, where: str, node: NodeDef) -> None:
        for key, value in node.attr.items():
            if (node.op, key) in ATTRIBUTES:
                text = value.s.decode("latin-1")
                if not is_allowed_attribute(node.op, key, text):
                    self._findings.add(
                        "path",
                        where,
                        f"operator {node.op} with {key} {text!r}",
                        "reads or writes a file that the graph names",
                    )
            elif key == SETTINGS_ATTRIBUTE:
                if strange := strange_settings(value.s):
                    what = f"operator {node.op} with {SETTINGS_ATTRIBUTE}: {strange}"
                    self._findings.add("device", where, what, "may reach other machines")
            elif key == _MAKES_TENSORS.get(node.op):
                self._check_type(where, node.op, value.type)
            elif key == "value" and node.op == "Const":
                self._check_type(where, node.op, value.tensor.dtype)

    def _check_type(self, where: str, operator: str, dtype: int) -> None:
        if dtype in _HANDLES:
            self._findings.add(
                "operator",
                where,
                f"operator {operator} that makes {_HANDLES[dtype]}",
                "is a handle to something that is not in the model",
            )


def _functions(attrs: Mapping[str, AttrValue], depth: int) -> Iterator[str]:
    for value in attrs.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield from _named(value.func, depth)
        elif kind == "list":
            for function in value.list.func:
                yield from _named(function, depth)


def _named(function: NameAttrList, depth: int) -> Iterator[str]:
    yield function.name
    if depth < _MOST_DEPTH:
        yield from _functions(function.attr, depth + 1)
    else:
        # No tool nests functions this deep.
        yield f"{function.name} within {_MOST_DEPTH} others"
