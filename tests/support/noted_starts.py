"""Notes which programs this Python starts, a line for each: its words, with \\0 between them.

The environment of the journeys imports it at the start of each of its Pythons; see installed.py.
"""

import contextlib
import os
import sys

_PATH = os.environ.get("EDGECONV_TESTS_NOTE_STARTS")


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and isinstance(arguments[1], list):
        line = "\0".join(map(str, arguments[1])).replace("\n", " ") + "\n"
        # In a sandbox there is no such file.
        with contextlib.suppress(OSError), open(_PATH or "", "ab") as file:  # noqa: PTH123
            file.write(line.encode("utf-8", "replace"))


if _PATH:
    sys.addaudithook(_note)
