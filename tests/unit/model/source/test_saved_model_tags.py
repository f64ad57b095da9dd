"""The graphs of a SavedModel by their tags: which is shown, converted and copied."""

from pathlib import Path

import pytest
from tiny_saved_model import meta_graph, signature, tensor, write_saved_model
from wording import fails

from edgeconv.model.source import identify, inspect_model, load_to_run, serving_path
from edgeconv.types import Opening
from edgeconv.types.errors import InputRefused, UsageError


def graph(key: str, *tags: str) -> bytes:
    ends = signature({"x": tensor((-1, 4))}, {"y": tensor((-1, 2))})
    return meta_graph({key: ends}, tags=tags, operators=("MatMul",))


@pytest.fixture
def model(tmp_path) -> Path:
    """One graph for each of three sets of tags, none for serving."""
    graphs = graph("one", "train"), graph("two", "eval", "gpu"), graph("three", "eval")
    directory = write_saved_model(tmp_path / "model", *graphs)
    for name in ("variables/variables.index", "assets/words.txt", "assets.extra/warmup"):
        (directory / name).parent.mkdir()
        (directory / name).write_text(name, encoding="utf-8")
    return directory


def keys(path: Path | str, *tags: str) -> list[str]:
    return [one.key for one in inspect_model(path, Opening(tags=tags)).model.signatures]


def test_inspect_lists_the_tags_of_every_graph_and_shows_the_chosen_one(model):
    assert inspect_model(model).tag_sets == (("train",), ("eval", "gpu"), ("eval",))
    assert keys(model) == []
    assert keys(model, "train") == ["one"]
    assert keys(model, "gpu", "eval") == ["two"]
    assert keys(model, "eval") == ["three"]


def test_a_model_without_a_graph_for_serving_is_refused_with_the_tags_that_are_there(model):
    with fails(InputRefused):
        load_to_run(model)
    assert load_to_run(model, Opening(tags=("train",))).signatures[0].key == "one"


@pytest.mark.parametrize("tags", [("gpu",), ("serve",), ("train", "eval")])
def test_tags_that_no_graph_has_exactly_are_refused_with_those_that_are_there(tags, model):
    with fails(UsageError):
        inspect_model(model, Opening(tags=tags))


def test_the_chosen_graph_is_served_from_a_copy_with_its_variables_and_assets(model, tmp_path):
    place = serving_path(identify(model, Opening(tags=("gpu", "eval"))), tmp_path / "served")
    assert place == str(tmp_path / "served")
    assert inspect_model(place).tag_sets == (("serve",),)
    assert keys(place) == ["two"]
    files = {path.relative_to(place).as_posix() for path in Path(place).rglob("*.*")}
    assert files == {"saved_model.pb", "variables/variables.index", "assets/words.txt"}
    # All of it, with what is not declared here.
    assert inspect_model(place).operators == inspect_model(model, Opening(tags=("eval",))).operators
    assert keys(model, "train") == ["one"]


def test_a_graph_for_serving_is_taken_as_it_is(tmp_path):
    graphs = graph("one", "serve"), graph("two", "serve", "gpu")
    directory = write_saved_model(tmp_path / "model", *graphs)
    for tags in ((), ("serve",)):
        assert serving_path(identify(directory, Opening(tags=tags)), tmp_path / "no") == str(
            directory
        )
    assert not (tmp_path / "no").exists()
    assert keys(
        serving_path(identify(directory, Opening(tags=("serve", "gpu"))), tmp_path / "b")
    ) == ["two"]


def test_a_graph_that_is_for_serving_among_others_is_taken_without_tags(tmp_path):
    directory = write_saved_model(tmp_path / "model", graph("one", "serve", "gpu"))
    assert load_to_run(directory).signatures[0].key == "one"
    assert inspect_model(serving_path(identify(directory), tmp_path / "copy")).tag_sets == (
        ("serve",),
    )
