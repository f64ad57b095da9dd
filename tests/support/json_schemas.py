"""`jsonschema`, and the program `check-jsonschema`, without what checks IRIs.

No schema here has any, and the grammars of them take five seconds of a processor at each import.
"""

import sys
from pathlib import Path

from commands import captured
from places import ROOT

_WITHOUT = "import sys; sys.modules['rfc3987_syntax'] = None"
exec(_WITHOUT)

import jsonschema  # noqa: E402

__all__ = ["assert_valid", "jsonschema"]


def assert_valid(schema: str, file: Path) -> None:
    """Hold a file of a CI system against the schema of this name that check-jsonschema has."""
    program = f"{_WITHOUT}; import check_jsonschema; check_jsonschema.main()"
    command = [sys.executable, "-c", program, "--builtin-schema", f"vendor.{schema}", str(file)]
    done = captured(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
