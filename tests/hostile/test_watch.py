"""What the watch makes of the lines of strace, and that both witnesses see a plain program."""

import socket
import sys

import pytest
from attacks import Aim
from watch import Seen, can_watch, seen, watched
from witness import Witness

LINES = """\
7 openat(AT_FDCWD</work>, "m/x", O_RDONLY) = 3</home/secret>
7 openat(AT_FDCWD</work>, "gone", O_RDONLY) = -1 ENOENT (No such file or directory)
7 openat(AT_FDCWD</work>, "y", O_WRONLY|O_CREAT|O_TRUNC, 0666 <unfinished ...>
8 execve("/bin/sh", ["sh", "-c", "id"], 0x7ffc /* 39 vars */) = 0
7 <... openat resumed>) = 4</work/y>
7 mkdir("z", 0777) = 0
7 unlinkat(5</home/me>, "old \\"name\\"", 0) = 0
7 openat(AT_FDCWD</work>, "/dev/null", O_RDWR) = 6</dev/null>
7 openat(AT_FDCWD</work>, "hidden", O_RDONLY) = 3
9 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 EINPROGRESS (Operation now in progress)
9 connect(3<socket:[1]>, {sa_family=AF_INET, sin_port=htons(81), sin_addr=inet_addr("1.2.3.4")}, 16) = -1 EACCES (Permission denied)
9 sendto(3<socket:[1]>, "x", 1, 0, NULL, 0) = 1
9 +++ exited with 0 +++
"""  # noqa: E501


def test_what_succeeded_is_seen_with_its_whole_path():
    assert list(seen(LINES.splitlines(), "/start")) == [
        Seen("read", "/home/secret", 7),
        Seen("start", "/bin/sh sh -c id", 8),
        Seen("write", "/work/y", 7),
        Seen("write", "/work/z", 7),
        Seen("write", '/home/me/old \\"name\\"', 7),
        Seen("read", "/work/hidden", 7),
        Seen(
            "connect",
            'connect {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("1.2.3.4")}',
            9,
        ),
    ]


ACTS = """
import os, socket, subprocess, sys
canary, written, port, program = sys.argv[1:]
open(canary).read()
open(written, "w").close()
socket.create_connection(("127.0.0.1", int(port))).close()
subprocess.run([program], check=True)
"""


@pytest.mark.parametrize("traced", [True, False], ids=["strace", "inotify"])
def test_each_witness_sees_all_four_kinds(traced, tmp_path, monkeypatch):
    if traced and not can_watch():
        pytest.skip("strace is not here, or may not trace")
    for name in ("home", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "canary").write_text("secret")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho > {tmp_path}/outside/started\n")
    program.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        aim = Aim(tmp_path / "home" / "canary", tmp_path / "outside" / "mark", port, program)
        witness = Witness([aim], [server])
        monkeypatch.setattr("watch.can_watch", lambda: traced)
        words = [sys.executable, "-c", ACTS, *map(str, aim)]
        log = tmp_path / "log.txt"
        code, traces = watched(words, log, cwd=tmp_path, environment={}, timeout_s=60)
        noticed = traces if traced else witness.seen()
    assert code == 0, log.read_text()
    whats = {(each.kind, each.what) for each in noticed}
    assert ("read", str(aim.canary)) in whats
    assert ("write", str(aim.written)) in whats
    assert any(kind == "connect" and f"htons({port})" in what for kind, what in whats)
    assert any(kind == "start" and str(program) in what for kind, what in whats)
