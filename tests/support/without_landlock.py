"""Run a program on a kernel that seems to have no Landlock, as an older one has none.

python without_landlock.py PROGRAM ARGUMENT...
"""

import ctypes
import os
import struct
import sys

from edgeconv.system.processes.sandbox import enter


def hide_landlock() -> None:
    """From now on its system calls are unknown, to all that this process starts."""
    lines = [(enter._LOAD, 0, 0, enter._NUMBER)]
    for number in (enter._CREATE_RULESET, enter._ADD_RULE, enter._RESTRICT_SELF):
        lines += [(enter._EQUAL, 0, 1, number), (enter._RETURN, 0, 0, enter._ERRNO | enter._ENOSYS)]
    lines.append((enter._RETURN, 0, 0, enter._ALLOW))
    code = b"".join(struct.pack("=HBBI", *line) for line in lines)
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(lines), ctypes.addressof(kept))
    assert not enter._LIBC.prctl(enter._NO_NEW_PRIVS, 1, 0, 0, 0)
    assert not enter._LIBC.prctl(22, 2, program, 0, 0)


if __name__ == "__main__":
    hide_landlock()
    os.execvp(sys.argv[1], sys.argv[1:])
