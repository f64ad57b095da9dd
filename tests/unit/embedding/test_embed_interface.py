"""The id of an interface: equal for models that the same generated code can run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embed_models import published
from embed_updates import model, others
from tiny_tflite import Graph, packed

from edgeconv import embed
from edgeconv.types import Preprocessing


def interface_of(
    folder: Path, content: bytes, target: str = "python", labels: str = "", **changes: Any
) -> str:
    artifact = published(folder / "model", content, **changes)
    if labels:
        (folder / "labels.txt").write_text(labels)
    return embed(
        artifact,
        target,
        folder / "out",
        symbol="net",
        vectors=1,
        labels=str(folder / "labels.txt") if labels else "",
    ).interface_id


def test_other_weights_another_recipe_and_another_target_have_the_same_interface(tmp_path):
    known = interface_of(tmp_path / "own", model())
    weights = np.arange(12).reshape(3, 4)
    assert interface_of(tmp_path / "weights", model(weights=weights)) == known
    assert interface_of(tmp_path / "recipe", model(), recipe="int16x8") == known
    assert interface_of(tmp_path / "target", model(), target="ios") == known
    assert len(known) == 32


@pytest.mark.parametrize("name", list(others()))
def test_whatever_code_knows_of_a_tensor_is_in_its_interface(tmp_path, name):
    known = interface_of(tmp_path / "own", model())
    assert interface_of(tmp_path / "other", others()[name]) != known


def test_so_are_preprocessing_labels_and_places_in_the_graph(tmp_path):
    steps = {"preprocessing": {"": Preprocessing(scale=2.0)}}
    ids = [
        interface_of(tmp_path / "own", model()),
        interface_of(tmp_path / "steps", model(), **steps),
        interface_of(tmp_path / "labels", model(), labels="a\nb\nc\n"),
        interface_of(tmp_path / "order", model(), labels="b\na\nc\n"),
        *(interface_of(tmp_path / "".join(p), two_inputs(p)) for p in (("x", "y"), ("y", "x"))),
    ]
    assert len(set(ids)) == len(ids)


def two_inputs(places: tuple[str, str]) -> bytes:
    """x + y in float32, with the inputs in that order in the graph."""
    graph = Graph()
    ends = {name: graph.tensor(name, (1, 4), "float32") for name in ("x", "y")}
    z = graph.computed("z", (1, 4), "ADD", list(ends.values()))
    signature = ("serving_default", list(places), ["z"])
    return packed(graph.model([ends[name] for name in places], [z], signature=signature))
