"""Environments for runtimes that cannot be installed in this one, made on demand and kept.

Such a runtime needs its own Python and numpy: tflite-runtime has wheels for CPython 3.9 to 3.11,
and needs numpy 1. What does not run even a tiny model is not installed again on the same day.
"""

from __future__ import annotations

import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edgeconv.runtimes import environments
from edgeconv.runtimes.emulation import MACHINES, PYTHON, emulator, fill_root
from edgeconv.runtimes.environments import (
    VENV,
    InstalledRuntime,
    Interpreter,
    Version,
    interpreters,
    make_directory,
    preferred,
)
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.system.store import cache_directory, locked, publish_sealed, read_sealed
from edgeconv.system.store.pruning import prune_environments
from edgeconv.types import Allowance
from edgeconv.types.errors import PackageMissing, RuntimeUnusable, ToolFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.runtimes.conversation import Package
    from edgeconv.types import TargetRuntime

_PROBE_TIMEOUT_S = 120.0
_REMEMBERED_S = 86400.0


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
            root, qemu = str(self.directory / VENV), str(emulator(self.runtime.name))
            return RuntimePython(package=self.kind.package, root=root, qemu=qemu)
        python = str(environments.python_of(self.directory))
        return RuntimePython(package=self.kind.package, python=python)

    @property
    def is_emulated(self) -> bool:
        return self.runtime.name in MACHINES

    @property
    def numpy(self) -> str:
        """The requirement of numpy that its base has."""
        return "numpy<2" if self.runtime.version.startswith(self.kind.numpy_1) else "numpy"

    def ready(self) -> InstalledRuntime | None:
        """Its contents, None where it is not complete or its Python was removed since."""
        installed = environments.ready(self.directory)
        return installed if installed and Path(self.target.python).exists() else None

    def note_unusable(self, error: RuntimeUnusable) -> None:
        """Note that it was made and did not run. Raises `OutputRefused`."""
        publish_sealed(error.message.encode(), self._unusable, str(self._unusable))

    def refuse_unusable(self) -> None:
        """Raise `RuntimeUnusable` where it was made today, and did not run."""
        message = read_sealed(self._unusable, str(self._unusable))
        if message is None or time.time() - self._unusable.stat().st_mtime > _REMEMBERED_S:
            return
        raise RuntimeUnusable(
            message.decode(),
            hint=f"choose another version; {self._unusable} remembers this for a day",
        )

    @property
    def _unusable(self) -> Path:
        return self.directory.with_name(f"{self.directory.name}.unusable")


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
    if is_present(runtime):
        return RuntimePython()
    environments = [_environment(runtime, python) for python in preferred(kind.pythons)]
    ready = next((each for each in environments if each.ready()), None)
    return ready.target if ready else _made_by_any(runtime, on_progress)


def is_present(runtime: TargetRuntime) -> bool:
    """Whether it is the LiteRT of the present Python."""
    versions = ("", metadata.version(_KINDS["litert"].distribution))
    return runtime.name == "litert" and runtime.version in versions


def distribution_of(name: str) -> str:
    """What pip calls the package of a runtime."""
    return _KINDS[name].distribution


def installed(target: RuntimePython) -> InstalledRuntime | None:
    """The contents of the environment of a `target` made here, None for any other Python."""
    directory = Path(target.root).parent if target.root else Path(target.python).parents[2]
    return environments.ready(directory)


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
        f"{runtime} needs a 64-bit CPython with venv and pip, one of {names}; neither this Python "
        "nor any python3.N on the PATH works",
        hint="install one, such as python3.11 and python3.11-venv, or use the runtime litert",
    )


def _made_once(
    runtime: TargetRuntime, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> RuntimePython:
    environment = _environment(runtime, interpreter.version)
    lock = environment.directory.with_name(environment.directory.name + ".lock")
    make_directory(lock.parent)
    waiting = f"waiting for another run that is installing {runtime}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        if not environment.ready():
            environment.refuse_unusable()
            try:
                _make(environment, interpreter, on_progress)
            except RuntimeUnusable as error:
                environment.note_unusable(error)
                raise
    return environment.target


def _make(
    environment: _RuntimeEnvironment, interpreter: Interpreter, on_progress: Callable[[str], None]
) -> None:
    what = f"{environment.runtime} for Python {'{}.{}'.format(*environment.python)}"
    on_progress(f"installing {what} in its own environment, once")
    started = time.monotonic()
    directory = environment.directory
    with environments.new_directory(directory):
        if environment.is_emulated:
            base, sha256 = None, _unpack(environment)
        else:
            base, sha256 = _install(environment, interpreter, what, on_progress), {}
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            runtime = _probe(environment.target, Path(scratch), what)
        contents = InstalledRuntime(
            runtime=runtime,
            python=_python_version(environment),
            packages=_packages(environment, base),
            seconds=time.monotonic() - started,
            base=base.name if base else "",
            sha256=sha256,
        )
        environments.complete(directory, contents)
    on_progress(f"installed {what} in {contents.seconds:.0f} s")
    prune_environments(cache_directory())


def _requirement(environment: _RuntimeEnvironment) -> str:
    return f"{environment.kind.distribution}=={environment.runtime.version}"


def _unpack(environment: _RuntimeEnvironment) -> dict[str, str]:
    """Fill an emulated environment; returns the hashes of its packages."""
    name, root = environment.runtime.name, environment.directory / VENV
    with tempfile.TemporaryDirectory(dir=environment.directory) as scratch:
        return fill_root(name, _requirement(environment), root, Path(scratch))


def _install(
    environment: _RuntimeEnvironment,
    interpreter: Interpreter,
    what: str,
    on_progress: Callable[[str], None],
) -> Path:
    """Fill the environment; returns its base."""
    directory, numpy = environment.directory, environment.numpy
    requirements = [_requirement(environment), numpy]
    label = f"installing {what}"
    base = environments.base_of(directory.parent, numpy, interpreter, label, on_progress)
    environments.install_beside(directory, base, interpreter, requirements, label)
    return base


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

    from edgeconv.model.tflite.flatbuffer import serialize

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


def _packages(environment: _RuntimeEnvironment, base: Path | None) -> dict[str, str]:
    directory = environment.directory
    if environment.is_emulated:
        root = directory / VENV
        paths = [root / "packages", root / "usr" / "lib" / "python3" / "dist-packages"]
    else:
        assert base is not None, "an environment that is not emulated has a base"
        paths = [*environments.site_packages(base), *environments.site_packages(directory)]
    return environments.versions_of([environment.kind.distribution, "numpy"], paths)


def _python_version(environment: _RuntimeEnvironment) -> str:
    if environment.is_emulated:
        return "{}.{}".format(*PYTHON)
    return environments.python_version(environment.directory)
