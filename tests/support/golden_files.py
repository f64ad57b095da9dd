"""Rendered output held against files under tests/golden.

Set EDGECONV_WRITE_GOLDEN=1 to write them anew, and read the difference before keeping it.
"""

import os

from places import GOLDEN


def assert_golden(name: str, rendered: str) -> None:
    path = GOLDEN / name
    if os.environ.get("EDGECONV_WRITE_GOLDEN"):
        path.write_text(rendered, encoding="utf-8")
    assert rendered == path.read_text(encoding="utf-8")
