"""A graph that computes in float32 what it computed in float16, bfloat16 or float64.

TFLite's kernels know no other floats. A model that was trained in mixed precision has casts
to float16 before each layer and back behind it; its variables are float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.tf.frozen import Frozen


def widen(frozen: Frozen) -> None:
    """Make every float of the graph and its functions float32, constants included."""
    import tensorflow as tf

    single = tf.float32.as_datatype_enum
    others = {t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float64)}
    graph = frozen.graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            _widen_node(node, others, single)
    for function in graph.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = single if argument.type in others else argument.type


def _widen_node(node: Any, others: set[int], single: int) -> None:
    import numpy as np
    from tensorflow.python.framework import tensor_util

    if node.op == "Const" and node.attr["dtype"].type in others:
        value = tensor_util.MakeNdarray(node.attr["value"].tensor).astype(np.float32)
        node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value))
    for attribute in node.attr.values():
        if attribute.type in others:
            attribute.type = single
        for index, kind in enumerate(attribute.list.type):
            if kind in others:
                attribute.list.type[index] = single


def taking_float32(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with its floating inputs cast to float32, whatever they are."""
    import tensorflow as tf

    def cast(value: Any) -> Any:
        return tf.cast(value, tf.float32) if value.dtype.is_floating else value

    return lambda **inputs: call(**{name: cast(value) for name, value in inputs.items()})
