"""The one-file runner on another machine, by ssh.

    ssh:HOST  ssh:USER@HOST  ssh:USER@HOST:PORT
    ssh:HOST?config=FILE     the configuration to use, as ssh's -F

The machine needs a POSIX shell, Python 3.7 or later with numpy, and one of ai_edge_litert,
tflite_runtime and tensorflow in it. The runner and the models go into a directory of /tmp there. At
the end it is removed, and what still runs in it is killed.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.runtimes.conversation import Facts, Package, Runner, RunnerSession, relu_file
from edgeconv.runtimes.local import RUNNER
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import Child, poll_until, run_program
from edgeconv.system.store import scratch_directory, sha256_file
from edgeconv.types import Allowance, RuntimeChoice, Timing
from edgeconv.types.errors import ToolFailed, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed


PACKAGES: tuple[Package, ...] = ("ai_edge_litert", "tflite_runtime", "tensorflow")
# See edgeconv.runtimes.interface.
OPTIONS = frozenset({"config"})
_USUAL_PYTHON = "python3"
# By default, a server lets some ten sessions through one connection.
_MOST_SESSIONS = 8
_MARK = "edgeconv:"
# Makes the directory, with the runner that comes in.
_SETTLE = (
    'd=$(mktemp -d "${TMPDIR:-/tmp}/edgeconv-XXXXXX") && cat > "$d/runner.py" && '
    f'echo "{_MARK} $d"'
)
# It searches for packages without importing them, as TensorFlow takes seconds.
_LOOK = (
    "import importlib.util as u, sys;"
    f"names = [p for p in {('numpy', *PACKAGES)} if u.find_spec(p)];"
    f"print({_MARK!r}, '%d.%d' % sys.version_info[:2], *names)"
)
_INSTALL = "run on that machine: PYTHON -m pip install numpy ai-edge-litert"


def files_named(choice: RuntimeChoice) -> Iterator[str]:
    """The configuration of ssh, whose ProxyCommand and Match can run programs."""
    if "config" in choice.options:
        yield choice.options["config"]


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[SshRuntime]:
    """The runtime on the machine that `choice` names, after a model has run there.

    Raises `UsageError` for a bad address, and `ToolFailed` where the machine cannot be reached or
    lacks what a runtime needs.
    """
    if not choice.location:
        raise UsageError("the runtime ssh needs a machine", hint="as in ssh:user@host")
    address = parse_ssh_address(choice.location)
    with Machine(address, choice.options, settings.scratch) as machine:
        directory = _marked(machine.send(RUNNER, _SETTLE, f"copying to {machine.address}"))
        try:
            yield _open(machine, directory, settings)
        finally:
            with suppress(ToolFailed):
                machine.run(_removal(directory), f"removing {directory} on {machine.address}")


def _open(machine: Machine, directory: str, settings: RuntimeSettings) -> SshRuntime:
    python = settings.python or _USUAL_PYTHON
    failure: ToolFailed | None = None
    there = f"{directory}/relu.tflite"
    with relu_file(settings.scratch) as file:
        machine.copy(file, there)
    for package in _packages(machine, python):
        settings.on_progress(f"trying {package} on {machine.address}")
        runner = _runner(machine, directory, python, package, settings)
        try:
            facts, _ = runner.probe(there)
        except ToolFailed as error:
            # An installed package may not work, as with another numpy than its own.
            failure = failure or error
        else:
            return SshRuntime(machine, directory, runner, facts)
    raise ToolFailed(
        f"no TFLite interpreter works on {machine.address}: {failure and failure.message}",
        hint=_INSTALL.replace("PYTHON", python),
    )


def _packages(machine: Machine, python: str) -> list[Package]:
    """The interpreters that the Python there has. Raises `ToolFailed` where that is none."""
    where = f"{python} on {machine.address}"
    try:
        output = machine.run(f"{shlex.quote(python)} -c {shlex.quote(_LOOK)}", f"starting {where}")
    except ToolFailed as error:
        raise ToolFailed(
            f"{where} does not work\n{error.message}",
            hint="install Python 3 there, or name it with --python FILE",
        ) from error
    version, *names = _marked(output).split()
    if tuple(map(int, version.split("."))) < (3, 7):
        raise ToolFailed(
            f"{where} is Python {version}; 3.7 or later is needed",
            hint="name another with --python FILE",
        )
    hint = _INSTALL.replace("PYTHON", python)
    if "numpy" not in names:
        raise ToolFailed(f"{where} has no numpy", hint=hint)
    if len(names) == 1:
        missing = f"no TFLite interpreter: none of {listed(PACKAGES)}"
        raise ToolFailed(f"{where} has {missing}", hint=hint)
    return [package for package in PACKAGES if package in names]


def _runner(
    machine: Machine, directory: str, python: str, package: Package, settings: RuntimeSettings
) -> Runner:
    quoted = shlex.quote(directory)
    # The shell becomes the Python and keeps its process number.
    script = f"echo $$ >> {quoted}/processes && exec {shlex.quote(python)} {quoted}/runner.py"
    return Runner(
        command=machine.command(script),
        package=package,
        label=f"{package} on {machine.address}",
        scratch=settings.scratch,
        access=Access(profile="programs"),
        threads=settings.threads,
        accelerator=settings.accelerator,
        allowance=settings.allowance,
    )


def _marked(output: str) -> str:
    """What follows our mark in the output of a machine, whose login may print more."""
    for line in reversed(output.splitlines()):
        if line.startswith(_MARK):
            return line.removeprefix(_MARK).strip()
    raise ToolFailed(f"the machine does not answer like a POSIX shell: {output[:200]!r}")


def _removal(directory: str) -> str:
    """A script that ends what runs in `directory`, and removes it.

    It checks for the directory in a process's command line, as process numbers are reused.
    """
    quoted = shlex.quote(directory)
    return (
        f"for p in $(cat {quoted}/processes 2>/dev/null); do "
        f'case "$( (tr "\\0" " " < /proc/$p/cmdline || ps -o args= -p $p) 2>/dev/null)" in '
        f"*{quoted}/*) kill -9 $p;; esac; done; "
        f"rm -rf {quoted}"
    )


class SshRuntime:
    """A runtime on another machine; see `edgeconv.runtimes.interface.Runtime`."""

    has_times = True
    gpu = ""
    has_pace = True

    def __init__(self, machine: Machine, directory: str, runner: Runner, facts: Facts) -> None:
        self._machine, self._directory, self._runner = machine, directory, runner
        self._copied: set[str] = set()
        self.environment = facts.environment(f"ssh:{machine.address}")
        self.sessions = max(1, min(facts.cores, _MOST_SESSIONS))

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a fresh process there. Raises `ToolFailed`."""
        try:
            return self._runner.time(self._there(model), model, inputs, timing)
        except ToolFailed as error:
            raise self._machine.lost(error) from error

    def start(self, model: Model) -> SshSession:
        """Load the model there for its outputs. Raises `ToolFailed`."""
        try:
            session = self._runner.start(self._there(model), model)
        except ToolFailed as error:
            raise self._machine.lost(error) from error
        return SshSession(session, self._machine)

    def _there(self, model: Model) -> str:
        """The path of the model there, copied first if need be."""
        name = f"{sha256_file(model.file)}.tflite"
        if name not in self._copied:
            self._machine.copy(model.file, f"{self._directory}/{name}")
            self._copied.add(name)
        return f"{self._directory}/{name}"


class SshSession:
    """A model that stays loaded there; see `edgeconv.runtimes.interface.RuntimeSession`."""

    def __init__(self, session: RunnerSession, machine: Machine) -> None:
        self._session, self._machine = session, machine

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        try:
            return self._session.run(inputs)
        except ToolFailed as error:
            raise self._machine.lost(error) from error

    def close(self) -> None:
        """End the process."""
        self._session.close()


# Another machine, reached by the system's ssh.
#
# One connection is made and kept. Commands and copies go through it, so that only the first waits
# for the exchange of keys. It never prompts: what needs a password fails with an error. The machine
# needs a POSIX shell.

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
        "passwords are not supported: copy your key there with ssh-copy-id, and add it to an "
        "ssh-agent, or name it in your ~/.ssh/config"
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
                    command, label=self._label, cwd=directory, access=_ACCESS, allowance=_FOR_EVER
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
    if "config" in options:
        file = Path(options["config"]).absolute()
        if not file.is_file():
            raise UsageError(f"there is no file {file}", hint="ssh:HOST?config=FILE")
        chosen += ["-F", str(file)]
    return tuple(chosen)
