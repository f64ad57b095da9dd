"""What is granted to one child process, beyond what its profile gives to all of that kind."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Profile = Literal["confined", "training", "cluster", "code", "browser", "programs"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may touch: files and directories, with all that is below these.

    A child always reads the interpreter with its libraries, and reads and writes its own
    scratch directory, the one it is started in. `reads` and `writes` come on top; what may be
    written may be read. A directory in `writes` is made if it is not there.
    """

    profile: Profile = "confined"
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()

    def reading(self, *paths: Path | str) -> Access:
        """The same with more to read."""
        return msgspec.structs.replace(self, reads=(*self.reads, *map(Path, paths)))
