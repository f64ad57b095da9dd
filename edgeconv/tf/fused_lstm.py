"""LSTM layers of Keras 3, traced so that TensorFlow's converter writes each as one operator.

The converter recognizes a function that says which layer it implements, as those of tf_keras do;
Keras 3 traces a loop, which no quantizer looks through. The function computes what the layer
does, with zero as the only state, and the converter takes its place, inputs and weights, not its
nodes: tensorflow/compiler/mlir/lite/utils/lstm_utils.cc, ConvertKerasLSTMLayer.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from edgeconv.tf.lazy import keras, tf

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the converter knows the function by: a beginning, and an end of its own for each layer.
_IMPLEMENTS = "lstm_edgeconv_{}"


@contextlib.contextmanager
def recognizable_lstm() -> Iterator[None]:
    """Trace LSTM layers as functions that the converter recognizes, where it can fuse them.

    It fuses what has a known batch, no mask, and the usual activations.
    """
    layer, original = keras.layers.LSTM, keras.layers.LSTM.inner_loop
    numbers = itertools.count()

    def inner_loop(
        self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> Any:
        if training or mask is not None or not _can_be_fused(self, sequences):
            return original(self, sequences, initial_state, mask, training)
        cell = self.cell
        kernel, recurrent = (
            tf.convert_to_tensor(weights) for weights in (cell.kernel, cell.recurrent_kernel)
        )
        bias = tf.zeros(kernel.shape[-1]) if cell.bias is None else tf.convert_to_tensor(cell.bias)
        traced = tf.function(
            _computation(self, sequences),
            autograph=False,
            experimental_attributes={
                "api_implements": _IMPLEMENTS.format(next(numbers)),
                "api_preferred_device": "CPU",
                "time_major": False,
                "go_backwards": bool(self.go_backwards),
            },
        )
        last, outputs, h, c, _ = traced(sequences, *initial_state, kernel, recurrent, bias)
        return last, outputs, [h, c]

    layer.inner_loop = inner_loop
    try:
        yield
    finally:
        layer.inner_loop = original


def _can_be_fused(layer: Any, sequences: Any) -> bool:
    return (
        sequences.shape[0] is not None
        and sequences.dtype == tf.float32
        and layer.compute_dtype == "float32"
        and layer.cell.activation is keras.activations.tanh
        and layer.cell.recurrent_activation is keras.activations.sigmoid
        and not (layer.unroll or layer.stateful)
    )


def _computation(layer: Any, sequences: Any) -> Any:
    """What the layer computes, as a function of its inputs, states and weights."""

    def compute(inputs: Any, h: Any, c: Any, kernel: Any, recurrent: Any, bias: Any) -> Any:
        def step(x: Any, states: Any) -> Any:
            h, c = states
            gates = tf.nn.bias_add(tf.matmul(x, kernel) + tf.matmul(h, recurrent), bias)
            enter, forget, update, leave = tf.split(gates, 4, axis=1)
            c = tf.sigmoid(forget) * c + tf.sigmoid(enter) * tf.tanh(update)
            h = tf.sigmoid(leave) * tf.tanh(c)
            return h, [h, c]

        last, outputs, states = keras.src.backend.rnn(
            step,
            inputs,
            [h, c],
            go_backwards=layer.go_backwards,
            input_length=sequences.shape[1],
            return_all_outputs=layer.return_sequences,
        )
        # The fifth is the device, which the converter expects and nobody reads.
        return last, outputs, states[0], states[1], tf.constant(1.0)

    return compute
