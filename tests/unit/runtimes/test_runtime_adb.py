"""The runtime adb, with an adb and a phone made of scripts; see android.py."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from android import FAILED_LOG, LOG, OLDER_LOG, ONCE, Phone
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.runtimes.benchmark_log import parse_log
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.kinds.adb import open_runtime
from edgeconv.store import sha256_file
from edgeconv.types import RuntimeChoice, Timing

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)}
EXPECTED = SAMPLES["x"] @ WEIGHTS.T.astype(np.float32) + BIASES.astype(np.float32)
TIMING = Timing(warmup=10, warmup_seconds=0.5, repeats=5, seconds=1.0)


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    one = Phone(tmp_path / "phone")
    monkeypatch.setenv("PATH", f"{one.root / 'path'}:{os.environ['PATH']}")
    return one


@pytest.fixture
def model(tmp_path: Path) -> Model:
    file = tmp_path / "model.tflite"
    file.write_bytes(packed(float_model()))
    return Model(file=file)


def opened(phone: Phone, tmp_path: Path, serial: str = ""):
    settings = RuntimeSettings(scratch=tmp_path, binary=str(phone.binary), threads=4)
    return open_runtime(RuntimeChoice(name="adb", location=serial), settings)


def test_a_log_is_read():
    log = parse_log(LOG, "it")
    assert (log.load_us, log.first_us) == (31408, 38214)
    assert (log.warm_up.count, log.warm_up.avg) == (17, 30051.6)
    timed = log.timed
    assert (timed.count, timed.min, timed.max, timed.std) == (34, 29017, 31922, 534)
    assert (timed.p5, timed.median, timed.p95) == (29050, 29468, 30688)
    assert log.memory_bytes == 27.5 * 2**20


def test_the_log_of_a_single_invoke_has_its_time():
    log = parse_log(ONCE.replace("@TIME@", "670083"), "it")
    assert (log.timed.count, log.timed.curr, log.timed.first) == (1, 670083, 670083)
    assert log.memory_bytes is None


def test_a_log_of_an_older_program_is_read():
    log = parse_log(OLDER_LOG, "it")
    assert (log.load_us, log.first_us, log.timed.count) == (855, 49060, 50)
    assert (log.timed.avg, log.timed.median) == (1332090, None)
    assert log.memory_bytes == round(12.8672 * 2**20)
    oldest = re.sub(
        "Inference timings in us: .*",
        "Average inference timings in us: Warmup: 34825.1, Init: 855, no stats: 33209.4",
        OLDER_LOG.replace("\\\n", ""),
    )
    assert parse_log(oldest, "it") == log


def test_a_log_whose_times_are_all_the_same_is_read():
    line = re.sub(
        "INFO: count=34 .*?\n\n", "INFO: count=34 curr=12 (all same)\n\n", LOG, flags=re.S
    )
    timed = parse_log(line, "it").timed
    assert (timed.count, timed.min, timed.max, timed.avg) == (34, 12, 12, 12)


@pytest.mark.parametrize("log", [FAILED_LOG, "", LOG[:900], LOG.replace("count=34", "count=0")])
def test_a_log_without_a_result_is_an_error_with_what_went_wrong(log):
    with pytest.raises(ToolFailed, match="it failed: benchmark_model printed no times") as raised:
        parse_log(log, "it")
    if log == FAILED_LOG:
        assert "Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'" in str(
            raised.value
        )


def test_a_model_is_timed_on_the_phone_and_nothing_stays_there(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        environment = runtime.environment
        timed = runtime.time(model, SAMPLES, TIMING)
        assert len(phone.left) == 1
    assert (environment.machine, environment.cpu) == ("arm64-v8a", "AC1234 (Acme Phone 7)")
    assert (environment.system, environment.host) == ("Android 14", "adb:0A1B2C")
    assert environment.cores == os.cpu_count()
    assert environment.tools == {"benchmark_model": sha256_file(phone.binary)[:12]}
    assert (timed.runtime, timed.version) == ("benchmark_model", sha256_file(phone.binary)[:12])
    assert (timed.load_us, timed.first_us, timed.warmup) == (31408, 38214, 17)
    assert timed.samples_us == (29001, 29002, 29003, 29004, 29005)
    assert timed.memory_bytes == 27.5 * 2**20
    assert timed.log.startswith(LOG)
    assert timed.log.count("count=1 curr=") == 5
    assert phone.left == []


def test_the_program_is_told_what_was_asked_for(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        runtime.time(Model(file=model.file, batch=2), SAMPLES, TIMING)
    flags = dict(flag[2:].split("=", 1) for flag in phone.ran[1].split())
    assert flags["num_threads"] == "4"
    assert flags["use_xnnpack"] == "true"
    assert (flags["warmup_runs"], flags["warmup_min_secs"]) == ("10", "0.5")
    assert (flags["num_runs"], flags["min_secs"], flags["max_secs"]) == ("5", "0", "1")
    assert (flags["input_layer"], flags["input_layer_shape"]) == ("input0", "2,4")
    assert "signature_to_run_for" not in flags


def test_outputs_are_computed_from_the_samples_in_their_batches(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        session = runtime.start(Model(file=model.file, batch=3))
        given = session.run(SAMPLES)
        session.close()
    assert list(given) == ["y"]
    assert given["y"].dtype == np.float32
    np.testing.assert_allclose(given["y"], EXPECTED, rtol=1e-6)
    assert sum("--output_filepath" in line for line in phone.ran) == 2
    assert phone.left == []


def test_a_quantised_model_takes_and_gives_floats(phone, tmp_path):
    file = tmp_path / "int8.tflite"
    file.write_bytes(packed(int8_model()))
    with opened(phone, tmp_path) as runtime:
        session = runtime.start(Model(file=file))
        given = session.run({"x": SAMPLES["x"][:2]})["y"]
    assert given.dtype == np.float32
    assert np.abs(given - EXPECTED[:2]).max() <= 40


def test_several_ends_go_in_the_order_of_the_graph(phone, tmp_path):
    graph = Graph()
    a, b = graph.tensor("a", (1, 3), "float32"), graph.tensor("b", (1, 3), "float32")
    n, same = graph.tensor("n", (1,), "int32"), graph.tensor("same", (1,), "int32")
    total = graph.tensor("total", (1, 3), "float32")
    graph.operator("ADD", [a, b], [total])
    graph.operator("ADD", [n, n], [same])
    names = ("serve", ["second", "count", "first"], ["twice", "sum"])
    model = graph.model([b, n, a], [same, total], signature=names)
    model.subgraphs[0].inputs, model.subgraphs[0].outputs = [a, b, n], [total, same]
    file = tmp_path / "ends.tflite"
    file.write_bytes(packed(model))
    samples = {
        "first": np.array([[1, 2, 3]], np.float32),
        "second": np.full((1, 3), 100, np.float32),
        "count": np.array([4]),
    }
    with opened(phone, tmp_path) as runtime:
        given = runtime.start(Model(file=file)).run(samples)
    np.testing.assert_array_equal(given["sum"], [[101, 102, 103]])
    np.testing.assert_array_equal(given["twice"], [8])


def test_a_model_that_does_not_load_there_fails_alone(tmp_path, monkeypatch, model):
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(model.file.read_bytes() + b"\0")
    phone = Phone(tmp_path / "phone", bad=sha256_file(bad))
    monkeypatch.setenv("PATH", f"{phone.root / 'path'}:{os.environ['PATH']}")
    with opened(phone, tmp_path) as runtime:
        with pytest.raises(ToolFailed, match=r"(?s)bad\.tflite on 0A1B2C ended .*Didn't find op"):
            runtime.time(Model(file=bad), SAMPLES, TIMING)
        with pytest.raises(ToolFailed, match=r"(?s)bad\.tflite on 0A1B2C ended .*Didn't find op"):
            runtime.start(Model(file=bad)).run(SAMPLES)
        assert runtime.time(model, SAMPLES, TIMING).samples_us


def test_a_device_that_disappears_in_the_middle_says_so(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        session = runtime.start(model)
        (phone.root / "unplug").touch()
        with pytest.raises(ToolFailed, match=r"model\.tflite on 0A1B2C: the device 0A1B2C is gone"):
            runtime.time(model, SAMPLES, TIMING)
        with pytest.raises(ToolFailed, match="the device 0A1B2C is gone") as raised:
            session.run(SAMPLES)
    assert "plug it in again" in raised.value.hint


def test_a_device_that_locks_itself_in_the_middle_says_so(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        phone.plug("0A1B2C\tunauthorized")
        with pytest.raises(ToolFailed, match="the device 0A1B2C is unauthorized") as raised:
            runtime.time(model, SAMPLES, TIMING)
    assert "allow this computer" in raised.value.hint


@pytest.mark.parametrize(
    ("devices", "serial", "kind", "message", "hint"),
    [
        ([], "", UsageError, "there is no Android device", "USB debugging"),
        ([], "0A1B2C", UsageError, "there is no Android device", "USB debugging"),
        (
            ["A\tdevice", "B\tdevice"],
            "",
            UsageError,
            r"several Android devices: A \(device\), B \(device\)",
            "adb:SERIAL",
        ),
        (["A\tdevice"], "B", UsageError, "no Android device B", r"connected: A \(device\)"),
        (["A\tunauthorized"], "A", ToolFailed, "A is unauthorized", "allow this computer"),
        (["A\toffline"], "", ToolFailed, "A is offline", "adb reconnect"),
        (
            ["A\tno permissions (user in plugdev group); see [http]"],
            "",
            ToolFailed,
            "A is no perm",
            "udev",
        ),
    ],
)
def test_a_device_that_cannot_be_used_says_why(
    phone, tmp_path, devices, serial, kind, message, hint
):
    phone.plug(*devices)
    with pytest.raises(kind, match=message) as raised:
        opened(phone, tmp_path, serial).__enter__()
    assert re.search(hint, raised.value.hint)


def test_one_of_several_devices_is_chosen_by_its_serial_number(phone, tmp_path, model):
    phone.plug("emulator-5554\tdevice", "0A1B2C\tdevice")
    with opened(phone, tmp_path, "emulator-5554") as runtime:
        runtime.time(model, SAMPLES, TIMING)
    calls = (phone.root / "calls").read_text()
    assert "-s emulator-5554 shell" in calls
    assert "0A1B2C" not in calls


def test_without_adb_it_says_what_to_install(phone, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="adb is not installed") as raised:
        opened(phone, tmp_path).__enter__()
    assert "platform-tools" in raised.value.hint


@pytest.mark.parametrize(
    ("binary", "message"),
    [("", "needs a benchmark_model"), ("/nowhere/benchmark", "no benchmark_model at /nowhere")],
)
def test_without_a_program_to_put_there_it_says_so(phone, tmp_path, binary, message):
    settings = RuntimeSettings(scratch=tmp_path, binary=binary)
    with pytest.raises(UsageError, match=message):
        open_runtime(RuntimeChoice(name="adb"), settings).__enter__()


def test_a_program_for_another_processor_is_refused_and_removed(phone, tmp_path):
    phone.binary.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    with pytest.raises(ToolFailed, match="cannot run a model on 0A1B2C") as raised:
        opened(phone, tmp_path).__enter__()
    assert "arm64-v8a" in raised.value.hint
    assert phone.left == []


def test_a_device_without_room_says_so(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        (phone.root / "full").touch()
        with pytest.raises(
            ToolFailed, match=r"(?s)copying model\.tflite .*No space left"
        ) as raised:
            runtime.start(model)
    assert "free space" in raised.value.hint


def test_an_older_program_that_writes_no_outputs_says_so(phone, tmp_path, model):
    phone.script("program", f"#!/bin/sh\ncat {phone.root / 'log'}\n")
    with (
        pytest.raises(ToolFailed, match="benchmark_model wrote no outputs") as raised,
        opened(phone, tmp_path) as runtime,
    ):
        runtime.start(model).run(SAMPLES)
    assert "--output_filepath" in raised.value.hint


def test_an_input_without_dimensions_cannot_be_given(phone, tmp_path):
    graph = Graph()
    x, y = graph.tensor("x", (), "float32"), graph.tensor("y", (), "float32")
    graph.operator("ADD", [x, x], [y])
    file = tmp_path / "scalar.tflite"
    file.write_bytes(packed(graph.model([x], [y])))
    with (
        pytest.raises(InputRefused, match="needs inputs with at least one dimension"),
        opened(phone, tmp_path) as runtime,
    ):
        runtime.time(Model(file=file), {"x": np.zeros(1, np.float32)}, TIMING)
