"""Which outputs are fed back as inputs, and how a run with own states goes."""

import msgspec
import numpy as np
import pytest
from report_example import artifact
from sources import split_taken
from wording import fails

from edgeconv.conversion.states import find_states, state_notes
from edgeconv.data import Samples
from edgeconv.runtimes.runner import feeding_back, run_batches
from edgeconv.types import Signature, TensorSpec
from edgeconv.types.errors import UsageError


def signature(inputs: str, outputs: str) -> Signature:
    """From "x:8 h:16": names with the size of a sample."""

    def specs(text: str, batch: int) -> tuple[TensorSpec, ...]:
        parts = (each.split(":") for each in text.split())
        return tuple(
            TensorSpec(name=name, shape=(batch, int(size)), dtype="float32") for name, size in parts
        )

    return Signature(key="serving_default", inputs=specs(inputs, -1), outputs=specs(outputs, 1))


@pytest.mark.parametrize(
    ("inputs", "outputs", "pairs"),
    [
        ("x:8 h_in:16", "y:4 h_out:16", {"h_in": "h_out"}),
        ("x:8 h:16 c:16", "y:4 new_h:16 new_c:16", {"h": "new_h", "c": "new_c"}),
        ("frame:8 buffer:9", "logits:4 buffer_next:9", {"buffer": "buffer_next"}),
        ("x:8 state:16", "gru_cell:16", {"state": "gru_cell"}),
        ("x:8 prevState:16", "y:4 nextState:16", {"prevState": "nextState"}),
        # An autoencoder, a conditioned one, and two that fit.
        ("x:8", "y:8", {}),
        ("image:8 mask:3", "restored:8", {}),
        ("x:8 x_mask:8", "x_out:8", {}),
        ("x:8 h:16", "a:16 b:16", {}),
        # All inputs would be states.
        ("h:8 c:4", "h_next:8 c_next:4", {}),
        ("x:8 h:16", "y:4 h_next:12", {}),
    ],
)
def test_names_and_shapes_say_what_is_fed_back(inputs, outputs, pairs):
    assert find_states(signature(inputs, outputs), ()) == pairs


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_manifest_tells_that_a_file_was_verified_with_its_own_states(is_declared):
    for states in ({}, {"h": "new_h"}):
        notes = ("another", *state_notes(states, is_declared=is_declared))
        found = msgspec.structs.replace(artifact("int8"), notes=notes).has_own_states
        assert found == bool(states)


def test_states_are_declared_and_denied():
    model = signature("x:8 a:16", "y:4 b:16 c:12")
    assert find_states(model, ("b=a",)) == {"a": "b"}
    assert find_states(signature("x:8 h:16", "y:4 h_next:16"), ("none",)) == {}
    for wrong in ("b", "d=a", "c=a"):
        with fails(UsageError):
            find_states(model, (wrong,))


def test_a_run_is_fed_its_own_states_from_the_first_sample_on():
    def add(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": 2 * batch["h"], "h_next": batch["h"] + batch["x"]}

    samples = {"x": np.arange(5.0)[:, None], "h": np.full((5, 1), 100.0)}
    outputs = run_batches(feeding_back(add, {"h": "h_next"}), samples, 1)
    assert outputs["h_next"].ravel().tolist() == [100, 101, 103, 106, 110]
    assert run_batches(feeding_back(add, {}), samples, 1)["y"].ravel().tolist() == [200] * 5


def test_samples_of_a_state_are_split_in_their_order():
    samples = Samples({"x": np.arange(20)}, None, "a test")
    calibration, held_back = split_taken(samples, None, consecutive=True)
    assert calibration.arrays["x"].tolist() == list(range(18))
    assert held_back.arrays["x"].tolist() == [18, 19]
    calibration, held_back = split_taken(samples, 20, consecutive=True, held_back=4)
    assert calibration.count == 20
    assert held_back.arrays["x"].tolist() == [16, 17, 18, 19]
