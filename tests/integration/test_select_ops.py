"""`--allow-select-ops`: operators that only TensorFlow has, verified where they really run.

The first test that needs the environment with that TensorFlow takes five minutes: TensorFlow 2.15
and what it depends on are downloaded and installed anew, as `--allow-select-ops` does for a user.
"""

import numpy as np
import pytest
from edge_models import Made, operators

from edgeconv import convert
from edgeconv.data import Samples, write_samples
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import isolated_target
from edgeconv.runtimes.local import start_run
from edgeconv.types.errors import UnsupportedOperators

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _cache(folder, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def made(brought, folder, said) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(folder / "cache"))
        return Made(
            convert(
                brought / "inverse",
                out=folder / "inverse",
                to=["float32", "float16", "dynamic"],
                calibration=str(brought / "inverse.npz"),
                allow_select_ops=True,
                on_progress=said.append,
            )
        )


def test_they_are_in_the_file_and_where_they_run_is_said(made):
    assert made.conversion.failures == ()
    for artifact in made.conversion.artifacts:
        codes = {operator.name for operator in artifact.operators}
        assert "FlexMatrixInverse" in codes
        (note,) = [note for note in artifact.notes if "Select-TF" in note]
        assert note.startswith("FlexMatrixInverse run only where")
        assert "not in LiteRT's or tflite-runtime's Python packages" in note


def test_they_are_verified_in_a_tensorflow_that_has_them(made, said):
    for artifact in made.conversion.artifacts:
        assert artifact.verification.runtime == "tensorflow 2.15.1"
        assert artifact.verification.outputs[0].snr_db > 25
    assert len([line for line in said if line.startswith("installed tensorflow")]) == 1


def test_the_environment_serves_the_next_run(made, brought, tmp_path):
    said: list[str] = []
    convert(
        brought / "inverse",
        out=tmp_path / "out",
        to=["float32"],
        allow_select_ops=True,
        on_progress=said.append,
    )
    assert not any("installing" in line for line in said)


def test_the_file_answers_there_as_in_tensorflow(made, brought, tmp_path):
    x = np.load(brought / "inverse.npz")["x"]
    write_samples(Samples({"x": x}, None, ""), tmp_path / "samples")
    target = isolated_target(parse_target_runtime("tensorflow"))
    with start_run(
        made.file("float32"),
        tmp_path / "samples",
        scratch=tmp_path,
        signature="serving_default",
        target=target,
    ) as running:
        answers = running.result().outputs["y"]
    trained = np.load(brought / "inverse.answers.npz")["y"]
    np.testing.assert_allclose(answers, trained, rtol=1e-4, atol=1e-5)


def test_a_file_with_them_is_a_source_only_where_they_are_allowed(made, tmp_path):
    assert any(name == "CUSTOM" for name, _ in operators(made.file("float32")))
    with pytest.raises(UnsupportedOperators, match="FlexMatrixInverse"):
        convert(made.file("float32"), out=tmp_path / "refused", to=["dynamic"])
    again = convert(
        made.file("float32"), out=tmp_path / "out", to=["float16"], allow_select_ops=True
    )
    assert again.failures == ()
    assert again.artifacts[0].verification.runtime == "tensorflow 2.15.1"


def test_a_model_that_needs_none_needs_no_other_tensorflow(brought, tmp_path):
    said: list[str] = []
    plain = convert(
        brought / "dense",
        out=tmp_path / "out",
        to=["float32"],
        allow_select_ops=True,
        on_progress=said.append,
    )
    assert plain.artifacts[0].verification.runtime.startswith("ai_edge_litert")
    assert not any("tensorflow==" in line for line in said)
