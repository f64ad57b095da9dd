"""The entries of the lookup tables of a SavedModel, read from its graph and its files."""

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
# They pass their input on.
_PASSING = frozenset({"Identity", "NoOp"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
# Indices with a meaning other than a column.
_WHOLE_LINE, _LINE_NUMBER = -2, -1
# The cost of a lookup by comparisons grows with the keys.
MOST_COMPARED = 1 << 16


class NodeLocation(NamedTuple):
    """A node, the list of nodes that it is in, and their function; None in the graph itself."""

    node: Any
    nodes: Any
    function: Any | None


@dataclass
class Contents:
    """The entries of a table, the node that fills it, and the lookups to replace by comparisons."""

    keys: Any
    values: Any
    filled: NodeLocation
    compared: list[Any] = field(default_factory=list)

    @property
    def is_from_file(self) -> bool:
        """Whether a file has the entries."""
        return bool(self.filled.node.op == _FROM_FILE)


def contents_of(meta_graph: Any, directory: Path) -> dict[str, Contents]:
    """The tables of the graph that are filled once with known entries, by name.

    Raises `InputRefused` for a table's file that cannot be read.
    """
    tables = _TableGraph(meta_graph.graph_def)
    files = {
        asset.tensor_info.name.split(":")[0]: directory / "assets" / asset.filename
        for asset in meta_graph.asset_file_def
    }
    contents: dict[str, Contents] = {}
    for name, uses in tables.uses().items():
        filled = [each for use in uses if (each := _filled(tables, use, files))]
        if len(filled) != 1:
            continue
        (table,) = filled
        contents[name] = table
        lookups = [use.node for use in uses if use.node.op == _FIND]
        are_integers = table.keys.dtype.kind == table.values.dtype.kind == "i"
        # Any other use needs the table itself.
        only_lookups = len(lookups) == len(uses) - 1
        if are_integers and 0 < len(table.keys) <= MOST_COMPARED and only_lookups:
            table.compared += lookups
    return contents


def _filled(tables: _TableGraph, use: NodeLocation, files: dict[str, Path]) -> Contents | None:
    """What a node puts into its table, None where that is nothing or not known."""
    from tensorflow.python.framework import tensor_util

    node = use.node
    if node.op in _IMPORTS:
        parts = [tables.origin(use, source) for source in node.input[1:3]]
        if any(part is None or part.op != "Const" for part in parts):
            return None
        keys, values = (tensor_util.MakeNdarray(part.attr["value"].tensor) for part in parts)
        return Contents(keys.reshape(-1), values.reshape(-1), use)
    if node.op == _FROM_FILE:
        name = tables.origin(use, node.input[1])
        if name is not None and name.name in files:
            handle = tables.origin(use, node.input[0])
            keys, values = _read(files[name.name], node, handle)
            return Contents(keys, values, use)
    return None


class _TableGraph:
    """A graph with its functions, and the nodes that their arguments come from."""

    def __init__(self, graph_def: Any) -> None:
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._graphs = [(graph_def.node, None)]
        self._graphs += [(f.node_def, f) for f in self._functions.values()]
        self._nodes = {
            _key(function): {node.name: node for node in nodes} for nodes, function in self._graphs
        }
        # By function and argument, the node that callers pass; None for several.
        self._passed: dict[tuple[str, str], Any] = {}
        self._follow(NodeLocation(None, graph_def.node, None), set())

    def uses(self) -> dict[str, list[NodeLocation]]:
        """Every node that uses a table, by the table's name."""
        uses: dict[str, list[NodeLocation]] = {}
        for nodes, function in self._graphs:
            for node in nodes:
                if node.op in _CALLS or node.op in _PASSING or not node.input:
                    continue
                use = NodeLocation(node, nodes, function)
                table = self.origin(use, node.input[0])
                if table is not None and table.op in _TABLES:
                    uses.setdefault(table.name, []).append(use)
        return uses

    def origin(self, location: NodeLocation, source: str) -> Any:
        """The node that an input comes from, through calls; None where it is not one node."""
        key, name = _key(location.function), source.split(":")[0]
        for _ in range(len(self._nodes[key]) + 1):
            node = self._nodes[key].get(name)
            if node is None:
                return self._passed.get((key, name))
            if node.op == "Identity":
                name = node.input[0].split(":")[0]
            elif node.op == "ReadVariableOp" and self._assigned(node.input[0]) is not None:
                name = self._assigned(node.input[0])
            else:
                return node
        return None

    def _assigned(self, variable: str) -> Any:
        """What the graph assigns to a variable when it is loaded, such as the path of a file."""
        values = [
            node.input[1].split(":")[0]
            for node in self._nodes[""].values()
            if node.op == "AssignVariableOp" and node.input[0] == variable
        ]
        return values[0] if len(values) == 1 else None

    def _follow(self, caller: NodeLocation, visited: set[str]) -> None:
        """Note what the functions called here, and by these, are passed."""
        for node in caller.nodes:
            called = self._functions.get(node.attr["f"].func.name) if node.op in _CALLS else None
            if called is None:
                continue
            name = called.signature.name
            sources = [source for source in node.input if not source.startswith("^")]
            for argument, source in zip(called.signature.input_arg, sources, strict=False):
                origin = self.origin(caller, source)
                if self._passed.setdefault((name, argument.name), origin) is not origin:
                    self._passed[name, argument.name] = None
            if name not in visited:
                self._follow(NodeLocation(None, called.node_def, called), visited | {name})


def _key(function: Any | None) -> str:
    return "" if function is None else function.signature.name


def _read(path: Path, node: Any, table: Any) -> tuple[Any, Any]:
    """The keys and values, each (entries,), of a text file, as TensorFlow reads it."""
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
            f"{path}, which fills a table of the model, has a line without column {index + 1}",
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
