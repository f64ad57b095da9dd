from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edgeconv.errors import UsageError
from edgeconv.measure.budget import LIMITS, load_budget
from edgeconv.nouns import Budget, Limits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def budget(tmp_path: Path) -> Path:
    return tmp_path / "budget.toml"


def test_general_limits_and_those_of_a_recipe(budget: Path) -> None:
    budget.write_text(
        "[budget]\n"
        "max-accuracy-drop = 0.01\n"
        "max-size-bytes = 500_000\n"
        "[budget.recipe.int8]\n"
        "max-size-ratio = 0.3 # of the baseline\n"
        "[budget.recipe.weight-only-int8]\n"
        "min-accuracy = 1\n"
    )
    assert load_budget(budget) == Budget(
        every=Limits(max_accuracy_drop=0.01, max_size_bytes=500_000.0),
        recipe={
            "int8": Limits(max_size_ratio=0.3),
            "weight-only-int8": Limits(min_accuracy=1.0),
        },
    )


def test_every_limit_of_the_noun_can_be_set(budget: Path) -> None:
    budget.write_text("[budget]\n" + "".join(f"{name} = 0.5\n" for name in LIMITS))
    every = load_budget(budget).every
    assert [getattr(every, field) for field in LIMITS.values()] == [0.5] * 8


def test_limits_for_one_recipe_alone_are_a_budget(budget: Path) -> None:
    for recipe in ("dynamic", "qat"):
        budget.write_text(f"[budget.recipe.{recipe}]\nmax-latency-ratio = 1.5\n")
        assert load_budget(budget) == Budget(recipe={recipe: Limits(max_latency_ratio=1.5)})


def test_a_zero_limit_is_a_limit(budget: Path) -> None:
    budget.write_text("[budget]\nmax-accuracy-drop = 0\n")
    assert load_budget(budget).every.max_accuracy_drop == 0.0


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("# c\n[budget]\nmax-size = 1\n", 3, "unknown limit 'max-size'", "'max-size-ratio'"),
        ("[budget]\nmax_size_bytes = 1\n", 2, "unknown limit", "did you mean 'max-size-bytes'"),
        ("[budget]\nevery = 1\n", 2, "unknown limit 'every'", "known: max-size-bytes"),
        ("[budget]\nrecipes = {}\n", 2, "unknown limit 'recipes'", "did you mean 'recipe'"),
        ("\n[budgte]\nmin-accuracy = 1\n", 2, "unknown table 'budgte'", "did you mean 'budget'"),
        ("[budget.recipe.int18]\n", 1, "unknown recipe 'int18'", "did you mean 'int8'"),
        ("[budget.recipe.int8]\nmin-acuracy = 1\n", 2, "unknown limit", "'min-accuracy'"),
        ("[budget.recipe.int8]\nrecipe = 1\n", 2, "unknown limit 'recipe'", "known:"),
        ("[budget.recipe.int8]\n", 1, "[budget.recipe.int8] sets no limit", "add one"),
        ("[budget]\nrecipe.int8 = 3\n", 2, "int8 must be a table", "[budget.recipe.int8]"),
        ("budget = 3\n", 1, "budget must be a table", "write [budget]"),
        ("[budget]\nmin-accuracy = '0.9'\n", 2, "must be a number, not '0.9'", "for example"),
        ("[budget]\nmin-accuracy = true\n", 2, "must be a number, not True", "for example"),
        ("[budget]\nmax-size-bytes = [\n1,\n2]\n", 4, "must be a number, not [1, 2]", ""),
        ("[budget]\nmax-size-bytes = nan\n", 2, "must be finite", ""),
        ("[budget]\nmax-size-bytes = inf\n", 2, "must be finite", ""),
        ("[budget]\nmax-size-bytes = -1\n", 2, "not negative, not -1", ""),
        ("[budget]\nmin-accuracy = 95\n", 2, "is a fraction of 1, not 95", "1% is 0.01"),
        ("[budget]\nmax-accuracy-drop = 1.5\n", 2, "is a fraction of 1", "1% is 0.01"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(
    text: str, line: int, message: str, hint: str, budget: Path
) -> None:
    budget.write_text(text)
    with pytest.raises(UsageError) as error:
        load_budget(budget)
    assert f"budget.toml, line {line}: " in error.value.message
    assert message in error.value.message
    assert hint in error.value.hint
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "# nothing\n", "[budget]\n", "[budget.recipe]\n"])
def test_a_budget_without_any_limit_is_refused(text: str, budget: Path) -> None:
    budget.write_text(text)
    with pytest.raises(UsageError, match="sets no limit"):
        load_budget(budget)


def test_malformed_toml_is_refused_with_line_and_column(budget: Path) -> None:
    budget.write_text("[budget]\nmin-accuracy = = 1\n")
    with pytest.raises(UsageError, match="line 2, column 16"):
        load_budget(budget)


def test_a_limit_given_twice_is_refused(budget: Path) -> None:
    budget.write_text("[budget]\nmin-accuracy = 0.9\nmin-accuracy = 0.1\n")
    with pytest.raises(UsageError, match="no valid TOML"):
        load_budget(budget)


def test_a_file_that_is_no_text_is_refused(budget: Path) -> None:
    budget.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_budget(budget)


def test_a_missing_file_and_a_directory_are_refused(budget: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_budget(budget)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_budget(budget.parent)
