"""Environments for runtimes that cannot be installed in this one, made on demand and kept.

Such a runtime needs its own Python and numpy: tflite-runtime has wheels for CPython 3.9 to 3.11,
and needs numpy 1. An environment is a directory of the user's cache. It is complete once it has a
ready.json, which is written last and seals every file. One without it, or changed since, is made
again.
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

from edgeconv.errors import (
    OutputRefused,
    PackageMissing,
    RuntimeUnusable,
    ToolFailed,
    UsageError,
)
from edgeconv.processes.workers import run_program
from edgeconv.runtimes.emulation import MACHINES, PYTHON, emulator, fill_root
from edgeconv.runtimes.interpreters import Interpreter, Version, interpreters, preferred
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.store import cache_directory, locked, seal_directory, sealed_directory
from edgeconv.types import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.runtimes.conversation import Package
    from edgeconv.types import TargetRuntime

_INSTALL_TIMEOUT_S = 900.0
_PROBE_TIMEOUT_S = 120.0
_MARKER, _VENV = "ready.json", "venv"
# pip prints it where it has no wheel for this Python; it may have one for another.
_NO_WHEEL = "No matching distribution found"


class InstalledRuntime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """ready.json: what an environment contains, and the seconds that making it took.

    `sha256` has the packages of an emulated one, by the names of their files.
    """

    runtime: str
    python: str
    packages: dict[str, str]
    seconds: float
    sha256: dict[str, str] = {}


class _RuntimePackage(NamedTuple):
    """A runtime's package in Python and for pip, and the Pythons that it has wheels for.

    Versions that begin with one of `numpy_1` were built for numpy 1, and crash with a newer one.
    """

    package: Package
    distribution: str
    numpy_1: tuple[str, ...]
    pythons: tuple[Version, ...]


_KINDS = {
    "tflite-runtime": _RuntimePackage(
        "tflite_runtime", "tflite-runtime", ("",), ((3, 11), (3, 10), (3, 9))
    ),
    "tflite-micro": _RuntimePackage(
        "tflite_micro", "tflite-micro", (), ((3, 13), (3, 12), (3, 11), (3, 10))
    ),
    # With numpy of PyPI for 64 bits, and of Debian for 32.
    "arm64": _RuntimePackage("ai_edge_litert", "ai-edge-litert", (), (PYTHON,)),
    "armv7": _RuntimePackage("tflite_runtime", "tflite-runtime", (), (PYTHON,)),
    # Built for numpy 1, as all of TensorFlow before 2.18 was.
    "tensorflow": _RuntimePackage("tensorflow", "tensorflow", ("2.1",), ((3, 11), (3, 10), (3, 9))),
    "litert": _RuntimePackage(
        "ai_edge_litert",
        "ai-edge-litert",
        ("1.0.",),
        ((3, 13), (3, 12), (3, 11), (3, 10), (3, 9)),
    ),
}


class _RuntimeEnvironment(NamedTuple):
    """One environment, made or not, in `directory`."""

    runtime: TargetRuntime
    python: Version
    directory: Path

    @property
    def kind(self) -> _RuntimePackage:
        return _KINDS[self.runtime.name]

    @property
    def target(self) -> RuntimePython:
        if self.is_emulated:
            root, qemu = str(self.directory / _VENV), str(emulator(self.runtime.name))
            return RuntimePython(package=self.kind.package, root=root, qemu=qemu)
        return RuntimePython(
            package=self.kind.package, python=str(self.directory / _VENV / "bin" / "python")
        )

    @property
    def is_emulated(self) -> bool:
        return self.runtime.name in MACHINES

    def ready(self) -> InstalledRuntime | None:
        """Its contents, None where it is not complete or its Python was removed since."""
        installed = _ready(self.directory)
        return installed if Path(self.target.python).exists() else None

    def complete(self, ready: InstalledRuntime) -> None:
        marker = self.directory / _MARKER
        seal_directory(self.directory / _VENV, marker, msgspec.json.encode(ready))


def isolated_target(
    runtime: TargetRuntime, on_progress: Callable[[str], None] = lambda _: None
) -> RuntimePython:
    """The Python that has `runtime`, made first if need be; the runtime has run a model there.

    For LiteRT of the installed version that is the present Python. A complete environment is found
    without starting a process. Raises `UsageError` where no Python of this machine can have the
    runtime, `ToolFailed` where it cannot be installed or does not run, and `OutputRefused` where
    the cache cannot be written.
    """
    kind = _KINDS[runtime.name]
    if runtime.name == "litert" and runtime.version in ("", metadata.version(kind.distribution)):
        return RuntimePython()
    environments = [_environment(runtime, python) for python in preferred(kind.pythons)]
    ready = next((each for each in environments if each.ready()), None)
    return ready.target if ready else _made_by_any(runtime, on_progress)


def distribution_of(name: str) -> str:
    """What pip calls the package of a runtime."""
    return _KINDS[name].distribution


def installed(target: RuntimePython) -> InstalledRuntime | None:
    """The contents of the environment of a `target` made here, None for any other Python."""
    return _ready(Path(target.root).parent if target.root else Path(target.python).parents[2])


def _ready(directory: Path) -> InstalledRuntime | None:
    """The contents of an environment that is unchanged since it was made here."""
    marker = sealed_directory(directory / _VENV, directory / _MARKER)
    try:
        return msgspec.json.decode(marker, type=InstalledRuntime) if marker else None
    except msgspec.DecodeError:
        return None


def _environment(runtime: TargetRuntime, python: Version) -> _RuntimeEnvironment:
    name = "{}-{}-py{}{}".format(runtime.name, runtime.version, *python)
    return _RuntimeEnvironment(runtime, python, cache_directory() / "runtimes" / name)


def _made_by_any(runtime: TargetRuntime, on_progress: Callable[[str], None]) -> RuntimePython:
    failure: PackageMissing | None = None
    pythons = interpreters(_KINDS[runtime.name].pythons)
    for interpreter in [Interpreter("", PYTHON)] if runtime.name in MACHINES else pythons:
        try:
            return _made_once(runtime, interpreter, on_progress)
        except PackageMissing as error:
            failure = failure or error
    raise failure or _no_python(runtime)


def _no_python(runtime: TargetRuntime) -> UsageError:
    names = ", ".join("{}.{}".format(*python) for python in _KINDS[runtime.name].pythons)
    return UsageError(
        f"{runtime} needs a 64-bit CPython with venv and pip, one of {names}; "
        "neither the present Python nor a python3.N on the PATH is one that works",
        hint="install one, such as python3.11 and python3.11-venv, or use the runtime litert",
    )


def _made_once(
    runtime: TargetRuntime, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> RuntimePython:
    environment = _environment(runtime, interpreter.version)
    lock = environment.directory.with_name(environment.directory.name + ".lock")
    _make_directory(lock.parent)
    waiting = f"waiting for another run that is installing {runtime}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        if not environment.ready():
            _make(environment, interpreter, on_progress)
    return environment.target


def _make(
    environment: _RuntimeEnvironment, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> None:
    what = f"{environment.runtime} for Python {'{}.{}'.format(*environment.python)}"
    on_progress(f"installing {what} in its own environment, once")
    started = time.monotonic()
    with contextlib.ExitStack() as unless_complete:
        unless_complete.callback(shutil.rmtree, environment.directory, ignore_errors=True)
        shutil.rmtree(environment.directory, ignore_errors=True)
        _make_directory(environment.directory)
        sha256 = _install(environment, interpreter, what)
        with tempfile.TemporaryDirectory(dir=environment.directory) as scratch:
            runtime = _probe(environment.target, Path(scratch), what)
        ready = InstalledRuntime(
            runtime=runtime,
            python=_python_version(environment),
            packages=_packages(environment),
            seconds=time.monotonic() - started,
            sha256=sha256,
        )
        environment.complete(ready)
        unless_complete.pop_all()
    on_progress(f"installed {what} in {ready.seconds:.0f} s")


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot create {directory}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error


def _install(
    environment: _RuntimeEnvironment, interpreter: Interpreter, what: str
) -> dict[str, str]:
    """Fill the environment; returns the hashes of packages that are unpacked here."""
    kind = environment.kind
    venv = str(environment.directory / _VENV)
    requirements = [f"{kind.distribution}=={environment.runtime.version}"]
    if environment.is_emulated:
        root = environment.directory / _VENV
        with tempfile.TemporaryDirectory(dir=environment.directory) as scratch:
            return fill_root(environment.runtime.name, requirements[0], root, Path(scratch))
    if environment.runtime.version.startswith(kind.numpy_1):
        requirements.append("numpy<2")
    pip = [
        *("-m", "pip", "install", "--only-binary", ":all:", "--progress-bar", "off"),
        *("--no-input", "--disable-pip-version-check", *requirements),
    ]
    hint = (
        f"check that the version exists for Python {'{}.{}'.format(*environment.python)}, and that "
        "pip reaches its package index"
    )
    python = environment.target.python
    _run(environment, [interpreter.path, "-I", "-m", "venv", venv], f"installing {what}", hint)
    _run(environment, [python, "-I", *pip], f"installing {what}", hint)
    return {}


def _run(environment: _RuntimeEnvironment, command: Sequence[str], label: str, hint: str) -> None:
    output, failure = run_program(
        command,
        label=label,
        cwd=environment.directory,
        timeout_s=_INSTALL_TIMEOUT_S,
        # A user's own settings of pip would put the packages outside of the environment.
        environment={"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": ""},
    )
    if failure is not None:
        error_type = PackageMissing if _NO_WHEEL in output else ToolFailed
        raise error_type(failure.message, hint=hint) from failure


def _probe(target: RuntimePython, scratch: Path, what: str) -> str:
    """Run a model there, and return the runtime's name. Raises `RuntimeUnusable`.

    A runtime with the wrong numpy can be imported, and crashes with a model.
    """
    import numpy as np

    from edgeconv.data import Samples, write_samples

    model, samples = scratch / "relu.tflite", scratch / "samples"
    model.write_bytes(relu_model())
    values = np.array([[-3.0, 2.5]], np.float32)
    write_samples(Samples({"x": values}, None, "probe"), samples)
    allowance = Allowance(timeout_s=_PROBE_TIMEOUT_S)
    hint = "choose another version: this one does not work on this machine"
    with start_run(
        model, samples, scratch=scratch, signature=None, target=target, allowance=allowance
    ) as running:
        try:
            run = running.result()
        except ToolFailed as error:
            raise RuntimeUnusable(
                f"{what} cannot run a model: {error.message}", hint=hint
            ) from error
        if not np.array_equal(run.outputs["y"], [[0.0, 2.5]]):
            raise RuntimeUnusable(f"{what} computes a wrong RELU", hint=hint)
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
    names = {environment.kind.distribution, "numpy"}
    venv = environment.directory / _VENV
    own = (venv / "packages", venv / "usr" / "lib" / "python3" / "dist-packages")
    directories = own if environment.is_emulated else (venv / "lib").glob("python*/site-packages")
    installed = metadata.distributions(path=[str(path) for path in directories])
    return {d.metadata["Name"]: d.version for d in installed if d.metadata["Name"] in names}


def _python_version(environment: _RuntimeEnvironment) -> str:
    if environment.is_emulated:
        return "{}.{}".format(*PYTHON)
    settings = (environment.directory / _VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    pairs = dict(line.split(" = ", 1) for line in settings.splitlines() if " = " in line)
    return pairs["version"]
