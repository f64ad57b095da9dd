"""What is made once in a run of the tests, and shared by the processes of xdist."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def shared_directory(factory: pytest.TempPathFactory) -> Path:
    """A directory of the whole run."""
    own = factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    place.mkdir(exist_ok=True)
    return place


def made_once(root: Path, make: Callable[[Path], object]) -> Path:
    """`root`, filled by `make` in the process that comes first."""
    done = root.with_name(f"{root.name}.done")
    with FileLock(f"{root}.lock"):
        if not done.exists():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            make(root)
            done.touch()
    return root
