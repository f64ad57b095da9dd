"""Children of edgeconv as forks of a process that has imported what they import.

A child that runs TensorFlow takes seconds to import it, and does so hundreds of times in a run of
the tests. Here a server imports it once for the whole run. A child is a fork of the server: a
session of its own, with its own environment, directory and open files, which enters its sandbox
by the same program as one that is started. Only what a journey starts for real is forked:
`start_kinds.py` has the table. `conftest.py` says which tests take their children from here;
EDGECONV_TESTS_START=1 starts all of them, as edgeconv does for its users.

    python forking.py serve DIRECTORY KIND   the server of a kind, which ends with the tests
    python forking.py edgeconv WORD...       `edgeconv WORD...`, its children forked
"""

import contextlib
import fcntl
import importlib
import json
import math
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from start_kinds import may_be_forked

# Where the servers of this run are, and what is known of it; the processes of xdist share them.
PLACE = "EDGECONV_TESTS_FORKS"
_START_ALL = "EDGECONV_TESTS_START"
_RUN = "run.json"
_FORK = ".fork"
# What children of a kind import, those of "tensorflow" after the others.
_IMPORTS = {
    "plain": (
        *("numpy", "msgspec", "scipy.stats", "PIL.Image", "h5py", "pyarrow.parquet", "psutil"),
        "ai_edge_litert.interpreter",
    ),
    "tensorflow": ("tensorflow", "keras", "tf_keras"),
}
_MOST_BYTES = 1 << 18
_MOST_FILES = 32
# Files of a child are below, while they are put in order.
_ABOVE = 512
_STARTS_WITHIN_S = 120.0

_is_forking = False


# Of a run of the tests


def open_place() -> None:
    """Called once in a run: where its servers will be. They are started when they are needed."""
    if os.environ.get(_START_ALL) or not hasattr(os, "pidfd_open"):
        return
    # Under a name that edgeconv does not take for scratch of its own, which it clears away.
    place = Path(tempfile.mkdtemp(prefix="forks-of-tests-"))
    run = {"pid": os.getpid(), "environment": dict(os.environ)}
    (place / _RUN).write_text(json.dumps(run), encoding="utf-8")
    os.environ[PLACE] = str(place)


def close_place() -> None:
    """The servers end with the process that called `open_place`; this takes away their files."""
    place = os.environ.pop(PLACE, None)
    if place:
        for path in Path(place).iterdir():
            path.unlink(missing_ok=True)
        Path(place).rmdir()


@contextlib.contextmanager
def forked_children(is_forking: bool = True) -> Iterator[None]:
    """Meanwhile children of this process are forks, where they are programs of edgeconv."""
    global _is_forking
    before, _is_forking = _is_forking, is_forking and PLACE in os.environ
    _replace_start()
    try:
        yield
    finally:
        _is_forking = before


def edgeconv_command() -> list[str]:
    """How to start edgeconv in a process, whose children are forks where those of this one are."""
    ours = [__file__, "edgeconv"] if _is_forking else ["-m", "edgeconv"]
    return [sys.executable, *ours]


def run(
    command: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: object,
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of a Python, TensorFlow imported, on a script or `-c` code, or of edgeconv.

    What it prints is captured, as text. Raises `subprocess.TimeoutExpired`.
    """
    words, variables = [str(word) for word in command], {**(os.environ if env is None else env)}
    if words[1:3] == ["-m", "edgeconv"]:
        words = [*edgeconv_command(), *words[3:]]
    elif _is_forking:
        return _run_forked(words, cwd or Path.cwd(), variables, timeout)
    return subprocess.run(
        words,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def output_of(*arguments: object, **environment: str) -> str:
    """What a Python printed on a script or `-c` code, which has to end well."""
    done = run([sys.executable, *arguments], env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _run_forked(
    words: list[str], cwd: Path, environment: dict[str, str], timeout_s: float | None
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        forked = Forked(
            words, cwd=cwd, env=environment, stdout=output, stderr=errors, kind="tensorflow"
        )
        code = forked.run_to_end(timeout_s)
        texts = [file.seek(0) or file.read().decode() for file in (output, errors)]
    return subprocess.CompletedProcess(words, code, *texts)


def _replace_start() -> None:
    """Have edgeconv start its children, and wait for them, by way of `Forked`."""
    from edgeconv.system.processes import workers

    if isinstance(workers.subprocess, _Subprocess):
        return
    workers.subprocess = _Subprocess()
    workers.os = _System()


class _Subprocess:
    """The module `subprocess`, as far as edgeconv's workers use it."""

    PIPE = subprocess.PIPE

    def Popen(self, command: Sequence[str], **settings: Any) -> Any:  # noqa: N802
        from edgeconv.system.processes import workers

        words = command[len(workers._WAIT_FOR_A_LINE) :]
        if _is_forking and words[0] == sys.executable and may_be_forked(words):
            return Forked(list(words), **settings)
        return subprocess.Popen(command, **settings)


class _System:
    """The module `os`, which also waits for forks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        forked = _forks.get(pid)
        return os.waitpid(pid, options) if forked is None else forked.waited()


class Forked:
    """As much of `subprocess.Popen` as edgeconv's workers use, of a fork of a server."""

    def __init__(
        self, words: list[str], *, cwd: Path, env: dict[str, str], stdout: Any, stderr: Any,
        pass_fds: Iterable[int] = (), kind: str = "", **_: Any,
    ) -> None:  # fmt: skip
        sys.audit("subprocess.Popen", words[0], words, str(cwd), env)
        self.returncode: int | None = None
        self._one_asks = threading.Lock()
        self.stdout = None
        self._connection = _connected(kind or _kind(words))
        kept = list(pass_fds)
        theirs, ours = os.pipe()
        answers, gives = os.pipe() if stdout == subprocess.PIPE else (-1, os.dup(stdout.fileno()))
        request = {"words": words, "cwd": str(cwd), "environment": env, "kept": kept}
        request["parent"] = os.getpid()
        content = json.dumps(request).encode()
        socket.send_fds(self._connection, [content], [theirs, gives, stderr.fileno(), *kept])
        os.close(theirs)
        os.close(gives)
        self.stdin = os.fdopen(ours, "wb", 0)
        if answers >= 0:
            self.stdout = os.fdopen(answers, "rb", 0)
        self.pid = int(self._connection.recv(_MOST_BYTES))
        self._connection.setblocking(False)
        _forks[self.pid] = self

    def waited(self) -> tuple[int, int]:
        """What os.waitpid gives with WNOHANG, to one thread only of those that ask."""
        with self._one_asks:
            if _forks.get(self.pid) is not self:
                raise ChildProcessError
            try:
                status = self._connection.recv(_MOST_BYTES)
            except BlockingIOError:
                return 0, 0
            _forks.pop(self.pid)
            self._connection.close()
            return self.pid, int(status or signal.SIGKILL)

    def run_to_end(self, timeout_s: float | None) -> int:
        """The exit code, once it has ended."""
        until_s = time.monotonic() + (timeout_s or math.inf)
        with self.stdin:
            self.stdin.write(b"\n")
            while not (ended := self.waited())[0]:
                if time.monotonic() > until_s:
                    # The server ends what nobody asks for any more.
                    _forks.pop(self.pid)
                    self._connection.close()
                    raise subprocess.TimeoutExpired(str(self.pid), timeout_s or 0)
                time.sleep(0.01)
        return os.waitstatus_to_exitcode(ended[1])

    def __del__(self) -> None:
        # There is none where there was no server.
        if hasattr(self, "_connection"):
            self._connection.close()


_forks: dict[int, Forked] = {}


def forks_of(parent: int) -> dict[int, dict[str, Any]]:
    """What the forks of a process are, by their numbers: "words", "environment" and so on."""
    found = {}
    for path in Path(os.environ.get(PLACE, os.devnull)).glob(f"*{_FORK}"):
        with contextlib.suppress(FileNotFoundError):
            request = json.loads(path.read_text(encoding="utf-8"))
            if request["parent"] == parent:
                found[int(path.stem)] = request
    return found


def _kind(words: list[str]) -> str:
    """The server for a command: most of what names a function of tf/ imports TensorFlow."""
    return "tensorflow" if any(word.startswith("edgeconv.tf.") for word in words) else "plain"


def _connected(kind: str) -> socket.socket:
    """A connection to the server of a kind, which is started where it is not there yet."""
    place = Path(os.environ[PLACE])
    path = place / f"{kind}.sock"
    with (place / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start_server(place, kind)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(path))
    return connection


def _start_server(place: Path, kind: str) -> None:
    run = json.loads((place / _RUN).read_text(encoding="utf-8"))
    log = place / f"{kind}.log"
    with log.open("wb") as output:
        # Of no process that a test looks at.
        shell = subprocess.run(
            [
                "/bin/sh",
                "-c",
                '"$@" >&2 & echo $!',
                "sh",
                sys.executable,
                __file__,
                "serve",
                place,
                kind,
            ],
            env={k: v for k, v in run["environment"].items() if k != "PYTHONPATH"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            check=True,
        )
    until_s = time.monotonic() + _STARTS_WITHIN_S
    while not (place / f"{kind}.sock").exists():
        if time.monotonic() > until_s or not Path("/proc", shell.stdout.decode().strip()).exists():
            raise RuntimeError(f"no server of forks: {log.read_text(errors='replace')}")
        time.sleep(0.01)


# The server


def serve(place: Path, kind: str) -> None:
    """Fork children until the run of the tests ends."""
    # The shell has what runs in the background ignore these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    from edgeconv.system.store import quantizer_module

    for name in (*_IMPORTS["plain"], *(_IMPORTS[kind] if kind != "plain" else ()), *_ours()):
        importlib.import_module(name)
    quantizer_module("quantizer")
    del sys.path[0]
    run = os.pidfd_open(json.loads((place / _RUN).read_text(encoding="utf-8"))["pid"])
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = place / f"{kind}.sock"
    listening.bind(f"{path}.new")
    listening.listen(64)
    Path(f"{path}.new").rename(path)
    selector = selectors.DefaultSelector()
    selector.register(run, selectors.EVENT_READ, None)
    selector.register(listening, selectors.EVENT_READ, None)
    children: set[_Child] = set()
    while True:
        for key, _ in selector.select():
            if key.fileobj is run:
                for child in children:
                    child.kill()
                return
            if key.fileobj is listening:
                child = _Child(listening.accept()[0], place)
                children.add(child)
                selector.register(child.process, selectors.EVENT_READ, child)
                selector.register(child.connection, selectors.EVENT_READ, child)
            elif key.fileobj is key.data.connection:
                # Whoever asked for it has its end, or has ended.
                selector.unregister(key.data.connection)
                if not key.data.has_ended:
                    selector.unregister(key.data.process)
                key.data.kill()
                children.remove(key.data)
            elif key.data in children:
                # Not one whose end came together with that of its connection.
                selector.unregister(key.data.process)
                key.data.tell_end()


def _ours() -> Iterator[str]:
    """The modules of edgeconv, but for the command line, which no child is."""
    import edgeconv

    for module in pkgutil.walk_packages(edgeconv.__path__, "edgeconv."):
        if not module.name.startswith(("edgeconv.cli", "edgeconv.__main__")):
            yield module.name


class _Child:
    """A fork, and the connection of whoever asked for it."""

    def __init__(self, connection: socket.socket, place: Path) -> None:
        self.connection = connection
        self.has_ended = False
        try:
            content, files, _, _ = socket.recv_fds(connection, _MOST_BYTES, _MOST_FILES)
        except OSError:
            content, files = b"", []
        is_ready, ready = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            os.close(ready)
            go_on(json.loads(content), files)
        for file in (ready, *files):
            os.close(file)
        os.read(is_ready, 1)
        os.close(is_ready)
        self.process = os.pidfd_open(self.pid)
        self._is = place / f"{self.pid}{_FORK}"
        new = self._is.with_suffix(".new")
        new.write_bytes(content)
        new.rename(self._is)
        # Whoever asked for it may have been killed meanwhile.
        with contextlib.suppress(OSError):
            connection.send(str(self.pid).encode())

    def tell_end(self) -> None:
        """Its number stays taken until whoever asked for it knows."""
        self.has_ended = True
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        is_code = ended.si_code == os.CLD_EXITED
        with contextlib.suppress(OSError):
            self.connection.send(str(ended.si_status << 8 if is_code else ended.si_status).encode())

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._is.unlink(missing_ok=True)
        os.close(self.process)
        self.connection.close()


def go_on(request: dict[str, Any], files: list[int]) -> None:
    """In a fork: be the program that is requested, from its first line to its end.

    `files` are its stdin, stdout and stderr, and then those that it has by the numbers in "kept".
    """
    code = 1
    try:
        above = [fcntl.fcntl(file, fcntl.F_DUPFD, _ABOVE) for file in files]
        os.closerange(3, _ABOVE)
        for file, number in zip(above, (0, 1, 2, *request["kept"]), strict=True):
            os.dup2(file, number)
            os.close(file)
        become(request["words"], request["cwd"], request["environment"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 (as Python does at the end of a program)
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def become(words: list[str], cwd: str, environment: dict[str, str]) -> None:
    """What a command of Python would be in `cwd`, once its parent has tied it to itself."""
    from edgeconv.tf import lean

    if "tensorflow" in sys.modules:
        # All of it is imported.
        lean.import_converter_only = lambda: os.environ.update(lean._QUIET)
        lean.import_the_rest = lambda: None
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    # What the server has found out or drawn already, as it imported.
    tempfile.tempdir = None
    sys.modules["numpy"].random.seed()
    # As the shell does that ties it.
    os.environ["PWD"] = cwd
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    while (read := os.read(0, 1)) != b"\n":
        if not read:
            sys.exit(1)
    if words[1] == "-c":
        sys.path.insert(0, cwd)
        sys.argv = words[1:2] + words[3:]
        exec(words[2], {"__name__": "__main__"})
    elif words[1] == "-m":
        sys.path.insert(0, cwd)
        sys.argv = words[2:]
        runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[1]).parent))
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")


def main(what: str, *words: str) -> None:
    if what == "serve":
        serve(Path(words[0]), words[1])
        return
    # As of `python -m edgeconv`.
    sys.path[0] = str(Path.cwd())
    sys.argv = ["edgeconv", *words]
    from edgeconv import cli

    with forked_children():
        cli.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
