"""LiteRT.js in a headless Chromium on this machine.

    web                  the browser on the PATH, and the default version of LiteRT.js
    web==2.5.3           that version of LiteRT.js
    web:/usr/bin/chrome  that browser

Models run unchanged, on the processor ("wasm"), or with `--accelerator webgpu` on the browser's GPU
or, without one, on SwiftShader. LiteRT.js needs fixed dimensions, and inputs and
outputs of float32, int32 or uint8.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.plugins.devices.web_package import DEFAULT_VERSION as DEFAULT_VERSION
from edgeconv.plugins.devices.web_package import litertjs
from edgeconv.runtimes.conversation import Runner
from edgeconv.runtimes.tensors import check_fixed, refuse_strings, signature_of
from edgeconv.runtimes.vulkan import has_device
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.store import scratch_directory
from edgeconv.types.errors import InputRefused, UsageError
from edgeconv.types.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.interface import Arrays, Model, RuntimeSettings, Timed
    from edgeconv.types import RuntimeChoice, Signature, Timing

# See edgeconv.runtimes.interface.
HAS_VERSIONS = True
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
    package = litertjs(choice.version, settings.on_progress)
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
