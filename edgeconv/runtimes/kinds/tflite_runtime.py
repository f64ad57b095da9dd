"""The runtime `tflite-runtime`: what older devices have, up to its last release 2.14.

`tflite-runtime==VERSION` gets an environment of its own; without a version it is the one in
the Python of `--python`.
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
    """tflite-runtime. Raises `UsageError`, and `ToolFailed` where it is not to be had."""
    yield opened_locally("tflite_runtime", choice, settings)
