"""The second witness: inotify on the canaries and the outside, and who called at the ports.

It needs no permission to trace processes, and knows less: not which program wrote or read.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

from watch import Seen

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from attacks import Aim

_ACCESS, _MODIFY, _OPEN = 0x1, 0x2, 0x20
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _GONE = 0x40, 0x80, 0x100, 0x200, 0x400
_CHANGES = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _GONE
_READS = _ACCESS | _OPEN
_QUEUE_OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Witness:
    """Looks at what belongs to the aims from now on."""

    def __init__(self, aims: Iterable[Aim], servers: Iterable[socket.socket]) -> None:
        self._servers = list(servers)
        self._queue = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._queue >= 0, os.strerror(ctypes.get_errno())
        self._folders: dict[int, tuple[Path, Aim]] = {}
        for aim in aims:
            self._look_at(aim.canary.parent, _READS | _CHANGES, aim)
            self._look_at(aim.written.parent, _CHANGES, aim)

    def _look_at(self, folder: Path, events: int, aim: Aim) -> None:
        number = _LIBC.inotify_add_watch(self._queue, os.fsencode(folder), events)
        assert number >= 0, os.strerror(ctypes.get_errno())
        self._folders[number] = (folder, aim)

    def seen(self) -> list[Seen]:
        """What happened; it is forgotten then, and nothing is looked at any longer."""
        found = [*self._files(), *self._calls()]
        os.close(self._queue)
        return found

    def _files(self) -> Iterator[Seen]:
        while True:
            try:
                events = os.read(self._queue, 1 << 16)
            except BlockingIOError:
                return
            while events:
                number, mask, _, size = _HEAD.unpack_from(events)
                name = events[_HEAD.size : _HEAD.size + size].rstrip(b"\0")
                events = events[_HEAD.size + size :]
                assert not mask & _QUEUE_OVERFLOW, "more happened than can be told"
                if number in self._folders and mask & (_READS | _CHANGES):
                    folder, aim = self._folders[number]
                    if name == b"started":
                        yield Seen("start", str(aim.program), 0)
                    else:
                        kind = "write" if mask & _CHANGES else "read"
                        yield Seen(kind, str(folder / os.fsdecode(name)), 0)

    def _calls(self) -> Iterator[Seen]:
        for server in self._servers:
            server.setblocking(False)
            try:
                server.accept()[0].close()
            except BlockingIOError:
                continue
            yield Seen("connect", f"accepted htons({server.getsockname()[1]})", 0)
