"""A model that keeps a sum between invokes: its golden vectors each begin with none."""

import numpy as np
from embed_models import planned
from forking import output_of

from edgeconv import convert
from edgeconv.embedding.embedding import make_embedding

SCRIPT = """
import sys
import tensorflow as tf

class Sum(tf.Module):
    def __init__(self):
        self.total = tf.Variable(tf.zeros([1, 4]))

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([1, 4], tf.float32, name="x")])
    def call(self, x):
        self.total.assign_add(x)
        return {"total": self.total + 0.0}

model = Sum()
tf.saved_model.save(model, sys.argv[1], signatures=model.call)
"""


def test_each_golden_vector_of_a_stateful_model_begins_with_no_state(tmp_path):
    source = tmp_path / "sum"
    output_of("-c", SCRIPT, source)
    done = convert(source, out=tmp_path / "out", to=["float32"])
    file = tmp_path / "out" / done.artifacts[0].file
    embedding = make_embedding(planned(file, "c", tmp_path / "c", vectors=3))
    assert embedding.is_stateful
    vectors = embedding.golden.vectors
    assert len(vectors) == 3
    for vector in vectors:
        given, answer = (
            np.frombuffer(side[0], np.float32) for side in (vector.inputs, vector.outputs)
        )
        np.testing.assert_array_equal(given, answer)
    assert vectors[0] != vectors[1]
