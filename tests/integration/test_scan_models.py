"""What TensorFlow and Keras save is not refused; every operator of TensorFlow is in the list."""

import json
from pathlib import Path

import pytest
from places import SHARED

from edgeconv import scan
from edgeconv.model.source.scanning.nodes import families
from edgeconv.types.errors import InputRefused

ZOO = "scan_zoo:write"


def files(root: Path) -> list[Path]:
    directories = [path.parent for path in root.rglob("saved_model.pb")]
    return sorted([*directories, *(p for s in (".keras", ".h5") for p in root.rglob(f"*{s}"))])


def errors(path: Path) -> list[str]:
    return [
        f"{each.what} at {each.where}" for each in scan(path).findings if each.severity == "error"
    ]


def test_every_operator_that_tensorflow_registers_is_in_a_family(models):
    registered = set(json.loads((models / "operators.json").read_text()))
    assert registered - families().keys() == set()
    assert len(registered) > 1900


def test_no_model_that_tensorflow_or_keras_saves_is_refused(models):
    found = files(models)
    assert len(found) == 3 + 2 * 7 + 1
    assert {path.name: errors(path) for path in found if errors(path)} == {}


def test_the_models_of_the_other_tests_are_refused_for_their_code_alone(zoo):
    refused = {path.name: errors(path) for path in files(zoo) if errors(path)}
    assert refused == {}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets are not beside the checkout")
def test_no_model_of_the_shared_data_is_refused():
    found = [path.parent for path in SHARED.rglob("saved_model.pb")]
    found += [path for s in ("h5", "hdf5", "tflite", "keras") for path in SHARED.rglob(f"*.{s}")]
    assert len(found) > 20
    refused = {}
    for path in found:
        try:
            refused[path.name] = errors(path)
        except InputRefused as error:
            refused[path.name] = [str(error)]
    assert {name: said for name, said in refused.items() if said} == {}
