"""Where a tensor of a graph comes from, and what runs before a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from edgeconv.source.scanning.graphs import Body, GraphNode

# A saver builds its paths from a prefix with such operators.
_MADE_OF = frozenset(
    ("Identity", "Pack", "PlaceholderWithDefault", "Select", "SelectV2", "ShardedFilename")
) | {"StringJoin"}


class Origin(NamedTuple):
    """Where a path comes from: an argument, a constant, or an operator's output."""

    kind: Literal["argument", "constant", "node"]
    name: str
    op: str = ""
    text: tuple[bytes, ...] = ()


def origins(body: Body, tensor: str, visited: set[str]) -> Iterator[Origin]:
    """Where a path comes from, except tensors that were `visited`; others are added there."""
    waiting = [tensor]
    while waiting:
        name = node_of(waiting.pop())
        if name in visited:
            continue
        visited.add(name)
        node = body.nodes.get(name)
        if node is None:
            kind: Any = "argument" if name in body.positions else "node"
            yield Origin(kind, name, "nothing")
        elif node.op == "Const":
            yield Origin("constant", name, node.op, node.text)
        elif node.op in _MADE_OF:
            waiting += data_inputs(node) if node.op != "ShardedFilename" else node.inputs[:1]
        elif node.op not in ("StaticRegexFullMatch", "RegexFullMatch"):
            # Those two return booleans.
            yield Origin("node", name, node.op)


def data_inputs(node: GraphNode) -> list[str]:
    """Its inputs that are tensors, and not only order."""
    return [name for name in node.inputs if not name.startswith("^")]


def node_of(tensor: str) -> str:
    """The name of the node that gives a tensor."""
    return tensor.lstrip("^").partition(":")[0]


def ancestors(body: Body, name: str) -> set[str]:
    """A node and all that runs before it."""
    waiting, visited = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in visited or name not in body.nodes:
            continue
        visited.add(name)
        waiting += [node_of(each) for each in body.nodes[name].inputs]
    return visited
