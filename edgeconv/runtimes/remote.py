"""Another machine, reached by the system's ssh.

One connection is made and kept. Commands and copies go through it, so that only the first waits for
the exchange of keys. It never prompts: what needs a password fails with an error. The machine needs
a POSIX shell.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.processes.workers import Child, poll_until, run_program
from edgeconv.store import scratch_directory
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Mapping


_CONNECT_TIMEOUT_S = 15
# Keys are exchanged after the connection was made, which a slow board does slowly.
_READY_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 120.0
_LOST_WITHIN_S = 3.0
# The exit code where ssh itself failed, and not the remote command.
_SSH_FAILED = 255
_FOR_EVER = Allowance(timeout_s=float("inf"))
_OPTIONS = (
    *("BatchMode=yes", f"ConnectTimeout={_CONNECT_TIMEOUT_S}"),
    # A lost machine is noticed within a minute.
    *("ServerAliveInterval=15", "ServerAliveCountMax=4"),
    # A user's configuration may set these for other purposes.
    *("RemoteCommand=none", "PermitLocalCommand=no", "ForwardAgent=no", "ForwardX11=no"),
    "ClearAllForwardings=yes",
)
# What ssh prints, and what to do.
_REASONS = {
    "Connection refused": "check that an ssh server runs there, on that port: ssh:HOST:PORT",
    "Could not resolve hostname": "check the name: ssh:USER@HOST",
    "Permission denied": (
        "passwords are not supported: copy your key there with ssh-copy-id, add it to an "
        "ssh-agent, or name one: ssh:USER@HOST?identity=FILE"
    ),
    "Host key verification failed": (
        "its key is unknown, or has changed: connect once with ssh yourself, and check the key"
    ),
    "timed out": "check that the machine is on and reachable",
    "No route to host": "check that the machine is on and reachable",
    "Network is unreachable": "check that the machine is on and reachable",
}


# ssh reads the configuration, the keys and the agent of the user.
_ACCESS = Access(profile="programs")


class SshAddress(NamedTuple):
    """A machine's address: `user` and `port` are "" where ssh chooses them."""

    host: str
    user: str = ""
    port: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{user}{host}{':' if self.port else ''}{self.port}"


def parse_ssh_address(text: str) -> SshAddress:
    """`[user@]host[:port]`, where a host with colons is in brackets. Raises `UsageError`."""
    user, _, rest = text.rpartition("@")
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = rest.partition(":")
    # What begins with a dash would be an option to ssh.
    wrong = not host or host.startswith("-") or user.startswith("-") or set(text) & set(" \t\n")
    if wrong or (port and not port.isdecimal()):
        raise UsageError(
            f"{text!r} is not the address of a machine for ssh",
            hint="as in ssh:user@host or ssh:host:2222",
        )
    return SshAddress(host, user, port)


class Machine:
    """A machine; the context manager makes and ends the connection.

    Raises `UsageError` without ssh here, and `ToolFailed` where the machine cannot be reached.
    """

    def __init__(self, address: SshAddress, options: Mapping[str, str], scratch: Path) -> None:
        if shutil.which("ssh") is None:
            raise UsageError("ssh is not installed", hint="install openssh-client")
        chosen = _ssh_options(address, options)
        self.address = address
        self._scratch = scratch
        self._until_gone = ExitStack()
        # The path of a socket is limited to a few hundred characters.
        self._sockets = self._until_gone.enter_context(scratch_directory())
        self._options = ("-S", str(self._sockets / "s"), *chosen)
        self._master: Child | None = None
        self._at_exit = ExitStack()

    def __enter__(self) -> Machine:
        with ExitStack() as unless_connected:
            unless_connected.push(self._until_gone)
            directory = Path(tempfile.mkdtemp(prefix="ssh-", dir=self._scratch))
            command = ["ssh", "-M", "-N", *self._options, self.address.host]
            self._master = unless_connected.enter_context(
                Child(
                    command,
                    label=self._label,
                    cwd=directory,
                    access=_ACCESS,
                    allowance=_FOR_EVER,
                )
            )
            self._await_connection(self._master)
            self._at_exit = unless_connected.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._at_exit.close()

    @property
    def _label(self) -> str:
        return f"ssh to {self.address}"

    def _await_connection(self, master: Child) -> None:
        socket, deadline = self._sockets / "s", time.monotonic() + _READY_TIMEOUT_S
        poll_until(lambda: socket.exists() or master.has_ended() or time.monotonic() > deadline)
        if not socket.exists():
            output = master.log.read_text(encoding="utf-8", errors="replace")
            raise self._unreachable(output, master.tail())

    def _unreachable(self, output: str, tail: str) -> ToolFailed:
        hint = next((hint for reason, hint in _REASONS.items() if reason in output), "")
        return ToolFailed(
            f"cannot connect to {self.address} by ssh\n{tail}".rstrip(),
            hint=hint or f"check that this works: ssh -o BatchMode=yes {self.address.host} true",
        )

    def lost(self, error: ToolFailed) -> ToolFailed:
        """`error`, or a clearer one where the connection was lost."""
        if self._master is None or error.cause.status != _SSH_FAILED:
            return error
        # The connection ends a little later than the command that it carried.
        deadline = time.monotonic() + _LOST_WITHIN_S
        master = self._master
        poll_until(lambda: master.has_ended() or time.monotonic() > deadline)
        if not master.has_ended():
            return error
        return ToolFailed(
            f"the connection to {self.address} was lost\n{error.message}",
            hint="check that the machine is on and reachable, and run it again",
        )

    def command(self, script: str) -> tuple[str, ...]:
        """The command here that runs `script` in a POSIX shell there."""
        there = f"exec sh -c {shlex.quote(script)}"
        return ("ssh", *self._options, self.address.host, there)

    def run(self, script: str, what: str) -> str:
        """What `script` printed there. Raises `ToolFailed` where it fails."""
        return self._run_here(self.command(script), what)

    def try_to_run(self, script: str, what: str) -> None:
        """`run`, ignoring a failure."""
        with suppress(ToolFailed):
            self.run(script, what)

    def send(self, file: Path, script: str, what: str) -> str:
        """`run`, with the file as the stdin of `script`."""
        from_file = ("/bin/sh", "-c", 'exec "$@" < "$0"', str(file))
        return self._run_here((*from_file, *self.command(script)), what)

    def copy(self, file: Path, target: str) -> None:
        """Copy a file there, without scp or sftp. Raises `ToolFailed`."""
        what = f"copying {file.name} to {self.address}"
        self.send(file, f"cat > {shlex.quote(target)}", what)

    def _run_here(self, command: tuple[str, ...], what: str) -> str:
        directory = Path(tempfile.mkdtemp(prefix="ssh-", dir=self._scratch))
        output, failure = run_program(
            command, label=what, cwd=directory, timeout_s=_COMMAND_TIMEOUT_S
        )
        if failure is not None:
            raise self.lost(ToolFailed(failure.message, cause=failure.cause)) from failure
        return output


def _ssh_options(address: SshAddress, options: Mapping[str, str]) -> tuple[str, ...]:
    chosen = ["-T", *(f"-o{option}" for option in _OPTIONS)]
    if address.user:
        chosen += ["-l", address.user]
    if address.port:
        chosen += ["-p", address.port]
    for name, flag in (("config", "-F"), ("identity", "-i")):
        if name in options:
            file = Path(options[name]).absolute()
            if not file.is_file():
                raise UsageError(f"there is no file {file}", hint=f"ssh:HOST?{name}=FILE")
            chosen += [flag, str(file)]
    return tuple(chosen)
