"""A real sshd on a high port of this machine, with keys made for the test."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

SERVER = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
PATIENCE_S = 120.0


class Server(NamedTuple):
    """A running sshd: how to reach it, and the directory that its sessions write to."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    temporary: Path

    def place(self, config: str = "config") -> str:
        """What follows `ssh:` in a runtime."""
        return f"{getpass.getuser()}@127.0.0.1:{self.port}?config={self.directory / config}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_server(directory: Path) -> Server:
    """Start an sshd that knows one key; skips the test where there is none to start."""
    if SERVER is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd here: install openssh-server and openssh-client")
    if os.geteuid() == 0:
        # Where the server puts itself away while it looks at a key.
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    for name in ("host", "user", "stranger"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(key, check=True)
    port, temporary = free_port(), directory / "tmp"
    temporary.mkdir()
    shutil.copy(directory / "user.pub", directory / "authorized_keys")
    host_key = (directory / "host.pub").read_text(encoding="ascii")
    known = directory / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {host_key}", encoding="ascii")
    (directory / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory / 'host'}\n"
        f"PidFile {directory / 'pid'}\nAuthorizedKeysFile {directory / 'authorized_keys'}\n"
        "UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv TMPDIR={temporary}\n",
        encoding="utf-8",
    )
    write_config(directory / "config", key=directory / "user", known=known)
    write_config(directory / "stranger_config", key=directory / "stranger", known=known)
    write_config(directory / "unknown_config", key=directory / "user", known=directory / "none")
    log = (directory / "sshd.log").open("wb")
    command = [SERVER, "-D", "-e", "-f", str(directory / "sshd_config")]
    process = subprocess.Popen(command, stderr=log, start_new_session=True)
    log.close()
    await_port(process, port, directory / "sshd.log")
    return Server(process, port, directory, temporary)


def write_config(file: Path, *, key: Path, known: Path) -> None:
    file.write_text(
        f"IdentityFile {key}\nIdentitiesOnly yes\nIdentityAgent none\n"
        f"UserKnownHostsFile {known}\nGlobalKnownHostsFile /dev/null\n",
        encoding="utf-8",
    )


def await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"sshd ended: {log.read_text(errors='replace')}")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("sshd does not answer")


def stop_server(server: Server) -> None:
    """End it, with the connections that it serves."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.process.kill()
    for child in children:
        # It may have gone by itself.
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    server.process.wait(timeout=PATIENCE_S)
