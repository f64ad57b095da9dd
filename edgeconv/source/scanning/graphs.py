"""The graphs and functions of a saved_model.pb, read one node at a time without TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from edgeconv.source.wire import MalformedWire, TooMuchWire, fields, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edgeconv.source.saved_model_pb2 import MetaGraphDef
    from edgeconv.source.scanning.nodes_pb2 import NodeDef

    OnNode = Callable[[str, NodeDef], tuple[str, ...]]

_META_GRAPH, _GRAPH, _NODES, _LIBRARY, _FUNCTIONS = 2, 2, 1, 2, 1
_FUNCTION_SIGNATURE, _FUNCTION_NODES = 1, 3
# Far more than any model has; each takes some microseconds and a kilobyte.
_MOST_NODES = 500_000
_MOST_NAME_BYTES = 100_000
# Each may become 30 in memory. The objects of the largest models take a tenth of it.
_MOST_REST_BYTES = 2**25


class GraphNode(NamedTuple):
    """What later checks need of a node: `calls` are the functions that its attributes name."""

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
    nodes: dict[str, GraphNode]


class MetaGraph(NamedTuple):
    """One of a SavedModel's graphs: its bodies by name, and the message of all but the graph."""

    bodies: dict[str, Body]
    rest: MetaGraphDef


def read_meta_graphs(data: memoryview, on_node: OnNode) -> Iterator[MetaGraph]:
    """The graphs in a saved_model.pb.

    `on_node` takes the name of the body and the message of every node, and returns the names of the
    functions that it calls. Raises `MalformedWire`, `TooMuchWire` and protobuf's `DecodeError`.
    """
    reader = _GraphReader(data, on_node)
    for start, stop in messages(data, 0, len(data), _META_GRAPH):
        yield reader.meta_graph(start, stop)


class _GraphReader:
    def __init__(self, data: memoryview, on_node: OnNode) -> None:
        # Their modules load protobuf, which only commands with a SavedModel need.
        from edgeconv.source.saved_model_pb2 import MetaGraphDef
        from edgeconv.source.scanning.nodes_pb2 import NodeDef, OpDef

        self._node_def, self._op_def, self._rest = NodeDef, OpDef, MetaGraphDef
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
                raise TooMuchWire(f"more than {_MOST_REST_BYTES} bytes outside of the graph")
            else:
                rest += self._data[field.start : field.stop]
        return MetaGraph(bodies, self._rest.FromString(bytes(rest)))

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
        definition = self._op_def.FromString(bytes(signature))
        name = definition.name
        if not name or name in bodies:
            raise MalformedWire(f"two functions of a graph are called {name[:100]!r}")
        positions: dict[str, int] = {}
        for index, argument in enumerate(definition.input_arg):
            positions.setdefault(argument.name, index)
        bodies[name] = Body(name, positions, len(definition.input_arg), {})
        for begin, end in messages(self._data, start, stop, _FUNCTION_NODES):
            self._node(bodies[name], begin, end)

    def _node(self, body: Body, start: int, stop: int) -> None:
        self._count += 1
        if self._count > _MOST_NODES:
            raise TooMuchWire(f"more than {_MOST_NODES} nodes")
        # A view is parsed like bytes, without a copy. No name refers to it: the file must be closed
        # where this raises.
        message = self._node_def.FromString(cast("bytes", self._data[start:stop]))
        calls = self._on_node(body.name, message)
        if message.name in body.nodes:
            raise MalformedWire(f"two nodes are called {message.name[:100]!r}")
        text = _text(message)
        body.nodes[message.name] = GraphNode(
            message.name, message.op, tuple(message.input), calls, text
        )


def _text(message: NodeDef) -> tuple[bytes, ...]:
    """The string of a constant that could be a path, or the name of a variable."""
    if message.op == "Const":
        for attr in message.attr:
            if attr.key == "value":
                strings = attr.value.tensor.string_val
                could_be = len(strings) == 1 and len(strings[0]) < _MOST_NAME_BYTES
                return (strings[0],) if could_be else ()
    elif message.op == "VarHandleOp":
        named = (attr.value.s for attr in message.attr if attr.key == "shared_name")
        return (next(named, b"") or message.name.encode(),)
    return ()
