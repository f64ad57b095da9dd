"""Environments of other runtimes as they lie in the cache."""

import json
from pathlib import Path

from edgeconv.system.store import cache_directory, seal_directory


def plant(name: str, *, sealed: bool = True) -> Path:
    """A complete environment as far as one can see from outside."""
    directory = cache_directory() / "runtimes" / name
    (directory / "venv" / "bin").mkdir(parents=True)
    # It cannot be run, so whoever starts it gets an error.
    (directory / "venv" / "bin" / "python").write_text("no program")
    ready = {"runtime": "x 1", "python": "3.9.1", "packages": {"numpy": "1.26.4"}, "seconds": 9.5}
    marker = directory / "ready.json"
    if sealed:
        seal_directory(directory / "venv", marker, json.dumps(ready).encode())
    else:
        marker.write_text(json.dumps(ready))
    return directory
