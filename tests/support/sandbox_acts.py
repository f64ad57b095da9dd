"""A child that tries what it should not: each act, and "done" or the name of the error.

    python sandbox_acts.py FACTS.json ANSWER.json

The answer is two objects: of what is to be refused, and of what is not.

The standard library only, for old Pythons too. What is tried is told by FACTS.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

FACTS = json.loads(Path(sys.argv[1]).read_text())
LIBC = ctypes.CDLL(None, use_errno=True)
BY_MACHINE = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


def call(x86_64, aarch64, *arguments):
    """A system call by its number; raises what it answers."""
    number = (x86_64, aarch64)[BY_MACHINE]
    # Whole registers: of an int, the upper half would be anything.
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    if LIBC.syscall(number, *values) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def connects(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(address)


def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"secret", ("127.0.0.1", FACTS["udp_port"]))


def forks():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def is_changed(path, act):
    """For what may seem to succeed: whether it did anything."""
    before = path.stat()
    act(path)
    after = path.stat()
    if (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns):
        raise PermissionError("nothing changed")


def sets_times(path):
    os.utime(str(path), (1, 1))


def grows(name, size):
    Path(name).touch()
    os.truncate(name, size)


def has_secret():
    if not {"GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "TF_SECRET"} & set(os.environ):
        raise PermissionError("not there")


def is_dumped():
    import resource

    if LIBC.prctl(3, 0, 0, 0, 0) == 0 and resource.getrlimit(resource.RLIMIT_CORE) == (0, 0):
        raise PermissionError("neither")


def thread():
    one = threading.Thread(target=int)
    one.start()
    one.join()


def renames():
    Path("folder").mkdir()
    Path("in").write_text("x")
    Path("in").rename("folder/in")
    Path("folder/in").unlink()
    Path("folder").rmdir()


def is_shared_memory():
    if Path(FACTS["shared"]).parent.stat().st_dev != FACTS["shared_device"]:
        raise PermissionError("another one, of its own")


def listed_beside(module):
    # Where there is no Landlock, the directory is there with nothing in it but the module.
    if Path(module).with_name("secret.txt") not in Path(module).parent.iterdir():
        raise PermissionError("nothing is listed but what may be read")


def shares(name):
    is_shared_memory()
    Path(name).write_text("x")


def shared_lock():
    """Libraries such as joblib start no processes where it is refused."""
    import multiprocessing

    is_shared_memory()
    multiprocessing.Lock()


OUT, PARENT = FACTS["outside"], FACTS["parent"]
REFUSED = {
    "write outside": lambda: Path(OUT, "new").write_text("x"),
    "overwrite outside": lambda: Path(OUT, "canary").write_text("x"),
    "truncate outside": lambda: os.truncate(OUT + "/canary", 0),
    "truncate what may be read": lambda: os.truncate(FACTS["readable"], 0),
    "write what may be read": lambda: Path(FACTS["readable"]).write_text("x"),
    "remove outside": lambda: Path(OUT, "remove").unlink(),
    "make a directory outside": lambda: Path(OUT, "folder").mkdir(),
    "change the mode outside": lambda: is_changed(Path(OUT), lambda path: path.chmod(0o711)),
    "change times outside": lambda: is_changed(Path(OUT, "canary"), sets_times),
    "read a canary": lambda: Path(OUT, "canary").read_text(),
    "list outside": lambda: list(Path(OUT).iterdir()),
    "read the canary at home": lambda: Path(FACTS["home"], "canary").read_text(),
    "read the real home": lambda: Path("~/canary").expanduser().read_text(),
    "read passwd": lambda: Path("/etc/passwd").read_text(),
    "read the parent's environment": lambda: Path("/proc", str(PARENT), "environ").read_bytes(),
    "read beside a module": lambda: Path(FACTS["module"]).with_name("secret.txt").read_text(),
    "list beside a module": lambda: listed_beside(FACTS["module"]),
    "read what a link leads to": lambda: Path("link-out").read_text(),
    "write what a link leads to": lambda: Path("link-out").write_text("x"),
    "touch what is outside": lambda: Path(FACTS["outside"], "canary").touch(),
    "read what programs share": lambda: Path(FACTS["shared"]).read_text(),
    "write what programs share": lambda: shares(FACTS["shared"]),
    "share with programs": lambda: shares(FACTS["shared"] + "-new"),
    "a lock that processes share": shared_lock,
    "leave a link": lambda: Path("a-link").symlink_to("/etc/passwd"),
    "leave a hard link": lambda: os.link(FACTS["readable"], "hard"),
    "leave a pipe": lambda: os.mkfifo("a-pipe"),
    "tcp": lambda: connects(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", FACTS["tcp_port"])),
    "udp": datagram,
    "unix socket": lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, FACTS["unix"]),
    "abstract socket": lambda: connects(
        socket.AF_UNIX, socket.SOCK_STREAM, "\0" + FACTS["abstract"]
    ),
    "run a program": lambda: subprocess.run(["/bin/true"], check=True),
    "run Python": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
    "fork": forks,
    "signal the parent": lambda: os.kill(PARENT, 0),
    "read the parent's memory": lambda: call(310, 270, PARENT, 0, 0, 0, 0, 0),
    "limits of the parent": lambda: call(302, 261, PARENT, 4, 0, ctypes.create_string_buffer(16)),
    # What it has already: an act that succeeds must not change the machine.
    "set the parent's priority": lambda: os.setpriority(
        os.PRIO_PROCESS, PARENT, os.getpriority(os.PRIO_PROCESS, PARENT)
    ),
    "set the parent's processors": lambda: os.sched_setaffinity(
        PARENT, os.sched_getaffinity(PARENT)
    ),
    "watch a directory": lambda: call(294, 26, 0),
    "have signals sent": lambda: __import__("fcntl").fcntl(0, 8, PARENT),
    "choose the signal": lambda: __import__("fcntl").fcntl(0, 10, 9),
    "io_uring": lambda: call(425, 425, 1, ctypes.create_string_buffer(128)),
    "a user namespace": lambda: call(272, 97, 0x10000000),
    "keys": lambda: call(250, 219, 0, -3, 0),
    "userfaultfd": lambda: call(323, 282, 1),
    "perf": lambda: call(298, 241, ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "shared memory": lambda: call(29, 194, 0, 4096, 0o1600),
    "a huge file": lambda: grows("huge", 1 << 40),
    "secrets": has_secret,
    "a core file": is_dumped,
    # To be traced by the parent.
    "ptrace": lambda: call(101, 117, 0, 0, 0, 0),
}
ALLOWED = {
    "write": lambda: Path("mine").write_text("x"),
    "rename": renames,
    "read what is granted": lambda: Path(FACTS["readable"]).read_text(),
    "read a module": lambda: Path(FACTS["module"]).read_text(),
    "write what is granted": lambda: Path(FACTS["writable"], "new").write_text("x"),
    "a thread": thread,
    "processors": lambda: Path("/proc/cpuinfo").read_text(),
    "own status": lambda: Path("/proc/self/status").read_text(),
    "devices": lambda: (Path("/dev/null").write_text("x"), os.urandom(4)),
    "import": lambda: __import__("decimal"),
    "touch a new file": lambda: (Path("touched").touch(), Path("touched").stat()),
    "touch an own file": lambda: Path("facts.json").touch(),
    "copy with times": lambda: __import__("shutil").copy2(FACTS["readable"], "copy"),
    "its own processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
    "flags of a file": lambda: __import__("fcntl").fcntl(0, 4, __import__("fcntl").fcntl(0, 3)),
    "signal itself": lambda: os.killpg(0, 0),
    "temporary file": lambda: __import__("tempfile").TemporaryFile().write(b"x"),
}


def tried(act):
    try:
        act()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        return type(error).__name__
    return "done"


if __name__ == "__main__":
    answer = [{name: tried(act) for name, act in acts.items()} for acts in (REFUSED, ALLOWED)]
    Path(sys.argv[2]).write_text(json.dumps(answer))
