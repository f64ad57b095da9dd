"""The corpus of hostile models: the scan refuses each, or copies it without the attack."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus import CASES, place_aim
from processor_time import at_most

from edgeconv import scan
from edgeconv.model.source.scanning.keras_files import KerasScanJob, scan_keras_here
from edgeconv.types.errors import InputRefused

_LEAST = 100
_MOST_S = 10.0


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    servers: list[socket.socket] = []
    yield servers
    for server in servers:
        server.close()


def is_refused(model: Path, scratch: Path) -> bool:
    """As `edgeconv.scan` has it; but of a Keras file without a child for each, which takes most."""
    try:
        if model.is_file() and model.suffix != ".tflite":
            is_archive = model.suffix.lower() == ".keras"
            job = KerasScanJob(path=str(model), is_archive=is_archive, scratch=str(scratch))
            found = scan_keras_here(job).findings
            return any(each.severity == "error" for each in found)
        return scan(model).is_refused
    except InputRefused:
        # Damaged: it ends with the same exit code.
        return True


def test_there_are_a_hundred_and_no_two_of_a_name():
    assert len({case.id for case in CASES}) == len(CASES) >= _LEAST


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_scan_refuses_it_unless_the_copy_lacks_it(case, tmp_path, listening):
    model = case.write(tmp_path / "model", place_aim(tmp_path / "world", case, listening))
    with at_most(_MOST_S):
        assert is_refused(model, tmp_path) is case.is_refused
