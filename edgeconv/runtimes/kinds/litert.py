"""The runtime `litert`: the interpreter, or the CompiledModel, of ai_edge_litert.

Alone it is the one that is installed here, or in the Python of `--python`; `litert==VERSION`
gets an environment of its own.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from edgeconv.runtimes.kept import opened_locally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edgeconv.runtimes.interface import Choice, Settings
    from edgeconv.runtimes.local import LocalRuntime


# See edgeconv.runtimes.interface.
RUNS_HERE_ALONE = True


@contextlib.contextmanager
def open_runtime(choice: Choice, settings: Settings) -> Iterator[LocalRuntime]:
    """LiteRT. Raises `UsageError`, and `ToolFailed` where it is not to be had."""
    yield opened_locally("ai_edge_litert", choice, settings)
