"""The harnesses: what they begin with, what fuzzing found, and a short run of each."""

import json
import sys

import pytest
from commands import captured
from harnesses import HARNESSES
from places import SUPPORT, TESTS

from edgeconv.types.errors import EdgeconvError

INPUTS = [100, pytest.param(400, marks=pytest.mark.slow)]
# What each of these harnesses must read at least: one that is always refused finds nothing.
MOST_REFUSED = 0.98


@pytest.mark.parametrize("name", HARNESSES)
def test_seeds_and_what_was_found_end_in_typed_errors_and_a_seed_is_read(name, tmp_path):
    harness = HARNESSES[name]
    target = harness.open(tmp_path)
    read = [is_read(target, seed) for seed in harness.seeds()]
    assert any(read)
    for file in sorted((TESTS / "fuzz" / "kept" / name).glob("*")):
        # Any other error than a typed one ends the test.
        is_read(target, file.read_bytes())


def is_read(target, data: bytes) -> bool:
    try:
        target(data)
    except EdgeconvError:
        return False
    return True


@pytest.mark.parametrize("inputs", INPUTS)
def test_a_short_run_of_every_harness_finds_nothing(inputs, tmp_path):
    pytest.importorskip("atheris", reason="its wheels begin with Python 3.11")
    command = [
        sys.executable,
        str(SUPPORT / "fuzzing.py"),
        f"--inputs={inputs}",
        f"--found={tmp_path}",
    ]
    ran = captured(command, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert {line["harness"] for line in lines} == set(HARNESSES)
    for line in lines:
        assert line["inputs"] == inputs
        assert line["refused"] <= MOST_REFUSED * inputs, line["harness"]
        assert line["peak_memory_mib"] < 1024
