"""The one-file runner on another machine, by ssh.

    ssh:HOST  ssh:USER@HOST  ssh:USER@HOST:PORT
    ssh:HOST?identity=FILE   the key to use, as ssh's -i
    ssh:HOST?config=FILE     the configuration to use, as ssh's -F

The machine needs a POSIX shell, Python 3.7 or later with numpy, and one of ai_edge_litert,
tflite_runtime and tensorflow in it. The runner and the models go into a directory of /tmp there. At
the end it is removed, and what still runs in it is killed.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv.errors import ToolFailed, UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.runtimes.conversation import Conversation, Facts, Package, Runner
from edgeconv.runtimes.isolated import relu_model
from edgeconv.runtimes.local import RUNNER
from edgeconv.runtimes.remote import Machine, parse_ssh_address
from edgeconv.store import sha256_file
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
    from edgeconv.types import RuntimeChoice, Timing

PACKAGES: tuple[Package, ...] = ("ai_edge_litert", "tflite_runtime", "tensorflow")
# See edgeconv.runtimes.interface.
OPTIONS = frozenset({"config", "identity"})
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
            machine.try_to_run(_removal(directory), f"removing {directory} on {machine.address}")


def _open(machine: Machine, directory: str, settings: RuntimeSettings) -> SshRuntime:
    python = settings.python or _USUAL_PYTHON
    failure: ToolFailed | None = None
    for package in _packages(machine, python):
        settings.on_progress(f"trying {package} on {machine.address}")
        runner = _runner(machine, directory, python, package, settings)
        try:
            facts = _probe(machine, directory, runner, settings.scratch)
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


def _probe(machine: Machine, directory: str, runner: Runner, scratch: Path) -> Facts:
    """The facts of the machine, from a process that has also run a model correctly.

    Raises `ToolFailed` where the runtime there is broken.
    """
    import numpy as np

    with tempfile.TemporaryDirectory(dir=scratch) as here:
        file = Path(here) / "relu.tflite"
        file.write_bytes(relu_model())
        there = f"{directory}/{file.name}"
        machine.copy(file, there)
    request = {"runtime": runner.package, "model": there, "accelerator": runner.accelerator}
    with Conversation(
        runner.command,
        label=runner.label,
        scratch=scratch,
        access=runner.access,
        allowance=runner.allowance,
    ) as talk:
        facts, _ = talk.ask({**request, "do": "facts"})
        talk.ask({**request, "do": "load", "signature": None, "threads": 1, "batch": 1})
        _, outputs = talk.ask({**request, "do": "run"}, {"x": np.array([[-3.0, 2.5]], np.float32)})
    if not np.array_equal(outputs["y"], [[0.0, 2.5]]):
        raise ToolFailed(f"{runner.label} computes a wrong RELU")
    return msgspec.convert(facts, Facts)


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
