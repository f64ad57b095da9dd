"""The stock benchmark_model of TensorFlow Lite on an Android device, by adb.

    adb             the only connected device
    adb:SERIAL      one of several; `adb devices` lists them

The program is not part of edgeconv: `settings.binary` is one for the device's processor. It and
the models go into a directory of /data/local/tmp, which is removed at the end.

It prints statistics but no single times. So it runs once with the requested number of invokes, and
that log is kept; further processes warm up and time one invoke each, which are the samples. For
outputs it runs one process per batch.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv.runtimes.conversation import relu_file
from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
from edgeconv.runtimes.runner import batches, join_batches
from edgeconv.runtimes.tensors import dequantized, raw, refuse_strings, signature_of
from edgeconv.system.processes.failures import shown
from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import scratch_directory, sha256_file
from edgeconv.types import Allowance, Environment, RuntimeChoice, Signature, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError, WorkerCrashed

_PARENT = "/data/local/tmp"
_SAMPLES = 20
# An idle processor takes some time to reach its frequency.
_WARM_UP_SECONDS = 0.1
_RUN = "edgeconv-run"
_ASK_TIMEOUT_S = 60.0
_FACTS = {
    "model": "$(getprop ro.product.manufacturer) $(getprop ro.product.model)",
    "soc": "$(getprop ro.soc.model)",
    "hardware": "$(getprop ro.hardware)",
    "abi": "$(getprop ro.product.cpu.abi)",
    "release": "$(getprop ro.build.version.release)",
    "cores": "$(ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l)",
}


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[AdbRuntime]:
    """The runtime, once a model has run on the device.

    Raises `UsageError` without adb, the device or the program, and `ToolFailed` where the program
    does not run on the device.
    """
    binary = Path(settings.binary)
    if not settings.binary or not binary.is_file():
        raise UsageError(
            f"there is no benchmark_model at {binary}"
            if settings.binary
            else "the runtime adb needs a benchmark_model for the device's processor",
            hint="name it with --binary FILE, such as TensorFlow Lite's "
            "android_aarch64_benchmark_model",
        )
    device = Device(choice.location, settings.scratch)
    directory = f"{_PARENT}/edgeconv-{secrets.token_hex(6)}"
    runtime = AdbRuntime(BenchmarkProgram(device, directory, settings), binary)
    try:
        runtime.settle(settings.scratch)
        yield runtime
    finally:
        device.remove(directory)


class AdbRuntime:
    """benchmark_model on a device; see `edgeconv.runtimes.interface.Runtime`."""

    has_times = True
    gpu = ""
    has_pace = False
    # Two would disturb each other.
    sessions = 1

    def __init__(self, program: BenchmarkProgram, binary: Path) -> None:
        self._program, self._binary = program, binary
        self._version = sha256_file(binary)[:12]
        self.environment = self._environment()

    def settle(self, scratch: Path) -> None:
        """Copy the program there, and run a model with it. Raises `ToolFailed`."""
        program = self._program
        program.put(self._binary)
        with relu_file(scratch) as file:
            flags = program.flags(Model(file=file))
        try:
            program.benchmark([*flags, "--num_runs=1", "--min_secs=0"], "trying benchmark_model")
        except ToolFailed as error:
            raise ToolFailed(
                f"{self._binary} cannot run a model on {program.device.serial}: {error.message}",
                hint=f"use one for its processor, {self.environment.machine}",
            ) from error

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch; see the module. Raises `ToolFailed`."""
        what = f"running {model.file.name} on {self._program.device.serial}"
        signature = runnable(model)
        batch = next(batches(raw(inputs, signature.inputs), model.batch))
        with self._program.inputs_there([batch]) as folder:
            flags = [*self._program.flags(model), *input_flags(batch, f"{folder}/0")]
            warm = min(timing.warmup_seconds, timing.seconds)
            log = self._program.benchmark(
                [
                    *flags,
                    *(f"--warmup_runs={timing.warmup}", f"--warmup_min_secs={warm:g}"),
                    *(f"--num_runs={timing.repeats}", "--min_secs=0"),
                    f"--max_secs={timing.seconds:g}",
                ],
                what,
            )
            samples_us, more = self._samples(flags, min(_SAMPLES, timing.repeats), what)
        summary = parse_log(log, what)
        return Timed(
            runtime="benchmark_model",
            version=self._version,
            load_us=summary.load_us,
            first_us=summary.first_us,
            samples_us=samples_us,
            warmup=summary.warmup,
            memory_bytes=summary.memory_bytes,
            log=log + more,
        )

    def start(self, model: Model) -> BenchmarkSession:
        """Copy the model there. Raises `ToolFailed`."""
        return BenchmarkSession(self._program, model)

    def _samples(self, flags: list[str], count: int, what: str) -> tuple[tuple[float, ...], str]:
        """The time of one invoke in each of `count` processes, and what they printed."""
        once = self._program.command(
            [
                *flags,
                *("--warmup_runs=1", f"--warmup_min_secs={_WARM_UP_SECONDS:g}"),
                *("--num_runs=1", "--min_secs=0"),
            ]
        )
        numbers = " ".join(map(str, range(count)))
        log = self._program.must(
            f"for i in {numbers}; do echo {_RUN}; {once} || exit 1; done", what
        )
        runs = [parse_log(part, what) for part in log.split(_RUN)[1:]]
        return tuple(run.last_us for run in runs), log

    def _environment(self) -> Environment:
        script = "; ".join(f'echo "{name}={value}"' for name, value in _FACTS.items())
        allowance = Allowance(timeout_s=_ASK_TIMEOUT_S)
        serial = self._program.device.serial
        output = self._program.must(
            script, f"reading the properties of {serial}", allowance=allowance
        )
        facts = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        cores = facts.get("cores", "").strip()
        chip = facts.get("soc", "").strip() or facts.get("hardware", "").strip() or "unknown"
        return Environment(
            machine=facts.get("abi", "").strip() or "unknown",
            cpu=f"{chip} ({facts.get('model', '').strip()})",
            cores=int(cores) if cores.isdecimal() else 0,
            system=f"Android {facts.get('release', '').strip()}",
            python="",
            tools={"benchmark_model": self._version},
            host=f"adb:{serial}",
        )


# The device, reached by adb, and the command line of benchmark_model, its inputs and outputs.

_ANSWER_TIMEOUT_S = 120.0
_LIST = "List of devices attached"
# Before Android 7, adb does not pass exit codes on.
_MARK = "edgeconv-exit:"
_READY = "device"
# What adb prints for a device that is not ready, and what to do.
_STATES = {
    "unauthorized": "unlock it, and allow this computer to debug it",
    "offline": "plug it in again, or: adb reconnect",
    "no permissions": "see https://developer.android.com/tools/device for the udev rules",
    "recovery": "start Android on it",
    "sideload": "start Android on it",
    "bootloader": "start Android on it",
}


class Device:
    """A device that takes commands.

    `serial` "" is the only one. Raises `UsageError` where there is no adb, no such device, or
    several without a serial, and `ToolFailed` where the device takes no commands.
    """

    def __init__(self, serial: str, scratch: Path) -> None:
        self._program = shutil.which("adb") or ""
        if not self._program:
            raise UsageError(
                "adb is not installed", hint="install Debian's adb or Google's platform-tools"
            )
        self._scratch = scratch
        self.serial = _chosen(serial, self._states())

    def shell(self, script: str, what: str, allowance: Allowance) -> tuple[int, str]:
        """The exit code of a script on the device, and what it printed. Raises `ToolFailed`."""
        code, output = self._run(["shell", f"({script}\n)\necho {_MARK}$?"], what, allowance)
        before, mark, ended = output.rpartition(_MARK)
        if not mark or not ended.strip().isdecimal():
            raise self._gone(what, code, output)
        return int(ended), before.replace("\r\n", "\n")

    def push(self, source: Path, target: str) -> None:
        """Copy a file, or a directory's content, to the device. Raises `ToolFailed`."""
        self._copy(["push", str(source), target], f"copying {source.name} to {self.serial}")

    def pull(self, source: str, target: Path) -> None:
        """Copy a directory of the device to a new one here. Raises `ToolFailed`."""
        self._copy(["pull", source, str(target)], f"copying from {self.serial}")

    def remove(self, directory: str) -> None:
        """Remove a directory of the device, if that works."""
        allowance = Allowance(timeout_s=_ANSWER_TIMEOUT_S)
        with suppress(ToolFailed):
            self.shell(f"rm -rf {shlex.quote(directory)}", "cleaning up", allowance)

    def _copy(self, arguments: list[str], what: str) -> None:
        code, output = self._run(arguments, what, Allowance(timeout_s=_ANSWER_TIMEOUT_S))
        if code:
            if self._states().get(self.serial) != _READY:
                raise self._gone(what, code, output)
            raise ToolFailed(
                f"{what} failed\n{_indented(output)}", hint="check that the device has free space"
            )

    def _gone(self, what: str, code: int, output: str) -> ToolFailed:
        state = self._states().get(self.serial, "gone")
        if state == _READY:
            return ToolFailed(f"{what}: adb ended with exit code {code}\n{_indented(output)}")
        return ToolFailed(
            f"{what}: the device {self.serial} is {state}\n{_indented(output)}".rstrip(),
            hint=_STATES.get(state, "plug it in again, and check that `adb devices` lists it"),
        )

    def _run(self, arguments: list[str], what: str, allowance: Allowance) -> tuple[int, str]:
        return self._adb(["-s", self.serial, *arguments], what, allowance)

    def _states(self) -> dict[str, str]:
        """The state of every device that adb knows, by serial number. Raises `ToolFailed`."""
        code, output = self._adb(["devices"], "adb devices", Allowance(timeout_s=_ANSWER_TIMEOUT_S))
        if code:
            raise ToolFailed(f"adb devices failed\n{_indented(output)}", hint="adb kill-server")
        _, _, listed = output.partition(_LIST)
        rows = (line.split(None, 1) for line in listed.splitlines() if line.strip())
        return {row[0]: _state(row[1]) for row in rows if len(row) == 2}

    def _adb(self, arguments: list[str], what: str, allowance: Allowance) -> tuple[int, str]:
        """0, or 1 where it failed, and what it printed. Raises where it does not end in time."""
        directory = Path(tempfile.mkdtemp(prefix="adb-", dir=self._scratch))
        command = [self._program, *arguments]
        timeout_s = allowance.timeout_s
        output, failure = run_program(command, label=what, cwd=directory, timeout_s=timeout_s)
        if failure is not None and not isinstance(failure, WorkerCrashed):
            raise failure
        return int(failure is not None), output


def _chosen(serial: str, states: dict[str, str]) -> str:
    listed = ", ".join(f"{name} ({state})" for name, state in states.items())
    if not states:
        raise UsageError(
            "there is no Android device",
            hint="plug one in with USB debugging on, and check that `adb devices` lists it",
        )
    if not serial and len(states) > 1:
        raise UsageError(
            f"there are several Android devices: {listed}", hint="choose one: --runtime adb:SERIAL"
        )
    serial = serial or next(iter(states))
    if serial not in states:
        raise UsageError(f"there is no Android device {serial}", hint=f"connected: {listed}")
    if states[serial] != _READY:
        state = states[serial]
        hint = _STATES.get(state, "check that it is on, and what `adb devices` prints")
        raise ToolFailed(f"the Android device {serial} is {state}", hint=hint)
    return serial


def _state(text: str) -> str:
    """The state in a line of `adb devices`, where more may follow it."""
    known = (state for state in _STATES if text.startswith(state))
    return next(known, text.split()[0])


def _indented(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(_MARK)]
    return "\n".join(f"  | {shown(line)}" for line in lines[-8:])


# How many batches are copied to the device at once.
_BATCHES = 64


class BenchmarkProgram:
    """The program in a directory of a device, with the models that were copied there."""

    def __init__(self, device: Device, directory: str, settings: RuntimeSettings) -> None:
        self.device, self.directory, self._settings = device, directory, settings
        self._copied: set[str] = set()

    def put(self, binary: Path) -> None:
        """Copy the program there. Raises `ToolFailed`."""
        self.must(f"mkdir -p {self.directory}", "making a directory")
        self.device.push(binary, f"{self.directory}/benchmark_model")
        self.must(f"chmod 755 {self.directory}/benchmark_model", "preparing benchmark_model")

    def flags(self, model: Model) -> list[str]:
        """The common flags of benchmark_model for a model, which is copied there first."""
        from edgeconv.model.tflite.flatbuffer import parse

        name = f"{sha256_file(model.file)}.tflite"
        if name not in self._copied:
            self.device.push(model.file, f"{self.directory}/{name}")
            self._copied.add(name)
        flags = [
            f"--graph={self.directory}/{name}",
            f"--num_threads={self._settings.threads}",
            "--use_xnnpack=true",
        ]
        data = model.file.read_bytes()
        if len(parse(data, where=str(model.file)).signatureDefs or ()) > 1:
            flags.append(f"--signature_to_run_for={model.signature}")
        return flags

    def command(self, flags: list[str]) -> str:
        """The shell command there that runs benchmark_model."""
        return shlex.join([f"{self.directory}/benchmark_model", *flags]) + " 2>&1"

    def benchmark(self, flags: list[str], what: str) -> str:
        """The log of benchmark_model. Raises `ToolFailed` where it fails."""
        log = self.must(self.command(flags), what)
        parse_log(log, what)
        return log

    def must(self, script: str, what: str, *, allowance: Allowance | None = None) -> str:
        """What a script there printed. Raises `ToolFailed` where its exit code is not 0."""
        code, output = self.device.shell(script, what, allowance or self._settings.allowance)
        if code:
            raise ToolFailed(f"{what} ended with exit code {code}\n{complaints(output)}".rstrip())
        return output

    @contextlib.contextmanager
    def inputs_there(self, runs: list[dict[str, NDArray[np.generic]]]) -> Iterator[str]:
        """A directory there with the inputs of each run, N/0, N/1 …, removed at the end."""
        folder = f"{self.directory}/inputs-{secrets.token_hex(4)}"
        with tempfile.TemporaryDirectory(dir=self._settings.scratch) as name:
            scratch = Path(name)
            for index, run in enumerate(runs):
                (scratch / "in" / str(index)).mkdir(parents=True)
                for position, array in enumerate(run.values()):
                    array.tofile(scratch / "in" / str(index) / str(position))
            self.device.push(scratch / "in", folder)
        try:
            yield folder
        finally:
            self.device.remove(folder)


class BenchmarkSession:
    """A model on the device; see `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, program: BenchmarkProgram, model: Model) -> None:
        self._program, self._flags = program, program.flags(model)
        self._signature, self._batch = runnable(model), model.batch
        self._what = f"running {model.file.name} on {program.device.serial}"

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        runs = list(batches(raw(inputs, self._signature.inputs), self._batch))
        outputs = []
        for start in range(0, len(runs), _BATCHES):
            outputs += self._run(runs[start : start + _BATCHES])
        return join_batches(outputs, [len(next(iter(batch.values()))) for batch in runs])

    def close(self) -> None:
        """Nothing is open: each batch has its own process."""

    def _run(
        self, runs: list[dict[str, NDArray[np.generic]]]
    ) -> list[dict[str, NDArray[np.generic]]]:
        program = self._program
        once = ["--warmup_runs=0", "--warmup_min_secs=0", "--num_runs=1", "--min_secs=0"]
        with program.inputs_there(runs) as folder:
            script = [f"mkdir {folder}/out"]
            for index, run in enumerate(runs):
                there = [
                    *input_flags(run, f"{folder}/{index}"),
                    f"--output_filepath={folder}/out/{index}",
                ]
                script.append(program.command([*self._flags, *once, *there]) + " || exit 1")
            log = program.must("\n".join(script), self._what)
            with scratch_directory() as scratch:
                here = scratch / "out"
                program.device.pull(f"{folder}/out", here)
                return [self._read(here / str(index), log) for index in range(len(runs))]

    def _read(self, file: Path, log: str) -> dict[str, NDArray[np.generic]]:
        """The outputs in a file, one after the other in the order of the graph."""
        if not file.is_file():
            raise ToolFailed(
                f"{self._what}: benchmark_model wrote no outputs\n{complaints(log)}".rstrip(),
                hint="use a newer benchmark_model, which has --output_filepath",
            )
        data, outputs, at = file.read_bytes(), {}, 0
        for spec, shape in zip(self._signature.outputs, self._shapes(len(data)), strict=True):
            dtype, count = np.dtype(spec.dtype), math.prod(shape)
            array = np.frombuffer(data, dtype, count, at).reshape(shape)
            outputs[spec.name] = dequantized(array, spec)
            at += array.nbytes
        return outputs

    def _shapes(self, size_bytes: int) -> list[tuple[int, ...]]:
        """The shapes of the outputs, of `size_bytes` together.

        A file may have 1 for the batch of an output that grows with the batch of the inputs.
        """
        outputs = self._signature.outputs
        for open_sizes in ((-1,), (-1, 1)):
            shapes = [
                tuple(
                    self._batch if not axis and size in open_sizes else size
                    for axis, size in enumerate(spec.shape)
                )
                for spec in outputs
            ]
            sizes = [
                math.prod(shape) * np.dtype(spec.dtype).itemsize
                for spec, shape in zip(outputs, shapes, strict=True)
            ]
            if sum(sizes) == size_bytes and min(sizes) >= 0:
                return shapes
        raise ToolFailed(
            f"{self._what}: it wrote {size_bytes} bytes, which is not the outputs' size",
            hint="convert the model with fixed shapes",
        )


def runnable(model: Model) -> Signature:
    """The signature of `model` that is to run, its tensors in the order of the graph.

    Raises `InputRefused` for a model that benchmark_model cannot be given inputs for.
    """
    signature = signature_of(model)
    refuse_strings(model, signature, "benchmark_model")
    if any(not spec.shape for spec in signature.inputs):
        raise InputRefused(
            f"{model.file}: benchmark_model needs inputs with at least one dimension",
            hint="give the input a dimension of 1",
        )
    return signature


def input_flags(inputs: dict[str, NDArray[np.generic]], folder: str) -> list[str]:
    """The flags for inputs of any shape, in files 0, 1 … in `folder`, in the order of the graph.

    The inputs get other names here: the model's may have any character.
    """
    names = [f"input{index}" for index in range(len(inputs))]
    files = (f"{name}:{folder}/{index}" for index, name in enumerate(names))
    shapes = (",".join(map(str, array.shape)) for array in inputs.values())
    return [
        f"--input_layer={','.join(names)}",
        f"--input_layer_shape={':'.join(shapes)}",
        f"--input_layer_value_files={','.join(files)}",
    ]


# What TensorFlow Lite's benchmark_model prints.
#
# It prints how long it took to load the model, a line of statistics of its warm-up and one of the
# timed invokes, in microseconds, and a summary. Single times are not printed, except for a single
# invoke.

_STATISTICS = re.compile(r"(?:INFO: )?count=(\d+)\b.*\bcurr=([.\de+]+).*")
_SUMMED_UP = re.compile(
    r"Inference timings in us: Init: ([.\de+]+), First inference: ([.\de+]+), "
    r"Warmup \(avg\): [.\de+]+, Inference \(avg\): [.\de+]+"
)
_MEMORY = re.compile(
    r"Memory footprint delta from the start of the tool \(MB\): init=[.\de+-]+ overall=([.\de+-]+)"
)
_COMPLAINT = re.compile(r"ERROR|FATAL|[Ff]ailed|not found|Permission denied|[Ss]egmentation|Abort")
_MOST_COMPLAINTS = 8


class BenchmarkLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of one run of benchmark_model.

    `warmup` counts the invokes of the warm-up, `last_us` is the time of the last timed invoke, and
    `memory_bytes` the process's growth, or None.
    """

    load_us: float
    first_us: float
    warmup: int
    last_us: float
    memory_bytes: int | None = None


def parse_log(text: str, what: str) -> BenchmarkLog:
    """The results in a log. Raises `ToolFailed`, which names `what` ran, where there are none."""
    lines = [match for line in text.splitlines() if (match := _STATISTICS.fullmatch(line.strip()))]
    summed_up = _SUMMED_UP.search(text)
    if summed_up is None or len(lines) < 2:
        raise ToolFailed(
            f"{what} failed: benchmark_model printed no times\n{complaints(text)}".rstrip()
        )
    warm_up, timed = lines[:2]
    memory = _MEMORY.search(text)
    return BenchmarkLog(
        load_us=float(summed_up[1]),
        first_us=float(summed_up[2]),
        warmup=int(warm_up[1]),
        last_us=float(timed[2]),
        memory_bytes=max(0, round(float(memory[1]) * 2**20)) if memory else None,
    )


def complaints(text: str) -> str:
    """The lines of a log that look like errors, or else its last lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wrong = [line for line in lines if _COMPLAINT.search(line)]
    return "\n".join(f"  | {line}" for line in (wrong or lines)[-_MOST_COMPLAINTS:])
