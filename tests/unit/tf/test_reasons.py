"""What is told of TensorFlow's errors, whose messages begin with where they arose."""

import pytest

from edgeconv.tf.reasons import reason, whole_reason

EAGER = """\
Graph execution error:

Detected at node sequential/embedding/GatherV2 defined at (most recent call last):
  File "save.py", line 9, in <module>
    tf.saved_model.save(module, "m")
<stack traces unavailable>
indices[0,3] = 99 is not in [0, 50)
\t [[{{node sequential/embedding/GatherV2}}]] [Op:__inference_signature_wrapper_12]"""
SESSION = """\
2 root error(s) found.
  (0) FAILED_PRECONDITION: Could not find variable sequential/dense/kernel.
\t [[{{node sequential/dense/Cast/ReadVariableOp}}]]
\t [[StatefulPartitionedCall/_7]]
  (1) FAILED_PRECONDITION: Could not find variable sequential/dense/kernel.
\t [[{{node sequential/dense/Cast/ReadVariableOp}}]]
0 successful operations.
0 derived errors ignored."""


KERAS = """\
Exception encountered when calling Dense.call().

\x1b[1mMatrix size-incompatible: In[0]: [1,8], In[1]: [4,2]\x1b[0m

Arguments received by Dense.call():
  • inputs=tf.Tensor(shape=(1, 8), dtype=float32)"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (KERAS, "Matrix size-incompatible: In[0]: [1,8], In[1]: [4,2]"),
        (EAGER, "indices[0,3] = 99 is not in [0, 50)"),
        (SESSION, "FAILED_PRECONDITION: Could not find variable sequential/dense/kernel."),
        ("\n  No such file\n", "No such file"),
        ("Graph execution error:", "Graph execution error:"),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_the_line_that_says_what_is_wrong(message, expected):
    assert reason(ValueError(message)) == expected


@pytest.mark.parametrize("message", [EAGER, SESSION])
def test_no_other_line_of_a_cause_is_lost(message):
    told = whole_reason(ValueError(message))
    assert told.startswith(reason(ValueError(message)))
    assert "{{node sequential/" in told
    assert 'tf.saved_model.save(module, "m")' not in told


def test_the_lines_of_a_cause_are_not_endless():
    told = whole_reason(ValueError("\n".join(f"{n} {'x' * 900}" for n in range(200))))
    assert len(told) < 42 * 410
