"""Documents of an older edgeconv, whose names have changed since."""

from pathlib import Path

import msgspec
import pytest

from edgeconv.config.lock_text import model_of
from edgeconv.errors import InputRefused
from edgeconv.store import read_noun
from edgeconv.types import Check, Environment, PostTraining


def test_a_method_of_an_older_manifest_has_the_name_of_today(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text('{"calibration_range": "mse", "methods": ["equalisation", "rounding"]}')
    read = read_noun(file, PostTraining, what="record")
    assert read == PostTraining(calibration_range="mse", methods=("equalization", "rounding"))


def test_an_older_check_has_the_fields_of_today(tmp_path: Path) -> None:
    stage = {"stage": "quantised", "model": "m", "changed": None}
    old = {"name": "m", "verdict": {"findings": []}, "judging": {"seed": 3}, "stages": [stage]}
    file = tmp_path / "old.json"
    file.write_bytes(msgspec.json.encode(old))
    read = read_noun(file, Check, what="check")
    assert (read.statistics.seed, read.stages[0].stage) == (3, "quantized")


def test_a_name_that_never_was_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"calibration_range": "mse", "methods": ["equal"]}')
    with pytest.raises(InputRefused, match="methods"):
        read_noun(file, PostTraining, what="record")


def test_an_older_lock_has_the_methods_of_today() -> None:
    inputs = {"convert --methods": "equalisation,rounding"}
    machine = {"cpu": "A", "place": "ssh:pi"}
    table = {"inputs": inputs, "test-sha256": "0" * 64, "test-samples": 1, "machine": machine}
    model = model_of("m", table)
    assert model.inputs == {"convert --methods": "equalization,rounding"}
    assert model.machine == {"cpu": "A", "host": "ssh:pi"}


def test_the_machine_of_an_older_report_has_a_host(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    environment = {
        "machine": "m",
        "cpu": "A",
        "cores": 2,
        "system": "s",
        "python": "3",
        "tools": {},
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode({**environment, "place": "ssh:pi"})))
    assert read_noun(file, Environment, what="machine").host == "ssh:pi"
