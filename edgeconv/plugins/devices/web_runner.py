"""Run .tflite models with LiteRT.js, in a page of a headless browser.

    python -m edgeconv.plugins.devices.web_runner BROWSER PACKAGE [webgpu | swiftshader]

It answers requests as runner.py does. BROWSER is the program, PACKAGE the directory with @litertjs
in it. With a third word models run on WebGPU, on the browser's GPU or on SwiftShader. The page
(web_page.js) comes from a server on the loopback. Its paths begin with a secret, so that nobody
else can use it. Each file is served with headers that isolate the page from others: without these a
browser gives it neither threads nor a fine clock.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import subprocess
import sys
import threading
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, cast

from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.runner import (
    Answer,
    Batch,
    RequestHandler,
    message_parts,
    read_arrays,
    serve,
)
from edgeconv.runtimes.tensors import dequantized, raw, signature_of

_PAGE = """<!doctype html><meta charset="utf-8"><title>edgeconv</title>
<script type="importmap">{"imports": {
  "@litertjs/core": "./package/@litertjs/core/dist/index.js",
  "@litertjs/wasm-utils": "./package/@litertjs/wasm-utils/dist/index.js"
}}</script>
<script type="module" src="page.js"></script>
"""
_SCRIPT = Path(__file__).with_name("web_page.js")
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FLAGS = (
    *("--headless", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--mute-audio"),
    *("--disable-extensions", "--no-default-browser-check", "--disable-dev-shm-usage"),
    # A page in the background must not be slowed down.
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding"),
    "--disable-backgrounding-occluded-windows",
)
_FLAGS_OF = {
    "": ("--disable-gpu",),
    "webgpu": ("--enable-unsafe-webgpu", "--enable-features=Vulkan"),
    "swiftshader": ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"),
}
_HOLD_S = 10.0


def main(browser: str, package: str, graphics: str = "") -> None:
    """Answer the requests of stdin on stdout, until it closes."""
    server = PageServer(Path(package))
    # Chromium has no sandbox as root, as in a container.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    profile = f"--user-data-dir={Path.cwd() / 'profile'}"
    command = [browser, *_FLAGS, *_FLAGS_OF[graphics], *sandbox, profile, server.address]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    watch = threading.Thread(target=lambda: server.page_gone(process.wait()), daemon=True)
    watch.start()
    try:
        serve(PageHandler(server, webgpu=bool(graphics)))
    except PageGone:
        # The parent finds that there is no answer, and shows the log.
        sys.stderr.write(
            f"{browser} or its page has ended: it may have run out of memory, or the model "
            "crashes it\n"
        )
    finally:
        # A parent that was killed ends this session only while this process still runs.
        process.kill()


class PageFailed(Exception):
    """The page reports a failure; the text is its reason."""


class PageGone(Exception):
    """The page, or its browser, has ended without an answer."""


class PageHandler(RequestHandler):
    """Answers requests by a page; a model stays loaded between them."""

    def __init__(self, server: PageServer, *, webgpu: bool = False) -> None:
        super().__init__()
        self._server = server
        self._webgpu = webgpu
        about = server.directory / "package" / "@litertjs" / "core" / "package.json"
        self._version: str = json.loads(about.read_bytes())["version"]

    def answer(self, request: dict[str, Any], arrays: Batch) -> Answer:
        """The answer to a request, and its arrays by name. Raises `PageGone`."""
        answer = {"runtime": request["runtime"], "version": self._version}
        do = getattr(self, "do_" + request["do"])
        try:
            facts, outputs = do(None, request, arrays)
        except PageFailed as error:
            return {**answer, "error": str(error)}, {}
        return {**answer, **facts}, outputs

    def do_facts(self, *_: Any) -> Answer:
        """What the machine and the browser are, once LiteRT.js has loaded."""
        return {**super().do_facts()[0], **self._opened(1)}, {}

    def do_load(self, package: Any, request: dict[str, Any], arrays: Batch) -> Answer:  # noqa: ARG002
        """Load LiteRT.js and a model, to stay."""
        file, self.batch, threads = Path(request["model"]), request["batch"], request["threads"]
        self._signature = signature_of(Model(file=file, signature=request["signature"]))
        self._server.directory.joinpath("model.tflite").symlink_to(file)
        opened = self._opened(threads)
        request = {"signature": self._signature.key or None, "threads": threads}
        loaded, _ = self._ask("load", {**request, "webgpu": self._webgpu})
        if not self._webgpu:
            return loaded, {}
        # What it does not take whole it does not run.
        taken = {"device": opened["gpu"], "is_software": opened["is_software"], "is_full": True}
        return {**loaded, "gpu": taken}, {}

    def _opened(self, threads: int) -> dict[str, Any]:
        """What the browser is, once LiteRT.js has loaded."""
        return self._ask("open", {"threads": threads, "webgpu": self._webgpu})[0]

    def do_time(self, package: Any, request: dict[str, Any], arrays: Batch) -> Answer:
        """Load a model, and time one run of the arrays by the page's own clock."""
        loaded, _ = self.do_load(package, request, arrays)
        times, _ = self._ask("time", request, raw(arrays, self._signature.inputs))
        return {**loaded, **times}, {}

    def do_run(self, _: Any, __: dict[str, Any], arrays: Batch) -> Answer:
        """Run all samples in the loaded model."""
        specs = {spec.name: spec for spec in self._signature.outputs}
        request = {"batch": self.batch, "outputs": list(specs)}
        facts, outputs = self._ask("run", request, raw(arrays, self._signature.inputs))
        return facts, {name: dequantized(value, specs[name]) for name, value in outputs.items()}

    def _ask(self, task: str, request: dict[str, Any], arrays: Batch | None = None) -> Answer:
        """The page's answer. Raises `PageFailed`, `PageGone`."""
        self._server.requests.put(({**request, "task": task}, arrays or {}))
        answer = self._server.answers.get()
        if answer is None:
            raise PageGone
        if "error" in answer[0]:
            raise PageFailed(answer[0]["error"])
        return answer


class PageServer(ThreadingHTTPServer):
    """Serves `directory` to the page, gives it `requests` and takes its `answers`.

    An answer is None once the page is gone.
    """

    daemon_threads = True

    def __init__(self, package: Path) -> None:
        root = Path.cwd() / "served"
        super().__init__(("127.0.0.1", 0), partial(PageRequestHandler, directory=str(root)))
        self.secret = f"/{secrets.token_urlsafe(16)}/"
        self.address = f"http://127.0.0.1:{self.server_address[1]}{self.secret}"
        self.directory = root / self.secret.strip("/")
        self.directory.mkdir(parents=True)
        (self.directory / "index.html").write_text(_PAGE, encoding="utf-8")
        (self.directory / "page.js").symlink_to(_SCRIPT)
        (self.directory / "package").symlink_to(package)
        self.requests: queue.Queue[Answer] = queue.Queue()
        self.answers: queue.Queue[Answer | None] = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page_gone(self, *_: object) -> None:
        """End the wait for an answer."""
        self.answers.put(None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: `page_gone` is called where the page goes away."""


class PageRequestHandler(SimpleHTTPRequestHandler):
    """Serves files and, below the secret, the next request, the answers and the sign of life."""

    server: PageServer
    extensions_map = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}  # noqa: RUF012

    def do_GET(self) -> None:
        """The next request, empty if there is none for a while; or a file."""
        if self.path == self.server.secret + "next":
            try:
                request = self.server.requests.get(timeout=_HOLD_S)
            except queue.Empty:
                self._begin(HTTPStatus.NO_CONTENT)
            else:
                self._begin(HTTPStatus.OK)
                self.wfile.writelines(message_parts(*request))
        elif self.path == self.server.secret + "alive":
            # This blocks until the page is gone.
            self.connection.recv(1)
            self.server.page_gone()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """An answer."""
        if self.path != self.server.secret + "answer":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        facts = json.loads(self.rfile.readline())
        self.server.answers.put((facts, read_arrays(cast("IO[bytes]", self.rfile), facts)))
        self._begin(HTTPStatus.OK)

    def _begin(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.end_headers()

    def end_headers(self) -> None:
        """With those that isolate the page."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002
        """Refuse: a list of the root would show the secret."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


if __name__ == "__main__":
    main(*sys.argv[1:])
