"""What a command and all its children really did, as the kernel was asked to: by strace.

Only what succeeded counts: files written, opened or removed, connections, programs started.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_CHANGES = (
    *("creat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat"),
    *("rmdir", "link", "linkat", "symlink", "symlinkat", "truncate", "mknod", "mknodat"),
    *("chmod", "fchmodat", "chown", "lchown", "fchownat", "utimensat", "setxattr", "lsetxattr"),
)
_CONNECTS = ("connect", "bind", "sendto", "sendmsg")
_WATCHED = ("open", "openat", *_CHANGES, *_CONNECTS, "execve", "execveat")
_FILTER = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "4096", "-e", "signal=none"]
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(?:<(.*)>)?(?: (.*))?")
_UNFINISHED = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)")
_FOLDER = re.compile(r"AT_FDCWD<([^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
# A path, and the folder that it is in if that is told.
_PATH = re.compile(r'(?:<([^<>]*)>, )?"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
_ADDRESS = re.compile(r"\{sa_family=AF_(INET6?|UNIX|VSOCK)\b.*?\}")
_NOWHERE = ("/dev/", "/proc/", "pipe:", "socket:", "anon_inode:", "/memfd:")


class Seen(NamedTuple):
    """One thing that succeeded: `kind` is "write", "read", "connect" or "start".

    `what` is the absolute path, or the address, or the words of a program.
    """

    kind: str
    what: str
    process: int


@cache
def can_watch() -> bool:
    """Whether strace is here, and may look at what it starts."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode == 0


def watched(
    command: Sequence[str],
    log: Path,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout_s: float,
) -> tuple[int, list[Seen]]:
    """Run a command, its output in `log`; its exit code, and what strace saw where it may."""
    trace = log.with_suffix(".strace")
    tracing = [*_FILTER, "-e", f"trace={','.join(_WATCHED)}", "-o", str(trace)]
    with log.open("wb") as output:
        done = subprocess.run(
            [*(tracing if can_watch() else ()), *command], cwd=cwd, env=dict(environment),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s, check=False,
        )  # fmt: skip
    if not can_watch():
        return done.returncode, []
    with trace.open(encoding="utf-8", errors="replace") as lines:
        return done.returncode, list(seen(lines, str(cwd)))


def seen(lines: Iterable[str], cwd: str) -> Iterator[Seen]:
    """What succeeded, from the lines of strace."""
    folders: dict[int, str] = {}
    for process, name, arguments, result, path, rest in _calls(lines):
        folder = _FOLDER.search(arguments)
        if folder:
            folders[process] = folder[1]
        if name in _CONNECTS:
            address = _ADDRESS.search(arguments)
            is_done = result >= 0 or rest.startswith("EINPROGRESS")
            if is_done and address:
                yield Seen("connect", f"{name} {address[0]}", process)
        elif result < 0:
            continue
        elif name.startswith("exec"):
            yield Seen("start", " ".join(_TEXT.findall(arguments)), process)
        elif name in ("open", "openat"):
            if not path:
                # A process whose own files strace may not look at.
                within, text = next(iter(_PATH.findall(arguments)))
                path = str(Path(within or folders.get(process, cwd)) / text)
            if not path.startswith(_NOWHERE):
                yield Seen("write" if _WRITES.search(arguments) else "read", path, process)
        else:
            for within, text in _PATH.findall(arguments):
                place = Path(within or folders.get(process, cwd)) / text
                yield Seen("write", str(place), process)


def _calls(lines: Iterable[str]) -> Iterator[tuple[int, str, str, int, str, str]]:
    """Process, name, arguments, result, path of the file that came back, and the error."""
    begun: dict[str, str] = {}
    for line in lines:
        unfinished = _UNFINISHED.match(line)
        if unfinished:
            begun[unfinished[1]] = unfinished[2]
            continue
        resumed = _RESUMED.match(line)
        if resumed:
            line = f"{resumed[1]} {begun.pop(resumed[1], '')}{resumed[2]}"
        call = _CALL.match(line)
        if call and call[4] != "?":
            path = (call[5] or "").removesuffix(" (deleted)")
            yield int(call[1]), call[2], call[3], int(call[4]), path, call[6] or ""
