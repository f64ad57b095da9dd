"""An adb, and a phone behind it, made of shell scripts: no phone is needed, and none was here.

The logs are in the format that benchmark_model prints on phones, with numbers of our own.
"""

from __future__ import annotations

import sys
from pathlib import Path

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
# Of 2020: no level before the lines, no median.
OLDER_LOG = """\
STARTING!
Loaded model /data/local/tmp/model.tflite
The input model file size (MB): 16.9008
Initialized session in 0.855ms.
Running benchmark for at least 1 iterations and at least 0.5 seconds but terminate if \
exceeding 150 seconds.
count=15 first=49060 curr=33682 min=32825 max=49060 avg=34825.1 std=3930

Running benchmark for at least 50 iterations and at least 1 seconds but terminate if \
exceeding 150 seconds.
count=50 first=32891 curr=33978 min=32641 max=34005 avg=1.33209e+06 std=450

Inference timings in us: Init: 855, First inference: 49060, Warmup (avg): 34825.1, \
Inference (avg): 1.33209e+06
Peak memory footprint (MB): init=0 overall=12.8672
Timings (microseconds): count=50 first=32881 curr=33970 min=32641 max=34000 avg=33200 std=450
Memory (bytes): count=0
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
            "program",
            PROGRAM.format(bad=bad, python=sys.executable, outputs=root / "outputs.py"),
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
