"""Which attempt cures which model, and where that is said."""

import os
import re
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import captured
from edge_models import Lite, Made, only, operators

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Allowance, Artifact, Execution, LadderStep
from edgeconv.types.errors import UnsupportedOperators, WorkerTimedOut

FIXED = "batch fixed to 1"
UNROLLED = f"loops unrolled, {FIXED}"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Where samples are, and the cache."""
    place = tmp_path_factory.mktemp("ladder")
    rng = np.random.default_rng(21)
    np.savez(place / "steps.npz", steps=rng.standard_normal((20, 5, 8), np.float32))
    np.savez(place / "x.npz", x=rng.standard_normal((20, 4), np.float32))
    return place


@pytest.fixture(autouse=True)
def _cache(place, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(place / "cache"))


def attempts(steps: tuple[LadderStep, ...]) -> list[tuple[str, bool]]:
    """What was tried, and whether it was good."""
    return [(step.attempt, not step.failed) for step in steps]


# A recurrent layer of open batch, in every recipe


@pytest.fixture(scope="module")
def printed(loops, place) -> str:
    done = captured(
        [
            *(sys.executable, "-m", "edgeconv", "convert", loops / "lstm", "-o", "lstm"),
            *("--to", "float32,dynamic,int8", "--calibration", "steps.npz", "-qv"),
        ],
        cwd=place,
        env={**os.environ, "EDGECONV_CACHE_DIR": str(place / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifest(place: Path, recipe: str) -> Artifact:
    content = (place / "lstm" / f"lstm.{recipe}.json").read_bytes()
    return msgspec.json.decode(content, type=Artifact)


@pytest.mark.slow
def test_a_recurrent_layer_is_cured_by_a_fixed_batch_and_keeps_its_loop(printed, place):
    assert printed
    artifact = manifest(place, "float32")
    assert attempts(artifact.ladder) == [("as it is", False), (FIXED, True)]
    assert "TensorListReserve" in artifact.ladder[0].failed
    assert "\n" not in artifact.ladder[0].failed
    names = {name for name, _ in operators(place / "lstm" / artifact.file)}
    assert "WHILE" in names
    assert artifact.signature.inputs[0].shape == (1, 5, 8)


@pytest.mark.slow
def test_what_no_quantiser_makes_of_the_loop_is_cured_by_unrolling(printed, place):
    artifact = manifest(place, "int8")
    tried = [attempt for attempt, _ in attempts(artifact.ladder)]
    assert tried[:2] == ["as it is", FIXED]
    assert tried[-1].startswith(UNROLLED)
    assert artifact.ladder[-1].failed == ""
    assert artifact.float_operators == ()
    names = {name for name, _ in operators(place / "lstm" / artifact.file)}
    assert "WHILE" not in names


@pytest.mark.slow
def test_each_recipe_says_which_attempt_it_is_from(printed, place):
    notes = {name: manifest(place, name).notes for name in ("float32", "dynamic", "int8")}
    assert f"changed before conversion: {FIXED}" in notes["float32"]
    assert f"changed before conversion: {FIXED}" in notes["dynamic"]
    assert f"changed before conversion: {UNROLLED}" in notes["int8"]


@pytest.mark.slow
def test_the_table_shows_what_failed_and_what_cured_it(printed):
    lines = [line.strip() for line in printed.splitlines()]
    assert any(
        line.startswith("failed, as it is: TensorFlow's converter does not") for line in lines
    )
    assert f"good, {FIXED}" in lines
    assert f"good, {UNROLLED}, quantized with litert-quantizer" in lines


@pytest.mark.slow
def test_a_file_that_unrolling_made_larger_says_so_and_names_a_smaller_one(printed, place):
    made = {name: manifest(place, name) for name in ("float32", "dynamic", "int8")}
    sizes = {name: one.size_bytes for name, one in made.items()}
    assert sizes["int8"] > 1.2 * sizes["float32"]
    (warning,) = (w for w in made["int8"].verification.warnings if "times as large" in w)
    assert f"times as large as float32 ({sizes['int8']:,} and {sizes['float32']:,} bytes)" in (
        warning
    )
    assert "its loops were unrolled" in warning
    assert f"dynamic has {sizes['dynamic']:,} bytes" in warning
    assert "times as large as float32" in printed
    assert not any("times as large" in w for w in made["dynamic"].verification.warnings)


@pytest.mark.slow
def test_the_unrolled_layer_answers_as_the_loop(printed, place):
    steps = np.load(place / "steps.npz")["steps"]
    files = {name: place / "lstm" / f"lstm.{name}.tflite" for name in ("float32", "int8")}
    loop, unrolled = (only(Lite(files[name]).run(steps=steps)) for name in ("float32", "int8"))
    assert np.abs(loop - unrolled).max() < 0.1 * np.abs(loop).max()


@pytest.mark.slow
def test_the_second_run_goes_up_no_ladder(printed, loops, place, monkeypatch):
    monkeypatch.chdir(place)
    said: list[str] = []
    recipes = ["float32", "dynamic", "int8"]
    options = {"calibration": "steps.npz", "on_progress": said.append}
    assert convert(loops / "lstm", out="lstm", to=recipes, **options).reused == tuple(recipes)
    # What was published is gone, and in the cache still.
    other = convert(loops / "lstm", out="other", to=recipes, **options)
    assert [a.ladder for a in other.artifacts] == [manifest(place, name).ladder for name in recipes]
    assert said == []


# The other loops


@pytest.mark.slow
def test_a_loop_converts_as_it_is_and_is_unrolled_for_integers(loops, place):
    made = Made(
        convert(
            loops / "while",
            out=place / "while",
            to=["float32", "int8"],
            calibration=str(place / "x.npz"),
        )
    )
    assert made["float32"].ladder == ()
    assert ("WHILE", 1) in operators(made.file("float32"))
    assert attempts(made["int8"].ladder)[-1][0].startswith(UNROLLED)
    assert all("WHILE" in step.failed for step in made["int8"].ladder[:-1])
    assert not any(name == "WHILE" for name, _ in operators(made.file("int8")))


@pytest.mark.slow
def test_a_loop_whose_turns_depend_on_the_input_stays_in_float_and_is_named(loops, place):
    recipes = make_recipes(["float32", "dynamic", "int8"], engine="litert")
    made = convert(
        loops / "turns_of_input", out=place / "turns", to=recipes, calibration=str(place / "x.npz")
    )
    assert [artifact.recipe.name for artifact in made.artifacts] == ["float32", "dynamic", "int8"]
    # The first sample of a batch decides for all of them.
    for artifact in made.artifacts:
        assert artifact.ladder[0].attempt == "as it is"
        assert artifact.signature.inputs[0].shape[0] == 1
    left = {each.name: each.reason for each in made.artifacts[-1].left_in_float}
    assert left["WHILE"] == "no kernel"
    refused = convert(
        loops / "turns_of_input",
        out=place / "turns_refused",
        to=make_recipes(["int8"], engine="litert", full_integer=True),
        calibration=str(place / "x.npz"),
    )
    (failure,) = refused.failures
    assert "the number of turns of While at 'while' depends on the model's inputs" in (
        failure.message
    )
    assert UNROLLED in failure.message
    assert sorted(path.suffix for path in (place / "turns_refused").glob("turns*int8*")) == []


def test_a_layer_that_counts_its_random_numbers_has_them_left_out(brought, place):
    """Dropout keeps a counter in a variable; no answer depends on it."""
    made = Made(convert(brought / "dropout", out=place / "dropout", to=["float32"]))
    assert attempts(made["float32"].ladder) == [("as it is", False), (FIXED, True)]
    answers = np.load(brought / "dropout.answers.npz")["output_0"]
    steps = np.load(brought / "dropout.npz")["steps"]
    np.testing.assert_allclose(
        only(Lite(made.file("float32")).run(steps=steps)), answers, atol=1e-6
    )


def test_a_stateful_layer_keeps_the_batch_that_it_has_a_state_for(brought, place):
    made = Made(convert(brought / "stateful.keras", out=place / "stateful", to=["float32"]))
    artifact = made["float32"]
    assert artifact.ladder == ()
    assert artifact.signature.inputs[0].shape == (1, 5, 8)
    assert any("keeps its state between invokes" in w for w in artifact.verification.warnings)


# What the user asks for


@pytest.mark.slow
def test_the_users_batch_is_kept_on_every_rung_and_said(loops, place):
    made = Made(convert(loops / "gru", out=place / "gru", to=["float32"], batch=2))
    artifact = made["float32"]
    assert artifact.signature.inputs[0].shape == (2, 5, 8)
    assert artifact.signature.outputs[0].shape[0] == 2
    assert "changed before conversion: batch fixed to 2" in artifact.notes


def test_the_users_shape_is_kept_and_said(brought, place):
    shapes = {"image": (1, 32, -1, 3)}
    made = Made(convert(brought / "spatial", out=place / "shape", to=["float32"], shape=shapes))
    artifact = made["float32"]
    assert artifact.signature.inputs[0].shape == (1, 32, -1, 3)
    assert "changed before conversion: image fixed to [1, 32, -1, 3]" in artifact.notes


# Errors


def test_what_the_converter_said_is_in_the_file_that_the_error_names(brought, tmp_path):
    with pytest.raises(UnsupportedOperators) as caught:
        convert(brought / "inverse", out=tmp_path / "out", to=["float32"])
    found = re.search(r"the whole log: (.+)", caught.value.message)
    log = Path(found[1]).read_text(encoding="utf-8", errors="replace")
    assert "tf.MatrixInverse" in log
    assert not (tmp_path / "out").exists()


def test_an_operator_that_no_change_cures_is_tried_where_something_changes(brought, tmp_path):
    said: list[str] = []
    with pytest.raises(UnsupportedOperators, match="MatrixInverse") as caught:
        convert(brought / "inverse", out=tmp_path / "out", to=["float32"], on_progress=said.append)
    assert [line for line in said if line.startswith("trying again")] == [f"trying again: {FIXED}"]
    # It has no loop, so none is unrolled.
    assert f"\n  tried as it is, and {FIXED}: the same" in caught.value.message
    assert "`allow_select_ops`" in caught.value.hint


@pytest.mark.slow
@pytest.mark.usefixtures("started_children")
def test_a_limit_of_the_users_ends_the_climb(loops, tmp_path):
    said: list[str] = []
    execution = Execution(allowance=Allowance(timeout_s=0.2), use_cache=False)
    with pytest.raises(WorkerTimedOut, match=r"did not end within 0\.2 s"):
        convert(
            loops / "stacked",
            out=tmp_path / "out",
            to=["float32"],
            execution=execution,
            on_progress=said.append,
        )
    assert not any(line.startswith("trying again") for line in said)
    assert not (tmp_path / "out").exists()
