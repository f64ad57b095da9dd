"""Memory that this process shares with a runner on the same machine."""

from __future__ import annotations

import mmap
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

# Where an array begins: as a processor likes it.
_ALIGNMENT = 64


class SharedMemory:
    """A file without a name that holds the arrays of a request, grown as they grow."""

    def __init__(self) -> None:
        self.file = os.memfd_create("edgeconv")
        self._map: mmap.mmap | None = None

    @staticmethod
    def is_known() -> bool:
        """Whether this system has it."""
        return sys.platform == "linux" and hasattr(os, "memfd_create")

    def put(self, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Any]:
        """Lay the arrays into it, and say where: what a request has as "shared"."""
        import numpy as np

        places, end = [], 0
        for array in arrays.values():
            places.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        memory = self._at_least(max(end, 1))
        for place, array in zip(places, arrays.values(), strict=True):
            into = np.frombuffer(memory, array.dtype, array.size, place)
            into.reshape(array.shape)[...] = array
        return {"file": self.file, "bytes": len(memory), "at": places}

    def close(self) -> None:
        """Let go of it."""
        os.close(self.file)

    def _at_least(self, size: int) -> mmap.mmap:
        if self._map is None or len(self._map) < size:
            os.ftruncate(self.file, size)
            self._map = mmap.mmap(self.file, size)
        return self._map
