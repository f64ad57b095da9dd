"""`edgeconv build --watch`: build again whenever something that it stands on has changed."""

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
# Without the present directory, whose modules -m and -c would take for installed ones.
_BUILD = "import sys; sys.path[:] = filter(None, sys.path); import edgeconv.cli as c; c.main()"
_OWN = frozenset({"--watch", "--json", "--list-outputs"})


def watch(asked: BuildRequest, config: Path, typed: Sequence[str]) -> NoReturn:
    """Build, and again after every change, until it is interrupted.

    Each build is a process of its own, which reads the configuration as it is then. What it
    stands on is looked at every third of a second: that works on every file system.
    """
    words = [word for word in typed if word not in _OWN]
    command = [sys.executable, "-c", _BUILD, "build", *words, "--json"]
    while True:
        # Before the build: what changes while it runs is built anew.
        before = _times({config.absolute(), *_inputs(asked)})
        _run(command)
        while _times(before) == before:
            time.sleep(POLL_SECONDS)


def _inputs(asked: BuildRequest) -> set[Path]:
    """What the configuration names at this moment; nothing where it has an error."""
    try:
        return {path for step in make_steps(asked) for path in step.inputs.files()}
    except (EdgeconvError, OSError):
        return set()


def _run(command: list[str]) -> None:
    """Build, and say what was made. Errors go to this process's stderr as they come."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            said, _ = process.communicate()
        except KeyboardInterrupt:
            # It ends its own children.
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        echo("waiting for a change", err=True)
        return
    for one in json.loads(said):
        if one["is_new"]:
            echo(f"built {one['name']} in {one['directory']}")


def _times(paths: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """When each was changed, None for one that is not there."""
    found: dict[Path, tuple[int, int] | None] = {}
    for path in paths:
        try:
            state = path.stat()
            found[path] = (state.st_mtime_ns, state.st_ctime_ns)
        except OSError:
            found[path] = None
    return found
