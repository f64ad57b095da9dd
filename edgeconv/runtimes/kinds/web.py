"""LiteRT.js in a headless Chromium on this machine.

    web                  the browser that is found, and the version of LiteRT.js that is known
    web==2.5.3           that version of LiteRT.js
    web:/usr/bin/chrome  that browser

Models are run as they are, on the processor ("wasm"). LiteRT.js takes no dimension that is left
open, and float32, int32 and uint8 as inputs and outputs.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from edgeconv.errors import InputRefused, ToolFailed, UsageError
from edgeconv.runtimes.interface import Timed
from edgeconv.runtimes.tensors import (
    batches,
    check_fixed,
    dequantized,
    joined,
    raw,
    refuse_strings,
    signature_of,
)
from edgeconv.runtimes.web_package import DEFAULT_VERSION, litertjs
from edgeconv.runtimes.web_talk import Page
from edgeconv.sandbox import environment_of
from edgeconv.types import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays, Choice, Model, Settings
    from edgeconv.types import Signature, Timing

_BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    "microsoft-edge",
)
_DTYPES = frozenset({"float32", "int32", "uint8"})
_VERSION_TIMEOUT_S = 60.0


def files_named(choice: Choice) -> Iterator[str]:
    """The browser, where one is named."""
    if choice.place:
        yield choice.place


@contextlib.contextmanager
def open_runtime(choice: Choice, settings: Settings) -> Iterator[WebRuntime]:
    """The runtime, once LiteRT.js has loaded in a page of the browser.

    Raises `UsageError` where there is no browser or no npm, and `ToolFailed` where one of them
    does not work.
    """
    browser = _browser(choice.place)
    version = choice.version or DEFAULT_VERSION
    runtime = WebRuntime(browser, litertjs(version, settings.on_progress), version, settings)
    with runtime.opened("LiteRT.js in the browser") as page:
        page.close()
    yield runtime


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


def _browser_version(browser: str) -> str:
    try:
        done = subprocess.run(
            [browser, "--version"],
            env=environment_of("browser"),
            capture_output=True,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailed(f"{browser} does not start: {error}") from error
    found = re.search(r"\d+(\.\d+)+", done.stdout)
    if not found:
        raise ToolFailed(
            f"{browser} does not say which version it is: {(done.stdout + done.stderr)[:300]!r}",
            hint="see that it is a Chromium, and that it starts",
        )
    return found[0]


class WebRuntime:
    """LiteRT.js in a browser; see `edgeconv.runtimes.interface.Runtime`."""

    def __init__(self, browser: str, package: Path, version: str, settings: Settings) -> None:
        from edgeconv.runtimes.runner import processor

        self._browser, self._package, self._version = browser, package, version
        self._settings = settings
        cores = os.cpu_count() or 1
        self.sessions = max(1, cores // settings.threads)
        self.environment = Environment(
            machine=platform.machine(),
            cpu=processor(),
            cores=cores,
            system=f"{platform.system()} {platform.release()}",
            python="",
            tools={"LiteRT.js": version, "Chromium": _browser_version(browser)},
            place="web",
        )

    @contextlib.contextmanager
    def opened(self, label: str) -> Iterator[Page]:
        """A page with LiteRT.js loaded, in a browser of its own. It stays, unless that fails."""
        settings = self._settings
        with contextlib.ExitStack() as unless_opened:
            page = unless_opened.enter_context(
                Page(
                    self._browser,
                    self._package,
                    label=label,
                    allowance=settings.allowance,
                )
            )
            page.ask({"do": "open", "threads": settings.threads})
            yield page
            unless_opened.pop_all()

    def time(self, model: Model, inputs: Arrays, timing: Timing) -> Timed:
        """Time the model on its first batch in a fresh browser. Raises `ToolFailed`."""
        import msgspec

        with contextlib.closing(self.start(model)) as session:
            said = session.timed(inputs, msgspec.structs.asdict(timing))
        named = {"runtime": "LiteRT.js", "version": self._version, "load_us": session.load_us}
        return msgspec.convert({**named, **said}, Timed)

    def start(self, model: Model) -> WebSession:
        """Load the model in a fresh browser. Raises `ToolFailed`."""
        signature = signature_of(model)
        check_signature(model, signature)
        with self.opened(f"running {model.file.name} in LiteRT.js") as page:
            request = {"do": "load", "model": "model.tflite", "signature": signature.key or None}
            said, _ = page.ask({**request, "threads": self._settings.threads}, model=model.file)
        return WebSession(page, model, signature, said["load_us"])


class WebSession:
    """A model loaded in a page; see `edgeconv.runtimes.interface.Session`."""

    def __init__(self, page: Page, model: Model, signature: Signature, load_us: float) -> None:
        self.load_us = load_us
        self._page, self._signature, self._batch = page, signature, model.batch

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        """Every output by name, over all samples. Raises `ToolFailed`."""
        outputs = {spec.name: spec for spec in self._signature.outputs}
        request = {"do": "run", "batch": self._batch, "outputs": [*outputs]}
        _, given = self._page.ask(request, raw(inputs, self._signature.inputs))
        runs = [dict(zip(given, run, strict=True)) for run in zip(*given.values(), strict=True)]
        return {name: dequantized(array, outputs[name]) for name, array in joined(runs).items()}

    def timed(self, inputs: Arrays, timing: dict[str, Any]) -> dict[str, Any]:
        """What the page says of the times of the first batch; see runner.py for what it is."""
        batch = next(batches(raw(inputs, self._signature.inputs), self._batch))
        return self._page.ask({"do": "time", "batch": self._batch, **timing}, batch)[0]

    def close(self) -> None:
        """End the browser."""
        self._page.close()


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
