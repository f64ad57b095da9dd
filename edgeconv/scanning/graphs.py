"""The graphs and functions of a saved_model.pb, read one node at a time without TensorFlow."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.messages import message_class
from edgeconv.source.wire import MalformedWire, TooMuchWire, fields, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# See edgeconv.messages. The numbers are those of TensorFlow's .proto files.
_NODE: dict[str, dict[str, tuple[int, str]]] = {
    "Node": {
        "name": (1, "string"),
        "op": (2, "string"),
        "inputs": (3, "string*"),
        "device": (4, "string"),
        "attrs": (5, "Attr*"),
    },
    "Attr": {"key": (1, "string"), "value": (2, "Value")},
    "Value": {
        "list": (1, "List"),
        "s": (2, "bytes"),
        "type": (6, "int32"),
        "tensor": (8, "Tensor"),
        "func": (10, "Func"),
    },
    "List": {"s": (2, "bytes*"), "func": (9, "Func*")},
    "Tensor": {"dtype": (1, "int32"), "strings": (8, "bytes*")},
    "Func": {"name": (1, "string"), "attrs": (2, "Attr*")},
}
_SIGNATURE: dict[str, dict[str, tuple[int, str]]] = {
    "OpDef": {"name": (1, "string"), "args": (2, "Arg*")},
    "Arg": {"name": (1, "string")},
}
_REST: dict[str, dict[str, tuple[int, str]]] = {
    "MetaGraph": {
        "info": (1, "Info"),
        "saver": (3, "Saver"),
        "collections": (4, "CollectionEntry*"),
        "signatures": (5, "SignatureEntry*"),
        "assets": (6, "Asset*"),
        "objects": (7, "Objects"),
    },
    "Info": {"tags": (4, "string*")},
    "Saver": {"filename": (1, "string"), "save": (2, "string"), "restore": (3, "string")},
    "CollectionEntry": {"key": (1, "string"), "value": (2, "Collection")},
    "Collection": {"nodes": (1, "Strings"), "bytes": (2, "Bytes"), "any": (5, "Anys")},
    "Strings": {"value": (1, "string*")},
    "Bytes": {"value": (1, "bytes*")},
    "Anys": {"value": (1, "Any*")},
    "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
    "SignatureEntry": {"key": (1, "string"), "value": (2, "Signature")},
    "Signature": {"inputs": (1, "TensorEntry*"), "outputs": (2, "TensorEntry*")},
    "TensorEntry": {"key": (1, "string"), "value": (2, "TensorInfo")},
    "TensorInfo": {"name": (1, "string"), "sparse": (4, "Sparse"), "composite": (5, "Composite")},
    "Sparse": {"values": (1, "string"), "indices": (2, "string"), "shape": (3, "string")},
    "Composite": {"components": (2, "TensorInfo*")},
    "Asset": {"tensor": (1, "TensorInfo"), "filename": (2, "string")},
    "Objects": {"nodes": (1, "Object*"), "functions": (2, "FunctionEntry*")},
    "Object": {
        "asset": (5, "SavedAsset"),
        "variable": (7, "SavedVariable"),
        "resource": (10, "SavedResource"),
    },
    "SavedAsset": {"index": (1, "int32")},
    "SavedVariable": {"device": (8, "string")},
    "SavedResource": {"device": (1, "string")},
    "FunctionEntry": {"key": (1, "string"), "value": (2, "Concrete")},
    "Concrete": {"bound": (2, "int32*")},
}
_META_GRAPH, _GRAPH, _NODES, _LIBRARY, _FUNCTIONS = 2, 2, 1, 2, 1
_FUNCTION_SIGNATURE, _FUNCTION_NODES = 1, 3
# Far more than any model has; each takes some microseconds and a kilobyte.
_MOST_NODES = 500_000
_MOST_NAME_BYTES = 100_000
# Each may become 30 in memory. The objects of the largest models take a tenth of it.
_MOST_REST_BYTES = 2**25


class Node(NamedTuple):
    """What a later look needs of a node: `calls` are the functions that its attributes name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    calls: tuple[str, ...]
    text: tuple[bytes, ...]


class Body(NamedTuple):
    """The graph itself (name "") or one of its functions, with the positions of its arguments."""

    name: str
    positions: dict[str, int]
    argument_count: int
    nodes: dict[str, Node]


class MetaGraph(NamedTuple):
    """One of a SavedModel's graphs: its bodies by name, and the message of all but the graph."""

    bodies: dict[str, Body]
    rest: Any


def read_meta_graphs(
    data: memoryview, on_node: Callable[[str, Any], tuple[str, ...]]
) -> Iterator[MetaGraph]:
    """The graphs in a saved_model.pb.

    `on_node` is given the name of the body and the message of every node, and returns the names
    of the functions that it calls. Raises `MalformedWire`, `TooMuchWire`
    and protobuf's `DecodeError`.
    """
    reader = _Reader(data, on_node)
    for start, stop in messages(data, 0, len(data), _META_GRAPH):
        yield reader.meta_graph(start, stop)


class _Reader:
    def __init__(self, data: memoryview, on_node: Callable[[str, Any], tuple[str, ...]]) -> None:
        self._data = data
        self._on_node = on_node
        self._count = 0

    def meta_graph(self, start: int, stop: int) -> MetaGraph:
        bodies = {"": Body("", {}, 0, {})}
        rest = bytearray()
        for field in fields(self._data, start, stop):
            if field.number == _GRAPH and field.is_message:
                self._graph(field.content, field.stop, bodies)
            elif len(rest) + field.stop - field.start > _MOST_REST_BYTES:
                raise TooMuchWire(f"more than {_MOST_REST_BYTES} bytes beside the graph")
            else:
                rest += self._data[field.start : field.stop]
        return MetaGraph(bodies, _rest_class().FromString(bytes(rest)))

    def _graph(self, start: int, stop: int, bodies: dict[str, Body]) -> None:
        for field in fields(self._data, start, stop):
            if field.number == _NODES and field.is_message:
                self._node(bodies[""], field.content, field.stop)
            elif field.number == _LIBRARY and field.is_message:
                for begin, end in messages(self._data, field.content, field.stop, _FUNCTIONS):
                    self._function(begin, end, bodies)

    def _function(self, start: int, stop: int, bodies: dict[str, Body]) -> None:
        signature = bytearray()
        for begin, end in messages(self._data, start, stop, _FUNCTION_SIGNATURE):
            signature += self._data[begin:end]
        definition = _signature_class().FromString(bytes(signature))
        name = definition.name
        if not name or name in bodies:
            raise MalformedWire(f"two functions of a graph are called {name[:100]!r}")
        positions: dict[str, int] = {}
        for index, argument in enumerate(definition.args):
            positions.setdefault(argument.name, index)
        bodies[name] = Body(name, positions, len(definition.args), {})
        for begin, end in messages(self._data, start, stop, _FUNCTION_NODES):
            self._node(bodies[name], begin, end)

    def _node(self, body: Body, start: int, stop: int) -> None:
        self._count += 1
        if self._count > _MOST_NODES:
            raise TooMuchWire(f"more than {_MOST_NODES} nodes")
        message = _node_class().FromString(self._data[start:stop])
        calls = self._on_node(body.name, message)
        if message.name in body.nodes:
            raise MalformedWire(f"two nodes are called {message.name[:100]!r}")
        text = _text(message)
        body.nodes[message.name] = Node(
            message.name, message.op, tuple(message.inputs), calls, text
        )


def _text(message: Any) -> tuple[bytes, ...]:
    """The string of a constant, as far as it could be a path; the name that a variable has."""
    if message.op == "Const":
        for attr in message.attrs:
            if attr.key == "value":
                strings = attr.value.tensor.strings
                is_one = len(strings) == 1 and len(strings[0]) < _MOST_NAME_BYTES
                return (strings[0],) if is_one else ()
    elif message.op == "VarHandleOp":
        named = (attr.value.s for attr in message.attrs if attr.key == "shared_name")
        return (next(named, b"") or message.name.encode(),)
    return ()


@cache
def _node_class() -> Any:
    return message_class(_NODE, "Node")


@cache
def _signature_class() -> Any:
    return message_class(_SIGNATURE, "OpDef")


@cache
def _rest_class() -> Any:
    return message_class(_REST, "MetaGraph")


def asset_in(value: bytes) -> Any:
    """The message of an asset that a collection holds as bytes. Raises `DecodeError`."""
    return _asset_class().FromString(value)


@cache
def _asset_class() -> Any:
    return message_class(_REST, "Asset")


def node_in(value: bytes) -> Any:
    """The message of a single node. Raises `DecodeError`."""
    return _node_class().FromString(value)
