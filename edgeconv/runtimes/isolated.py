"""Environments for runtimes that cannot live in this one, made on demand and kept.

Such a runtime has a Python and a numpy of its own: tflite-runtime has wheels for CPython 3.9
to 3.11, and needs numpy 1. An environment is a directory of the user's cache. It counts as
made once its ready.json is there, which is written last and seals every file; what has none, or
was changed since, is made anew.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.errors import OutputRefused, PackageMissing, ToolFailed, UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.processes.workers import Child
from edgeconv.runtimes.choice import runtime_text
from edgeconv.runtimes.interpreters import Version, interpreters, preferred
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.store import cache_directory, locked, seal_directory, sealed_directory
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.runtimes.conversation import Package
    from edgeconv.runtimes.interpreters import Interpreter
    from edgeconv.types import TargetRuntime

_INSTALL_TIMEOUT_S = 900.0
_PROBE_TIMEOUT_S = 120.0
# What pip says where it has nothing for this Python, and perhaps something for another.
_MARKER, _VENV = "ready.json", "venv"
_NO_WHEEL = "No matching distribution found"


class InstalledRuntime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ready.json: what is really in an environment, and the seconds that making it took."""

    runtime: str
    python: str
    packages: dict[str, str]
    seconds: float


class _Distribution(NamedTuple):
    """A runtime's package in Python and for pip, and the Pythons that it has wheels for.

    The versions that begin with `numpy_1` were built for numpy 1, and die with a newer one.
    """

    package: Package
    distribution: str
    numpy_1: str
    pythons: tuple[Version, ...]


_KINDS = {
    "tflite-runtime": _Distribution(
        "tflite_runtime", "tflite-runtime", "", ((3, 11), (3, 10), (3, 9))
    ),
    # Built for numpy 1, as all of TensorFlow before 2.18 was.
    "tensorflow": _Distribution("tensorflow", "tensorflow", "2.1", ((3, 11), (3, 10), (3, 9))),
    "litert": _Distribution(
        "ai_edge_litert",
        "ai-edge-litert",
        "1.0.",
        ((3, 13), (3, 12), (3, 11), (3, 10), (3, 9)),
    ),
}


class _RuntimeEnvironment(NamedTuple):
    """One environment, made or not: `directory` and all that is in it."""

    runtime: TargetRuntime
    python: Version
    directory: Path

    @property
    def kind(self) -> _Distribution:
        return _KINDS[self.runtime.name]

    @property
    def target(self) -> RuntimePython:
        return RuntimePython(
            package=self.kind.package, python=str(self.directory / _VENV / "bin" / "python")
        )

    def ready(self) -> InstalledRuntime | None:
        """What is in it, None where it is not complete, or its Python has gone since."""
        found = _ready(self.directory)
        return found if Path(self.target.python).exists() else None

    def complete(self, ready: InstalledRuntime) -> None:
        marker = self.directory / _MARKER
        seal_directory(self.directory / _VENV, marker, msgspec.json.encode(ready))


def isolated_target(
    runtime: TargetRuntime, on_progress: Callable[[str], None] = lambda _: None
) -> RuntimePython:
    """Where `runtime` is, made first if need be; a process of it has run a model.

    For LiteRT as it is installed here that is the present Python. One that is there already
    is found without starting a process. `on_progress` is told what takes time, and how long
    it took. Raises `UsageError` where no Python here can have it, `ToolFailed` where it
    cannot be installed or does not run, `OutputRefused` where the cache cannot be written.
    """
    kind = _KINDS[runtime.name]
    if runtime.name == "litert" and runtime.version in ("", metadata.version(kind.distribution)):
        return RuntimePython()
    environments = [_environment(runtime, python) for python in preferred(kind.pythons)]
    made = next((each for each in environments if each.ready()), None)
    return made.target if made else _made_by_any(runtime, on_progress)


def installed(target: RuntimePython) -> InstalledRuntime | None:
    """What is in the environment of a `target` that was made here, None for any other Python."""
    return _ready(Path(target.python).parents[2])


def _ready(directory: Path) -> InstalledRuntime | None:
    """What is in an environment that is as it was made here: else it could run anything."""
    found = sealed_directory(directory / _VENV, directory / _MARKER)
    try:
        return msgspec.json.decode(found, type=InstalledRuntime) if found else None
    except msgspec.DecodeError:
        return None


def _environment(runtime: TargetRuntime, python: Version) -> _RuntimeEnvironment:
    name = "{}-{}-py{}{}".format(runtime.name, runtime.version, *python)
    return _RuntimeEnvironment(runtime, python, cache_directory() / "runtimes" / name)


def _made_by_any(runtime: TargetRuntime, on_progress: Callable[[str], None]) -> RuntimePython:
    failure: PackageMissing | None = None
    for interpreter in interpreters(_KINDS[runtime.name].pythons):
        try:
            return _made_once(runtime, interpreter, on_progress)
        except PackageMissing as error:
            failure = failure or error
    raise failure or _no_python(runtime)


def _no_python(runtime: TargetRuntime) -> UsageError:
    names = ", ".join("{}.{}".format(*python) for python in _KINDS[runtime.name].pythons)
    return UsageError(
        f"{runtime_text(runtime)} needs a 64-bit CPython with venv and pip, one of {names}; "
        "the present Python is none, and no python3.N on the PATH is a working one",
        hint="install one, such as python3.11 and python3.11-venv, or use the runtime litert",
    )


def _made_once(
    runtime: TargetRuntime, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> RuntimePython:
    environment = _environment(runtime, interpreter.version)
    lock = environment.directory.with_name(environment.directory.name + ".lock")
    _make_directory(lock.parent)
    waiting = f"waiting for another run that is installing {runtime_text(runtime)}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        if not environment.ready():
            _make(environment, interpreter, on_progress)
    return environment.target


def _make(
    environment: _RuntimeEnvironment, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> None:
    what = f"{runtime_text(environment.runtime)} for Python {'{}.{}'.format(*environment.python)}"
    on_progress(f"installing {what} in an environment of its own, this once")
    started = time.monotonic()
    with contextlib.ExitStack() as unless_complete:
        unless_complete.callback(shutil.rmtree, environment.directory, ignore_errors=True)
        shutil.rmtree(environment.directory, ignore_errors=True)
        _make_directory(environment.directory)
        _install(environment, interpreter, what)
        with tempfile.TemporaryDirectory(dir=environment.directory) as scratch:
            runtime = _probe(environment.target, Path(scratch), what)
        ready = InstalledRuntime(
            runtime=runtime,
            python=_python_version(environment),
            packages=_packages(environment),
            seconds=time.monotonic() - started,
        )
        environment.complete(ready)
        unless_complete.pop_all()
    on_progress(f"installed {what} in {ready.seconds:.0f} s")


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot make {directory}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error


def _install(environment: _RuntimeEnvironment, interpreter: Interpreter, what: str) -> None:
    kind, python = environment.kind, environment.target.python
    venv = str(environment.directory / _VENV)
    wanted = [f"{kind.distribution}=={environment.runtime.version}"]
    if environment.runtime.version.startswith(kind.numpy_1):
        wanted.append("numpy<2")
    pip = [
        *("-m", "pip", "install", "--only-binary", ":all:", "--progress-bar", "off"),
        *("--no-input", "--disable-pip-version-check", *wanted),
    ]
    hint = (
        f"see that the version exists for Python {'{}.{}'.format(*environment.python)}, and that "
        "pip reaches its package index from here"
    )
    _run(environment, [interpreter.path, "-I", "-m", "venv", venv], f"installing {what}", hint)
    _run(environment, [python, "-I", *pip], f"installing {what}", hint)


def _run(environment: _RuntimeEnvironment, command: Sequence[str], label: str, hint: str) -> None:
    allowance = Allowance(timeout_s=_INSTALL_TIMEOUT_S)
    # What a user has set for pip elsewhere would put the packages beside the environment.
    variables = {"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": ""}
    child = Child(
        command,
        label=label,
        cwd=environment.directory,
        access=Access(profile="programs"),
        allowance=allowance,
        environment=variables,
    )
    with child:
        try:
            child.wait()
        except ToolFailed as error:
            said = child.log.read_text(encoding="utf-8", errors="replace")
            kind = PackageMissing if _NO_WHEEL in said else ToolFailed
            raise kind(error.message, hint=hint) from error


def _probe(target: RuntimePython, scratch: Path, what: str) -> str:
    """Run a model there: a runtime with the wrong numpy imports well, and dies at a model.

    Returns what the runtime calls itself. Raises `ToolFailed`.
    """
    import numpy as np

    from edgeconv.data import Samples, write_samples

    model, samples = scratch / "relu.tflite", scratch / "samples"
    model.write_bytes(relu_model())
    values = np.array([[-3.0, 2.5]], np.float32)
    write_samples(Samples({"x": values}, None, "probe"), samples)
    allowance = Allowance(timeout_s=_PROBE_TIMEOUT_S)
    hint = "choose another version; this one does not work on this machine"
    with start_run(
        model, samples, scratch=scratch, signature=None, target=target, allowance=allowance
    ) as running:
        try:
            run = running.result()
        except ToolFailed as error:
            raise ToolFailed(f"{what} runs no model: {error.message}", hint=hint) from error
        if not np.array_equal(run.outputs["y"], [[0.0, 2.5]]):
            raise ToolFailed(f"{what} computes a RELU wrongly", hint=hint)
    return f"{run.runtime} {run.version}"


def relu_model() -> bytes:
    """A .tflite without signatures: y = max(0, x), both float32 of shape (1, 2)."""
    from ai_edge_litert import schema_py_generated as schema

    from edgeconv.tflite.flatbuffer import serialize

    relu = schema.BuiltinOperator.RELU
    tensors = [
        schema.TensorT(name=name, shape=[1, 2], type=schema.TensorType.FLOAT32) for name in "xy"
    ]
    operator = schema.OperatorT(opcodeIndex=0, inputs=[0], outputs=[1])
    code = schema.OperatorCodeT(deprecatedBuiltinCode=relu, builtinCode=relu, version=1)
    graph = schema.SubGraphT(tensors=tensors, inputs=[0], outputs=[1], operators=[operator])
    model = schema.ModelT(
        version=3, operatorCodes=[code], subgraphs=[graph], buffers=[schema.BufferT()]
    )
    return serialize(model)


def _packages(environment: _RuntimeEnvironment) -> dict[str, str]:
    wanted = {environment.kind.distribution, "numpy"}
    places = (environment.directory / _VENV / "lib").glob("python*/site-packages")
    found = metadata.distributions(path=[str(place) for place in places])
    return {d.metadata["Name"]: d.version for d in found if d.metadata["Name"] in wanted}


def _python_version(environment: _RuntimeEnvironment) -> str:
    settings = (environment.directory / _VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    pairs = dict(line.split(" = ", 1) for line in settings.splitlines() if " = " in line)
    return pairs["version"]
