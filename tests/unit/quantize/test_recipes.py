import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import fails

from edgeconv.quantize.quantize import quantizer_recipe
from edgeconv.requests.recipes import MIN_SNR_DB, make_recipes, recipe_names
from edgeconv.types import FOUR_BIT, RECIPE_NAMES, LayerRule, Recipe
from edgeconv.types.errors import UsageError


@given(asked=st.lists(st.sampled_from(RECIPE_NAMES), min_size=1), shuffle=st.randoms())
def test_recipes_come_once_each_and_in_one_order_however_they_are_asked_for(asked, shuffle):
    names = recipe_names(asked)
    assert set(names) == set(asked)
    assert list(names) == sorted(set(asked), key=RECIPE_NAMES.index)
    shuffle.shuffle(asked)
    assert recipe_names([f" {name} " for name in asked]) == names


def test_all_stands_for_every_recipe_also_beside_others():
    assert recipe_names(["all"]) == RECIPE_NAMES
    assert recipe_names(["int8", "all"]) == RECIPE_NAMES


@pytest.mark.parametrize("typo", ["int", "flaot16", "int16-8", "dynamik", "INT8"])
def test_a_typo_is_refused_with_what_was_probably_meant(typo):
    with fails(UsageError) as caught:
        recipe_names(["int8", typo])
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("nothing", [[], [""], [" ", ""]])
def test_no_recipe_at_all_is_refused(nothing):
    with fails(UsageError):
        recipe_names(nothing)


def test_options_of_full_integer_recipes_are_not_given_to_the_others():
    """So that an option that does not matter to an artifact does not make it anew."""
    made = make_recipes(["all"], calibration_range="ema", full_integer=True, input_type="float32")
    assert [recipe.name for recipe in made] == list(RECIPE_NAMES)
    for recipe in made:
        if recipe.name in ("int8", "int16x8"):
            assert recipe.full_integer
            assert recipe.calibration_range == "ema"
            assert recipe.only_integers
        else:
            methods = ("auto",) if recipe.name in ("dynamic", "weight-only-int8") else ()
            least = MIN_SNR_DB.get(recipe.name)
            assert recipe == Recipe(name=recipe.name, min_snr_db=least, methods=methods)


def test_input_and_output_types_reach_the_full_integer_recipe_only():
    dynamic, int8 = make_recipes(["int8", "dynamic"], input_type="uint8", output_type="int8")
    assert (int8.input_type, int8.output_type) == ("uint8", "int8")
    assert (int8.only_integers, dynamic.only_integers) == (True, False)
    assert not make_recipes(["int8"])[0].only_integers
    assert (dynamic.input_type, dynamic.output_type) == ("float32", "float32")


def test_a_limit_that_is_given_replaces_that_of_every_recipe():
    assert {recipe.min_snr_db for recipe in make_recipes(["all"], min_snr_db=-3.5)} == {-3.5}
    assert make_recipes(["int8"], min_snr_db=0.0)[0].min_snr_db == 0.0


@pytest.mark.parametrize(
    ("names", "types"),
    [
        (["dynamic"], ("int8", "int8")),
        (["float32", "float16"], ("uint8", "float32")),
        (["int16x8"], ("int8", "float32")),
        (["int8"], ("float32", "int16")),
        (["int8", "int16x8"], ("int8", "int8")),
    ],
)
def test_types_that_a_recipe_cannot_have_are_refused(names, types):
    with fails(UsageError):
        make_recipes(names, input_type=types[0], output_type=types[1])


@pytest.mark.parametrize("name", [name for name in RECIPE_NAMES if name != "float32"])
def test_every_recipe_but_float32_has_a_configuration_for_the_quantiser(name):
    entries = quantizer_recipe(*make_recipes([name]))
    assert entries
    # The ends of a full-integer model stay float unless something else is asked for.
    ends = {entry["operation"] for entry in entries} & {"INPUT", "OUTPUT"}
    assert ends == ({"INPUT", "OUTPUT"} if name in ("int8", "int16x8") else set())


def test_an_integer_end_is_left_to_the_quantiser():
    (recipe,) = make_recipes(["int8"], input_type="uint8")
    operations = {entry["operation"] for entry in quantizer_recipe(recipe)}
    assert operations & {"INPUT", "OUTPUT"} == {"OUTPUT"}


def test_methods_are_for_the_recipes_that_quantise():
    float16, int8 = make_recipes(["int8", "float16"], methods=["rounding", "equalization"])
    assert float16.methods == ()
    # In the order in which they act, however they were given.
    assert int8.methods == ("equalization", "rounding")
    assert int8.calibrates


def test_every_recipe_that_quantizes_has_the_methods_that_help_unless_it_is_to_have_none():
    recipes = make_recipes([*RECIPE_NAMES, *FOUR_BIT])
    assert {recipe.name for recipe in recipes if recipe.methods == ("auto",)} == {
        *("dynamic", "weight-only-int8", "int8", "int16x8"),
        *("weight-only-int4", "int8x4"),
    }
    assert {recipe.methods for recipe in recipes} == {(), ("auto",)}
    (plain,) = make_recipes(["weight-only-int4"], methods=["none"])
    assert plain.methods == ()
    assert not plain.calibrates


def test_auto_uses_samples_but_does_not_need_them():
    auto, named, integer = (
        *make_recipes(["dynamic"]),
        *make_recipes(["dynamic"], methods=["rounding"]),
        *make_recipes(["int8"], methods=["none"]),
    )
    assert (auto.calibrates, auto.needs_samples) == (True, False)
    assert (named.calibrates, named.needs_samples) == (True, True)
    assert (integer.calibrates, integer.needs_samples) == (True, True)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (["adaround"], "unknown method 'adaround'"),
        (["auto", "rounding"], "auto stands alone"),
        (["none", "rounding"], "none stands alone"),
        ([], "no method given"),
    ],
)
def test_methods_that_do_not_go_together_are_refused(methods, message):
    with pytest.raises(UsageError, match=message):
        make_recipes(["int8"], methods=methods)


def test_methods_rules_and_ranges_without_a_recipe_for_them_are_refused():
    with fails(UsageError):
        make_recipes(["float16"], methods=["auto"])
    rule = LayerRule(pattern="*", precision="int8")
    with fails(UsageError):
        make_recipes(["float32"], layers=[rule])
    with fails(UsageError):
        make_recipes(["dynamic"], calibration_range="mse")


def test_ranges_are_left_to_auto_where_the_methods_are():
    def ranges(name: str = "int8", **options) -> str:
        return make_recipes([name], **options)[0].calibration_range

    assert ranges() == ranges(methods=["auto"]) == "auto"
    assert ranges(methods=["none"]) == ranges(methods=["rounding"]) == "minmax"
    assert ranges(calibration_range="minmax") == "minmax"
    assert ranges(calibration_range="auto", methods=["none"]) == "auto"
    assert ranges("dynamic") == "minmax"
