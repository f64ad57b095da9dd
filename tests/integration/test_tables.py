"""Models that look strings and whole numbers up, from the SavedModel to the report."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_models import Made
from table_zoo import NUMBERS, WORDS
from zoo import stocked

from edgeconv import bench, convert, debug
from edgeconv.model.tflite import vocabularies
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Measuring, Timing
from edgeconv.types.errors import UnsupportedOperators

RECIPES = ("float32", "float16", "dynamic", "int8")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    root = tmp_path_factory.mktemp("tables")
    stocked(root, "table_zoo:write")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(root / "cache"))
        yield root


@pytest.fixture(scope="module")
def recommender(zoo) -> Made:
    return Made(
        convert(
            zoo / "recommender", out=zoo / "out", to=RECIPES, calibration=str(zoo / "rides.npz")
        )
    )


def answers(file: Path | str, **inputs: Any) -> dict[str, Any]:
    runner = Interpreter(model_path=str(file)).get_signature_runner()
    made: dict[str, Any] = runner(**inputs)
    return made


def test_a_model_with_strings_and_floats_converts_to_every_recipe(recommender):
    assert not recommender.conversion.failures
    assert {each.recipe.name for each in recommender.conversion.artifacts} == set(RECIPES)


def test_one_sample_is_answered_as_many_are(recommender, zoo):
    """The converter leaves the shape open that a lookup gives, and one key then fails."""
    samples = np.load(zoo / "rides.npz")
    users, ride = samples["user"].astype(object), samples["ride"]
    for recipe in RECIPES:
        file = recommender.file(recipe)
        together = answers(file, user=users, ride=ride)["output_0"]
        alone = answers(file, user=users[5:6], ride=ride[5:6])["output_0"]
        assert alone.shape == (1, 4), recipe
        assert np.allclose(alone[0], together[5], atol=0.05), recipe


def test_words_of_the_tables_are_found_in_the_file(recommender):
    data = recommender.file("int8").read_bytes()
    assert tuple(word.encode() for word in WORDS) in vocabularies(data, where="x")


def test_without_samples_made_up_words_verify(zoo):
    done = convert(zoo / "recommender.keras", out=zoo / "keras", to=["float32", "dynamic"])
    assert [each.verification.synthetic for each in done.artifacts] == [True, True]


def test_strings_stay_strings_where_inputs_are_to_be_int8(zoo):
    recipes = make_recipes(["int8"], input_type="int8", output_type="int8")
    calibration = str(zoo / "rides.npz")
    done = Made(convert(zoo / "recommender", out=zoo / "io", to=recipes, calibration=calibration))
    warnings = done["int8"].verification.warnings
    assert any("'user' holds strings, which --io int8 leaves" in text for text in warnings)
    interpreter = Interpreter(model_path=str(done.file("int8")))
    details = interpreter.get_signature_runner().get_input_details()
    assert {name: np.dtype(each["dtype"]).kind for name, each in details.items()} == {
        "ride": "i",
        "user": "S",
    }


def test_a_vocabulary_in_a_file_becomes_constants(zoo):
    done = Made(convert(zoo / "from_file", out=zoo / "out", to=["float32"]))
    assert any("40 entries of its file" in note for note in done["float32"].notes)
    rows = answers(done.file("float32"), user=np.array([b"user-0", b"nobody"], object))["scores"]
    table = np.random.default_rng(5).standard_normal((41, 4), np.float32)
    assert np.array_equal(rows, table[[1, 0]])


def test_a_lookup_of_whole_numbers_is_exact(zoo):
    calibration = str(zoo / "numbers.npz")
    done = Made(
        convert(zoo / "numbered", out=zoo / "out", to=["float32", "int8"], calibration=calibration)
    )
    assert not done.conversion.failures
    assert any("5 keys" in note for note in done["float32"].notes)
    known = np.array([[number] for number in NUMBERS], np.int64)
    odd = np.array([[7], [NUMBERS[3] + 1], [2**62]], np.int64)
    scores = answers(done.file("float32"), number=np.concatenate([known, odd]))["output_0"]
    assert len(np.unique(scores[:5], axis=0)) == 5
    assert np.array_equal(scores[5:], scores[[5, 5, 5]])


def test_the_name_of_a_class_may_be_the_answer(zoo):
    done = Made(convert(zoo / "labeled", out=zoo / "labeled-out", to=["float32", "dynamic"]))
    x = np.load(zoo / "x.npz")["x"]
    given = answers(done.file("float32"), x=x)
    assert given["label"].tolist() == [
        ["cat", "dog", "Käse"][index].encode() for index in given["scores"].argmax(-1)
    ]
    report = bench(
        [done.file("float32"), done.file("dynamic")],
        data=str(zoo / "x.npz"),
        baseline=zoo / "labeled",
        measuring=Measuring(timing=Timing(repeats=3, seconds=0.1)),
    )
    agreement = {each.output: each for each in report.measurements[0].agreement}
    assert agreement["label"].flips == 0


def test_an_operator_that_hashes_strings_says_what_to_do(zoo):
    with pytest.raises(UnsupportedOperators, match="StringToHashBucketFast") as error:
        convert(zoo / "hashed", out=zoo / "out", to=["float32"])
    assert "compute the bucket in the application" in error.value.hint


@pytest.mark.slow
def test_layers_behind_a_table_are_debugged(zoo):
    found = debug(zoo / "recommender", str(zoo / "rides.npz"))
    assert found.layers
