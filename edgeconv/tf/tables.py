"""Lookup tables of a SavedModel, rewritten for TensorFlow's converter and TFLite.

The converter takes the result of a lookup for a single value, and drops tables that are filled
from a file. TFLite has only tables from strings to int64 and back. So here every lookup is reshaped
to its keys, entries from a file become constants, and a lookup of integers becomes comparisons with
all keys. What is computed stays the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgeconv.types.errors import InputRefused

_FIND = "LookupTableFindV2"


def make_tables_known(directory: str, target: str) -> tuple[str, ...] | None:
    """Write the SavedModel in `directory` with its tables changed to `target`, or over itself.

    Returns notes for the user; None, and nothing is written, where it has no lookups. Raises
    `InputRefused` for a table's file that cannot be read.
    """
    source = Path(directory)
    # A SavedModel as text has none; the converter refuses it.
    file = source / "saved_model.pb"
    data = file.read_bytes() if file.exists() else b""
    if _FIND.encode() not in data:
        return None
    from tensorflow.core.protobuf import saved_model_pb2

    model: Any = saved_model_pb2.SavedModel.FromString(data)
    notes: list[str] = []
    for graph in model.meta_graphs:
        notes += _rewritten(graph, source)
    if directory != target:
        shutil.copytree(directory, target, ignore=shutil.ignore_patterns("fingerprint.pb"))
    (Path(target) / "saved_model.pb").write_bytes(model.SerializeToString(deterministic=True))
    return tuple(dict.fromkeys(notes))


def _rewritten(graph: Any, source: Path) -> Iterable[str]:
    contents = contents_of(graph, source)
    if any(table.is_from_file for table in contents.values()):
        _forget_paths(graph)
    for name, table in contents.items():
        if table.compared:
            node = table.filled.node
            controls = [source for source in node.input if source.startswith("^")]
            _become(node, "NoOp", controls)
        elif table.is_from_file:
            _import_constants(table)
            yield f"the table {name} is filled with the {len(table.keys):,} entries of its file"
    _Lookups(graph.graph_def.node, None).rewrite(contents)
    for function in graph.graph_def.library.function:
        _Lookups(function.node_def, function).rewrite(contents)
    for name, table in contents.items():
        if table.compared:
            yield (
                f"TFLite has no table of integers: a lookup in {name} compares with each of its "
                f"{len(table.keys):,} keys"
            )


def _forget_paths(graph: Any) -> None:
    """Remove the variables that hold paths of files from the initialization.

    The converter drops all of it where it does more than fill tables.
    """
    paths = {asset.tensor_info.name.split(":")[0] for asset in graph.asset_file_def}
    nodes = graph.graph_def.node
    kept = {
        node.input[0]: (node.name, node.input[1])
        for node in nodes
        if node.op == "AssignVariableOp" and node.input[1].split(":")[0] in paths
    }
    controls = {f"^{assign}" for assign, _ in kept.values()}
    for node in nodes:
        if node.op == "ReadVariableOp" and node.input[0] in kept:
            node.op = "Identity"
            node.attr["T"].CopyFrom(node.attr.pop("dtype"))
            node.input[0] = kept[node.input[0]][1]
        remaining = [source for source in node.input if source not in controls]
        del node.input[:]
        node.input.extend(remaining)


def _become(node: Any, op: str, inputs: list[str]) -> None:
    """Make a node another operator, without attributes."""
    node.op = op
    del node.input[:]
    node.input.extend(inputs)
    node.attr.clear()


def _import_constants(table: Contents) -> None:
    """Make the initializer from a file one from constants."""
    node, nodes, function = table.filled
    keys = _constant(nodes, f"{node.name}/keys", table.keys)
    values = _constant(nodes, f"{node.name}/values", table.values)
    controls = [name for name in node.input if name.startswith("^")]
    constants = [
        _output(constant, "output", is_function=function is not None) for constant in (keys, values)
    ]
    _become(node, "LookupTableImportV2", [node.input[0], *constants, *controls])
    node.attr["Tin"].type = keys.attr["dtype"].type
    node.attr["Tout"].type = values.attr["dtype"].type


class _Lookups:
    """The lookups of one graph or function."""

    def __init__(self, nodes: Any, function: Any | None) -> None:
        self._nodes = nodes
        self._function = function

    def rewrite(self, contents: dict[str, Contents]) -> None:
        """Give each its shape, or replace it by comparisons."""
        compared = {id(node): table for table in contents.values() for node in table.compared}
        for node in [node for node in self._nodes if node.op == _FIND]:
            table = compared.get(id(node))
            if table is None:
                self._shape(node)
            else:
                self._compare(node, table)

    def _shape(self, node: Any) -> None:
        """The lookup gets another name, and a reshape to the keys' shape takes its own."""
        name, keys = node.name, node.input[1]
        key_type, value_type = node.attr["Tin"].type, node.attr["Tout"].type
        node.name = f"{name}/found"
        shape = self._add("Shape", f"{name}/shape", [keys], T=key_type, out_type=np.int32)
        values = self._ref(node, "values")
        self._add("Reshape", name, [values, shape], T=value_type, Tshape=np.int32)
        self._redirect(name)

    def _compare(self, node: Any, table: Contents) -> None:
        """The lookup becomes the value at the first equal key, or the default."""
        name, int32 = node.name, np.int32
        _, looked_up, default = node.input[:3]
        keys, values, last, first = (
            self._ref(_constant(self._nodes, f"{name}/{part}", array), "output")
            for part, array in (
                ("keys", table.keys),
                ("values", table.values),
                ("last", int32(-1)),
                ("first", int32(0)),
            )
        )
        kind, out = node.attr["Tin"].type, node.attr["Tout"].type
        node.name = f"{name}/unused"
        _become(node, "NoOp", [])
        wide = self._add("ExpandDims", f"{name}/wide", [looked_up, last], T=kind, Tdim=int32)
        equal = self._add("Equal", f"{name}/equal", [wide, keys], "z", T=kind)
        is_known = self._add("Any", f"{name}/known", [equal, last], Tidx=int32)
        ones = self._add("Cast", f"{name}/ones", [equal], "y", SrcT=np.bool_, DstT=int32)
        types: dict[str, Any] = {"T": int32, "Tidx": int32, "output_type": np.int64}
        index = self._add("ArgMax", f"{name}/place", [ones, last], **types)
        types = {"Tparams": out, "Tindices": np.int64, "Taxis": int32}
        value = self._add("GatherV2", f"{name}/value", [values, index, first], **types)
        self._add("SelectV2", name, [is_known, value, default], T=out)
        self._redirect(name)

    def _add(
        self, op: str, name: str, inputs: list[str], output: str = "output", **kinds: Any
    ) -> str:
        """Add a node whose attributes are types; returns its first output."""
        from tensorflow.python.framework import dtypes

        node = self._nodes.add(op=op, name=name, input=inputs)
        for key, kind in kinds.items():
            node.attr[key].type = dtypes.as_dtype(kind).as_datatype_enum
        return self._ref(node, output)

    def _ref(self, node: Any, output: str) -> str:
        return _output(node, output, is_function=self._function is not None)

    def _redirect(self, name: str) -> None:
        """Readers of the lookup's result read the output of the node that took its name."""
        if self._function is None:
            return
        old, new = f"{name}:values:0", f"{name}:output:0"
        for node in self._nodes:
            for index, source in enumerate(node.input):
                if source == old:
                    node.input[index] = new
        for key, source in self._function.ret.items():
            if source == old:
                self._function.ret[key] = new


def _constant(nodes: Any, name: str, array: Any) -> Any:
    from tensorflow.python.framework import tensor_util

    proto = tensor_util.make_tensor_proto(array)
    node = nodes.add(op="Const", name=name)
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)
    return node


def _output(node: Any, output: str, *, is_function: bool) -> str:
    return f"{node.name}:{output}:0" if is_function else f"{node.name}:0"


_IMPORTS = frozenset({"LookupTableImportV2", "InitializeTableV2"})
_FROM_FILE = "InitializeTableFromTextFileV2"
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
        """Note the arguments of the functions called here, and of functions that these call."""
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
