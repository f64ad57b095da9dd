"""The runtime adb, with an adb and a phone made of scripts; see android.py."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed, three_inputs_model
from wording import fails

from edgeconv.plugins.devices.adb import open_runtime, parse_log
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.system.store import sha256_file
from edgeconv.types import RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

LOG = """\
INFO: STARTING!
INFO: Log parameter values verbosely: [0]
INFO: Min num runs: [200]
INFO: Num threads: [1]
INFO: Graph: [/data/local/tmp/edgeconv-1/model.tflite]
INFO: Signature to run: []
INFO: Input layers: [input0]
INFO: #threads used for CPU inference: [1]
INFO: Loaded model /data/local/tmp/edgeconv-1/model.tflite
INFO: Initialized TensorFlow Lite runtime.
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
VERBOSE: Replacing 64 out of 64 node(s) with delegate (TfLiteXNNPackDelegate) node, \
yielding 1 partitions for subgraph 0.
INFO: The input model file size (MB): 13.9228
INFO: Initialized session in 31.408ms.
INFO: Running benchmark for at least 10 iterations and at least 0.5 seconds but terminate if \
exceeding 1 seconds.
INFO: count=17 first=38214 curr=29377 min=29102 max=38214 avg=30051.6 std=2109 p5=29102 \
median=29411 p95=38214

INFO: Running benchmark for at least 200 iterations and at least 0 seconds but terminate if \
exceeding 1 seconds.
INFO: count=34 first=29330 curr=29512 min=29017 max=31922 avg=29564.9 std=534 p5=29050 \
median=29468 p95=30688

INFO: Inference timings in us: Init: 31408, First inference: 38214, Warmup (avg): 30051.6, \
Inference (avg): 29564.9
INFO: Note: as the benchmark tool itself affects memory footprint, the following is only \
APPROXIMATE to the actual memory footprint of the model at runtime. Take the information at \
your discretion.
INFO: Memory footprint delta from the start of the tool (MB): init=18.2539 overall=27.5
"""
# Single times are only in the log of a run that had one.
ONCE = """\
INFO: STARTING!
INFO: Initialized session in 30.9ms.
INFO: Running benchmark for at least 1 iterations and at least 0.1 seconds.
INFO: count=4 first=37012 curr=29411 min=29398 max=37012 avg=31344 std=3272 p5=29398 \
median=29488 p95=37012

INFO: Running benchmark for at least 1 iterations and at least 0 seconds.
INFO: count=1 curr=@TIME@ p5=@TIME@ median=@TIME@ p95=@TIME@

INFO: Inference timings in us: Init: 30900, First inference: 37012, Warmup (avg): 31344, \
Inference (avg): @TIME@
"""
FAILED_LOG = """\
INFO: STARTING!
INFO: Graph: [/data/local/tmp/edgeconv-1/model.tflite]
ERROR: Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'.
ERROR: Registration failed.
ERROR: Failed to initialize the interpreter
ERROR: Benchmarking failed.
"""

# What is at /data/local/tmp there is in `root` here.
ADB = """\
#!/bin/sh
root={root}
there() {{ printf %s "$1" | sed "s#/data/local/tmp#$root/tmp#g"; }}
if [ "$1" = devices ]; then
  echo "List of devices attached"
  cat "$root/devices"
  exit 0
fi
serial=$2; what=$3
echo "$*" >> "$root/calls"
if ! grep -q "^$serial.device" "$root/devices"; then
  echo "error: device '$serial' not found" >&2
  exit 1
fi
case $what in
  push|pull)
    [ -e "$root/full" ] && {{ echo "adb: error: failed to copy: No space left on device"; exit 1; }}
    cp -r "$(there "$4")" "$(there "$5")" && echo "1 file pushed." || exit 1 ;;
  shell)
    PATH="$root/bin:$PATH" ROOT="$root" /bin/sh -c "$(there "$4")" ;;
esac
"""
GETPROP = """\
#!/bin/sh
case $1 in
  ro.product.manufacturer) echo Acme ;;
  ro.product.model) echo "Phone 7" ;;
  ro.soc.model) echo AC1234 ;;
  ro.product.cpu.abi) echo arm64-v8a ;;
  ro.build.version.release) echo 14 ;;
esac
"""
# It prints what it is to print; outputs it computes with LiteRT.
PROGRAM = """\
#!/bin/sh
echo "$*" >> "$ROOT/ran"
[ -e "$ROOT/unplug" ] && {{ : > "$ROOT/devices"; kill -9 $PPID; }}
case "$*" in *{bad}*) cat "$ROOT/failed.log"; exit 1 ;; esac
case "$*" in *--output_filepath=*) exec {python} {outputs} "$@" ;; esac
case "$*" in
  *--num_runs=1\\ *) n=$(cat "$ROOT/n"); echo $((n + 1)) > "$ROOT/n"
     sed "s/@TIME@/$((29000 + n))/g" "$ROOT/once.log" ;;
  *) cat "$ROOT/log" ;;
esac
"""
OUTPUTS = """\
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter

flags = dict(flag[2:].split("=", 1) for flag in sys.argv[1:])
shapes = [tuple(map(int, text.split(","))) for text in flags["input_layer_shape"].split(":")]
files = dict(part.split(":") for part in flags["input_layer_value_files"].split(","))
model = Interpreter(model_path=flags["graph"])
for detail, shape in zip(model.get_input_details(), shapes, strict=True):
    model.resize_tensor_input(detail["index"], shape)
model.allocate_tensors()
for detail, shape, name in zip(
    model.get_input_details(), shapes, flags["input_layer"].split(","), strict=True
):
    model.set_tensor(detail["index"], np.fromfile(files[name], detail["dtype"]).reshape(shape))
model.invoke()
with open(flags["output_filepath"], "wb") as file:
    for detail in model.get_output_details():
        file.write(model.get_tensor(detail["index"]).tobytes())
print(open(sys.argv[0].replace("outputs.py", "log")).read())
"""


class Phone:
    """A phone that is plugged in: what it was told, and what is to go wrong with it."""

    def __init__(self, root: Path, bad: str = "no-such-model") -> None:
        self.root = root
        for name in ("tmp", "bin"):
            (root / name).mkdir(parents=True)
        for name, text in {
            "log": LOG,
            "once.log": ONCE,
            "failed.log": FAILED_LOG,
            "outputs.py": OUTPUTS,
            "n": "0",
        }.items():
            (root / name).write_text(text, encoding="utf-8")
        self.binary = self.script(
            "program", PROGRAM.format(bad=bad, python=sys.executable, outputs=root / "outputs.py")
        )
        self.script("bin/getprop", GETPROP)
        self.script("path/adb", ADB.format(root=root))
        self.plug("0A1B2C\tdevice")

    def script(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def plug(self, *lines: str) -> None:
        """What `adb devices` lists."""
        (self.root / "devices").write_text("".join(f"{line}\n" for line in lines))

    @property
    def ran(self) -> list[str]:
        """The flags that benchmark_model was run with."""
        return (self.root / "ran").read_text().splitlines()

    @property
    def left(self) -> list[str]:
        """What is in /data/local/tmp there."""
        return [path.name for path in (self.root / "tmp").iterdir()]


SAMPLES = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)}
EXPECTED = SAMPLES["x"] @ WEIGHTS.T.astype(np.float32) + BIASES.astype(np.float32)
TIMING = Timing(warmup=10, warmup_seconds=0.5, repeats=5, seconds=1.0)


@pytest.fixture
def phone(tmp_path, monkeypatch) -> Phone:
    one = Phone(tmp_path / "phone")
    monkeypatch.setenv("PATH", f"{one.root / 'path'}:{os.environ['PATH']}")
    return one


@pytest.fixture
def model(tmp_path) -> Model:
    file = tmp_path / "model.tflite"
    file.write_bytes(packed(float_model()))
    return Model(file=file)


def opened(phone: Phone, tmp_path: Path, serial: str = ""):
    settings = RuntimeSettings(scratch=tmp_path, binary=str(phone.binary), threads=4)
    return open_runtime(RuntimeChoice(name="adb", location=serial), settings)


def test_a_log_is_read():
    log = parse_log(LOG, "it")
    assert (log.load_us, log.first_us, log.warmup, log.last_us) == (31408, 38214, 17, 29512)
    assert log.memory_bytes == 27.5 * 2**20


def test_the_log_of_a_single_invoke_has_its_time():
    log = parse_log(ONCE.replace("@TIME@", "670083"), "it")
    assert (log.first_us, log.last_us, log.memory_bytes) == (37012, 670083, None)


def test_a_log_whose_times_are_all_the_same_is_read():
    line = re.sub(
        "INFO: count=34 .*?\n\n", "INFO: count=34 curr=12 (all same)\n\n", LOG, flags=re.S
    )
    assert parse_log(line, "it").last_us == 12


@pytest.mark.parametrize("log", [FAILED_LOG, "", LOG[:900]])
def test_a_log_without_a_result_is_an_error_with_what_went_wrong(log):
    with fails(ToolFailed):
        parse_log(log, "it")


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
    file = tmp_path / "ends.tflite"
    file.write_bytes(packed(three_inputs_model()))
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
        with fails(ToolFailed):
            runtime.time(Model(file=bad), SAMPLES, TIMING)
        with fails(ToolFailed):
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
        with fails(ToolFailed):
            runtime.time(model, SAMPLES, TIMING)


@pytest.mark.parametrize(
    ("devices", "serial", "kind"),
    [
        ([], "", UsageError),
        ([], "0A1B2C", UsageError),
        (["A\tdevice", "B\tdevice"], "", UsageError),
        (["A\tdevice"], "B", UsageError),
        (["A\tunauthorized"], "A", ToolFailed),
        (["A\toffline"], "", ToolFailed),
        (["A\tno permissions (user in plugdev group); see [http]"], "", ToolFailed),
    ],
)
def test_a_device_that_cannot_be_used_says_why(phone, tmp_path, devices, serial, kind):
    phone.plug(*devices)
    with fails(kind):
        opened(phone, tmp_path, serial).__enter__()


def test_one_of_several_devices_is_chosen_by_its_serial_number(phone, tmp_path, model):
    phone.plug("emulator-5554\tdevice", "0A1B2C\tdevice")
    with opened(phone, tmp_path, "emulator-5554") as runtime:
        runtime.time(model, SAMPLES, TIMING)
    calls = (phone.root / "calls").read_text()
    assert "-s emulator-5554 shell" in calls
    assert "0A1B2C" not in calls


def test_without_adb_it_says_what_to_install(phone, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with fails(UsageError):
        opened(phone, tmp_path).__enter__()


@pytest.mark.parametrize("binary", ["", "/nowhere/benchmark"])
def test_without_a_program_to_put_there_it_says_so(phone, tmp_path, binary):
    settings = RuntimeSettings(scratch=tmp_path, binary=binary)
    with fails(UsageError):
        open_runtime(RuntimeChoice(name="adb"), settings).__enter__()


def test_a_program_for_another_processor_is_refused_and_removed(phone, tmp_path):
    phone.binary.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(60))
    with fails(ToolFailed):
        opened(phone, tmp_path).__enter__()
    assert phone.left == []


def test_a_device_without_room_says_so(phone, tmp_path, model):
    with opened(phone, tmp_path) as runtime:
        (phone.root / "full").touch()
        with fails(ToolFailed):
            runtime.start(model)


def test_an_older_program_that_writes_no_outputs_says_so(phone, tmp_path, model):
    phone.script("program", f"#!/bin/sh\ncat {phone.root / 'log'}\n")
    with fails(ToolFailed), opened(phone, tmp_path) as runtime:
        runtime.start(model).run(SAMPLES)


def test_an_input_without_dimensions_cannot_be_given(phone, tmp_path):
    graph = Graph()
    x, y = graph.tensor("x", (), "float32"), graph.tensor("y", (), "float32")
    graph.operator("ADD", [x, x], [y])
    file = tmp_path / "scalar.tflite"
    file.write_bytes(packed(graph.model([x], [y])))
    with fails(InputRefused), opened(phone, tmp_path) as runtime:
        runtime.time(Model(file=file), {"x": np.zeros(1, np.float32)}, TIMING)
