"""Fused LSTM layers of a float .tflite in the recipes for weights."""

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, packed

from edgeconv.model.tflite import summarize, with_small_lstms
from edgeconv.model.tflite.flatbuffer import operator_name, parse
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.quantize import MethodSettings, make_file
from edgeconv.requests.recipes import parse_rule
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.types import Recipe

STEPS, SIZE, UNITS = 7, 5, 6
SAMPLES = np.random.default_rng(2).normal(size=(40, STEPS, SIZE)).astype(np.float32)
LSTM = "UNIDIRECTIONAL_SEQUENCE_LSTM"


def lstm(*, peephole: bool = False, shared: bool = False) -> bytes:
    """An LSTM of 6 units over 7 steps of 5 values, as converters write it."""
    rng = np.random.default_rng(8)
    graph = Graph()

    def weights(name: str, *shape: int) -> int:
        values = rng.normal(0, 0.5, shape).astype(np.float32)
        return graph.tensor(name, shape, "float32", data=values)

    x = graph.tensor("x", (1, STEPS, SIZE), "float32")
    inputs = [x, *(weights(f"input{i}", UNITS, SIZE) for i in range(4))]
    state = [weights(f"state{i}", UNITS, UNITS) for i in range(4)]
    inputs += [state[0]] * 4 if shared else state
    inputs += [-1, -1, -1]
    if peephole:
        inputs[-3:] = [weights(f"cell{i}", UNITS) for i in range(3)]
    inputs += [weights(f"bias{i}", UNITS) for i in range(4)]
    kept = [graph.tensor(name, (1, UNITS), "float32") for name in ("h", "c")]
    for index in kept:
        graph.tensors[index].isVariable = True
    inputs += [-1, -1, *kept, -1, -1, -1, -1]
    y = graph.computed("y", (1, STEPS, UNITS), LSTM, inputs)
    options = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.TANH
    graph.operators[-1].builtinOptions = options
    kind = schema.BuiltinOptions.UnidirectionalSequenceLSTMOptions
    graph.operators[-1].builtinOptionsType = kind
    return packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"])))


def answers(data: bytes) -> np.ndarray:
    interpreter = open_interpreter(data, threads=1)
    model = InProcessModel(interpreter, "serving_default")
    outputs = []
    for sample in SAMPLES:
        outputs.append(model.run({"x": sample[None]})["y"])
        interpreter.reset_all_variables()
    return np.concatenate(outputs)


def snr_db(data: bytes, reference: np.ndarray) -> float:
    return float(10 * np.log10(np.var(reference) / np.mean((answers(data) - reference) ** 2)))


def file(name: str, data: bytes, *rules: str) -> bytes:
    graph = CalibratedGraph(data, {"serving_default": Feed({"x": SAMPLES}, 1)}, threads=1)
    recipe = Recipe(name=name, layers=tuple(parse_rule(rule) for rule in rules))
    return make_file(graph, recipe, MethodSettings("minmax", ())).model


@pytest.mark.parametrize("peephole", [False, True])
@pytest.mark.parametrize(
    ("name", "least_db"),
    [("dynamic", 30.0), ("weight-only-int8", 40.0), ("weight-only-int4", 40.0), ("float16", 60.0)],
)
def test_the_weights_of_a_fused_lstm_become_small(name, least_db, peephole):
    data = lstm(peephole=peephole)
    small = file(name, data)
    summary = summarize(small, where="it")
    # The biases stay.
    is_half = name == "float16"
    share = summary.float16_weight_share if is_half else summary.quantized_weight_share
    assert share > 0.9
    assert snr_db(small, answers(data)) > least_db


def test_int8_weights_need_the_version_that_takes_them():
    model = parse(file("dynamic", lstm()), where="it")
    (operator,) = model.subgraphs[0].operators
    assert operator_name(model, operator) == LSTM
    # Its inputs have a zero point.
    assert model.operatorCodes[operator.opcodeIndex].version == 3


def test_a_rule_keeps_a_layer_in_float():
    data = lstm()
    summary = summarize(file("dynamic", data, f"{LSTM}=float32"), where="it")
    assert summary.quantized_weight_share == 0


@pytest.mark.parametrize("kind", ["int8", "weight-only-int8", "float16"])
def test_what_has_no_lstm_or_shares_its_weights_comes_back_as_it_is(kind):
    for data in (lstm(shared=True), packed(Graph().model([], []))):
        assert with_small_lstms(data, kind) == data


def test_a_layer_that_is_small_already_is_left_alone():
    small = with_small_lstms(lstm(), "int8")
    for kind in ("int8", "weight-only-int8", "float16"):
        assert with_small_lstms(small, kind) == small
