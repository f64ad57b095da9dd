from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's cache, or another test's."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=True, scope="session")
def _settings_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's settings, notes and key; what a module converts is noted."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        patch.delenv("EDGECONV_CACHE_KEY", raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def _hang_up_ends_a_process() -> Iterator[None]:
    """Also under `nohup`, whose children ignore it, and those that tests start with them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless the command line asks for it with -m slow."""
    if "slow" in config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
