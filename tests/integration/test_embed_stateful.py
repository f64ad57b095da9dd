"""A model that keeps a sum between invokes: its golden vectors each begin with none."""

import numpy as np
from embed_models import planned

from edgeconv import convert
from edgeconv.embedding.embedding import make_embedding


def test_each_golden_vector_of_a_stateful_model_begins_with_no_state(tmp_path):
    import tensorflow as tf
    from saved_functions import save

    total = tf.Variable(tf.zeros([1, 4]))
    source = save(tmp_path / "sum", lambda x: {"total": total.assign_add(x) + 0.0}, x=[1, 4])
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
