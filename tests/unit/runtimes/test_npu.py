"""The names of NPUs, and what Vela writes."""

from importlib import util

import pytest
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import fails

from edgeconv import bench
from edgeconv.plugins.devices.vela import estimate_of, reasons, summary_row
from edgeconv.types import Measuring, NpuEstimate, NpuLeft
from edgeconv.types.errors import ToolFailed, UsageError
from edgeconv.types.measuring import ACCELERATORS, configuration, parse_npu

# Written by Vela 5.2.0 for a file on ethos-u55-128, without the columns that nothing reads.
TABLE = """\
experiment,network,accelerator_configuration,system_config,memory_mode,core_clock,\
inferences_per_second,inference_time,sram_memory_used,dram_memory_used,\
on_chip_flash_memory_used,off_chip_flash_memory_used,nn_macs,cycles_total
default,model,Ethos_U55_128,Ethos_U55_High_End_Embedded,Shared_Sram,500000000.0,\
67925.55359326178,1.4722e-05,0.3125,0.0,0.0,6.5,4260,7361
"""
NOTHING = TABLE.replace("67925.55359326178,1.4722e-05,0.3125,0.0,0.0,6.5", "nan,0.0,0.0,0,0,0")
PRINTED = """\
Warning (supported operators) operator: QUANTIZE, ofm: '<unnamed>'
Reason: Unsupported dataType Int32
32-bit feature-maps are not supported.

Warning (supported operators) operator: FULLY_CONNECTED, ofm: 'y'
Reason: Operation has tensor with unsupported DataType Float32 (dense/MatMul (1);dense/Relu)
Feature-map dataTypes must be one of {"INT16", "INT8"}

Warning (supported operators) operator: FULLY_CONNECTED, ofm: 'z'
Reason: Another
"""


def compiled(*left: str) -> bytes:
    """A file as Vela writes it: its operator, and those that stay on the processor."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "int8", scale=[0.5])
    y = graph.tensor("y", (1, 4), "int8", scale=[0.5])
    for name in left:
        graph.operator(name, [x], [y])
    graph.operator("ethos-u", [x], [y])
    return packed(graph.model([x], [y]))


def test_the_texts_of_npus():
    for name in ACCELERATORS:
        assert str(parse_npu(name)) == name
    text = "ethos-u65-256?system=Ethos_U65_Embedded&memory=Shared_Sram"
    assert str(parse_npu(text)) == text
    assert configuration(parse_npu(text)) == ("Ethos_U65_Embedded", "Shared_Sram")
    assert configuration(parse_npu("ethos-u55-32")) == (
        "Ethos_U55_High_End_Embedded",
        "Shared_Sram",
    )
    own = parse_npu("ethos-u85-2048?memory=Sram_Only")
    assert configuration(own) == ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ethos-u55-100", "ethos-u55-128"),
        ("ethos-u55", "unknown NPU"),
        ("ethos-u55-128?clock=5", "unknown option of an NPU"),
        ("ethos-u55-128?memory", "not a name that Vela has"),
        ("ethos-u55-128?system=--output-dir", "not a name that Vela has"),
        ("ethos-u55-128?system=Ethos_U85_SYS_DRAM_Low", "an NPU other than ethos-u55-128"),
    ],
)
def test_a_wrong_text_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_npu(text)
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_an_estimate_counts_the_operators_and_the_work_of_the_file_itself():
    before = packed(int8_model())
    estimate = estimate_of("ethos-u55-128", "vela", TABLE, PRINTED, before, compiled())
    assert estimate == NpuEstimate(
        npu="ethos-u55-128",
        compiler="vela",
        system="Ethos_U55_High_End_Embedded",
        memory="Shared_Sram",
        clock_hz=5e8,
        operators=1,
        on_npu=1,
        macs=12,
        macs_on_npu=12,
        sram_bytes=320,
        dram_bytes=0,
        flash_bytes=6656,
        latency_us=pytest.approx(14.722),
    )
    assert (estimate.operator_share, estimate.work_share) == (1, 1)
    assert estimate.whole_latency_us == estimate.latency_us


def test_a_time_without_the_work_on_the_processor_is_not_that_of_an_invoke():
    before = packed(float_model())
    estimate = estimate_of("ethos-u55-128", "vela", NOTHING, PRINTED, before, before)
    assert (estimate.on_npu, estimate.macs_on_npu, estimate.latency_us) == (0, 0, None)
    reason = "Operation has tensor with unsupported DataType Float32"
    assert estimate.left == (NpuLeft(operator="FULLY_CONNECTED", count=1, reason=reason),)
    assert (estimate.operator_share, estimate.work_share) == (0, 0)
    assert estimate.whole_latency_us is None


def test_the_first_reason_of_each_kind_of_operator_counts():
    assert reasons(PRINTED) == {
        "QUANTIZE": "Unsupported dataType Int32",
        "FULLY_CONNECTED": "Operation has tensor with unsupported DataType Float32",
    }
    left = estimate_of("n", "v", TABLE, PRINTED, packed(int8_model()), compiled("QUANTIZE", "ABS"))
    assert [(each.operator, each.reason) for each in left.left] == [
        ("ABS", ""),
        ("QUANTIZE", "Unsupported dataType Int32"),
    ]


def test_a_file_that_is_compiled_already_is_refused():
    with fails(ToolFailed):
        estimate_of("n", "v", TABLE, "", compiled(), compiled())


@pytest.mark.parametrize(
    "table",
    ["", "a,b\n1,2\n", TABLE + TABLE.splitlines()[1] + "\n", TABLE.replace("memory_mode", "mode")],
)
def test_another_table_is_refused(table):
    with fails(ToolFailed):
        summary_row(table)


def test_a_number_that_is_none_is_refused():
    table = TABLE.replace("0.3125", "much")
    with fails(ToolFailed):
        estimate_of("n", "v", table, "", packed(int8_model()), compiled())


def test_without_vela_the_command_that_installs_it(tmp_path, monkeypatch):
    find_spec = util.find_spec
    missing = {"ethosu"}
    monkeypatch.setattr(util, "find_spec", lambda n: None if n in missing else find_spec(n))
    model = tmp_path / "int8.tflite"
    model.write_bytes(packed(int8_model()))
    npus = Measuring(rounds=1, npus=("ethos-u55-128",))
    with fails(ToolFailed):
        bench([model], measuring=npus)
