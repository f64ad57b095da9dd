"""A command that is killed, or told of a full disk, at exactly its N-th system call that writes.

The process is traced with ptrace: it stops before each of its system calls, and the calls that
would change something below the watched directories are counted. Its children and threads are not
traced, unless that is wanted. A call at which it is killed is not carried out; all before it are.
"""

import ctypes
import dataclasses
import errno
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

_TRACEME, _PEEKUSER, _POKEUSER, _SYSCALL, _SETOPTIONS, _SYSCALL_INFO = 0, 3, 6, 24, 0x4200, 0x420E
_SYSGOOD, _EXITKILL = 1, 0x100000
# Forks, vforks and clones, of which threads are made.
_TRACE_ALL = 2 | 4 | 8
_WALL = 0x40000000
_ENTRY = 1
# In `struct user` of x86-64.
_RAX, _ORIG_RAX = 80, 120
_CREATES = os.O_CREAT | os.O_TRUNC | (os.O_TMPFILE & ~os.O_DIRECTORY)
_AT_FDCWD = -100

# By number on x86-64: the name, and what its arguments are: f a file, p a path, dp a path in a
# directory, - anything else; o are the flags of an open.
_CALLS = {
    1: ("write", "f"),
    2: ("open", "po"),
    18: ("pwrite64", "f"),
    20: ("writev", "f"),
    40: ("sendfile", "f"),
    74: ("fsync", "f"),
    75: ("fdatasync", "f"),
    76: ("truncate", "p"),
    77: ("ftruncate", "f"),
    82: ("rename", "pp"),
    83: ("mkdir", "p"),
    84: ("rmdir", "p"),
    86: ("link", "pp"),
    87: ("unlink", "p"),
    88: ("symlink", "-p"),
    90: ("chmod", "p"),
    91: ("fchmod", "f"),
    257: ("openat", "dpo"),
    258: ("mkdirat", "dp"),
    263: ("unlinkat", "dp"),
    264: ("renameat", "dpdp"),
    265: ("linkat", "dpdp"),
    266: ("symlinkat", "-dp"),
    268: ("fchmodat", "dp"),
    280: ("utimensat", "dp"),
    285: ("fallocate", "f"),
    316: ("renameat2", "dpdp"),
    326: ("copy_file_range", "--f"),
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


class _Info(ctypes.Structure):
    _fields_ = (
        ("op", ctypes.c_uint8),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * 6),
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """How a command ended: its exit code (negative: the signal), what it said, its calls."""

    code: int
    said: str
    calls: list[str]

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclasses.dataclass
class Fault:
    """What happens at the call of number `at` (from 1; 0 for none) that changes a watched place.

    Who makes the call is killed; or where an `error` is given, as `errno.ENOSPC`, the call fails.
    With `in_children`, the calls of the children count, and not those of the command itself.
    """

    watched: Sequence[Path]
    at: int = 0
    error: int = 0
    in_children: bool = False
    calls: list[str] = dataclasses.field(default_factory=list)
    _failing: set[int] = dataclasses.field(default_factory=set)

    def at_call(self, pid: int, thread: int) -> None:
        """A thread, of the process `pid` or of another one, has stopped before or after a call."""
        call = _call(thread, tuple(map(str, self.watched)))
        if thread in self._failing:
            # The call was replaced by one that is not there: this is what it returns.
            _ptrace(_POKEUSER, thread, _RAX, -self.error)
            self._failing.remove(thread)
        elif call and not (self.in_children and _process_of(thread) == pid):
            self.calls.append(call)
            if len(self.calls) == self.at and self.error:
                _ptrace(_POKEUSER, thread, _ORIG_RAX, -1)
                self._failing.add(thread)
            elif len(self.calls) == self.at:
                os.kill(_process_of(thread), signal.SIGKILL)


def traced(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], fault: Fault
) -> Run:
    """Run a command with a fault, which comes in its main thread, or in one of its children."""
    log = cwd / ".." / f"said-{os.getpid()}.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=be_traced,
        )
    process.returncode = follow(process.pid, fault, threads=fault.in_children)
    return Run(process.returncode, log.read_text(encoding="utf-8", errors="replace"), fault.calls)


def follow(pid: int, fault: Fault, *, threads: bool = False) -> int:
    """Trace a child that has just stopped, `be_traced`, until it ends; its exit code.

    With `threads`, these and its children are traced too, and then no other child of this process
    may be about to end.
    """
    thread, status = os.waitpid(pid, _WALL)
    options = _SYSGOOD | _EXITKILL | (_TRACE_ALL if threads else 0)
    _ptrace(_SETOPTIONS, pid, 0, options)
    code = None
    while True:
        if os.WIFSTOPPED(status):
            stopped_by = os.WSTOPSIG(status)
            if stopped_by == signal.SIGTRAP | 0x80:
                fault.at_call(pid, thread)
            # A new thread begins with SIGSTOP, and is told of with SIGTRAP.
            is_own = stopped_by in (signal.SIGTRAP | 0x80, signal.SIGTRAP, signal.SIGSTOP)
            _ptrace(_SYSCALL, thread, 0, 0 if is_own else stopped_by)
        elif thread == pid:
            code = os.waitstatus_to_exitcode(status)
        try:
            thread, status = os.waitpid(-1 if threads else pid, _WALL)
        except ChildProcessError:
            assert code is not None
            return code


def be_traced() -> None:
    """Let the parent trace this process, from the next program or stop on."""
    _ptrace(_TRACEME, 0, 0, 0)


def require_tracing(place: Path) -> None:
    """Skip the test where processes cannot be traced."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        pytest.skip("system calls are injected on Linux on x86-64 only")
    try:
        command = [sys.executable, "-c", ""]
        traced(command, cwd=place, environment={}, fault=Fault([]))
    except (OSError, subprocess.SubprocessError) as refused:
        pytest.skip(f"tracing a process is not permitted here: {refused}")


def _ptrace(request: int, pid: int, address: int, data: int) -> None:
    if _libc.ptrace(request, pid, address, data) == -1:
        code = ctypes.get_errno()
        # It was killed meanwhile.
        if code != errno.ESRCH:
            raise OSError(code, os.strerror(code))


def _call(pid: int, places: tuple[str, ...]) -> str:
    """The system call that a process is about to make, as text, if it changes a place; else ""."""
    info = _Info()
    size = ctypes.sizeof(info)
    if _libc.ptrace(_SYSCALL_INFO, pid, size, ctypes.addressof(info)) == -1 or info.op != _ENTRY:
        return ""
    known = _CALLS.get(info.number)
    if known is None:
        return ""
    name, kinds = known
    paths, directory = [], ""
    for kind, value in zip(kinds, info.args, strict=False):
        if kind == "o" and not value & _CREATES:
            return ""
        if kind in "df":
            directory = _path_of(pid, ctypes.c_int32(value).value)
        if kind == "f":
            paths.append(directory)
        if kind == "p" and value:
            paths.append(str(Path(directory or _path_of(pid, _AT_FDCWD), _text(pid, value))))
            directory = ""
    paths += [directory] if directory and name == "utimensat" else []
    if not any(path == place or path.startswith(f"{place}/") for path in paths for place in places):
        return ""
    return f"{name} {' -> '.join(paths)}"


def _process_of(thread: int) -> int:
    status = Path(f"/proc/{thread}/status").read_text(encoding="utf-8")
    return int(status.partition("Tgid:")[2].split()[0])


def _path_of(pid: int, file: int) -> str:
    where = "cwd" if file == _AT_FDCWD else f"fd/{file}"
    try:
        return str(Path(f"/proc/{pid}/{where}").readlink())
    except OSError:
        return ""


def _text(pid: int, address: int) -> str:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        # Up to the end of the page at first: what is behind it may not be there.
        found = memory.read(4096 - address % 4096)
        if b"\0" not in found:
            found += memory.read(4096)
    return os.fsdecode(found.partition(b"\0")[0])
