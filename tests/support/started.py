"""Which processes this one starts, as Python's audit events tell."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")
_watching: list[list[str]] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _EVENTS:
        for started in _watching:
            started.append(f"{event} {arguments}")


# A hook stays for as long as the process does.
sys.addaudithook(_note)


@contextmanager
def starts() -> Iterator[list[str]]:
    """What is started meanwhile: the event, and its arguments, as one text for each."""
    started: list[str] = []
    _watching.append(started)
    try:
        yield started
    finally:
        _watching.remove(started)
