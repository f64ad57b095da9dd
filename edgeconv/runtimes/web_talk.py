"""A page in a headless browser that is asked one thing after the other; see web_page.js.

The page comes from a server on this machine's loopback that nobody else can use: its paths
begin with a secret. It says with every file that the page is isolated from others, which
browsers ask for before they give it threads and a fine clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from edgeconv.errors import ToolFailed
from edgeconv.processes.workers import start
from edgeconv.sandbox import Access
from edgeconv.store import scratch_directory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.runtimes.interface import Arrays
    from edgeconv.types import Allowance

_PAGE = """<!doctype html><meta charset="utf-8"><title>edgeconv</title>
<script type="importmap">{"imports": {
  "@litertjs/core": "./package/@litertjs/core/dist/index.js",
  "@litertjs/wasm-utils": "./package/@litertjs/wasm-utils/dist/index.js"
}}</script>
<script type="module" src="page.js"></script>
"""
_SCRIPT = Path(__file__).with_name("web_page.js")
_KINDS = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}
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
_LOOK_S = 0.05
_HOLD_S = 10.0


class Page:
    """A page in a browser of its own; a context manager, which ends both.

    `package` is the directory with @litertjs in it, `browser` the program.
    """

    def __init__(self, browser: str, package: Path, *, label: str, allowance: Allowance) -> None:
        self._label = label
        self._desk = _Desk(package)
        self._server = _Server(self._desk)
        self._until_closed = contextlib.ExitStack()
        # It has a socket in it, whose path may have some hundred characters only.
        directory = self._until_closed.enter_context(scratch_directory())
        # A browser that runs as root, as in a container, has no sandbox to start.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        profile = f"--user-data-dir={directory / 'profile'}"
        try:
            self._child = start(
                [browser, *_FLAGS, *sandbox, profile, self._server.address],
                label=label,
                cwd=directory,
                access=Access(profile="browser"),
                allowance=allowance,
            )
        except OSError:
            self._server.close()
            self._until_closed.close()
            raise

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser, and the server."""
        self._desk.ended.set()
        self._child.kill()
        self._server.close()
        self._until_closed.close()

    def ask(
        self, request: dict[str, Any], arrays: Arrays | None = None, model: Path | None = None
    ) -> tuple[dict[str, Any], dict[str, list[NDArray[np.generic]]]]:
        """The page's answer, and its arrays by name, one for each batch.

        `model` is the file that the page finds as `model.tflite`. Raises `ToolFailed` where the
        page says that it failed, or the browser does not live to say so.
        """
        self._desk.model = model or self._desk.model
        self._child.renew()
        self._desk.put(_packed(request, arrays or {}))
        while not self._desk.answered.wait(_LOOK_S):
            self._child.check()
            if self._child.has_ended() or self._desk.gone.is_set():
                # Its log goes with its directory.
                said = f"{self._label} ended without an answer\n{self._child.tail()}".rstrip()
                self.close()
                raise ToolFailed(
                    said,
                    hint="the page may have run out of memory, or the model crashes it",
                )
        answer, given = _unpacked(self._desk.take())
        if error := answer.get("error"):
            raise ToolFailed(f"{self._label} failed: {error}")
        return answer, given


class _Desk:
    """What the page is to do, and what it answered; used from the server's threads."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.model: Path | None = None
        self.ended, self.gone, self.answered = (threading.Event() for _ in range(3))
        self._asked = threading.Event()
        self._request, self._answer = b"", b""

    def put(self, request: bytes) -> None:
        self.answered.clear()
        self._request = request
        self._asked.set()

    def next(self) -> bytes:
        """What was asked, waited for a while; empty where nothing was."""
        if not self._asked.wait(_HOLD_S):
            return b""
        self._asked.clear()
        return self._request

    def answer(self, answer: bytes) -> None:
        self._answer = answer
        self.answered.set()

    def take(self) -> bytes:
        return self._answer

    def file(self, path: str) -> Path | None:
        """The file that the page knows by this path; nothing else is given out."""
        if path == "page.js":
            return _SCRIPT
        if path == "model.tflite":
            return self.model
        head, _, rest = path.partition("/")
        file = (self.package / rest).resolve()
        inside = head == "package" and file.is_relative_to(self.package.resolve())
        return file if inside and file.is_file() else None


class _Server(ThreadingHTTPServer):
    """Serves one page on a free port of the loopback; see the module."""

    daemon_threads = True

    def __init__(self, desk: _Desk) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.desk, self.secret = desk, secrets.token_urlsafe(16)
        self.address = f"http://127.0.0.1:{self.server_address[1]}/{self.secret}/"
        self._thread = threading.Thread(target=self.serve_forever, args=(_LOOK_S,), daemon=True)
        self._thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that goes away in the middle is seen elsewhere."""

    def close(self) -> None:
        """Stop; nothing happens the second time."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        """Files, the next task, and the sign of life."""
        path = self._path()
        desk = self.server.desk
        if path == "":
            self._send(HTTPStatus.OK, _PAGE.encode(), ".html")
        elif path == "next":
            request = desk.next()
            self._send(HTTPStatus.OK if request else HTTPStatus.NO_CONTENT, request)
        elif path == "alive":
            self._watch()
        elif path is not None and (file := desk.file(path)):
            self._send(HTTPStatus.OK, file.read_bytes(), file.suffix)
        else:
            self._send(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """An answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self._path() == "answer":
            self.server.desk.answer(body)
            self._send(HTTPStatus.OK)
        else:
            self._send(HTTPStatus.NOT_FOUND)

    def _path(self) -> str | None:
        """The path behind the secret; None for somebody else."""
        path = unquote(self.path.partition("?")[0])
        prefix = f"/{self.server.secret}/"
        return path.removeprefix(prefix) if path.startswith(prefix) else None

    def _send(self, status: HTTPStatus, body: bytes = b"", suffix: str = "") -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", _KINDS.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        """Wait until the page, or the wish to know of it, is gone."""
        desk = self.server.desk
        self.close_connection = True
        while not desk.ended.is_set():
            readable, _, _ = select.select([self.connection], [], [], _LOOK_S)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                desk.gone.set()
                return


def _packed(request: dict[str, Any], arrays: Arrays) -> bytes:
    import numpy as np

    ready = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = [[name, array.dtype.name, list(array.shape)] for name, array in ready.items()]
    line = json.dumps({**request, "arrays": listed}).encode() + b"\n"
    return b"".join([line, *(array.tobytes() for array in ready.values())])


def _unpacked(answer: bytes) -> tuple[dict[str, Any], dict[str, list[NDArray[np.generic]]]]:
    import numpy as np

    end = answer.index(b"\n")
    said = json.loads(answer[:end])
    at = end + 1
    given: dict[str, list[NDArray[np.generic]]] = {}
    for name, dtype, shape in said.pop("arrays"):
        count = int(np.prod(shape))
        array = np.frombuffer(answer, dtype, count, at).reshape(shape)
        at += array.nbytes
        given.setdefault(name, []).append(array)
    return said, given
