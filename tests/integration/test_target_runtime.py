"""`--target-runtime`: files proven on the runtime of older devices, and what that costs."""

import shutil
from pathlib import Path

import pytest
from edge_models import Made, schema
from tiny_tflite import float_model, packed

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Execution
from edgeconv.types.errors import UsageError

OLD = "tflite-runtime==2.14.0"


@pytest.fixture(autouse=True)
def _old_environments(old_cache, monkeypatch):
    """The cache that has the environment already."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(old_cache))


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def proven(brought, folder, old_runtime, old_cache, said) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(old_cache))
        return Made(
            convert(
                brought / "dense",
                out=folder / "dense",
                to=["float32", "float16", "dynamic", "int8"],
                calibration=str(brought / "dense.npz"),
                target_runtime=OLD,
                on_progress=said.append,
            )
        )


def test_every_recipe_is_run_there_and_compared(proven, said):
    assert proven.conversion.failures == ()
    for artifact in proven.conversion.artifacts:
        assert artifact.target.runtime == "tflite_runtime 2.14.0"
        assert artifact.target.python.startswith("3.")
        (error,) = artifact.target.outputs
        assert error.snr_db > 20
        assert f"running {artifact.recipe.name} on {OLD}" in said


def test_an_environment_that_is_there_is_not_made_again(proven, said):
    assert not any("installing" in line for line in said)


def dense_scales(file: Path) -> list[int]:
    """How many scales the weights of each dense layer have."""
    (graph,) = schema(file).subgraphs
    tensors = (graph.tensors[operator.inputs[1]] for operator in graph.operators)
    return [len(t.quantization.scale) for t in tensors if t.quantization.scale is not None]


def test_dynamic_has_one_scale_a_layer_there_and_says_what_that_costs(proven, brought, tmp_path):
    artifact = proven["dynamic"]
    assert dense_scales(proven.file("dynamic")) == [1, 1]
    assert "dense layers have one weight scale each" in artifact.target.cost
    assert " dB instead of " in artifact.target.cost
    assert " bytes instead of " in artifact.target.cost
    (failed,) = [step for step in artifact.ladder if step.attempt == f"on {OLD}"]
    # Its kernels have no version for scales of channels.
    assert "FULLY_CONNECTED" in failed.failed
    here = Made(convert(brought / "dense", out=tmp_path / "here", to=["dynamic"]))
    assert dense_scales(here.file("dynamic")) == [64, 64]
    assert here["dynamic"].target is None


def test_what_runs_there_as_it_is_costs_nothing(proven):
    for recipe in ("float32", "float16"):
        target = proven[recipe].target
        assert target.cost == ""
        assert proven[recipe].ladder == ()


def test_a_second_run_has_nothing_to_do(proven, brought):
    said: list[str] = []
    again = convert(
        brought / "dense",
        out=proven.directory,
        to=["float32", "float16", "dynamic", "int8"],
        calibration=str(brought / "dense.npz"),
        target_runtime=OLD,
        on_progress=said.append,
    )
    assert len(again.reused) == 4
    assert said == []


def test_another_target_is_another_artifact(proven, brought):
    """What was proven for the old runtime is not taken for what was asked now."""
    copy = proven.directory.with_name("copy")
    shutil.copytree(proven.directory, copy)
    again = convert(brought / "dense", out=copy, to=["dynamic"])
    assert again.reused == ()
    assert again.artifacts[0].target is None


def test_a_model_that_cannot_run_there_is_not_published_and_says_why(tmp_path, old_runtime):
    """Its operator has a version that came after that runtime; on the one here it runs."""
    model = float_model(signature=("serving_default", ["x"], ["y"]))
    model.operatorCodes[0].version = 12
    (tmp_path / "young.tflite").write_bytes(packed(model))
    here = convert(tmp_path / "young.tflite", out=tmp_path / "here", to=["float32"])
    assert [artifact.recipe.name for artifact in here.artifacts] == ["float32"]
    there = convert(
        tmp_path / "young.tflite", out=tmp_path / "there", to=["float32"], target_runtime=OLD
    )
    (failure,) = there.failures
    assert failure.recipe == "float32"
    assert f"float32 does not run right on {OLD}" in failure.message
    assert "Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'" in failure.message
    assert "edgeconv inspect" in failure.hint
    assert there.artifacts == ()
    assert not (tmp_path / "there").exists()


def test_with_the_first_engine_alone_the_other_is_not_tried(brought, tmp_path, old_runtime):
    recipes = make_recipes(["weight-only-int8"], engine="litert")
    made = Made(convert(brought / "dense", out=tmp_path / "out", to=recipes, target_runtime=OLD))
    for artifact in made.conversion.artifacts:
        assert artifact.engine == "litert"
    for failure in made.conversion.failures:
        assert "TFLiteConverter" not in failure.message + failure.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tflite-runtme", "unknown target runtime 'tflite-runtme'"),
        ("tflite-runtime==", "has no version after =="),
        ("tflite-runtime=2.14.0", "unknown target runtime"),
        ("litert==new", "has no version after =="),
    ],
)
def test_a_runtime_that_is_misspelt_is_refused_before_anything_starts(
    text, message, brought, tmp_path
):
    said: list[str] = []
    with pytest.raises(UsageError, match=message):
        convert(
            brought / "dense",
            out=tmp_path / "out",
            to=["float32"],
            target_runtime=text,
            execution=Execution(use_cache=False),
            on_progress=said.append,
        )
    assert said == []
    assert not (tmp_path / "out").exists()
