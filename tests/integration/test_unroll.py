"""Unrolled models answer as they did with their loops, or the loop that stays is named.

The models, and how each is run before and after, are in loop_zoo.py.
"""

import msgspec
import pytest
from loop_zoo import Result

INPUTS = "depends on the model's inputs: not unrolled"
REFUSED = {
    "turns_of_input": ("the number of turns of While at 'while'", INPUTS),
    "until_small": ("the number of turns of While at 'while'", INPUTS),
    "cond_of_input": ("the branch of If at 'while/cond'", INPUTS),
    "too_many_turns": ("the loop 'while' has more than 4096 turns",),
    "switch_case": ("at 'while/switch_case", "is control flow of TensorFlow 1: not unrolled"),
    "graph_loop": ("at 'while/", "is control flow of TensorFlow 1: not unrolled"),
    "counting": ("changes a variable that its outputs depend on", "AssignAddVariableOp"),
}
RANDOM = ("random", "random_in_loop")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(loops) -> dict[str, Result]:
    return msgspec.json.decode((loops / "results.json").read_bytes(), type=dict[str, Result])


def test_every_unrolled_model_answers_as_before(results):
    unrolled = {name: each for name, each in results.items() if name not in (*REFUSED, *RANDOM)}
    assert len(unrolled) == 56
    wrong = {
        name: each
        for name, each in unrolled.items()
        if each.kind or each.left or not 0 <= each.worst <= 1e-5
    }
    assert wrong == {}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loop_that_cannot_be_unrolled_is_named(name, results):
    assert results[name].kind == "InputRefused"
    for words in REFUSED[name]:
        assert words in results[name].error
    assert "\n" not in results[name].error


def test_each_turn_of_a_loop_stands_for_itself(results):
    # Of 300 turns, each with a product, a sum and a counter that is gone.
    assert 600 <= results["many_turns"].nodes <= 1200
    # A branch or a loop that is never gone into leaves nothing.
    assert results["no_turns"].nodes <= 5


def test_outputs_keep_their_names_and_types(results):
    assert results["kinds"].outputs == ("a", "b", "m")
    assert results["two_names"].outputs == ("first", "second")


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_stay_random(name, results):
    """Their shape is a constant, so that they could be taken for one too."""
    assert results[name].error == ""
    assert results[name].is_random
