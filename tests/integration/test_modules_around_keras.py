"""SavedModels of tf.Modules around Keras models: run as `tf.saved_model.load` runs them."""

from pathlib import Path

import numpy as np
import pytest
from forking import output_of

from edgeconv import convert
from edgeconv.data import Samples, write_samples
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.tf.reference import CHECKED, ReferenceJob, ReferencePart, run_reference
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import SERVING_DEFAULT

ZOO = "module_zoo:write"
_SAVE_AGAIN = """\
import sys
from edgeconv.tf.saved_objects import leaves_variables_unread, save_again
_, model, target, *keys = sys.argv
again = leaves_variables_unread(model)
if again:
    save_again(model, keys, target)
print(again)
"""


@pytest.mark.parametrize(
    ("model", "samples", "recipes", "signatures"),
    [
        ("three", "x", ["float32", "int8"], [SERVING_DEFAULT, "scores"]),
        ("two", "x", ["float32"], [SERVING_DEFAULT]),
        ("audio", "wave", ["float32"], [SERVING_DEFAULT]),
    ],
)
def test_a_module_around_a_model_converts(model, samples, recipes, signatures, models, tmp_path):
    done = convert(
        str(models / model),
        out=str(tmp_path),
        to=recipes,
        calibration=str(models / f"{samples}.npz"),
        signature=signatures,
    )
    assert [artifact.recipe.name for artifact in done.artifacts] == recipes
    floating = done.artifacts[0].verification
    assert floating.reference == "trained model in TensorFlow"
    assert min(output.snr_db for output in floating.outputs if output.snr_db) > 80


def saved_again(model: Path, keys: list[str], target: Path) -> Path:
    """The model as a conversion reads it."""
    printed = output_of("-c", _SAVE_AGAIN, model, target, *keys)
    assert target.is_dir() == (printed.split()[-1] == "True")
    return target if target.is_dir() else model


@pytest.mark.parametrize(
    ("model", "samples", "keys"),
    [
        ("three", "x", [SERVING_DEFAULT, "scores"]),
        ("two", "x", [SERVING_DEFAULT]),
        ("audio", "wave", [SERVING_DEFAULT]),
        ("counting", "x", [SERVING_DEFAULT]),
    ],
)
def test_the_reference_is_what_tensorflow_answers(model, samples, keys, models, tmp_path):
    read = saved_again(models / model, keys, tmp_path / "again")
    assert (read == models / model) == (model == "two")
    array = np.load(models / f"{samples}.npz")[samples]
    for name, rows in (("some", array[:8]), ("more", array)):
        write_samples(Samples({samples: rows}, None, ""), tmp_path / name)
    parts = []
    for key in keys:
        (tmp_path / key / CHECKED).mkdir(parents=True)
        parts.append(
            ReferencePart(
                signature=key,
                samples=str(tmp_path / "some"),
                batch=8,
                directory=str(tmp_path / key),
                calibration=str(tmp_path / "more"),
                is_open=True,
            )
        )
    job = ReferenceJob(saved_model=str(read), parts=tuple(parts))
    access = Access(reads=(models, tmp_path), writes=(tmp_path,))
    with start_task(run_reference, job, label="test", scratch=tmp_path, access=access) as task:
        answer = task.result()
    for key in keys:
        for index, output in enumerate(answer.outputs[key]):
            expected = np.load(models / f"{model}.{key}.{output}.npy")
            got = np.load(tmp_path / key / f"{index}.npy")
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
    if samples == "x":
        assert answer.statistics[SERVING_DEFAULT].layers == 1


def test_the_functions_of_a_model_without_signatures_are_listed_and_can_be_exported(
    models, tmp_path
):
    model = models / "without_signatures"
    with pytest.raises(InputRefused) as refused:
        convert(str(model), out=str(tmp_path / "out"), to=["float32"])
    listed = refused.value.message.splitlines()
    assert "  predict(x: float32 [-1, 8])" in listed
    assert "  predict(x: float32 [-1, 3])" in listed
    assert "  double(x: float32 [-1, 8])" in listed
    # What is advised does it.
    code = refused.value.hint.partition(": ")[2]
    code = code.replace("'DIR'", repr(str(model))).replace("'NEW'", repr(str(tmp_path / "new")))
    output_of("-c", f"import tensorflow as tf\n{code}")
    (artifact,) = convert(
        str(tmp_path / "new"), out=str(tmp_path / "out"), to=["float32"]
    ).artifacts
    assert artifact.verification.outputs[0].snr_db > 80
