"""What the sandbox costs a child: whole processes, with it and without, in turn.

    python -m benchmarks.sandbox [--repeats 60]

The child is one that `start_task` starts, of a function that does nothing: it starts, imports
edgeconv, answers and ends. Every round starts one of each kind, in another order; the cost is the
median of the differences within the rounds. The same of two commands, with --sandbox auto and
off: `convert` where nothing changed, which starts no child, and `bench` of a small .tflite.
Processor time is that of the child alone; it is what to read where the machine is not idle. Of
bubblewrap it is not known, which is not the parent of what it starts in the end.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

import msgspec

from benchmarks.measuring import write_result
from edgeconv.runtimes.conversation import relu_model
from edgeconv.system.processes.sandbox import Access, policy
from edgeconv.system.processes.sandbox.policy import Wall

ROOT = Path(__file__).parent.parent
WITHOUT = "without"


class Nothing(msgspec.Struct, frozen=True):
    """No job, and no answer."""


def nothing(job: Nothing) -> Nothing:
    """Do nothing; runs in a child."""
    return job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = measure(Path(scratch), options.repeats)
    print(write_result("sandbox", result).read_text(encoding="utf-8"))


def measure(scratch: Path, repeats: int) -> dict[str, object]:
    found = policy.available()
    known = {found.kind: found}
    program = shutil.which("bwrap")
    if program and not policy._bubblewrap_fails(program):
        known["bubblewrap"] = Wall(kind="bubblewrap", filters=found.filters, program=program)
    children = {WITHOUT: child(scratch, None)}
    children |= {kind: child(scratch, wall) for kind, wall in known.items()}
    return {
        "wall": str(found),
        "repeats": repeats,
        "child": in_rounds(children, repeats),
        "convert_unchanged": in_rounds(converts(scratch), max(5, repeats // 3)),
        "bench": in_rounds(benches(scratch), max(5, repeats // 6)),
    }


def child(scratch: Path, wall: Wall | None) -> Callable[[], float]:
    """What starts a child and waits for its end; without a wall as if there were no sandbox."""
    directory = Path(tempfile.mkdtemp(dir=scratch))
    (directory / "job.json").write_bytes(b"{}")
    function = f"{__spec__.name}:nothing"
    command = [sys.executable, "-m", "edgeconv.system.processes.tasks", function, str(directory)]
    here = {"PYTHONPATH": str(ROOT)}
    if wall is None:
        return lambda: run(command, directory, {**os.environ, **here})

    def start() -> float:
        with mock.patch.object(policy, "wall", return_value=wall):
            made = policy.start_command(command, cwd=directory, access=Access(), environment=here)
        return run(made.command, directory, made.environment)

    return start


def converts(scratch: Path) -> dict[str, Callable[[], float]]:
    model = scratch / "model.tflite"
    model.write_bytes(relu_model())
    words = ["convert", str(model), "--to", "float32", "-o", str(scratch / "out")]
    return modes(scratch, words)


def benches(scratch: Path) -> dict[str, Callable[[], float]]:
    return modes(scratch, ["bench", str(scratch / "model.tflite"), "--repeats", "5"])


def modes(scratch: Path, words: Sequence[str]) -> dict[str, Callable[[], float]]:
    environment = {**os.environ, "EDGECONV_CACHE_DIR": str(scratch / "cache")}

    def command(mode: str) -> Callable[[], float]:
        line = [sys.executable, "-m", "edgeconv", *words, "--sandbox", mode]
        return lambda: run(line, scratch, environment)

    command("auto")()
    return {WITHOUT: command("off"), "auto": command("auto")}


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> float:
    """The processor time of a process and all that it waited for, in milliseconds."""
    # A child ends when its stdin does.
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stdin is not None
    process.stdin.close()
    if process.returncode:
        raise SystemExit(f"{command} ended with exit code {process.returncode}")
    return (used.ru_utime + used.ru_stime) * 1e3


def in_rounds(contenders: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, object]:
    """Milliseconds of wall and processor time, and how many more than of the one without."""
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    processor: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(1)
    for _ in range(repeats):
        for name in order.sample([*contenders], len(contenders)):
            started = time.perf_counter()
            processor[name].append(contenders[name]())
            wall[name].append((time.perf_counter() - started) * 1e3)
    return {
        name: {
            "wall_ms": figures(wall[name], wall[WITHOUT]),
            **(
                {}
                if name == "bubblewrap"
                else {"processor_ms": figures(processor[name], processor[WITHOUT])}
            ),
        }
        for name in contenders
    }


def figures(taken: list[float], without: list[float]) -> dict[str, object]:
    """The median, the median of the differences within the rounds, and every single one."""
    costs = [one - other for one, other in zip(taken, without, strict=True)]
    return {
        "median": round(statistics.median(taken), 1),
        "median_cost": round(statistics.median(costs), 1),
        "all": [round(each, 1) for each in taken],
    }


if __name__ == "__main__":
    main()
