"""Confine this process, and continue as another program: one file, the standard library only.

    python enter.py POLICY.json -m MODULE ARGUMENT...
    python enter.py POLICY.json SCRIPT.py ARGUMENT...

A module or a script continues in the same process, which saves a second start. It runs in the
Pythons of older runtimes too: 3.7 and later. edgeconv/system/processes/sandbox/policy.py writes and
describes POLICY.json.

Where the process cannot be confined, the reason goes into the policy's `failure` file; with
`required` it ends there, with exit code 4.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Policy = dict[str, Any]
    Line = tuple[int, int, int, int]
    Test = tuple[int, int, str, str]

_NOT_CONFINED = 4
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

# The system files that a program needs; no user has files there.
_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/timezone"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version"),
    *("/proc/filesystems", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/osrelease"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup"),
    *("/sys/kernel/mm/transparent_hugepage", "/dev/urandom", "/dev/random", "/dev/zero"),
)
_DEVICES = ("/dev/null", "/dev/full")
_NAMES = tuple(
    "/etc/" + name
    for name in ("hosts", "resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "services",
                 "protocols", "ssl", "pki", "ca-certificates")
)  # fmt: skip

# Before the third version of Landlock, a file could be truncated.
LEAST_LANDLOCK = 3
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = 1 << 9, 1 << 10, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _READ_FILE | _READ_DIR
# No links, pipes or sockets: the parent reads these directories, and would follow them.
_WRITE = (
    _READ | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER
)
_SPECIAL = _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_NO_NEW_PRIVS, _SET_DUMPABLE = 38, 4
# By machine: its number for seccomp, its column below, and the first call of 32 bits.
_MACHINES = {"x86_64": (0xC000003E, 0, 1 << 30), "aarch64": (0xC00000B7, 1, 0)}
# Later calls are refused.
_LAST_CALL = 462
# System calls that nothing needs, and that exploits of the kernel use.
_NEVER = """
ptrace 101 117  process_vm_readv 310 270  process_vm_writev 311 271  process_madvise 440 440
process_mrelease 448 448  kcmp 312 272  pidfd_getfd 438 438  mount 165 40  umount2 166 39
pivot_root 155 41  chroot 161 51  move_mount 429 429  open_tree 428 428  fsopen 430 430
fsconfig 431 431  fsmount 432 432  fspick 433 433  mount_setattr 442 442  unshare 272 97
setns 308 268  bpf 321 280  perf_event_open 298 241  userfaultfd 323 282
io_uring_setup 425 425  io_uring_enter 426 426  io_uring_register 427 427  keyctl 250 219
add_key 248 217  request_key 249 218  kexec_load 246 104  kexec_file_load 320 294
init_module 175 105  finit_module 313 273  delete_module 176 106  open_by_handle_at 304 265
name_to_handle_at 303 264  fanotify_init 300 262  swapon 167 224  swapoff 168 225
reboot 169 142  acct 163 89  quotactl 179 60  quotactl_fd 443 443  settimeofday 164 170
clock_settime 227 112  clock_adjtime 305 266  adjtimex 159 171  syslog 103 116  ioperm 173 -
iopl 172 -  modify_ldt 154 -  vhangup 153 58  sethostname 170 161  setdomainname 171 162
personality 135 92  lookup_dcookie 212 18  nfsservctl 180 42  uselib 134 -
"""
# System calls that a computing process does not need: for other processes, memory shared with them,
# links, and special files.
_ALONE = """
pidfd_open 434 434  pidfd_send_signal 424 424  tkill 200 130  rt_sigqueueinfo 129 138
rt_tgsigqueueinfo 297 240  shmget 29 194  shmat 30 196  shmctl 31 195  semget 64 190
semop 65 193  semctl 66 191  semtimedop 220 192  msgget 68 186  msgsnd 69 189  msgrcv 70 188
msgctl 71 187  mq_open 240 180  mq_unlink 241 181  migrate_pages 256 238  ioprio_set 251 30
sched_setscheduler 144 119  sched_setparam 142 118  sched_setattr 314 274  setpriority 141 140
symlink 88 -  symlinkat 266 36  link 86 -  linkat 265 37  mknod 133 -  mknodat 259 33
inotify_init 253 -  inotify_init1 294 26  inotify_add_watch 254 27
"""
_PROGRAMS = "execve 59 221  execveat 322 281  fork 57 -  vfork 58 -"
_SOCKET, _SOCKETPAIR = "socket 41 198", "socketpair 53 199"
# Landlock does not cover these. They seem to succeed and change nothing: Python's `shutil.copy2`,
# among others, sets mode and times after it has copied, and would fail.
_ATTRIBUTES = """
chmod 90 -  fchmod 91 52  fchmodat 268 53  fchmodat2 452 452  chown 92 -  fchown 93 55
lchown 94 -  fchownat 260 54  setxattr 188 5  lsetxattr 189 6  fsetxattr 190 7
removexattr 197 14  lremovexattr 198 15  fremovexattr 199 16
"""
# So do these where they are given times. Without (a null pointer, the argument of this number) they
# touch a file, and fail: after a success, `Path.touch` would not create a missing file.
_TIMES = (("utime 132 -", 1), ("utimes 235 -", 1), ("futimesat 261 -", 2), ("utimensat 280 88", 2))
_CLONE, _CLONE3, _IOCTL, _FCNTL = "clone 56 220", "clone3 435 435", "ioctl 16 29", "fcntl 72 25"
# Their first argument is a process, which has to be this one.
_OF_PROCESSES = "kill 62 129  tgkill 234 131  prlimit64 302 261  sched_setaffinity 203 122"
# They have signals sent to other processes: F_SETOWN, F_SETSIG, F_SETOWN_EX and F_NOTIFY.
_SIGNALING = (8, 10, 15, 1026)
_CLONE_THREAD, _NEW_NAMESPACES = 0x00010000, 0x7E020080
# They type into a terminal, and set flags of a file that is open for reading only.
_IOCTLS = (0x5412, 0x541C, 0x40086602, 0x401C5820)
_INTERNET = (2, 10, 16)

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


class Unconfined(Exception):
    """The process cannot be confined; the text is the reason."""


def landlock_version() -> int:
    """The version of Landlock in this kernel; 0 for none, or where it is disabled."""
    version: int = _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return version if version > 0 else 0


def filters_calls() -> bool:
    """Whether this kernel filters system calls, and this machine's calls are known."""
    action = ctypes.c_uint32(_KILL_PROCESS)
    number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
    is_64 = sys.maxsize > 2**32
    # This only asks whether the action is available.
    return bool(number and is_64) and not _LIBC.syscall(number, 2, 0, ctypes.byref(action))


def readable(policy: Policy) -> list[str]:
    """All that may be read: what was granted, this Python, and system files."""
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    # Editable installs are elsewhere.
    finders = [m for n, m in list(sys.modules.items()) if n.startswith("__editable__")]
    edited = [path for each in finders for path in getattr(each, "MAPPING", {}).values()]
    names = _NAMES if policy["network"] != "none" else ()
    python = [path for path in (*prefixes, *sys.path, *edited, *libraries) if path[:1] == "/"]
    return list(dict.fromkeys([*_SYSTEM, *names, *python, *policy["reads"]]))


def restrict_files(policy: Policy) -> None:
    """Let this process touch what the policy says, by Landlock. Raises `Unconfined`."""
    version = landlock_version()
    if version < LEAST_LANDLOCK:
        raise Unconfined("the kernel has no Landlock, or an old one")
    handled = (1 << (16 if version >= 5 else 15)) - 1
    tcp = _BIND_TCP | _CONNECT_TCP if version >= 4 and policy["network"] == "none" else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 and not policy["processes"] else 0
    attributes = struct.pack("=QQQ", handled, tcp, scoped)[: 24 if version >= 6 else 16]
    ruleset = _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise Unconfined("Landlock: " + os.strerror(ctypes.get_errno()))
    special = _SPECIAL if policy["processes"] else 0
    for paths, rights in (
        (readable(policy), _READ),
        (policy["writes"], _WRITE | special),
        ((*_DEVICES, *policy["devices"]), _READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV),
        (policy["runs"], _READ | _EXECUTE),
    ):
        for path in paths:
            _allow(ruleset, path, rights & handled)
    if _LIBC.syscall(_RESTRICT_SELF, ruleset, 0):
        raise Unconfined("Landlock: " + os.strerror(ctypes.get_errno()))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # This machine does not have it.
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, file)
        if _LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise Unconfined("Landlock, {}: {}".format(path, os.strerror(ctypes.get_errno())))
    finally:
        os.close(file)


def filter_calls(policy: Policy) -> None:
    """Refuse system calls from now on, in all threads to come. Raises `Unconfined`."""
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        raise Unconfined("no filter of system calls is known for " + os.uname().machine)
    code = b"".join(struct.pack("=HBBI", *line) for line in _filter(policy, *known))
    lines = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(lines))
    if _LIBC.prctl(22, 2, program, 0, 0):
        raise Unconfined("seccomp: " + os.strerror(ctypes.get_errno()))


def _filter(policy: Policy, architecture: int, column: int, many_bits: int) -> list[Line]:
    """The lines of the filter: (code, lines to skip if true, if false, value)."""
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if many_bits:
        lines += [(_GREATER, 0, 1, many_bits), (_RETURN, 0, 0, _KILL_PROCESS)]
    lines += [(_GREATER, 0, 1, _LAST_CALL + 1), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]

    def numbers(text: str) -> list[int]:
        words = text.split()
        return [int(each) for each in words[1 + column :: 3] if each != "-"]

    def refuse(text: str, answer: int) -> None:
        for number in numbers(text):
            lines.extend([(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | answer)])

    def look(text: str, argument: int, *tests: Test, allowed: int = _ALLOW) -> None:
        # A call whose argument decides. A test is (code, value, where to if true, if false).
        body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]
        for index, (code, value, *targets) in enumerate(tests):
            ahead = {"next": 0, "allow": len(tests) - index - 1, "refuse": len(tests) - index}
            yes, no = (ahead[target] for target in targets)
            body.append((code, yes, no, value))
        body += [(_RETURN, 0, 0, allowed), (_RETURN, 0, 0, _ERRNO | _EPERM)]
        for number in numbers(text):
            lines.append((_EQUAL, 0, len(body), number))
            lines.extend(body)

    def among(values: tuple[int, ...], within: str, beyond: str) -> list[Test]:
        last = len(values) - 1
        return [(_EQUAL, v, within, beyond if n == last else "next") for n, v in enumerate(values)]

    refuse(_NEVER, _EPERM)
    look(_IOCTL, 1, *among(_IOCTLS, "refuse", "allow"))
    if policy["network"] == "none":
        refuse(_SOCKET + " " + _SOCKETPAIR, _EACCES)
    elif policy["network"] == "internet":
        look(_SOCKET, 0, *among(_INTERNET, "allow", "refuse"))
    # A filter cannot read its flags, which are in memory; the C library then uses clone.
    refuse(_CLONE3, _ENOSYS)
    if policy["runs"]:
        look(_CLONE, 0, (_ANY_BIT, _NEW_NAMESPACES, "refuse", "allow"))
    else:
        refuse(_PROGRAMS, _EACCES)
        flags = _CLONE_THREAD | _NEW_NAMESPACES
        look(_CLONE, 0, (_AND, flags, "next", "next"), *among((_CLONE_THREAD,), "allow", "refuse"))
    if policy["processes"]:
        return [*lines, (_RETURN, 0, 0, _ALLOW)]
    refuse(_ALONE, _EPERM)
    refuse(_ATTRIBUTES, 0)
    for call, argument in _TIMES:
        look(call, argument, *among((0,), "refuse", "allow"), allowed=_ERRNO)
    look(_FCNTL, 1, *among(_SIGNALING, "refuse", "allow"))
    look(_OF_PROCESSES, 0, *among((0, os.getpid()), "allow", "refuse"))
    return [*lines, (_RETURN, 0, 0, _ALLOW)]


def bubblewrap(policy: Policy, arguments: tuple[str, ...]) -> list[str]:
    """What to run instead without Landlock: the same in namespaces that bubblewrap makes."""
    words = [policy["bubblewrap"], "--die-with-parent", "--unshare-all", "--cap-drop", "ALL"]
    if policy["network"] != "none":
        words.append("--share-net")
    visible = [path for path in readable(policy) if not path.startswith(("/proc", "/dev"))]
    visible += policy["runs"]
    visible = sorted({item for path in visible for item in (path, os.path.realpath(path))})
    for path in visible:
        # A directory brings what is in it.
        if not any(path != each and path.startswith(each.rstrip("/") + "/") for each in visible):
            words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in policy["devices"]:
        words += ["--dev-bind-try", path, path]
    for path in policy["writes"]:
        words += ["--bind-try", path, path]
    # The policy for the process inside.
    inside = {**policy, "wall": "inside"}
    with open(policy["again"], "w", encoding="utf-8") as file:
        json.dump(inside, file)
    here = os.path.abspath(__file__)
    words += ["--ro-bind-try", here, here, "--chdir", os.getcwd(), "--"]
    return [*words, sys.executable, here, policy["again"], *arguments]


def confine(policy: Policy, arguments: tuple[str, ...]) -> None:
    """Confine this process, or replace it with one that is confined. Raises `Unconfined`."""
    if policy["wall"] == "bubblewrap":
        words = bubblewrap(policy, arguments)
        os.execv(words[0], words)
    if _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise Unconfined("no_new_privs: " + os.strerror(ctypes.get_errno()))
    if policy["wall"] == "landlock":
        restrict_files(policy)
    if policy["filters"]:
        filter_calls(policy)


def limit(policy: Policy) -> None:
    """Limit a child's resources, and forbid dumps of its memory."""
    if sys.platform == "linux":
        _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    for name, most in (("CORE", 0), ("FSIZE", policy["file_bytes"]), ("NPROC", policy["tasks"])):
        kind = getattr(resource, "RLIMIT_" + name, None)
        if kind is not None and most is not None:
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def main(policy_file: str, *arguments: str) -> None:
    """Confine this process, and continue as the arguments say."""
    with open(policy_file, encoding="utf-8") as file:
        policy = json.load(file)
    limit(policy)
    try:
        if policy["wall"] != "none":
            confine(policy, arguments)
    except (Unconfined, OSError) as error:
        with open(policy["failure"], "w", encoding="utf-8") as file:
            file.write(str(error))
        if policy["required"]:
            sys.exit(_NOT_CONFINED)
    # The directory of this file, whose modules must not be imported.
    del sys.path[0]
    first, rest = arguments[0], arguments[1:]
    sys.argv = list(rest if first == "-m" else arguments)
    if first == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
