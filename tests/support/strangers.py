"""A checkout of a stranger in a home directory that is watched: its other files are canaries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tflite import float_model, int8_model, packed

_WATCHES: list[Watch] = []


class Watch:
    """Everything that this process opens in a directory, starts, or connects to, while armed."""

    def __init__(self, home: Path, checkout: Path) -> None:
        self.home, self.checkout = os.path.realpath(home), os.path.realpath(checkout)
        self.seen: list[str] = []

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            real = os.path.realpath(os.fsdecode(arguments[0]))
            if real.startswith(self.home + "/") and not real.startswith(self.checkout + "/"):
                self.seen.append(f"opened {real}")
        elif event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"):
            self.seen.append(f"started {arguments[0]}")
            raise PermissionError("a program was started")
        elif event == "socket.connect":
            self.seen.append(f"connected to {arguments[1]}")
            raise PermissionError("a connection was made")


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _WATCHES:
        watch.hear(event, arguments)


# A hook stays for the life of the process.
sys.addaudithook(_hear)

EVIL = "#!/bin/sh\necho ran >> {ran}\n"
EVIL_PY = "from pathlib import Path\nPath({ran!r}).write_text('ran')\nload = score = None\n"


class Place:
    """The home directory with its canaries, and the checkout in it, which is the present one."""

    def __init__(self, home: Path) -> None:
        self.home, self.checkout = home, home / "work" / "checkout"
        self.ran = home / "ran"
        self.checkout.mkdir(parents=True)
        np.savez(home / "secret.npz", x=np.ones((8, 4), np.float32), labels=np.zeros(8, np.int64))
        np.save(home / "secret.npy", np.ones((8, 4), np.float32))
        (home / "secret.tflite").write_bytes(packed(float_model()))
        for name in (".profile", "secret.toml", "secret.txt"):
            (home / name).write_text("# canary\n")
        (home / "folder").mkdir()
        (home / "folder" / "kept").write_text("canary\n")
        self.fill()

    def fill(self) -> None:
        """What a checkout has: models, samples, and a program of its own."""
        here = self.checkout
        np.savez(here / "x.npz", x=np.ones((8, 4), np.float32), labels=np.zeros(8, np.int64))
        np.save(here / "x.npy", np.ones((8, 4), np.float32))
        (here / "float.tflite").write_bytes(packed(float_model()))
        (here / "int8.tflite").write_bytes(packed(int8_model()))
        (here / "evil.sh").write_text(EVIL.format(ran=self.ran))
        (here / "evil.sh").chmod(0o755)
        (here / "evil.py").write_text(EVIL_PY.format(ran=str(self.ran)))
        (here / "ssh_config").write_text(f"Host *\n  ProxyCommand {here / 'evil.sh'}\n")

    def config(self, text: str) -> None:
        (self.checkout / "edgeconv.toml").write_text(text)

    def link(self, name: str, target: str) -> None:
        """A link in the checkout; `target` is from the home directory."""
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.home / target, path.parent))

    def outside(self) -> dict[str, bytes]:
        """Every file of the home directory that is not of the checkout, with its content."""
        return {
            str(path): path.read_bytes()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and self.checkout not in path.parents
        }


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    made = Place(tmp_path / "home")
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(made.checkout)
    return made


@pytest.fixture
def watch(place) -> Iterator[Watch]:
    made = Watch(place.home, place.checkout)
    _WATCHES.append(made)
    yield made
    _WATCHES.remove(made)
