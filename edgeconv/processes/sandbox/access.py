"""What is granted to one child process, in addition to its profile."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Profile = Literal["confined", "gpu", "training", "cluster", "code", "browser", "programs", "jobs"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may touch: files and directories, with all that is below these.

    A child may always read the interpreter with its libraries, and read and write its scratch
    directory. What is in `writes` may be read too, and a missing directory there is created. `runs`
    are the programs that it may continue as.
    """

    profile: Profile = "confined"
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()

    def reading(self, *paths: Path | str) -> Access:
        """The same with more to read."""
        return msgspec.structs.replace(self, reads=(*self.reads, *map(Path, paths)))
