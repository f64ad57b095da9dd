"""Tasks that child processes run for tests, and parents for them to lose."""

import functools
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
from places import SUPPORT

from edgeconv.system.processes.progress import CountedLine
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.signals import end_on_signals
from edgeconv.system.processes.tasks import report_progress, start_task
from edgeconv.system.processes.workers import Child
from edgeconv.training.cluster import local_cluster
from edgeconv.training.members import ClusterMember, ProcessSettings, run_cluster
from edgeconv.types import CHECKPOINT_KEPT, CONNECTED, OperatorCount
from edgeconv.types.errors import ClusterLost, EdgeconvError, ToolFailed, UsageError

# For what is no test of the sandbox.
FREE = Access(profile="programs")
HERE = {"PYTHONPATH": str(SUPPORT)}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    number: int = 0
    text: str = ""
    directory: str = ""


class Sum(msgspec.Struct, frozen=True):
    total: int
    counts: tuple[OperatorCount, ...]


class Unlisted(EdgeconvError):
    """No error that the parent knows by name."""


def add_one(job: Job) -> Sum:
    count = OperatorCount(name=job.text, version=1, count=job.number)
    return Sum(job.number + 1, (count,))


@functools.cache
def kept() -> list[int]:
    """What stays from one call to the next."""
    return []


def keep(job: Job) -> Sum:
    kept().append(job.number)
    report_progress(f"kept {kept()}")
    return Sum(sum(kept()), ())


def refuse(job: Job) -> Sum:
    raise UsageError(f"cannot do {job.text}", hint="ask for something else")


def refuse_unlisted(job: Job) -> Sum:
    raise Unlisted("a message", hint="a hint")


def fail(job: Job) -> Sum:
    print("the last words", flush=True)
    return Sum(1 // job.number, ())


def fail_otherwise(job: Job) -> Sum:
    import numpy as np

    kinds = {"OSError": OSError, "MemoryError": MemoryError, "LinAlgError": np.linalg.LinAlgError}
    raise kinds[job.text]("of another's making")


def fail_over_samples(job: Job) -> Sum:
    """With all of them in the message, as TensorFlow does."""
    import numpy as np

    samples = np.arange(64, dtype="f").reshape(16, 4) + 1000.5
    kinds = {"ValueError": ValueError, "LinAlgError": np.linalg.LinAlgError}
    try:
        raise KeyError(samples[0])
    except KeyError as error:
        raise kinds[job.text](f"cannot convert {{ 0: {samples!r},\n 1: {samples} }}") from error


def write_too_much(job: Job) -> Sum:
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14))
        Path("large").write_bytes(bytes(2**15))
    except OSError as error:
        # As a library passes it on.
        raise RuntimeError("it was not written") from error
    return Sum(0, ())


def die_by_signal(job: Job) -> Sum:
    print("the last words", flush=True)
    os.kill(os.getpid(), job.number)
    time.sleep(60)
    return Sum(0, ())


def leave_without_answer(job: Job) -> Sum:
    print("the last words", flush=True)
    os._exit(0)


def leave_by_sys_exit(job: Job) -> Sum:
    sys.exit(0)


def sleep(job: Job) -> Sum:
    print("going to sleep", flush=True)
    time.sleep(job.number)
    return Sum(job.number, ())


def eat_memory(job: Job) -> Sum:
    """Take `number` MiB, 8 at a time, then hold them."""
    held = []
    for _ in range(job.number // 8):
        held.append(b"x" * 2**23)
        time.sleep(0.01)
    time.sleep(60)
    return Sum(len(held), ())


def take_and_give_back(job: Job) -> Sum:
    held = b"x" * job.number
    taken = len(held)
    del held
    return Sum(taken, ())


def tell(job: Job) -> Sum:
    for index in range(job.number):
        report_progress(f"step {index} {job.text}")
    return Sum(0, ())


def count(job: Job) -> Sum:
    for index in range(job.number):
        report_progress(CountedLine(job.text, index, job.number))
    return Sum(0, ())


def tell_then_sleep(job: Job) -> Sum:
    report_progress("about to sleep")
    time.sleep(600)
    return Sum(0, ())


def read_input(job: Job) -> Sum:
    """Whether standard input stays open and silent for half a second: 1, else 0."""
    import select

    readable, _, _ = select.select([0], [], [], 0.5)
    return Sum(0 if readable else 1, ())


def start_grandchild(job: Job) -> Sum:
    """Start a process, write both numbers to a file in `directory`, and sleep."""
    grandchild = subprocess.Popen(["sleep", "600"])
    _write(Path(job.directory), f"pids{job.text}", f"{os.getpid()} {grandchild.pid}")
    time.sleep(600)
    return Sum(0, ())


def hold_the_interpreter(job: Job) -> Sum:
    """Block in native code that lets no other thread of this process run."""
    import ctypes

    _write(Path(job.directory), "pids", f"{os.getpid()}")
    ctypes.PyDLL(None).sleep(600)
    return Sum(0, ())


def print_much(job: Job) -> Sum:
    """Write hostile things to the log and fail: megabytes, binary, one endless line."""
    write = sys.stdout.buffer.write
    write(b"\x1b[31mred\x00\x07\xff\xfe\n" * 200_000)
    write(b"y" * 3_000_000)
    write(b"\n\x1b]0;title\x07 \x9b the end \xe2\x82\n")
    sys.stdout.flush()
    os._exit(3)


def tell_who(job: Job) -> Sum:
    """Report and print its number, and what the environment says about the cluster."""
    report_progress(CONNECTED)
    for index in range(3):
        report_progress(f"epoch {index} of {job.number}")
        print(f"printed {index} by {job.number}", flush=True)
    return Sum(job.number, (OperatorCount(name=os.environ["TF_CONFIG"], version=1, count=0),))


def keep_checkpoints(job: Job) -> Sum:
    """Report so many checkpoints, and print two lines."""
    report_progress(CONNECTED)
    for _ in range(job.number):
        report_progress(CHECKPOINT_KEPT)
    print(f"the first of {job.number}\nthe last", flush=True)
    return Sum(job.number, ())


def tell_environment(job: Job) -> Sum:
    return Sum(0, (OperatorCount(name=os.environ.get(job.text, ""), version=1, count=0),))


def fail_after(job: Job) -> Sum:
    """After `number` hundredths of a second: a signal by its name in `text`, or an error.

    With a `directory` the time counts from when two are there.
    """
    print("about to fail", flush=True)
    _meet(job)
    time.sleep(job.number / 100)
    if job.text.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, job.text))
        time.sleep(60)
    kind = ClusterLost if "cluster is lost" in job.text else ToolFailed
    raise kind(job.text, hint="a hint")


def abort_with_words(job: Job) -> Sum:
    print(job.text, flush=True)
    _meet(job)
    os.abort()


def meet_and_add(job: Job) -> Sum:
    _meet(job)
    return add_one(job)


def fail_when_alone(job: Job) -> Sum:
    """As `fail_after`, when the parent has seen the end of the one that was met in `directory`."""
    _meet(job)
    (other,) = {path.name for path in Path(job.directory).glob("here-*")} - {f"here-{os.getpid()}"}
    while Path("/proc", other.removeprefix("here-")).exists():
        time.sleep(0.01)
    return fail_after(Job(text=job.text))


def _meet(job: Job) -> None:
    if job.directory:
        (Path(job.directory) / f"here-{os.getpid()}").touch()
        while len([*Path(job.directory).glob("here-*")]) < 2:
            time.sleep(0.01)


def connect_then_sleep(job: Job) -> Sum:
    report_progress(CONNECTED)
    time.sleep(job.number)
    return Sum(1, ())


def be_hostile(job: Job) -> Sum:
    """What no terminal should get, in reports and in the log, and more of it than anyone reads."""
    report_progress("\x1b[31mred \udcff\x07 report")
    write = sys.stdout.buffer.write
    write(b"I0000 00:00:1 chatter\n\x1b]0;title\x07 \xff\xfe \x9b words \xe2\x82\n")
    write(b" 1/9\r 2/9\r\x08\x08 9/9\n")
    sys.stdout.flush()
    time.sleep(0.2)
    write(b"x" * job.number)
    sys.stdout.flush()
    time.sleep(0.2)
    write(b"\n" + b"line\n" * (job.number // 5) + b"the last line\n")
    sys.stdout.flush()
    return Sum(0, ())


def report_in_halves(job: Job) -> Sum:
    """A report of which first a half is there, cut within a character."""
    line = "zwölf €\n".encode()
    with Path("progress.txt").open("ab", buffering=0) as file:
        for part in (line[:3], line[3:9], line[9:]):
            file.write(part)
            time.sleep(0.2)
    return Sum(0, ())


def cluster_parent(directory: str) -> None:
    """Run three members of a cluster, which sleep."""
    end_on_signals()
    parts = [
        ClusterMember(start_grandchild, Job(text=str(index), directory=directory), cluster)
        for index, cluster in enumerate(local_cluster(3))
    ]
    settings = ProcessSettings(
        label="training", scratch=Path(directory), access=FREE, environment=HERE
    )
    run_cluster(parts, settings)


def parent(what: str, directory: str) -> None:
    """Start a task (or, for "command", a plain program), and wait for it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    end_on_signals()
    scratch = Path(directory)
    if what == "command":
        command = ["sh", "-c", 'sleep 600 & echo "$$ $!" > half && mv half pids && sleep 600']
        with Child(command, label="sh", cwd=scratch, access=FREE) as child:
            child.wait()
    else:
        job = Job(directory=directory)
        with start_task(
            globals()[what], job, label="task", scratch=scratch, access=FREE, environment=HERE
        ) as task:
            task.result()


def _write(directory: Path, name: str, text: str) -> None:
    """Whole or not at all, for a reader that polls."""
    half = directory / f"half of {name}"
    half.write_text(text)
    half.rename(directory / name)
