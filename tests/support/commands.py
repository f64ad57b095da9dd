"""Commands of other programs."""

import subprocess
from collections.abc import Sequence
from typing import Any


def captured(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that has ended, well or not, and what it printed. `options` as `subprocess.run`."""
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
