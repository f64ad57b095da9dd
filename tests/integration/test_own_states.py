"""Models whose state is an input and an output: calibrated and verified with their own states."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_models import Lite, Made

from edgeconv import convert
from edgeconv.model.tflite.summary import end_levels

STEPS = 280


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Step models of an LSTM, of a tanh and of a sliding window, and a signal."""
    import tensorflow as tf
    from saved_functions import save

    place = tmp_path_factory.mktemp("states")
    rng = np.random.default_rng(1)
    shapes = ((8, 64), (16, 64), (16, 4), (5, 8, 12), (60, 4))
    enter, again, leave, kernel, dense = (
        tf.Variable(rng.normal(size=s).astype(np.float32) * 0.25) for s in shapes
    )

    def lstm(x: Any, h: Any, c: Any) -> dict[str, Any]:
        i, f, g, o = tf.split(x @ enter + h @ again, 4, 1)
        c_next = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h_next = tf.sigmoid(o) * tf.tanh(c_next)
        return {"y": h_next @ leave, "new_h": h_next, "new_c": c_next}

    def rnn(x: Any, h: Any) -> dict[str, Any]:
        h_next = tf.tanh(x @ enter[:, :16] + h @ again[:, :16])
        return {"y": h_next @ leave, "h_next": h_next}

    def window(x: Any, buffer: Any) -> dict[str, Any]:
        frames = tf.concat([buffer[:, 1:], x[:, None, :]], 1)
        y = tf.nn.relu(tf.nn.conv1d(frames, kernel, 1, "VALID"))
        return {"y": tf.reshape(y, [-1, 60]) @ dense, "buffer_next": frames}

    save(place / "lstm", lstm, x=[None, 8], h=[None, 16], c=[None, 16])
    save(place / "rnn", rnn, x=[1, 8], h=[1, 16])
    save(place / "window", window, x=[1, 8], buffer=[1, 9, 8])
    signal = np.cumsum(rng.normal(size=(STEPS, 8)), 0) * 0.1
    np.savez(place / "x.npz", x=signal.astype(np.float32))
    return place


STATES = {
    "lstm": {"h": "new_h", "c": "new_c"},
    "rnn": {"h": "h_next"},
    "window": {"buffer": "buffer_next"},
}


def own_run(file: Path, states: dict[str, str], x: np.ndarray) -> np.ndarray:
    """What a file answers to a signal, its outputs fed back from zeros on."""
    runner = Lite(file).runner
    details = runner.get_input_details()
    fed = {name: np.zeros(details[name]["shape"], np.float32) for name in states}
    answers = []
    for frame in x:
        outputs = runner(x=frame[None], **fed)
        fed = {name: outputs[output] for name, output in states.items()}
        answers.append(outputs["y"][0])
    return np.array(answers)


@pytest.mark.parametrize("name", STATES)
def test_int8_with_its_own_states_stays_close_to_float_with_its_own(place, name):
    made = Made(
        convert(
            place / name,
            out=place / f"{name}.out",
            to=["float32", "int8"],
            calibration=str(place / "x.npz"),
        )
    )
    assert made.conversion.failures == ()
    x = np.load(place / "x.npz")["x"]
    exact = own_run(made.file("float32"), STATES[name], x)
    off = own_run(made.file("int8"), STATES[name], x) - exact
    snr_db = 10 * np.log10(np.var(exact) / np.mean(off**2))
    assert snr_db > 20
    artifact = made["int8"]
    verified = {error.output: error for error in artifact.verification.outputs}["y"]
    assert verified.samples >= 30
    assert abs(verified.snr_db - snr_db) < 8
    assert any("are fed back as inputs" in note for note in artifact.notes)
    inputs, outputs = end_levels(made.file("int8").read_bytes(), "serving_default")
    for own, fed in STATES[name].items():
        assert inputs[own] == outputs[fed]
    assert not any("different scales" in w for w in artifact.verification.warnings)


def test_denied_states_are_inputs_as_any_other(place):
    rng = np.random.default_rng(2)
    x = np.load(place / "x.npz")["x"]
    np.savez(place / "both.npz", x=x, h=rng.normal(size=(STEPS, 16)).astype(np.float32))
    made = Made(
        convert(
            place / "rnn",
            out=place / "denied",
            to=["float32"],
            calibration=str(place / "both.npz"),
            state=["none"],
        )
    )
    assert not any("fed back" in note for note in made["float32"].notes)
