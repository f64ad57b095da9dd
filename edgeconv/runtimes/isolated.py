"""Environments for runtimes that cannot be installed in this one, made on demand by uv and kept.

Such a runtime needs its own Python and numpy: tflite-runtime has wheels for CPython 3.9 to 3.11,
and needs numpy 1. What does not run even a tiny model is not installed again on the same day.

An environment is a directory of the user's cache. It is complete once it has a ready.json, which is
written last and seals every file. One without it, or changed since, is made again. uv takes the
index and its settings from pip, and links files from its cache: environments share them on the
disk.
"""

import ast
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from edgeconv.runtimes.conversation import Package
from edgeconv.runtimes.emulation import MACHINES, PYTHON, emulator, fill_root
from edgeconv.runtimes.interface import RuntimeSettings
from edgeconv.runtimes.local import RuntimePython, runner_of
from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import (
    cache_directory,
    locked,
    locks,
    publish_sealed,
    read_sealed,
    seal_directory,
    sealed_directory,
)
from edgeconv.system.store.cache import prune_environments
from edgeconv.types import Allowance, TargetRuntime
from edgeconv.types.decoding import ready
from edgeconv.types.errors import (
    OutputRefused,
    PackageMissing,
    RuntimeUnusable,
    ToolFailed,
    UsageError,
)

Version = tuple[int, int]

_MARKER, _VENV = "ready.json", "venv"
_PROBE_TIMEOUT_S = 120.0
_INSTALL_TIMEOUT_S = 900.0
_SETTINGS_TIMEOUT_S = 60.0
_REMEMBERED_S = 86400.0
# uv prints it where it has no wheel for this Python; it may have one for another.
_NO_WHEEL = "No solution found"
# A line of `pip config list`.
_SETTING = re.compile(r"^(global|install|:env:)\.([a-z-]+)=(.+)$", re.MULTILINE)
_TRUE = ("1", "on", "t", "true", "y", "yes")
_NO_PIP = "No module named pip"
# What uv calls the settings of pip.
_SETTINGS = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "constraint": "UV_CONSTRAINT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}


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
        "ai_edge_litert", "ai-edge-litert", ("1.0.",), ((3, 13), (3, 12), (3, 11), (3, 10), (3, 9))
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
        python = str(self.directory / _VENV / "bin" / "python")
        return RuntimePython(package=self.kind.package, python=python)

    @property
    def is_emulated(self) -> bool:
        return self.runtime.name in MACHINES

    @property
    def numpy(self) -> str:
        """The requirement of numpy that its runtime has."""
        return "numpy<2" if self.runtime.version.startswith(self.kind.numpy_1) else "numpy"

    def ready(self) -> InstalledRuntime | None:
        """Its contents, None where it is not complete or its Python was removed since."""
        installed = _ready(self.directory)
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
    environments = [_environment(runtime, python) for python in _preferred(kind.pythons)]
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
    return _ready(directory)


def _ready(directory: Path) -> InstalledRuntime | None:
    """The contents of an environment that is unchanged since it was made here.

    From then on this process holds it: it is not pruned.
    """
    marker = directory / _MARKER
    if not marker.is_file():
        return None
    locks.take(directory, marker)
    sealed = sealed_directory(directory / _VENV, marker)
    try:
        return msgspec.json.decode(sealed, type=ready(InstalledRuntime)) if sealed else None
    except msgspec.DecodeError:
        return None


def _preferred(versions: Sequence[Version]) -> list[Version]:
    """`versions` with the present Python's first, where it is one of them."""
    return sorted(versions, key=lambda version: version != sys.version_info[:2])


def _environment(runtime: TargetRuntime, python: Version) -> _RuntimeEnvironment:
    name = "{}-{}-py{}{}".format(runtime.name, runtime.version, *python)
    return _RuntimeEnvironment(runtime, python, cache_directory() / "runtimes" / name)


def _made_by_any(runtime: TargetRuntime, on_progress: Callable[[str], None]) -> RuntimePython:
    pythons = [PYTHON] if runtime.name in MACHINES else _preferred(_KINDS[runtime.name].pythons)
    failure: PackageMissing | None = None
    for python in pythons:
        try:
            return _made_once(runtime, python, on_progress)
        except _PythonMissing:
            continue
        except PackageMissing as error:
            failure = failure or error
    if failure is not None:
        raise failure
    try:
        return _made_once(runtime, pythons[0], on_progress, downloads=True)
    except _PythonMissing as error:
        names = ", ".join("{}.{}".format(*python) for python in pythons)
        raise UsageError(
            f"{runtime} needs a CPython of one of the versions {names}; none is on this machine, "
            f"and uv cannot download one: {error.message}",
            hint=f"install one, such as python{'{}.{}'.format(*pythons[0])}, or use the runtime "
            "litert",
        ) from error


class _PythonMissing(ToolFailed):
    """A version of Python that uv does not find."""


def _made_once(
    runtime: TargetRuntime,
    python: Version,
    on_progress: Callable[[str], None],
    *,
    downloads: bool = False,
) -> RuntimePython:
    environment = _environment(runtime, python)
    lock = environment.directory.with_name(environment.directory.name + ".lock")
    _make_directory(lock.parent)
    waiting = f"waiting for another run that is installing {runtime}"
    with locked(lock, on_wait=lambda: on_progress(waiting)):
        if not environment.ready():
            environment.refuse_unusable()
            try:
                _make(environment, on_progress, downloads=downloads)
            except RuntimeUnusable as error:
                environment.note_unusable(error)
                raise
    return environment.target


def _make(
    environment: _RuntimeEnvironment, on_progress: Callable[[str], None], *, downloads: bool
) -> None:
    what = f"{environment.runtime} for Python {'{}.{}'.format(*environment.python)}"
    started = time.monotonic()
    directory = environment.directory
    with _new_directory(directory):
        if environment.is_emulated:
            on_progress(f"installing {what} in its own environment, once")
            sha256 = _unpack(environment)
        else:
            _make_venv(environment, f"installing {what}", downloads=downloads)
            on_progress(f"installing {what} in its own environment, once")
            _install(environment, f"installing {what}")
            sha256 = {}
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            runtime = _probe(environment.target, Path(scratch), what)
        contents = InstalledRuntime(
            runtime=runtime,
            python=_python_version(environment),
            packages=_packages(environment),
            seconds=time.monotonic() - started,
            sha256=sha256,
        )
        seal_directory(directory / _VENV, directory / _MARKER, msgspec.json.encode(contents))
        locks.take(directory, directory / _MARKER)
    on_progress(f"installed {what} in {contents.seconds:.0f} s")
    prune_environments(cache_directory())


@contextlib.contextmanager
def _new_directory(directory: Path) -> Iterator[None]:
    """An empty directory for an environment, which is removed unless it is filled without errors.

    Raises `OutputRefused` where it cannot be made.
    """
    with contextlib.ExitStack() as unless_filled:
        unless_filled.callback(shutil.rmtree, directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)
        _make_directory(directory)
        yield
        unless_filled.pop_all()


def _make_directory(directory: Path) -> None:
    """Make a directory of the cache. Raises `OutputRefused`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot create {directory}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error


def _requirement(environment: _RuntimeEnvironment) -> str:
    return f"{environment.kind.distribution}=={environment.runtime.version}"


def _unpack(environment: _RuntimeEnvironment) -> dict[str, str]:
    """Fill an emulated environment; returns the hashes of its packages."""
    name, root = environment.runtime.name, environment.directory / _VENV
    with tempfile.TemporaryDirectory(dir=environment.directory) as scratch:
        return fill_root(name, _requirement(environment), root, Path(scratch))


def _make_venv(environment: _RuntimeEnvironment, label: str, *, downloads: bool) -> None:
    """Make it without packages. Raises `_PythonMissing`."""
    python = "cpython-{}.{}".format(*environment.python)
    if environment.python == sys.version_info[:2]:
        python = sys.executable
    options = [] if downloads else ["--no-python-downloads"]
    directory = environment.directory
    venv = ["venv", "--no-project", "--python", python, *options, str(directory / _VENV)]
    _, failure = _run_uv(venv, directory, label)
    if failure is not None:
        raise _PythonMissing(failure.message) from failure


def _install(environment: _RuntimeEnvironment, label: str) -> None:
    """Install the packages. Raises `PackageMissing` and `ToolFailed`."""
    options, variables = _settings_of_pip(environment.directory)
    command = [
        *("pip", "install", "--python", environment.target.python, *options),
        # A confined process cannot store compiled Python. A seal does not cover what a link names.
        *("--no-build", "--compile-bytecode", "--link-mode", "hardlink"),
        *(_requirement(environment), environment.numpy),
    ]
    output, failure = _run_uv(command, environment.directory, label, variables)
    if failure is not None:
        error_type = PackageMissing if _NO_WHEEL in output else ToolFailed
        python = "{}.{}".format(*environment.python)
        raise error_type(
            failure.message,
            hint=f"check that the version exists for Python {python}, and that uv reaches the "
            "package index that pip uses; UV_OFFLINE=1 installs what is in its cache",
        ) from failure


def _run_uv(
    arguments: Sequence[str],
    directory: Path,
    label: str,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> tuple[str, ToolFailed | None]:
    """As `run_program`, for uv. A variable that the user set comes before one of `variables`."""
    # uv reads a configuration from the working directory and those above, and takes it as the
    # user's own; the cache may be in a checkout.
    command = [sys.executable, "-I", "-m", "uv", "--directory", "/", "--no-progress", *arguments]
    environment = {name: os.environ.get(name, value) for name, value in variables.items()}
    return run_program(
        command, label=label, cwd=directory, timeout_s=_INSTALL_TIMEOUT_S, environment=environment
    )


def _settings_of_pip(directory: Path) -> tuple[list[str], dict[str, str]]:
    """Where pip takes packages from, for uv: options and variables; none without pip.

    Raises `ToolFailed`: without them, uv would take packages from elsewhere.
    """
    command = [sys.executable, "-I", "-m", "pip", "config", "list"]
    label = "pip config list"
    output, failure = run_program(
        command, label=label, cwd=directory, timeout_s=_SETTINGS_TIMEOUT_S
    )
    if failure is not None and _NO_PIP not in output:
        raise failure
    found = _SETTING.findall(output)
    # What comes later counts.
    values: dict[str, list[str]] = {
        name: ast.literal_eval(text).split()
        for wanted in ("global", "install", ":env:")
        for section, name, text in found
        if section == wanted
    }
    variables = {
        _SETTINGS[name]: ("," if name == "find-links" else " ").join(words)
        for name, words in values.items()
        if name in _SETTINGS
    }
    if "extra-index-url" in values:
        # As pip does.
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    has_no_index = "".join(values.get("no-index", [])).lower() in _TRUE
    return ["--no-index"] if has_no_index else [], variables


def _probe(target: RuntimePython, scratch: Path, what: str) -> str:
    """Run a model there, and return the runtime's name. Raises `RuntimeUnusable`.

    A runtime with the wrong numpy can be imported, and crashes with a model.
    """
    allowance = Allowance(timeout_s=_PROBE_TIMEOUT_S)
    try:
        facts, _ = runner_of(target, RuntimeSettings(scratch=scratch, allowance=allowance)).probe()
    except ToolFailed as error:
        raise RuntimeUnusable(
            f"{what} cannot run a model: {error.message}",
            hint="choose another version: this one does not work on this machine",
        ) from error
    return f"{facts.runtime} {facts.version}"


def _packages(environment: _RuntimeEnvironment) -> dict[str, str]:
    root = environment.directory / _VENV
    paths = [root / "packages", root / "usr" / "lib" / "python3" / "dist-packages"]
    if not environment.is_emulated:
        paths = list((root / "lib").glob("python*/site-packages"))
    names = {environment.kind.distribution, "numpy"}
    installed = metadata.distributions(path=[str(path) for path in paths])
    return {d.metadata["Name"]: d.version for d in installed if d.metadata["Name"] in names}


def _python_version(environment: _RuntimeEnvironment) -> str:
    if environment.is_emulated:
        return "{}.{}".format(*PYTHON)
    settings = (environment.directory / _VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    pairs = dict(line.split(" = ", 1) for line in settings.splitlines() if " = " in line)
    return pairs["version_info"]
