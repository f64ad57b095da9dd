"""LiteRT.js in a headless Chromium on this machine.

    web                  the browser that is found, and the version of LiteRT.js that is known
    web==2.5.3           that version of LiteRT.js
    web:/usr/bin/chrome  that browser

Models are run as they are, on the processor ("wasm"). LiteRT.js takes no dimension that is left
open, and float32, int32 and uint8 as inputs and outputs.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from edgeconv.errors import InputRefused, UsageError
from edgeconv.processes.sandbox import Access
from edgeconv.runtimes.conversation import Runner
from edgeconv.runtimes.tensors import check_fixed, refuse_strings, signature_of
from edgeconv.runtimes.web_package import litertjs
from edgeconv.store import scratch_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edgeconv.runtimes.conversation import RunnerSession
    from edgeconv.runtimes.interface import Arrays, Model, RuntimeChoice, RuntimeSettings, Timed
    from edgeconv.types import Signature, Timing

_BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "microsoft-edge",
)
_DTYPES = frozenset({"float32", "int32", "uint8"})


def files_named(choice: RuntimeChoice) -> Iterator[str]:
    """The browser, where one is named."""
    if choice.place:
        yield choice.place


@contextlib.contextmanager
def open_runtime(choice: RuntimeChoice, settings: RuntimeSettings) -> Iterator[WebRuntime]:
    """The runtime, once LiteRT.js has loaded in a page of the browser.

    Raises `UsageError` where there is no browser or no npm, and `ToolFailed` where one of them
    does not work.
    """
    browser = _browser(choice.place)
    package = litertjs(choice.version, settings.on_progress)
    # The browser has a socket in it, whose path may have some hundred characters only.
    with scratch_directory() as short:
        yield WebRuntime(browser, package, replace(settings, scratch=short))


def _browser(place: str) -> str:
    found = [
        path for name in (_BROWSERS if not place else (place,)) if (path := shutil.which(name))
    ]
    if not found:
        raise UsageError(
            f"there is no browser {place}" if place else "there is no Chromium or Chrome here",
            hint="install one, such as Debian's chromium, or say where it is: --runtime web:FILE",
        )
    return found[0]


class WebRuntime:
    """LiteRT.js in a browser; see `edgeconv.runtimes.interface.Runtime`."""

    def __init__(self, browser: str, package: Path, settings: RuntimeSettings) -> None:
        self._runner = Runner(
            command=(sys.executable, "-m", "edgeconv.runtimes.web_runner", browser, str(package)),
            package="LiteRT.js",
            label="LiteRT.js",
            scratch=settings.scratch,
            access=Access(profile="browser"),
            threads=settings.threads,
            allowance=settings.allowance,
            shares=True,
        )
        facts = self._runner.facts()
        self.sessions = max(1, facts.cores // settings.threads)
        # The Python there computes nothing.
        tools = {"LiteRT.js": facts.version, "Chromium": facts.browser}
        self.environment = replace(facts.environment("web"), python="", tools=tools)

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a fresh browser. Raises `ToolFailed`."""
        return self._runner.time(_checked(model), model, inputs, timing)

    def start(self, model: Model) -> RunnerSession:
        """Load the model in a fresh browser. Raises `ToolFailed`."""
        return self._runner.start(_checked(model), model)


def _checked(model: Model) -> str:
    """Where the model is. Raises `InputRefused` for one that LiteRT.js cannot run."""
    check_signature(model, signature_of(model))
    return str(model.file.absolute())


def check_signature(model: Model, signature: Signature) -> None:
    """Raise `InputRefused` for a dimension that is open, or a type that LiteRT.js has not."""
    refuse_strings(model, signature, "LiteRT.js")
    check_fixed(model, signature, "LiteRT.js")
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype not in _DTYPES:
            raise InputRefused(
                f"{model.file}: {spec.name!r} is {spec.dtype}, and LiteRT.js takes and gives "
                f"{', '.join(sorted(_DTYPES))} only",
                hint="convert it with float inputs and outputs, or with --io uint8",
            )
