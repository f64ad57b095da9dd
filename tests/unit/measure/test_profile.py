"""Where the time goes: the runtime's own profiling."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import fails

from edgeconv.measure.profile import Operator, middle_mean, operators_of, profile_model
from edgeconv.runtimes.c_api import Event
from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.tensors import signature_of
from edgeconv.types import Allowance, Profile
from edgeconv.types.errors import ToolFailed

MODELS = SHARED / "tflm_models"
QUICK = Allowance(timeout_s=120)


def mixed_model(size: int = 1024, *, signature=("serving_default", ["x"], ["y"])) -> bytes:
    """Two wide matrix products, which XNNPACK runs, and a LOG_SOFTMAX, which it does not."""
    rng = np.random.default_rng(3)
    graph = Graph()
    x = graph.tensor("x", (1, size), "float32", dynamic=True)
    ends = [x]
    for name in ("first", "second"):
        data = rng.normal(0, 0.01, (size, size)).astype(np.float32)
        w = graph.tensor(f"{name}/w", (size, size), "float32", data=data)
        b = graph.tensor(f"{name}/b", (size,), "float32", data=np.zeros(size, np.float32))
        ends.append(graph.tensor(name, (1, size), "float32"))
        graph.operator("FULLY_CONNECTED", [ends[-2], w, b], [ends[-1]])
    y = graph.computed("scores", (1, size), "LOG_SOFTMAX", [ends[-1]])
    return packed(graph.model([x], [y], signature=signature))


def profiled(path: Path, data: bytes, **inputs: np.ndarray) -> Profile:
    file = path / "model.tflite"
    file.write_bytes(data)
    return profile_model(Model(file=file), inputs, threads=1, scratch=path, allowance=QUICK)


def test_the_runtime_says_which_operator_took_how_long_and_who_ran_it(tmp_path):
    profile = profiled(tmp_path, mixed_model(), x=np.ones((3, 1024), np.float32))
    said = [(one.index, one.operator, one.layer, one.delegate) for one in profile.operators]
    assert said == [
        (0, "FULLY_CONNECTED", "first", "XNNPACK"),
        (1, "FULLY_CONNECTED", "second", "XNNPACK"),
        (2, "LOG_SOFTMAX", "scores", ""),
    ]
    # A million products take a millionth of a second on no machine.
    assert all(one.mean_us > 1 for one in profile.operators[:2])
    added = sum(one.mean_us for one in profile.operators)
    assert profile.residual_us == pytest.approx(profile.total_us - added)
    assert added < 3 * profile.total_us


def test_a_model_without_signatures_and_one_of_integers_are_profiled(tmp_path):
    bare = profiled(tmp_path, packed(float_model()), x=np.ones((1, 4), np.float32))
    assert [one.layer for one in bare.operators] == ["y"]
    whole = profiled(tmp_path, packed(int8_model()), x=np.ones((1, 4), np.float32))
    assert [one.operator for one in whole.operators] == ["FULLY_CONNECTED"]


@pytest.mark.skipif(not MODELS.is_dir(), reason="needs ../shared/data/tflm_models")
def test_a_recurrent_model_has_no_profile(tmp_path):
    file = MODELS / "mnist_lstm__trained_lstm.tflite"
    name = signature_of(Model(file=file)).inputs[0].name
    inputs = {name: np.ones((1, 28, 28), np.float32)}
    with fails(ToolFailed):
        profile_model(Model(file=file), inputs, threads=1, scratch=tmp_path, allowance=QUICK)


def test_a_model_that_no_runtime_takes_is_an_error_and_not_an_empty_profile(tmp_path):
    graph = Graph()
    x, y = (graph.tensor(name, (1, 4), "float32") for name in "xy")
    graph.operator("NoSuchOperator", [x], [y])
    with fails(ToolFailed):
        profiled(tmp_path, packed(graph.model([x], [y])), x=np.ones((1, 4), np.float32))


def ran(*names: str) -> list[Event]:
    return [Event(name, number, True, 1) for number, name in enumerate(names)]


def graph_of(*names: str) -> list[Operator]:
    return [Operator(number, name, f"layer {number}") for number, name in enumerate(names)]


def test_events_inside_a_delegate_are_paired_in_order_and_by_kind():
    events = ran(
        "Convolution (NHWC, QC8) IGEMM",
        "Convolution (NHWC, QC8) DWConv",
        "Fully Connected (NC, QS8, QC8W) GEMM",
        "Static Reshape (NC)",
        "Fully Connected (NC, QS8, QC8W) GEMM",
        "Softmax (NC, F32)",
    )
    # The second convolution has a kernel of 1 × 1; the RELU6 was fused; MEAN is not there.
    graph = graph_of(
        "CONV_2D", "DEPTHWISE_CONV_2D", "RELU6", "CONV_2D", "FULLY_CONNECTED", "SOFTMAX"
    )
    assert operators_of(events, graph) == (0, 1, 3, None, 4, 5)


def test_an_operator_of_the_runtimes_own_is_found_by_its_number():
    events = [*ran("Add (ND)"), Event("LOG_SOFTMAX", 2, False, 1), *ran("Add (ND)")]
    graph = graph_of("ADD", "LOG_SOFTMAX", "LOG_SOFTMAX", "ADD")
    assert operators_of(events, graph) == (0, 2, 3)


@given(st.lists(st.sampled_from(["CONV_2D", "ADD", "SOFTMAX"]), max_size=8), st.data())
def test_pairs_are_in_order_and_each_operator_has_one_event(names, data):
    said = {"CONV_2D": "Convolution", "ADD": "Add (ND)", "SOFTMAX": "Softmax"}
    kept = [name for name in names if data.draw(st.booleans())]
    places = operators_of(ran(*[said[name] for name in kept]), graph_of(*names))
    assert None not in places
    assert list(places) == sorted(set(places))
    assert [names[place] for place in places] == kept


def test_the_middle_half_of_the_runs_counts_and_runs_are_kept_whole():
    runs = np.array([[100.0, 100.0], [1.0, 0.0], [2.0, 30.0], [4.0, 10.0]])
    assert middle_mean(runs).tolist() == [3.0, 20.0]
    assert middle_mean(np.array([[5.0, 7.0]])).tolist() == [5.0, 7.0]
