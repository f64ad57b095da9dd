"""The graphs and functions of a saved_model.pb, read one node at a time without TensorFlow.

Each message is parsed whole, because TensorFlow's parser merges repeated fields, and can be kept
as it was parsed: so a loader reads what was checked, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from edgeconv.model.source.wire import MalformedWire, TooMuchWire, delimited, fields, messages

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from edgeconv.model.source.graph_pb2 import MetaGraphDef, NodeDef

    OnNode = Callable[[str, NodeDef], tuple[str, ...]]

_META_GRAPH, _GRAPH, _NODES, _LIBRARY, _FUNCTIONS = 2, 2, 1, 2, 1
_FUNCTION_NODES = 3
# For a device of this kind TensorFlow calls the function in place of the one that a node names.
_DEVICE_ATTRIBUTE = "api_preferred_device"
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
    """One of a SavedModel's graphs: its bodies by name, and the message of all but the graph.

    `kept` is the graph itself, where it was to be kept.
    """

    bodies: dict[str, Body]
    rest: MetaGraphDef
    kept: KeptGraph | None


class KeptGraph:
    """A graph as it was parsed, to be written. Its parts are not joined: they may be large."""

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._functions: list[bytes] = []
        self._rest = b""
        # The strings of the graph itself, among which are the paths of assets.
        self._texts: dict[str, NodeDef] = {}

    def add_node(self, node: NodeDef) -> None:
        """Add a node of the graph itself."""
        if node.op == "Const" and "value" in node.attr and node.attr["value"].tensor.string_val:
            self._texts[node.name] = node
        else:
            self._nodes += _field(_NODES, node.SerializeToString())

    def add_function(self, definition: Sequence[bytes]) -> None:
        """Add a function of the library, in parts."""
        self._functions.append(delimited(_FUNCTIONS, sum(map(len, definition))))
        self._functions += definition

    def add_rest(self, rest: bytes) -> None:
        """Add the rest of a graph: all but its nodes and functions."""
        self._rest = rest

    def content(self, assets: Collection[str], path: bytes) -> Iterator[bytes]:
        """The bytes of the graph, in parts.

        The constants `assets` get the value `path`: a loader feeds the paths of assets, and where
        it does not, no file may be read.
        """
        yield from self._nodes
        for name, node in self._texts.items():
            if name in assets:
                node.attr["value"].tensor.ClearField("tensor_content")
                node.attr["value"].tensor.string_val[:] = [path]
            yield from _field(_NODES, node.SerializeToString())
        yield delimited(_LIBRARY, sum(map(len, self._functions)))
        yield from self._functions
        yield self._rest


def _field(number: int, content: bytes) -> tuple[bytes, bytes]:
    return delimited(number, len(content)), content


def read_meta_graphs(
    data: memoryview, on_node: OnNode, keep: int | None = None
) -> Iterator[MetaGraph]:
    """The graphs in a saved_model.pb, of which number `keep` is kept.

    `on_node` takes the name of the body and the message of every node, and returns the names of the
    functions that it calls. Raises `MalformedWire`, `TooMuchWire` and protobuf's `DecodeError`.
    """
    reader = _GraphReader(data, on_node)
    for number, (start, stop) in enumerate(messages(data, 0, len(data), _META_GRAPH)):
        yield reader.meta_graph(start, stop, KeptGraph() if number == keep else None)


class _GraphReader:
    def __init__(self, data: memoryview, on_node: OnNode) -> None:
        # This loads protobuf, which only commands with a SavedModel need.
        from edgeconv.model.source import graph_pb2

        self._parsed = graph_pb2
        self._data = data
        self._on_node = on_node
        self._count = 0

    def meta_graph(self, start: int, stop: int, kept: KeptGraph | None) -> MetaGraph:
        bodies = {"": Body("", {}, 0, {})}
        rest, of_graph, of_library = bytearray(), bytearray(), bytearray()
        for field in fields(self._data, start, stop):
            if field.number == _GRAPH and field.is_message:
                self._graph(field.content, field.stop, bodies, kept, of_graph, of_library)
            elif len(rest) + field.stop - field.start > _MOST_REST_BYTES:
                raise TooMuchWire(f"more than {_MOST_REST_BYTES} bytes outside of the graph")
            else:
                rest += self._data[field.start : field.stop]
        if kept is not None:
            graph = self._parsed.GraphDef.FromString(bytes(of_graph))
            library = self._parsed.FunctionDefLibrary.FromString(bytes(of_library))
            graph.library.MergeFrom(library)
            kept.add_rest(_known(graph))
        message = self._parsed.MetaGraphDef.FromString(bytes(rest))
        message.DiscardUnknownFields()
        return MetaGraph(bodies, message, kept)

    def _graph(
        self, start: int, stop: int, bodies: dict[str, Body], kept: KeptGraph | None,
        of_graph: bytearray, of_library: bytearray,
    ) -> None:  # fmt: skip
        for field in fields(self._data, start, stop):
            if field.number == _NODES and field.is_message:
                message = self._node(bodies[""], field.content, field.stop)
                if kept is not None:
                    kept.add_node(message)
            elif field.number == _LIBRARY and field.is_message:
                for part in fields(self._data, field.content, field.stop):
                    if part.number == _FUNCTIONS and part.is_message:
                        self._function(part.content, part.stop, bodies, kept)
                    else:
                        _extend(of_library, self._data[part.start : part.stop])
            else:
                _extend(of_graph, self._data[field.start : field.stop])

    def _function(
        self, start: int, stop: int, bodies: dict[str, Body], kept: KeptGraph | None
    ) -> None:
        rest, spans = bytearray(), list[tuple[int, int]]()
        for field in fields(self._data, start, stop):
            if field.number == _FUNCTION_NODES and field.is_message:
                spans.append((field.content, field.stop))
            else:
                _extend(rest, self._data[field.start : field.stop])
        definition = self._parsed.FunctionDef.FromString(bytes(rest))
        name, arguments = definition.signature.name, definition.signature.input_arg
        if not name or name in bodies:
            raise MalformedWire(f"two functions of a graph are called {name[:100]!r}")
        positions: dict[str, int] = {}
        for index, argument in enumerate(arguments):
            if argument.number_attr or argument.type_list_attr:
                # A list of tensors: which inputs of a call come after it is not known.
                break
            positions.setdefault(argument.name, index)
        definition.attr.pop(_DEVICE_ATTRIBUTE, None)
        bodies[name] = Body(name, positions, len(arguments), {})
        written = [_known(definition) if kept is not None else b""]
        for begin, end in spans:
            message = self._node(bodies[name], begin, end)
            if kept is not None:
                written += _field(_FUNCTION_NODES, message.SerializeToString())
        if kept is not None:
            kept.add_function(written)

    def _node(self, body: Body, start: int, stop: int) -> NodeDef:
        self._count += 1
        if self._count > _MOST_NODES:
            raise TooMuchWire(f"more than {_MOST_NODES} nodes")
        # A view is parsed like bytes, without a copy. No name refers to it: the file must be closed
        # where this raises.
        message = self._parsed.NodeDef.FromString(cast("bytes", self._data[start:stop]))
        message.DiscardUnknownFields()
        calls = self._on_node(body.name, message)
        if message.name in body.nodes:
            raise MalformedWire(f"two nodes are called {message.name[:100]!r}")
        text = _text(message)
        body.nodes[message.name] = GraphNode(
            message.name, message.op, tuple(message.input), calls, text
        )
        return message


def _extend(held: bytearray, more: memoryview) -> None:
    if len(held) + len(more) > _MOST_REST_BYTES:
        raise TooMuchWire(f"more than {_MOST_REST_BYTES} bytes outside of nodes")
    held += more


def _known(message: Message) -> bytes:
    """The bytes of a message without the fields that it does not declare."""
    message.DiscardUnknownFields()
    return message.SerializeToString()


def _text(message: NodeDef) -> tuple[bytes, ...]:
    """The string of a constant that could be a path, or what joins strings to one, or a name.

    That of a variable without a name is the node's, and then "".
    """
    if message.op == "Const" and "value" in message.attr:
        tensor = message.attr["value"].tensor
        strings = tensor.string_val
        could_be = len(strings) == 1 and len(strings[0]) < _MOST_NAME_BYTES
        # TensorFlow takes the content before the strings.
        return (strings[0],) if could_be and not tensor.tensor_content else ()
    if message.op == "StringJoin" and "separator" in message.attr:
        separator = message.attr["separator"].s
        return (separator,) if separator else ()
    if message.op == "VarHandleOp":
        named = message.attr["shared_name"].s if "shared_name" in message.attr else b""
        return (named,) if named else (message.name.encode(), b"")
    return ()
