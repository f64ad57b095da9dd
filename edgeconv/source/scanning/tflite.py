"""A .tflite held against its own size, and against what operators of TensorFlow may do."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from edgeconv.source.scanning.flex import PREFIX, check_flex
from edgeconv.tflite.flat_table import BrokenFlatbuffer
from edgeconv.tflite.flatbuffer import malformed
from edgeconv.tflite.structure import structure

if TYPE_CHECKING:
    from pathlib import Path

    from edgeconv.source.scanning.findings import Findings

_CUSTOM = "the runtime needs code for it that is not in the file"


def scan_tflite(path: Path, findings: Findings) -> None:
    """Look at the structure of a .tflite. Raises `InputRefused` if it is damaged, `OSError`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            found = structure(data)
        except BrokenFlatbuffer as error:
            raise malformed(str(path), str(error)) from error
    for problem in found.problems:
        findings.add("structure", *problem)
    for where in found.external:
        findings.add("path", where, "weights in another file", "reads that file")
    for operator in found.custom:
        what = f"custom operator {operator.name}"
        findings.add("operator", operator.where, what, _CUSTOM, is_error=False)
        if operator.name.startswith(PREFIX):
            check_flex(*operator, findings)
