"""LiteRT.js in a headless Chromium on this machine.

    web                  the browser on the PATH
    web:/usr/bin/chrome  that browser

Models run unchanged, on the processor ("wasm"), or with `--accelerator webgpu` on the browser's GPU
or, without one, on SwiftShader. LiteRT.js needs fixed dimensions, and inputs and
outputs of float32, int32 or uint8.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from edgeconv.plugins.devices.gpu import has_device
from edgeconv.runtimes.conversation import Runner, RunnerSession
from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
from edgeconv.runtimes.tensors import check_fixed, refuse_strings, signature_of
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.workers import run_program
from edgeconv.system.store import (
    cache_directory,
    locked,
    locks,
    scratch_directory,
    seal_directory,
    sealed_directory,
)
from edgeconv.types import RuntimeChoice, Signature, Timing
from edgeconv.types.errors import InputRefused, OutputRefused, ToolFailed, UsageError
from edgeconv.types.words import listed

# See edgeconv.runtimes.interface.
COMPARES_WITH = {"webgpu": "litert"}
_RUNNER = "edgeconv.plugins.devices.web_runner"
_BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "microsoft-edge",
)
_DTYPES = frozenset({"float32", "int32", "uint8"})


def files_named(choice: RuntimeChoice) -> Iterator[str]:
    """The browser, where one is named."""
    if choice.location:
        yield choice.location


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[WebRuntime]:
    """The runtime, once LiteRT.js has loaded in a page of the browser.

    Raises `UsageError` without a browser or npm, and `ToolFailed` where one of them fails.
    """
    browser = _browser(choice.location)
    package = litertjs(settings.on_progress)
    # The path of the browser's socket is limited to a few hundred characters.
    with scratch_directory() as short:
        yield WebRuntime(browser, package, replace(settings, scratch=short))


def _browser(location: str) -> str:
    paths = [
        path
        for name in (_BROWSERS if not location else (location,))
        if (path := shutil.which(name))
    ]
    if not paths:
        raise UsageError(
            f"there is no browser {location}"
            if location
            else "there is no Chromium or Chrome here",
            hint="install one, such as Debian's chromium, or name it: --runtime web:FILE",
        )
    return paths[0]


class WebRuntime:
    """LiteRT.js in a browser; see `edgeconv.runtimes.interface.Runtime`."""

    has_pace = False

    def __init__(self, browser: str, package: Path, settings: RuntimeSettings) -> None:
        self._runner = Runner(
            command=(sys.executable, "-m", _RUNNER, browser, str(package), *_graphics(settings)),
            package="LiteRT.js",
            label="LiteRT.js",
            scratch=settings.scratch,
            access=Access(profile="browser"),
            threads=settings.threads,
            allowance=settings.allowance,
            shares=True,
        )
        facts = self._runner.facts()
        self.gpu = facts.gpu
        self.has_times = not facts.is_software
        self.sessions = max(1, facts.cores // settings.threads)
        # The Python there does not run the model.
        tools = {"LiteRT.js": facts.version, "Chromium": facts.browser}
        # On WebGPU it is compared with LiteRT on this machine.
        host = "" if self.gpu else "web"
        self.environment = replace(facts.environment(host), python="", tools=tools)

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a new browser. Raises `ToolFailed`."""
        return self._runner.time(_checked_path(model), model, inputs, timing)

    def start(self, model: Model) -> RunnerSession:
        """Load the model in a new browser. Raises `ToolFailed`."""
        return self._runner.start(_checked_path(model), model)


def _graphics(settings: RuntimeSettings) -> tuple[str, ...]:
    """What the models are to run on, for the runner."""
    if settings.accelerator != "webgpu":
        return ()
    return ("webgpu",) if has_device() else ("swiftshader",)


def _checked_path(model: Model) -> str:
    """The path of the model. Raises `InputRefused` for one that LiteRT.js cannot run."""
    check_signature(model, signature_of(model))
    return str(model.file.absolute())


def check_signature(model: Model, signature: Signature) -> None:
    """Raise `InputRefused` for an open dimension, or a type that LiteRT.js does not have."""
    refuse_strings(model, signature, "LiteRT.js")
    check_fixed(model, signature, "LiteRT.js")
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype not in _DTYPES:
            raise InputRefused(
                f"{model.file}: {spec.name!r} is {spec.dtype}, and LiteRT.js supports "
                f"{listed(sorted(_DTYPES))} only",
                hint="convert it with float inputs and outputs, or with --io uint8",
            )


# The version of both packages, whose contents are known.
VERSION = "2.5.3"
_INTEGRITY = {
    "@litertjs/core": (
        "sha512-PlGmbMOq9WitX7FO0jhbdJw9GthatsyuCQXjTt/wJZo0FLaw48q4tz8IwqgqCIkviYGr9OFDL1kCnN4nzWoyJQ=="
    ),
    "@litertjs/wasm-utils": (
        "sha512-4fJiw6tBQnIs+0jH/OQ16nYOiSl8/+zZnn5h2ul8aTKHi05sVqZW580Tmk78pC2kT39A9OYBVdFawteZ/sI1kQ=="
    ),
}
_INSTALL_TIMEOUT_S = 600.0


def litertjs(on_progress: Callable[[str], None]) -> Path:
    """The node_modules with @litertjs/core, installed first if need be.

    Raises `UsageError` without npm, `ToolFailed` where npm fails, and `OutputRefused` where the
    cache cannot be written.
    """
    directory = cache_directory() / "runtimes" / f"litertjs-{VERSION}"
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(
            f"cannot create {directory.parent}: {error.strerror}",
            hint="set EDGECONV_CACHE_DIR to a writable directory",
        ) from error
    modules, ready = directory / "node_modules", directory / "ready"
    if ready.exists():
        locks.take(directory, ready)
    if sealed_directory(modules, ready) is None:
        with locked(directory.with_name(directory.name + ".lock")):
            if sealed_directory(modules, ready) is None:
                _install(directory, on_progress)
                seal_directory(modules, ready, b"")
                locks.take(directory, ready)
    return modules


def _install(directory: Path, on_progress: Callable[[str], None]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError(
            "LiteRT.js needs npm, which is not installed", hint="install nodejs and npm"
        )
    label = f"installing LiteRT.js {VERSION}"
    on_progress(f"{label}, once")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    dependencies = {"dependencies": dict.fromkeys(_INTEGRITY, VERSION)}
    (directory / "package.json").write_text(json.dumps(dependencies), encoding="utf-8")
    (directory / "package-lock.json").write_text(_lock(dependencies), encoding="utf-8")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    command += ["--prefix", str(directory)]
    with scratch_directory() as scratch:
        _, failure = run_program(command, label=label, cwd=scratch, timeout_s=_INSTALL_TIMEOUT_S)
    if failure is not None:
        hint = "check that npm reaches its registry"
        raise ToolFailed(failure.message, hint=hint) from failure


def _lock(dependencies: dict[str, dict[str, str]]) -> str:
    """package-lock.json, which names the exact packages."""
    packages: dict[str, object] = {"": dependencies}
    for name, integrity in _INTEGRITY.items():
        packages[f"node_modules/{name}"] = {"version": VERSION, "integrity": integrity}
    return json.dumps({"lockfileVersion": 3, "requires": True, "packages": packages})
