"""SavedModels that only `tf.saved_model.load` reads right, saved again so that all read them.

A server, a session and TensorFlow's converter restore variables with the operator that was saved
for it. A tf.Module around a Keras 3 model has two handles of each of its variables, Keras's
and TensorFlow's inside it, and that operator restores one, while the signature reads the
other. The objects of a SavedModel say that both are the same variable.

Every other model is read as it is, by a session. A model of TF1 has no objects, so
`tf.saved_model.load` would run all initializers in its collections, for local variables too,
which the scan does not follow.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgeconv.tf.normalization import node_name
from edgeconv.tf.rewrite import rewrite
from edgeconv.tf.shapes import FixedShapes


def serving_graph(directory: str) -> tuple[Any, int]:
    """The MetaGraphDef for serving, None without one, and the number of all in a SavedModel."""
    from tensorflow.core.protobuf import saved_model_pb2

    file = Path(directory, "saved_model.pb")
    # As text, which the converter refuses.
    content = file.read_bytes() if file.exists() else b""
    graphs: Any = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    serving = (each for each in graphs if "serve" in each.meta_info_def.tags)
    return next(serving, None), len(graphs)


def open_shapes(directory: str, keys: Sequence[str]) -> dict[str, list[int]]:
    """The shapes of the inputs of signatures in a SavedModel, -1 where a dimension is open."""
    meta_graph, _ = serving_graph(directory)
    return {
        name: [size.size for size in info.tensor_shape.dim]
        for key in keys
        if meta_graph is not None
        for name, info in meta_graph.signature_def[key].inputs.items()
    }


def leaves_variables_unread(directory: str) -> bool:
    """Whether a SavedModel with objects uses variables that its own operator does not restore."""
    meta_graph, count = serving_graph(directory)
    # TensorFlow does not read the objects of several graphs.
    if count != 1 or meta_graph is None or not meta_graph.HasField("object_graph_def"):
        return False
    nodes = meta_graph.graph_def.node
    restoring = node_name(meta_graph.saver_def.restore_op_name)
    restored = {
        source for node in nodes if node.name == restoring for source in map(node_name, node.input)
    }
    handles = {node.name for node in nodes if node.op == "VarHandleOp"} - restored
    # Without a function that restores, operators of the graph do.
    return bool(restored) and any(
        node_name(source) in handles
        for node in nodes
        if node.name != restoring and node.op.endswith("PartitionedCall")
        for source in node.input
    )


def save_again(directory: str, keys: Sequence[str], target: str) -> None:
    """Save the signatures `keys` of a SavedModel in `target`, as its objects have them.

    Raises as `rewrite`.
    """
    rewrite(directory, keys, target, fixed=FixedShapes(), change="traced")
