"""What is said of quantized files that are larger than need be."""

import numpy as np
import pytest
from tiny_tflite import Graph, packed
from wording import says

from edgeconv import bench, convert
from edgeconv.conversion.climb import size_warning
from edgeconv.reporting.pages import text_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Execution, Measuring, RecipeName, Timing

FLOAT_BYTES = 17_000


def said(name: RecipeName, *, unrolled: bool = False, **sizes: int) -> str:
    (recipe,) = make_recipes([name])
    by_name = {each.replace("_", "-"): size for each, size in sizes.items()}
    return size_warning(recipe, by_name, FLOAT_BYTES, unrolled=unrolled)


def test_a_file_larger_than_float32_says_how_much_and_why_and_what_is_smaller():
    warning = said("int8", unrolled=True, float32=17_000, dynamic=13_500, int8=489_000)
    says(warning)


def test_without_other_recipes_an_unrolled_file_names_the_one_that_keeps_the_loops():
    says(said("int8", unrolled=True, int8=489_000))
    says(said("int8", int8=20_000))


def test_a_file_far_larger_than_one_of_a_cheaper_recipe_is_told_of():
    warning = said("int8", dynamic=6_000, int8=16_000)
    says(warning)
    assert said("int8", dynamic=6_000, int8=8_000) == ""
    # float16 is no dearer than dynamic: twice its size is what it is for.
    assert said("float16", dynamic=4_500, float16=9_000) == ""


@pytest.mark.parametrize("recipe", ["float16", "dynamic", "weight-only-int8"])
def test_a_file_as_large_as_float32_says_so(recipe):
    for size in (16_990, 17_500):
        assert said(recipe, **{recipe.replace("-", "_"): size}) == (
            f"the file is no smaller than float32 ({size:,} and 17,000 bytes)"
        )


def test_no_smaller_file_is_named_that_is_none():
    says(said("dynamic", dynamic=16_990, float16=16_995))


def test_float16_is_warned_of_as_int8_is():
    says(said("float16", float16=18_000))


def test_float16_is_not_advised_where_it_was_made_and_is_larger():
    """Keras's first model has one weight."""
    (recipe,) = make_recipes(["dynamic"])
    says(size_warning(recipe, {"float16": 1264, "dynamic": 1040}, 940, unrolled=False))


def test_a_file_a_little_larger_than_float32_is_not_1_0_times_as_large():
    (recipe,) = make_recipes(["int8"])
    says(size_warning(recipe, {"int8": 102_400}, 100_000, unrolled=False))


@pytest.mark.parametrize(
    ("recipe", "wide"), [("int8x4", "int8"), ("weight-only-int4", "weight-only-int8")]
)
def test_a_file_of_four_bits_as_large_as_one_of_eight_says_so(recipe, wide):
    sizes = {recipe.replace("-", "_"): 8_000, wide.replace("-", "_"): 8_050}
    assert said(recipe, **sizes) == (f"the file is no smaller than {wide} (8,000 and 8,050 bytes)")
    assert said(recipe, **{**sizes, recipe.replace("-", "_"): 6_000}) == ""


def test_nothing_is_said_of_smaller_ones():
    assert said("int8", int8=16_500) == ""
    assert said("float32", float32=99_000) == ""


def test_the_warning_is_in_the_manifest_and_among_the_notes_of_bench(tmp_path):
    """A dense layer of one input: a scale and a zero point for each weight are three times it."""
    graph = Graph()
    x = graph.tensor("x", (1, 1), "float32", dynamic=True)
    weights = np.random.default_rng(4).normal(size=(1024, 1)).astype(np.float32)
    w = graph.tensor("w", weights.shape, "float32", data=weights)
    y = graph.computed("y", (1, 1024), "FULLY_CONNECTED", [x, w, -1], dynamic=True)
    signed = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    (tmp_path / "thin.tflite").write_bytes(packed(signed))
    done = convert(
        tmp_path / "thin.tflite",
        out=tmp_path / "out",
        to=["float32", "dynamic"],
        execution=Execution(use_cache=False),
    )
    floating, dynamic = done.artifacts
    assert dynamic.size_bytes > 2 * floating.size_bytes
    (warning,) = dynamic.verification.warnings
    assert warning.startswith(
        f"the file is {dynamic.size_bytes / floating.size_bytes:.1f} times as large as float32"
    )
    assert "times as large as float32" in text_of(done)
    quick = Measuring(rounds=1, timing=Timing(warmup=1, repeats=3, seconds=0.1))
    report = bench([tmp_path / "out"], measuring=quick)
    assert f"dynamic: {warning}" in report.notes
