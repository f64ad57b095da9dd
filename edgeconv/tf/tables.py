"""Lookup tables of a SavedModel, rewritten for TensorFlow's converter and TFLite.

The converter takes the result of a lookup for a single value, and drops tables that are filled
from a file. TFLite has only tables from strings to int64 and back. So here every lookup is reshaped
to its keys, entries from a file become constants, and a lookup of integers becomes comparisons with
all keys. What is computed stays the same.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.tf.table_contents import Contents, contents_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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
