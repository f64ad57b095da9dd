"""edgeconv's command line with the scan taken away, in a process of its own; for the watch only.

    python without_walls.py JOBS.json ANSWERS.json

The jobs are run one after the other. edgeconv has no switch for this, so its functions are replaced
here. With "forked", children that run TensorFlow are forked from this process, in which it is
imported already, and enter their sandbox by the same file as those that are started: two hundred
models take a minute in place of half an hour.
"""

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from forking import go_on

from edgeconv.cli import run
from edgeconv.model.source import loading
from edgeconv.model.source.scanning import refusing
from edgeconv.system.processes import workers
from edgeconv.tf import keras_files
from edgeconv.types import Scan

_TASKS = ["-m", "edgeconv.system.processes.tasks"]


def main(jobs: str, answers: str) -> None:
    asked = json.loads(Path(jobs).read_text())
    if asked["scan"] == "off":
        take_scan_away()
    if asked["forked"]:
        fork_children()
    given = []
    for job in asked["jobs"]:
        os.chdir(job["cwd"])
        start = time.monotonic()
        try:
            code = run(job["words"])
        except SystemExit as error:
            code = error.code
        except BaseException:  # noqa: BLE001 (it must not end the others; 99 is a failure of the test)
            traceback.print_exc()
            code = 99
        given.append({"id": job["id"], "code": code, "seconds": time.monotonic() - start})
        Path(answers).write_text(json.dumps(given))


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def take_scan_away() -> None:
    """No findings, whatever there is; nor any other look at classes and functions."""

    def nothing(model: Any, known: Any, reads_layers: bool) -> Scan:
        return Scan(path=model.path, kind=model.kind, sha256=model.sha256, findings=())

    refusing._scanned = nothing
    # So a model is loaded as it is, and not a copy of what was scanned.
    refusing.trusted_models = lambda _=(): _Everything()
    # Others that look before something is loaded.
    loading.refuse_unknown_classes = lambda _path, _names: None
    keras_files.refuse_lambda = lambda _: None


def fork_children() -> None:
    """Import what children import, and fork them from here from now on."""
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import tf_keras  # noqa: F401
    from ai_edge_litert import interpreter  # noqa: F401

    real = subprocess.Popen

    def started(command: list[str], **rest: Any) -> Any:
        words = command[len(workers._WAIT_FOR_A_LINE) :]
        return Forked(words, **rest) if _TASKS[1] in words else real(command, **rest)

    class Subprocess:
        PIPE = subprocess.PIPE
        Popen = staticmethod(started)

    workers.subprocess = Subprocess


class Forked:
    """As much of `subprocess.Popen` as our workers use, of a child that is a fork."""

    def __init__(
        self, words: list[str], *, cwd: Path, env: dict[str, str], stdout: Any, stderr: Any,
        pass_fds: list[int], **_: Any,
    ) -> None:  # fmt: skip
        self.returncode: int | None = None
        theirs, ours = os.pipe()
        answers, gives = os.pipe()
        talks = stdout == subprocess.PIPE
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            request = {"words": words, "cwd": str(cwd), "environment": env, "kept": pass_fds}
            printed = gives if talks else stdout.fileno()
            go_on(request, [theirs, printed, stderr.fileno(), *pass_fds])
        os.close(theirs)
        os.close(gives)
        self.stdin = os.fdopen(ours, "wb", 0)
        self.stdout = os.fdopen(answers, "rb", 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
