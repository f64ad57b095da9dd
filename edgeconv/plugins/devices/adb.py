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
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgeconv.plugins.devices.benchmark_program import (
    BenchmarkProgram,
    BenchmarkSession,
    Device,
    input_flags,
    parse_log,
    runnable,
)
from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
from edgeconv.runtimes.isolated import relu_model
from edgeconv.runtimes.runner import batches
from edgeconv.runtimes.tensors import raw
from edgeconv.system.store import sha256_file
from edgeconv.types import Allowance, Environment, RuntimeChoice, Timing
from edgeconv.types.errors import ToolFailed, UsageError

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
        with tempfile.TemporaryDirectory(dir=scratch) as here:
            file = Path(here) / "relu.tflite"
            file.write_bytes(relu_model())
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
