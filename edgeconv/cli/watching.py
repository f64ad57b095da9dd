"""`edgeconv build --watch`: build again whenever an input has changed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from edgeconv.building.build import make_steps
from edgeconv.cli.printing import echo
from edgeconv.errors import EdgeconvError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from edgeconv.requests.check import BuildRequest

POLL_SECONDS = 0.3
# Without the current directory, whose modules -m and -c would import.
_BUILD = "import sys; sys.path[:] = filter(None, sys.path); import edgeconv.cli as c; c.main()"
_OWN = frozenset({"--watch", "--json", "--list-outputs"})


def watch(request: BuildRequest, config: Path, typed: Sequence[str]) -> NoReturn:
    """Build, and again after every change, until it is interrupted.

    Each build is a process, which reads the current configuration. Its inputs are polled, which
    works on every file system.
    """
    words = [word for word in typed if word not in _OWN]
    command = [sys.executable, "-c", _BUILD, "build", *words, "--json"]
    while True:
        # Before the build: what changes while it runs is built again.
        before = _times({config.absolute(), *_inputs(request)})
        _run(command)
        while _times(before) == before:
            time.sleep(POLL_SECONDS)


def _inputs(request: BuildRequest) -> set[Path]:
    """The current inputs of the configuration; none where it has an error."""
    try:
        return {path for step in make_steps(request) for path in step.inputs.files()}
    except (EdgeconvError, OSError):
        return set()


def _run(command: list[str]) -> None:
    """Build, and print the results. Errors go to stderr as they come."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            output, _ = process.communicate()
        except KeyboardInterrupt:
            # It ends its own children.
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        echo("waiting for a change", err=True)
        return
    for result in json.loads(output):
        if result["is_new"]:
            echo(f"built {result['name']} in {result['directory']}")


def _times(paths: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """The times of the last change of each file, None for one that is missing."""
    times: dict[Path, tuple[int, int] | None] = {}
    for path in paths:
        try:
            state = path.stat()
            times[path] = (state.st_mtime_ns, state.st_ctime_ns)
        except OSError:
            times[path] = None
    return times
