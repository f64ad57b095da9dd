"""Arm's compiler Vela, run for real."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from embed_models import float_tiny, int8_tiny, planned
from tiny_tflite import Graph, float_model, int8_model, packed, packed_with_weights_outside
from tune_models import samples, two_layers

from edgeconv import bench, check, embed, tune, verify
from edgeconv.embedding.plan import embedded_already
from edgeconv.model.tflite.flatbuffer import operator_name, operators_of, read
from edgeconv.plugins.devices.vela import NPU_OPERATOR, compile_for
from edgeconv.plugins.evidence.links import array_sha256
from edgeconv.system.store import sha256_file
from edgeconv.types import Allowance, Measuring, NpuEstimate
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError, WorkerTimedOut
from edgeconv.types.measuring import ACCELERATORS, parse_npu

pytest.importorskip("ethosu", reason="Vela is not installed: pip install 'edgeconv[ethos-u]'")

U55 = parse_npu("ethos-u55-128")


def convolutions() -> bytes:
    """Two int8 convolutions with an operator between them that Vela has not."""
    rng = np.random.default_rng(0)
    graph = Graph()
    x = graph.tensor("x", (1, 8, 8, 4), "int8", scale=0.1)
    tensors = [
        graph.tensor(name, (1, 8, 8, 8), "int8", scale=scale)
        for name, scale in (("a", 0.1), ("b", 1 / 128), ("y", 0.1))
    ]
    weights = []
    for name, depth in (("v", 4), ("w", 8)):
        values = rng.integers(-127, 128, (8, 3, 3, depth)).astype(np.int8)
        weights.append(graph.tensor(name, values.shape, "int8", data=values, scale=0.01))
    bias = graph.tensor("bias", (8,), "int32", data=np.zeros(8, np.int32), scale=0.001)
    graph.convolution([x, weights[0], bias], tensors[0], version=3)
    graph.operator("L2_NORMALIZATION", [tensors[0]], [tensors[1]])
    graph.convolution([tensors[1], weights[1], bias], tensors[2], version=3)
    return packed(graph.model([x], [tensors[2]]))


def estimate(tmp_path: Path, data: bytes, npu: str = "ethos-u55-128") -> NpuEstimate:
    model = tmp_path / "model.tflite"
    model.write_bytes(data)
    return compile_for(parse_npu(npu), model, scratch=tmp_path).estimate


def test_an_int8_file_is_wholly_on_every_npu(tmp_path):
    for name in ACCELERATORS:
        whole = estimate(tmp_path, packed(int8_model()), name)
        assert (whole.on_npu, whole.operators) == (1, 1), name
        assert (whole.macs_on_npu, whole.macs) == (12, 12)
        assert whole.left == ()
        assert whole.latency_us > 0
        series = name.rpartition("-")[0].replace("ethos-u", "Ethos_U")
        assert whole.system.startswith(series)


def test_the_compiled_file_has_the_npus_operator(tmp_path):
    model = tmp_path / "model.tflite"
    model.write_bytes(convolutions())
    compiled = compile_for(U55, model, scratch=tmp_path)
    graph = read(compiled.content, where="Vela's file")
    names = [operator_name(graph, operator) for _, operator in operators_of(graph)]
    assert names == [NPU_OPERATOR, "L2_NORMALIZATION", NPU_OPERATOR]
    left, *others = compiled.estimate.left
    assert (left.operator, left.count, left.reason) == ("L2_NORMALIZATION", 1, "Unsupported opType")
    assert others == []
    assert (compiled.estimate.on_npu, compiled.estimate.operators) == (2, 3)
    assert compiled.estimate.macs_on_npu == compiled.estimate.macs == 64 * 8 * 9 * (4 + 8)


def test_weights_outside_of_the_flatbuffer_are_compiled(tmp_path):
    inside = estimate(tmp_path, packed(int8_model()))
    outside = estimate(tmp_path, packed_with_weights_outside(int8_model()))
    assert outside == inside


def test_a_chip_changes_the_estimate_and_is_named(tmp_path):
    fast = estimate(tmp_path, convolutions())
    slow = estimate(
        tmp_path, convolutions(), "ethos-u55-128?system=Ethos_U55_Deep_Embedded&memory=Sram_Only"
    )
    assert (slow.system, slow.memory, slow.clock_hz) == (
        "Ethos_U55_Deep_Embedded",
        "Sram_Only",
        2e8,
    )
    assert slow.latency_us > fast.latency_us


def test_a_chip_that_vela_does_not_know(tmp_path):
    with pytest.raises(ToolFailed, match=r"Section Memory_Mode\.Nowhere not found"):
        estimate(tmp_path, packed(int8_model()), "ethos-u55-128?memory=Nowhere")


def test_a_file_that_ends_vela_has_that_as_its_reason(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=0.1)
    w = graph.tensor("w", (4, 4), "int4", data=np.arange(8, dtype=np.uint8), scale=0.1)
    b = graph.tensor("b", (4,), "int32", data=np.zeros(4, np.int32), scale=0.01)
    y = graph.tensor("y", (1, 4), "int8", scale=0.1)
    graph.operator("FULLY_CONNECTED", [x, w, b], [y], version=4)
    (tmp_path / "four_bits.tflite").write_bytes(packed(graph.model([x], [y])))
    report = bench([tmp_path], measuring=Measuring(rounds=1, npus=("ethos-u55-128",)))
    (row,) = report.measurements
    assert row.error == ""
    # Of Vela 5.2.0.
    assert "was ended by SIGFPE" in row.npu[0].error


def test_a_truncated_file_does_not_get_to_vela(tmp_path):
    with pytest.raises(InputRefused, match="malformed"):
        estimate(tmp_path, packed(int8_model())[:300])


def test_its_time_is_limited(tmp_path):
    model = tmp_path / "model.tflite"
    model.write_bytes(packed(int8_model()))
    with pytest.raises(WorkerTimedOut):
        compile_for(U55, model, scratch=tmp_path, allowance=Allowance(timeout_s=0.001))


def test_bench_shows_it_next_to_what_was_measured(tmp_path):
    (tmp_path / "int8.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "float.tflite").write_bytes(packed(float_model()))
    report = bench([tmp_path], measuring=Measuring(rounds=1, npus=("ethos-u55-128",)))
    rows = {row.name: row for row in report.measurements}
    (int8,), (floating,) = rows["int8"].npu, rows["float"].npu
    assert int8.operator_share == 1
    assert floating.operator_share == 0
    assert floating.latency_us is None
    assert "Float32" in floating.left[0].reason
    # What is estimated is nothing that a runtime answered.
    assert {row.measured_in for row in report.measurements} == {"litert"}


def test_check_holds_a_file_to_its_share_of_operators(tmp_path):
    (tmp_path / "whole.tflite").write_bytes(packed(int8_model()))
    (tmp_path / "parted.tflite").write_bytes(convolutions())
    config = tmp_path / "edgeconv.toml"
    config.write_text(
        '[bench]\nnpu = ["ethos-u55-128"]\n[budget]\nmin-npu-operators = 0.9\n'
        '[model.whole]\nsource = "whole.tflite"\n[model.parted]\nsource = "parted.tflite"\n'
    )
    checked = {each.name: each for each in check(config=str(config)).checks}
    (whole,), (parted,) = checked["whole"].verdict.findings, checked["parted"].verdict.findings
    assert (whole.outcome, whole.actual) == ("passed", 1)
    assert (parted.outcome, parted.subject) == ("failed", "ethos-u55-128")
    assert parted.actual == pytest.approx(2 / 3)
    again = check(config=str(config)).checks
    assert [each.reused for each in again] == [True, True]


def test_tune_takes_the_least_estimated_time_and_says_why_others_have_none(tmp_path):
    two_layers(tmp_path / "net.tflite")
    samples(tmp_path / "data.npz", tmp_path / "net.tflite", 200)
    tuned = tune(
        tmp_path / "net.tflite",
        data=str(tmp_path / "data.npz"),
        max_drop=0.1,
        objective="npu-latency",
        npu="ethos-u55-128",
        to=("int8", "float16"),
        out=str(tmp_path / "out"),
    )
    assert tuned.recommended == "int8"
    int8, float16 = tuned.trial("int8"), tuned.trial("float16")
    assert int8.npu.macs_on_npu == int8.npu.macs > 0
    assert int8.cost("npu-latency") == int8.npu.latency_us > 0
    assert float16.error == "no operator is on ethos-u55-128"


@pytest.mark.parametrize(("target", "folder"), [("c", "."), ("zephyr", "src")])
def test_firmware_gets_the_compiled_model_and_the_published_ones_answers(tmp_path, target, folder):
    file = int8_tiny(tmp_path / "published")
    plain = embed(file, target=target, out=tmp_path / "plain")
    on_npu = {"npu": "ethos-u55-128"}
    compiled = embed(file, target=target, out=tmp_path / "npu", option=on_npu)
    there, here = tmp_path / "plain" / folder, tmp_path / "npu" / folder
    assert "resolver.AddEthosU()" in (here / "tiny_micro.h").read_text()
    assert "AddFullyConnected" not in (here / "tiny_micro.h").read_text()
    golden = "tiny_golden.c"
    assert (here / golden).read_bytes() == (there / golden).read_bytes()
    expected = compile_for(U55, file, scratch=tmp_path).content
    assert compiled.model_sha256 == hashlib.sha256(expected).hexdigest()
    assert compiled.model_sha256 == array_sha256((here / "tiny_model.c").read_bytes())
    assert compiled.compiled_from == plain.model_sha256 == sha256_file(file)
    assert plain.compiled_from == ""
    notes = " ".join(compiled.notes)
    assert "Shared_Sram: 1 of 1 operators are on the NPU" in notes
    assert "nothing was run on one here" in notes
    # Unchanged, it is neither compiled nor written again.
    again = planned(file, target, tmp_path / "npu", options=on_npu)
    assert embedded_already(again) == compiled


def test_what_was_compiled_is_traced_to_the_published_file(tmp_path):
    file = int8_tiny(tmp_path / "published")
    embed(file, target="c", out=tmp_path / "npu", option={"npu": "ethos-u55-128"})
    links = [link for link in verify(tmp_path).links if link.link == "embedding"]
    assert {link.state for link in links} == {"verified"}
    assert "it embeds this file, compiled for an NPU" in {link.text for link in links}


def test_an_embedding_with_nothing_on_the_npu_is_refused(tmp_path):
    file = float_tiny(tmp_path / "published")
    with pytest.raises(InputRefused, match="int8 and int16 only"):
        embed(file, target="c", out=tmp_path / "npu", option={"npu": "ethos-u55-128"})
    assert not (tmp_path / "npu").exists()


def test_an_npu_needs_tensorflow_lite_for_microcontrollers(tmp_path):
    file = int8_tiny(tmp_path / "published")
    options = {"npu": "ethos-u55-128", "micro": "no"}
    with pytest.raises(UsageError, match="micro=no"):
        embed(file, target="c", out=tmp_path / "npu", option=options)
    with pytest.raises(UsageError, match="--option npu=ethos-u1: not a valid value"):
        embed(file, target="c", out=tmp_path / "npu", option={"npu": "ethos-u1"})
