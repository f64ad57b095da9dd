"""The runtime ssh against a real sshd on this machine, whose Python is the test's own."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pytest
from tiny_tflite import BIASES, WEIGHTS, float_model, int8_model, packed

import edgeconv
from edgeconv.plugins.devices.ssh import SshAddress, SshRuntime, open_runtime, parse_ssh_address
from edgeconv.runtimes.choice import parse_choice
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.types import Measuring, Timing
from edgeconv.types.errors import ToolFailed, UsageError

SERVER = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
PATIENCE_S = 120.0


class Server(NamedTuple):
    """A running sshd: how to reach it, and the directory that its sessions write to."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    temporary: Path

    def place(self, config: str = "config") -> str:
        """What follows `ssh:` in a runtime."""
        return f"{getpass.getuser()}@127.0.0.1:{self.port}?config={self.directory / config}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_server(directory: Path) -> Server:
    """Start an sshd that knows one key; skips the test where there is none to start."""
    if SERVER is None or shutil.which("ssh") is None:
        pytest.skip("there is no sshd here: install openssh-server and openssh-client")
    if os.geteuid() == 0:
        # Where the server puts itself away while it looks at a key.
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    for name in ("host", "user", "stranger"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(key, check=True)
    port, temporary = free_port(), directory / "tmp"
    temporary.mkdir()
    shutil.copy(directory / "user.pub", directory / "authorized_keys")
    host_key = (directory / "host.pub").read_text(encoding="ascii")
    known = directory / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {host_key}", encoding="ascii")
    (directory / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory / 'host'}\n"
        f"PidFile {directory / 'pid'}\nAuthorizedKeysFile {directory / 'authorized_keys'}\n"
        "UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"SetEnv TMPDIR={temporary}\n",
        encoding="utf-8",
    )
    write_config(directory / "config", key=directory / "user", known=known)
    write_config(directory / "stranger_config", key=directory / "stranger", known=known)
    write_config(directory / "unknown_config", key=directory / "user", known=directory / "none")
    log = (directory / "sshd.log").open("wb")
    command = [SERVER, "-D", "-e", "-f", str(directory / "sshd_config")]
    process = subprocess.Popen(command, stderr=log, start_new_session=True)
    log.close()
    await_port(process, port, directory / "sshd.log")
    return Server(process, port, directory, temporary)


def write_config(file: Path, *, key: Path, known: Path) -> None:
    file.write_text(
        f"IdentityFile {key}\nIdentitiesOnly yes\nIdentityAgent none\n"
        f"UserKnownHostsFile {known}\nGlobalKnownHostsFile /dev/null\n",
        encoding="utf-8",
    )


def await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            pytest.fail(f"sshd ended: {log.read_text(errors='replace')}")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("sshd does not answer")


def stop_server(server: Server) -> None:
    """End it, with the connections that it serves."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    server.process.kill()
    for child in children:
        # It may have gone by itself.
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    server.process.wait(timeout=PATIENCE_S)


SAMPLES = {"x": np.linspace(-3, 3, 24, dtype=np.float32).reshape(6, 4)}
EXPECTED = SAMPLES["x"] @ WEIGHTS.T.astype(np.float32) + BIASES.astype(np.float32)
TIMING = Timing(warmup=2, warmup_seconds=0.1, repeats=9, seconds=5.0)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    started = start_server(tmp_path_factory.mktemp("sshd"))
    yield started
    stop_server(started)


@pytest.fixture
def model(tmp_path) -> Model:
    file = tmp_path / "model.tflite"
    file.write_bytes(packed(float_model()))
    return Model(file=file)


def opened(server: Server, tmp_path: Path, *, config: str = "config", python: str = sys.executable):
    choice = parse_choice(f"ssh:{server.place(config)}")
    return open_runtime(choice, RuntimeSettings(scratch=tmp_path, python=python, threads=1))


def left_behind(server: Server) -> list[str]:
    """What is still in the directory of temporary files there."""
    return [path.name for path in server.temporary.iterdir()]


def test_a_model_is_timed_and_gives_outputs_there_and_nothing_stays(server, tmp_path, model):
    with opened(server, tmp_path) as runtime:
        assert runtime.environment.host == f"ssh:{server.place().partition('?')[0]}"
        assert runtime.environment.tools["ai-edge-litert"]
        assert runtime.environment.cores == psutil.cpu_count()
        timed = runtime.time(model, SAMPLES, TIMING)
        session = runtime.start(model)
        given = session.run(SAMPLES)
        np.testing.assert_array_equal(session.run({"x": SAMPLES["x"][:1]})["y"], given["y"][:1])
        (directory,) = left_behind(server)
        assert processes_in(directory) != []
    np.testing.assert_allclose(given["y"], EXPECTED, rtol=1e-6)
    assert len(timed.samples_us) == 9
    assert min(timed.samples_us) > 0
    assert timed.load_us > 0
    assert timed.first_us > 0
    assert (timed.runtime, timed.memory_bytes is not None) == ("ai_edge_litert", True)
    assert left_behind(server) == []
    assert processes_in(directory) == []
    session.close()


@pytest.fixture(scope="module")
def runtime(server, tmp_path_factory) -> Iterator[SshRuntime]:
    with opened(server, tmp_path_factory.mktemp("scratch")) as one:
        yield one


def test_a_quantised_model_takes_and_gives_floats(runtime, tmp_path):
    file = tmp_path / "int8.tflite"
    file.write_bytes(packed(int8_model()))
    session = runtime.start(Model(file=file))
    given = session.run(SAMPLES)["y"]
    session.close()
    assert given.dtype == np.float32
    assert np.abs(given - EXPECTED).max() <= 40


def test_sessions_work_at_the_same_time(runtime, model):
    sessions = [runtime.start(model) for _ in range(2)]
    assert runtime.sessions >= 1
    for session in sessions:
        np.testing.assert_allclose(session.run(SAMPLES)["y"], EXPECTED, rtol=1e-6)
    for session in sessions:
        session.close()


def test_a_model_that_cannot_be_loaded_there_fails_alone(runtime, tmp_path, model):
    junk = tmp_path / "junk.tflite"
    junk.write_bytes(b"TFL3 and nothing else")
    with pytest.raises(ToolFailed, match=r"running junk\.tflite in ai_edge_litert on .*failed"):
        runtime.time(Model(file=junk), SAMPLES, TIMING)
    assert runtime.time(model, SAMPLES, TIMING).samples_us


def processes_in(directory: str) -> list[str]:
    """The command lines of the runners in a directory; those of ssh are not among them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if len(line) == 2 and line[1].endswith(f"{directory}/runner.py"):
            found.append(" ".join(line))
    return found


def test_a_connection_that_is_lost_says_so(tmp_path_factory, tmp_path, model):
    server = start_server(tmp_path_factory.mktemp("short"))
    try:
        with opened(server, tmp_path) as runtime:
            session = runtime.start(model)
            stop_server(server)
            with pytest.raises(ToolFailed, match=r"the connection to .* was lost"):
                session.run(SAMPLES)
            session.close()
            with pytest.raises(ToolFailed, match=r"the connection to .* was lost"):
                runtime.time(model, SAMPLES, TIMING)
    finally:
        if server.process.poll() is None:
            stop_server(server)


def python_with(directory: Path, packages: tuple[str, ...]) -> str:
    """A Python that sees nothing but the standard library, and empty packages of these names."""
    for package in packages:
        (directory / "packages" / package).mkdir(parents=True)
        (directory / "packages" / package / "__init__.py").touch()
    script = directory / "python"
    path = f"import sys; sys.path.append({str(directory / 'packages')!r})"
    (directory / "run.py").write_text(
        f"{path}\nsys.argv[:2] = ['-c']\nexec(sys.argv.pop(1))\n", encoding="utf-8"
    )
    # Only `-c` is asked for before the refusal.
    script.write_text(
        f'#!/bin/sh\nexec {sys.executable} -I -S {directory / "run.py"} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return str(script)


INSTALL = "/python -m pip install numpy ai-edge-litert"


@pytest.mark.parametrize(
    ("config", "python", "message", "hint"),
    [
        ("stranger_config", sys.executable, "Permission denied", "ssh-copy-id"),
        (
            "unknown_config",
            sys.executable,
            "Host key verification failed",
            "connect once with ssh yourself",
        ),
        ("config", "/nowhere/python", r"(?s)/nowhere/python on .* does not work.*not found", ""),
        ("config", (), " has no numpy", INSTALL),
        ("config", ("numpy",), "has no TFLite interpreter: none of ai_edge_litert, ", INSTALL),
    ],
)
def test_a_key_or_a_python_that_cannot_be_used_is_refused(
    server, tmp_path, config, python, message, hint
):
    python = python if isinstance(python, str) else python_with(tmp_path, python)
    with (
        pytest.raises(ToolFailed, match=message) as raised,
        opened(server, tmp_path, config=config, python=python),
    ):
        pass
    assert hint in (raised.value.hint or "")


def test_an_interpreter_that_does_not_work_is_passed_over_and_named_at_last(server, tmp_path):
    for name in ("tflite_runtime", "ai_edge_litert", "tensorflow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('built for arm')\n")
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    with (
        pytest.raises(ToolFailed, match=r"no TFLite interpreter works on .*built for arm"),
        opened(server, tmp_path, python=str(script)),
    ):
        pass


@pytest.mark.parametrize(
    ("machine", "message", "hint"),
    [
        ("127.0.0.1:{port}", "Connection refused", "ssh:HOST:PORT"),
        ("no-such-machine.invalid", "cannot connect", "check the name"),
    ],
)
def test_a_machine_where_nothing_listens_or_that_is_none_is_refused(
    server, tmp_path, machine, message, hint
):
    place = f"{machine.format(port=free_port())}?config={server.directory / 'config'}"
    with (
        pytest.raises(ToolFailed, match=message) as raised,
        open_runtime(parse_choice(f"ssh:{place}"), RuntimeSettings(scratch=tmp_path)),
    ):
        pass
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "has nothing after :"),
        ("?config=c", "needs a machine"),
        ("user@", "is not the address of a machine"),
        ("-oProxyCommand=x", "is not the address of a machine"),
        ("-x@host", "is not the address of a machine"),
        ("host:ssh", "is not the address of a machine"),
        ("host?key=a", "unknown option of the runtime ssh 'key'"),
        ("host?config=/nowhere/config", "there is no file /nowhere/config"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path, place, message):
    with (
        pytest.raises(UsageError, match=message),
        open_runtime(parse_choice(f"ssh:{place}"), RuntimeSettings(scratch=tmp_path)),
    ):
        pass


def test_a_place_is_read_as_ssh_reads_it():
    assert parse_ssh_address("pi@board:2222") == SshAddress("board", "pi", "2222")
    assert parse_ssh_address("board") == SshAddress("board")
    assert parse_ssh_address("me@corp@[fe80::1]:22") == SshAddress("fe80::1", "me@corp", "22")
    assert str(SshAddress("fe80::1", "me", "22")) == "me@[fe80::1]:22"


def test_without_an_ssh_here_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(UsageError, match="ssh is not installed"),
        open_runtime(parse_choice("ssh:host"), RuntimeSettings(scratch=tmp_path)),
    ):
        pass


def test_a_bench_there_is_a_report_and_leaves_nothing(server, model):
    # A machine whose connection was lost before may keep what it had.
    before = left_behind(server)
    measuring = Measuring(
        runtimes=(parse_choice(f"ssh:{server.place()}"),), python=sys.executable, rounds=2
    )
    report = edgeconv.bench([str(model.file)], measuring=measuring)
    (row,) = report.measurements
    assert (row.error, len(row.latency.rounds_us)) == ("", 2)
    assert report.environment.host == f"ssh:{server.place().partition('?')[0]}"
    assert left_behind(server) == before
