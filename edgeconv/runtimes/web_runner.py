"""Run .tflite models with LiteRT.js, in a page of a headless browser.

    python -m edgeconv.runtimes.web_runner BROWSER PACKAGE

It answers requests as runner.py does. BROWSER is the program, PACKAGE the directory with @litertjs
in it. The page (web_page.js) comes from a server on the loopback that nobody else can use: its
paths begin with a secret. It says with every file that the page is isolated from others, which
browsers ask for before they give it threads and a fine clock.
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
from typing import IO, TYPE_CHECKING, Any, cast

from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.runner import RequestHandler, pieces, received, serve
from edgeconv.runtimes.tensors import dequantized, raw, signature_of

if TYPE_CHECKING:
    from edgeconv.runtimes.runner import Batch

    Message = tuple[dict[str, Any], Batch]

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
    *("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--mute-audio"),
    *("--disable-extensions", "--no-default-browser-check", "--disable-dev-shm-usage"),
    # A page that nobody looks at is not to be slowed down.
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding"),
    "--disable-backgrounding-occluded-windows",
)
_HOLD_S = 10.0


def main(browser: str, package: str) -> None:
    """Answer the requests of stdin on stdout, until it closes."""
    server = Server(Path(package))
    # A browser that runs as root, as in a container, has no sandbox to start.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    profile = f"--user-data-dir={Path.cwd() / 'profile'}"
    command = [browser, *_FLAGS, *sandbox, profile, server.address]
    # It goes with this process's session.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    ended = threading.Thread(target=lambda: server.page_gone(process.wait()), daemon=True)
    ended.start()
    try:
        serve(PageWork(server))
    except PageGone:
        # Whoever asked finds that there is no answer, and shows the log.
        sys.stderr.write(
            f"{browser} has ended, or its page: that may have run out of memory, or the model "
            "crashes it\n"
        )


class PageFailed(Exception):
    """The page says that it failed, and why."""


class PageGone(Exception):
    """The page, or its browser, does not live to answer."""


class PageWork(RequestHandler):
    """Answers requests by a page; a model stays loaded between them."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        about = server.directory / "package" / "@litertjs" / "core" / "package.json"
        self._version: str = json.loads(about.read_bytes())["version"]

    def answer(self, request: dict[str, Any], arrays: Batch) -> Message:
        """The answer to a request, and its arrays. Raises `PageGone`."""
        said: dict[str, Any] = {"runtime": request["runtime"], "version": self._version}
        given: Batch = {}
        try:
            said.update(getattr(self, "do_" + request["do"])(None, request, arrays, given))
        except PageFailed as error:
            said["error"] = str(error)
        return said, given

    def do_facts(self, *_: Any) -> dict[str, Any]:
        """What the machine and the browser are, once LiteRT.js has loaded."""
        return {**super().do_facts(), **self._ask("open", {"threads": 1})[0]}

    def do_load(self, _: Any, request: dict[str, Any], *__: Any) -> dict[str, Any]:
        """Load LiteRT.js and a model, to stay."""
        file, self.batch, threads = Path(request["model"]), request["batch"], request["threads"]
        self._signature = signature_of(Model(file=file, signature=request["signature"]))
        self._server.directory.joinpath("model.tflite").symlink_to(file)
        self._ask("open", {"threads": threads})
        return self._ask("load", {"signature": self._signature.key or None, "threads": threads})[0]

    def do_time(
        self, package: Any, request: dict[str, Any], arrays: Batch, *_: Any
    ) -> dict[str, Any]:
        """Load a model, and time one run of the arrays by the page's own clock."""
        loaded = self.do_load(package, request)
        return {**loaded, **self._ask("time", request, raw(arrays, self._signature.inputs))[0]}

    def do_run(self, _: Any, __: dict[str, Any], arrays: Batch, given: Batch) -> dict[str, Any]:
        """Run all samples in the loaded model."""
        specs = {spec.name: spec for spec in self._signature.outputs}
        request = {"batch": self.batch, "outputs": list(specs)}
        said, outputs = self._ask("run", request, raw(arrays, self._signature.inputs))
        given.update({name: dequantized(array, specs[name]) for name, array in outputs.items()})
        return said

    def _ask(self, task: str, request: dict[str, Any], arrays: Batch | None = None) -> Message:
        """The page's answer. Raises `PageFailed`, `PageGone`."""
        self._server.requests.put(({**request, "task": task}, arrays or {}))
        answer = self._server.answers.get()
        if answer is None:
            raise PageGone
        if "error" in answer[0]:
            raise PageFailed(answer[0]["error"])
        return answer


class Server(ThreadingHTTPServer):
    """Serves `directory` to the page, gives it `requests` and takes its `answers`.

    An answer is None once the page is gone.
    """

    daemon_threads = True

    def __init__(self, package: Path) -> None:
        root = Path.cwd() / "served"
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(root)))
        self.secret = f"/{secrets.token_urlsafe(16)}/"
        self.address = f"http://127.0.0.1:{self.server_address[1]}{self.secret}"
        self.directory = root / self.secret.strip("/")
        self.directory.mkdir(parents=True)
        (self.directory / "index.html").write_text(_PAGE, encoding="utf-8")
        (self.directory / "page.js").symlink_to(_SCRIPT)
        (self.directory / "package").symlink_to(package)
        self.requests: queue.Queue[Message] = queue.Queue()
        self.answers: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page_gone(self, *_: object) -> None:
        """Say so to whoever waits for an answer."""
        self.answers.put(None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes away in the middle is seen elsewhere."""


class Handler(SimpleHTTPRequestHandler):
    """Files, and behind the secret what is to be done, the answers and the sign of life."""

    server: Server
    extensions_map = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}  # noqa: RUF012

    def do_GET(self) -> None:
        """The next request, empty where there is none for a while; or a file."""
        if self.path == self.server.secret + "next":
            try:
                request = self.server.requests.get(timeout=_HOLD_S)
            except queue.Empty:
                self._begin(HTTPStatus.NO_CONTENT)
            else:
                self._begin(HTTPStatus.OK)
                self.wfile.writelines(pieces(*request))
        elif self.path == self.server.secret + "alive":
            # Until the page is gone.
            self.connection.recv(1)
            self.server.page_gone()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """An answer."""
        if self.path != self.server.secret + "answer":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        said = json.loads(self.rfile.readline())
        self.server.answers.put((said, received(cast("IO[bytes]", self.rfile), said)))
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
        """Nobody is told the secret."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


if __name__ == "__main__":
    main(*sys.argv[1:])
