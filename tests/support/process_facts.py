"""Writes facts.json: what this process is to itself. Its arguments say how it ends."""

import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

_OF_STATUS = ("NoNewPrivs", "Seccomp", "SigBlk", "SigIgn", "SigCgt", "Umask")
# Those after them are the C library's own.
_SIGNALS = 31
# What a shell has programs in the background ignore: SIGINT and SIGQUIT, by their bits.
_OF_THE_SHELL = 0b110
_LIMITS = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)


def main(end: str) -> None:
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    try:
        outside = sorted(map(str, Path("/var/log").iterdir()))
    except OSError as error:
        outside = [type(error).__name__]
    facts = {
        "arguments": sys.argv,
        "path": sys.path,
        "name": __name__,
        "directory": str(Path.cwd()),
        "environment": {k: v for k, v in os.environ.items() if k != "_"},
        "leads its session": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "status": {
            name: int(status[name], 16) & ((1 << _SIGNALS) - 1)
            & ~(_OF_THE_SHELL if name.startswith("Sig") else 0)
            for name in _OF_STATUS
        },
        "limits": [resource.getrlimit(kind) for kind in _LIMITS],
        "outside": outside,
        "temporary": tempfile.gettempdir(),
        "files": sorted(path.name for path in Path("/proc/self/fd").iterdir()),
        "line": sys.stdin.readline(),
    }  # fmt: skip
    Path("facts.json").write_text(json.dumps(facts))
    if end == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if end == "error":
        raise ValueError("this is in the log")
    if end == "sleep":
        signal.pause()
    sys.exit(int(end))


if __name__ == "__main__":
    main(sys.argv[1])
