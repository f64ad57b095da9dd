"""The float constants of a model's operators, which can be changed for one operator alone."""

from __future__ import annotations

import copy
import math
from collections import Counter
from typing import TYPE_CHECKING

from edgeconv.model.tflite.flatbuffer import is_constant, text, type_names
from edgeconv.model.tflite.operators import shape_of

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert.schema_py_generated import ModelT, OperatorT, SubGraphT, TensorT
    from numpy.typing import NDArray

_FLOAT32_BYTES = 4


class OwnConstants:
    """Reads and writes constants of a parsed model.

    Files store equal constants once: several tensors share a buffer, or several operators read one
    tensor. What is written for one operator never changes another.
    """

    def __init__(self, model: ModelT) -> None:
        self._model = model
        self._uses: Counter[int] = Counter(m.buffer for m in model.metadata or ())
        for graph in model.subgraphs:
            read = [i for operator in graph.operators for i in operator.inputs if i != -1]
            self._uses.update(graph.tensors[i].buffer for i in (*read, *graph.outputs))

    def is_shared(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether more than one operator, output or metadata entry reads the tensor's values."""
        return self._uses[graph.tensors[tensor].buffer] > 1

    def is_whole(self, graph: SubGraphT, tensor: int) -> bool:
        """Whether the tensor is a dense float32 constant with all numbers of its shape."""
        constant = graph.tensors[tensor]
        if type_names()[constant.type] != "float32" or not is_constant(self._model, constant):
            return False
        stored_bytes = len(self._model.buffers[constant.buffer].data)
        return constant.sparsity is None and stored_bytes == _FLOAT32_BYTES * math.prod(
            shape_of(constant)
        )

    def read(self, graph: SubGraphT, tensor: int) -> NDArray[np.float32]:
        """The float32 values of a tensor that `is_whole`, in its shape; read-only."""
        import numpy as np

        constant = graph.tensors[tensor]
        values = np.frombuffer(bytes(self._model.buffers[constant.buffer].data), "<f4")
        return values.reshape(shape_of(constant))

    def write(
        self, graph: SubGraphT, operator: OperatorT, slot: int, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values, in the old shape, as input number `slot`."""
        from ai_edge_litert.schema_py_generated import BufferT

        if self.is_shared(graph, operator.inputs[slot]):
            self._uses[graph.tensors[operator.inputs[slot]].buffer] -= 1
            twin = copy.copy(graph.tensors[operator.inputs[slot]])
            self._model.buffers.append(BufferT())
            twin.buffer = len(self._model.buffers) - 1
            self._append(graph, operator, slot, twin)
        tensor = graph.tensors[operator.inputs[slot]]
        self._model.buffers[tensor.buffer].data = _stored(values)

    def write_bias(
        self, graph: SubGraphT, operator: OperatorT, values: NDArray[np.float32]
    ) -> None:
        """Give the operator these float32 values (channels,) as input number 2, new or not."""
        from ai_edge_litert.schema_py_generated import BufferT, TensorT, TensorType

        if len(operator.inputs) > 2 and operator.inputs[2] != -1:
            self.write(graph, operator, 2, values)
            return
        self._model.buffers.append(BufferT(data=_stored(values)))
        bias = TensorT(
            name=f"{text(graph.tensors[operator.outputs[0]].name)}/bias",
            shape=list(values.shape),
            type=TensorType.FLOAT32,
            hasRank=True,
            buffer=len(self._model.buffers) - 1,
        )
        operator.inputs = [*operator.inputs[:2], -1]
        self._append(graph, operator, 2, bias)

    def _append(self, graph: SubGraphT, operator: OperatorT, slot: int, tensor: TensorT) -> None:
        """Append a tensor under a unique name, and make the operator read it."""
        taken = {text(each.name) for each in graph.tensors}
        name, number = text(tensor.name), 0
        while name in taken:
            number += 1
            name = f"{text(tensor.name)}_{number}"
        tensor.name = name
        graph.tensors.append(tensor)
        inputs = list(operator.inputs)
        inputs[slot] = len(graph.tensors) - 1
        operator.inputs = inputs
        self._uses[tensor.buffer] += 1


def _stored(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    import numpy as np

    return np.frombuffer(np.ascontiguousarray(values, "<f4").tobytes(), np.uint8)
