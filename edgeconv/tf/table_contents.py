"""What is in the lookup tables of a SavedModel, read from its graph and its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from pathlib import Path

_IMPORTS = frozenset({"LookupTableImportV2", "InitializeTableV2"})
_FROM_FILE = "InitializeTableFromTextFileV2"
_FIND = "LookupTableFindV2"
_TABLES = frozenset({"HashTableV2"})
# What gives on what it is given.
_PASSING = frozenset({"Identity", "NoOp"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# The columns that are none.
_WHOLE_LINE, _LINE_NUMBER = -2, -1
# Each lookup is compared with every key, so that its cost grows with them.
MOST_COMPARED = 1 << 16


class NodeLocation(NamedTuple):
    """A node, the list that it is in, and the function that this is of; None in the graph."""

    node: Any
    nodes: Any
    function: Any | None


@dataclass
class Contents:
    """The entries of a table, the node that fills it, and the lookups to make comparisons of."""

    keys: Any
    values: Any
    filled: NodeLocation
    compared: list[Any] = field(default_factory=list)

    @property
    def is_from_file(self) -> bool:
        """Whether a file has the entries."""
        return bool(self.filled.node.op == _FROM_FILE)


def contents_of(meta_graph: Any, directory: Path) -> dict[str, Contents]:
    """The tables of the graph that are filled once, by name, as far as they can be known.

    Raises `InputRefused` for a file of a table that cannot be read.
    """
    tables = _TableGraph(meta_graph.graph_def)
    files = {
        asset.tensor_info.name.split(":")[0]: directory / "assets" / asset.filename
        for asset in meta_graph.asset_file_def
    }
    found: dict[str, Contents] = {}
    uses = tables.uses()
    for name, places in uses.items():
        filled = [each for place in places if (each := _filled(tables, place, files))]
        if len(filled) == 1:
            (found[name],) = filled
    for name, contents in found.items():
        lookups = [place.node for place in uses[name] if place.node.op == _FIND]
        # Whatever else is done with a table needs the table.
        if _must_compare(contents) and len(lookups) == len(uses[name]) - 1:
            contents.compared += lookups
    return found


def _must_compare(contents: Contents) -> bool:
    are_integers = contents.keys.dtype.kind == "i" and contents.values.dtype.kind == "i"
    return are_integers and 0 < len(contents.keys) <= MOST_COMPARED


def _filled(tables: _TableGraph, place: NodeLocation, files: dict[str, Path]) -> Contents | None:
    """What a node puts into its table, None where it puts nothing, or what is not known."""
    from tensorflow.python.framework import tensor_util

    node = place.node
    if node.op in _IMPORTS:
        parts = [tables.origin(place, source) for source in node.input[1:3]]
        if any(part is None or part.op != "Const" for part in parts):
            return None
        keys, values = (tensor_util.MakeNdarray(part.attr["value"].tensor) for part in parts)
        return Contents(keys.reshape(-1), values.reshape(-1), place)
    if node.op == _FROM_FILE:
        name = tables.origin(place, node.input[1])
        if name is not None and name.name in files:
            handle = tables.origin(place, node.input[0])
            keys, values = _read(files[name.name], node, handle)
            return Contents(keys, values, place)
    return None


class _TableGraph:
    """A graph with its functions, in which it is known what their arguments are."""

    def __init__(self, graph_def: Any) -> None:
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._graphs = [(graph_def.node, None)]
        self._graphs += [(f.node_def, f) for f in self._functions.values()]
        self._nodes = {
            _key(function): {node.name: node for node in nodes} for nodes, function in self._graphs
        }
        # By function and argument, what callers give: a node, or None for several.
        self._given: dict[tuple[str, str], Any] = {}
        self._follow(NodeLocation(None, graph_def.node, None), set())

    def uses(self) -> dict[str, list[NodeLocation]]:
        """Every node that does something with a table, by the table's name."""
        found: dict[str, list[NodeLocation]] = {}
        for nodes, function in self._graphs:
            for node in nodes:
                if node.op in _CALLS or node.op in _PASSING or not node.input:
                    continue
                place = NodeLocation(node, nodes, function)
                table = self.origin(place, node.input[0])
                if table is not None and table.op in _TABLES:
                    found.setdefault(table.name, []).append(place)
        return found

    def origin(self, place: NodeLocation, source: str) -> Any:
        """The node that an input comes from, through calls; None where it is not one node."""
        key, name = _key(place.function), source.split(":")[0]
        for _ in range(len(self._nodes[key]) + 1):
            node = self._nodes[key].get(name)
            if node is None:
                return self._given.get((key, name))
            if node.op == "Identity":
                name = node.input[0].split(":")[0]
            elif node.op == "ReadVariableOp" and self._assigned(node.input[0]) is not None:
                name = self._assigned(node.input[0])
            else:
                return node
        return None

    def _assigned(self, variable: str) -> Any:
        """What the graph puts into a variable when it is loaded, such as the path of a file."""
        given = [
            node.input[1].split(":")[0]
            for node in self._nodes[""].values()
            if node.op == "AssignVariableOp" and node.input[0] == variable
        ]
        return given[0] if len(given) == 1 else None

    def _follow(self, place: NodeLocation, seen: set[str]) -> None:
        """Find out what the functions called here, and by these, are given."""
        for node in place.nodes:
            called = self._functions.get(node.attr["f"].func.name) if node.op in _CALLS else None
            if called is None:
                continue
            name = called.signature.name
            sources = [source for source in node.input if not source.startswith("^")]
            for argument, source in zip(called.signature.input_arg, sources, strict=False):
                given = self.origin(place, source)
                known = self._given.setdefault((name, argument.name), given)
                if known is not given:
                    self._given[name, argument.name] = None
            if name not in seen:
                self._follow(NodeLocation(None, called.node_def, called), seen | {name})


def _key(function: Any | None) -> str:
    return "" if function is None else function.signature.name


def _read(path: Path, node: Any, table: Any) -> tuple[Any, Any]:
    """The keys and values of a text file, as TensorFlow reads it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputRefused(
            f"{path}, which fills a table of the model, cannot be read: {error.strerror or error}",
            hint="copy or export the model again, with its folder assets",
        ) from error
    lines = data.replace(b"\r", b"").split(b"\n")
    lines = lines if lines[-1] else lines[:-1]
    begin, size = node.attr["offset"].i, node.attr["vocab_size"].i
    lines = lines[begin:]
    lines = lines[:size] if size > 0 else lines
    delimiter = node.attr["delimiter"].s or b"\t"
    columns = []
    for index, kind in (("key_index", "key_dtype"), ("value_index", "value_dtype")):
        cells = _column(lines, node.attr[index].i, delimiter, path)
        columns.append(_typed(cells, table.attr[kind].type, path))
    return columns[0], columns[1]


def _column(lines: list[bytes], index: int, delimiter: bytes, path: Path) -> list[Any]:
    if index == _WHOLE_LINE:
        return list(lines)
    if index == _LINE_NUMBER:
        return list(range(len(lines)))
    try:
        return [line.split(delimiter)[index] for line in lines]
    except IndexError:
        raise InputRefused(
            f"{path}, which fills a table of the model, has a line with no column {index + 1}",
            hint="export the model again with the file that it was trained with",
        ) from None


def _typed(cells: list[Any], kind: int, path: Path) -> Any:
    from tensorflow.python.framework import dtypes

    dtype = dtypes.as_dtype(kind)
    if dtype == dtypes.string:
        array = np.empty(len(cells), object)
        array[:] = [cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells]
        return array
    try:
        return np.array([dtype.as_numpy_dtype(cell) for cell in cells], dtype.as_numpy_dtype)
    except ValueError as error:
        raise InputRefused(f"{path}, which fills a table of the model: {error}") from error
