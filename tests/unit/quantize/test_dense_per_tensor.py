"""Recipes without scales per channel in dense layers, which older runtimes lack."""

from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import float_model, packed

from edgeconv.data import Samples, write_samples
from edgeconv.model.tflite import oldest_runtime
from edgeconv.model.tflite.flatbuffer import operator_name, parse
from edgeconv.model.tflite.operators import scales_of
from edgeconv.quantize.quantize import quantizer_recipe
from edgeconv.quantize.worker import GraphFile, QuantizeJob, QuantizePart, quantize
from edgeconv.requests.recipes import make_recipes
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import PersistentChild

INT8_RECIPES = ("dynamic", "weight-only-int8", "int8", "int16x8")
CHANNELS = 3


def made(directory: Path, *, dense_per_tensor: bool) -> dict[str, bytes]:
    """The tiny dense model in every recipe with int8 weights, by name."""
    model = directory / "float.tflite"
    signed = float_model(signature=("serving_default", ["x"], ["y"]))
    model.write_bytes(packed(signed))
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (20, 4)).astype(np.float32)
    write_samples(Samples({"x": x}, None, "made here"), directory / "samples")
    part = QuantizePart(signature="serving_default", samples=str(directory / "samples"), batch=1)
    graph = GraphFile(float_model=str(model), parts=(part,), threads=1)
    child = PersistentChild(
        label="quantizing", scratch=directory, access=Access(writes=(directory,))
    )
    files = {name: directory / f"{name}.tflite" for name in INT8_RECIPES}
    for recipe in make_recipes(INT8_RECIPES):
        job = QuantizeJob(
            graph=graph,
            recipe=recipe,
            file=str(files[recipe.name]),
            dense_per_tensor=dense_per_tensor,
        )
        child.start(quantize, job).result()
    child.close()
    return {name: file.read_bytes() for name, file in files.items()}


def weight_scales(data: bytes) -> int:
    """How many scales the weights of the dense layer have, stored or dequantised before it."""
    model = parse(data, where="made")
    graph = model.subgraphs[0]
    maker = {operator.outputs[0]: operator for operator in graph.operators}
    (dense,) = (o for o in graph.operators if operator_name(model, o) == "FULLY_CONNECTED")
    weights = dense.inputs[1]
    if weights in maker:
        weights = maker[weights].inputs[0]
    return len(scales_of(graph.tensors[weights]))


@pytest.mark.parametrize(("dense_per_tensor", "scales"), [(False, CHANNELS), (True, 1)])
def test_dense_weights_have_one_scale_where_that_is_asked_for(tmp_path, dense_per_tensor, scales):
    files = made(tmp_path, dense_per_tensor=dense_per_tensor)
    assert {name: weight_scales(data) for name, data in files.items()} == dict.fromkeys(
        INT8_RECIPES, scales
    )
    releases = {name: oldest_runtime(data, name).version for name, data in files.items()}
    assert releases["dynamic"] == ("2.3.0" if dense_per_tensor else "2.17.0")
    assert releases["int8"] == ("1.14.0" if dense_per_tensor else "2.10.0")


@pytest.mark.parametrize("name", INT8_RECIPES)
def test_only_dense_layers_lose_their_scales_per_channel(name):
    (recipe,) = make_recipes([name])
    usual = quantizer_recipe(recipe)
    changed = quantizer_recipe(recipe, dense_per_tensor=True)
    (added,) = (entry for entry in changed if entry not in usual)
    assert added["operation"] == "FULLY_CONNECTED"
    assert [entry for entry in changed if entry in usual] == usual


def test_a_float16_recipe_has_no_scales_to_change():
    (recipe,) = make_recipes(["float16"])
    assert quantizer_recipe(recipe, dense_per_tensor=True) == quantizer_recipe(recipe)
