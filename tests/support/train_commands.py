"""`edgeconv train` as a command, whose processes are seen, killed and awaited."""

import contextlib
import json
import os
import re
import subprocess
import time
from pathlib import Path

import psutil
from forking import edgeconv_command, forks_of

DEADLINE_S = 240
# Three epochs of 40 steps with a checkpoint every 4.
LONG = ("--epochs", "3", "--steps-per-epoch", "40", "--checkpoint-steps", "4")
TWO_WORKERS = ("--strategy", "multiworker", "--workers", "2", "--loop", "custom")


def _is_server(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[2:3] == ["serve"]
    return False


class Command:
    """`edgeconv train …` as a process of its own, and those it starts.

    They are looked at every `pause_s`, which takes a processor some 30 ms.
    """

    def __init__(self, directory, *arguments, pause_s=0.01, **variables):
        self.directory = Path(directory)
        self._pause_s = pause_s
        self._log = (self.directory / f"log-{time.monotonic_ns()}.txt").open("w+b")
        environment = {**os.environ, "TMPDIR": str(self.directory), **variables}
        environment.setdefault("TF_CONFIG", "")
        self.process = subprocess.Popen(
            [*edgeconv_command(), "train", *map(str, arguments)],
            cwd=directory,
            env=environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self.started = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def printed(self):
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def look(self):
        """Note the processes that there are."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.started[child.pid] = child
            for pid in forks_of(self.process.pid).keys() - self.started.keys():
                self.started[pid] = psutil.Process(pid)

    def member(self, **task):
        """The process that trains: alone, or as the member whose task has these keys."""
        self.look()
        forks = forks_of(self.process.pid)
        for pid, child in self.started.items():
            with contextlib.suppress(psutil.Error):
                forked = forks.get(pid)
                words = forked["words"] if forked else child.cmdline()
                variables = forked["environment"] if forked else child.environ()
                own = json.loads(variables.get("TF_CONFIG") or "{}").get("task", {})
                if any("_member" in word for word in words) and own.items() >= task.items():
                    return child
        raise AssertionError(f"no member {task} runs:\n{self.printed}")

    def wait_until(self, is_so):
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            self.look()
            assert self.process.poll() is None, self.printed
            assert time.monotonic() < deadline, self.printed
            time.sleep(self._pause_s)

    def wait(self):
        """Its exit code; the processes it started are gone then."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            self.look()
            assert time.monotonic() < deadline, self.printed
            time.sleep(self._pause_s)
        # The first fork of a run starts the server, which is a child for a moment.
        mine = [each for each in self.started.values() if not _is_server(each)]
        gone, alive = psutil.wait_procs(mine, timeout=DEADLINE_S)
        assert not alive, self.printed
        assert len(gone) == len(mine)
        return self.process.returncode


def checkpoint(directory):
    """The number of the last checkpoint; 0 while there is none."""
    state = directory / "out" / "small" / ".checkpoints" / "current" / "checkpoint"
    with contextlib.suppress(FileNotFoundError):
        found = re.search(r'^model_checkpoint_path: "ckpt-(\d+)"', state.read_text("utf-8"))
        return int(found[1]) if found else 0
    return 0
