"""The halves of the samples, options that cannot be, and the recipe as a file."""

import contextlib
import io
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import open_samples
from wording import fails, says

from edgeconv.conversion.plan import recipes_of
from edgeconv.data import parse_preprocessing, parse_source
from edgeconv.data.source import LocalDataSet
from edgeconv.plugins.scale import tune_samples
from edgeconv.plugins.scale.tune_confirming import can_be_trained, qat_advice
from edgeconv.plugins.scale.tune_samples import (
    TuneRun,
    archive_of,
    refuse_budget,
    refuse_options,
    refuse_shared,
    split_samples,
)
from edgeconv.plugins.scale.tune_search import recipe_text, uniform_recipes
from edgeconv.plugins.scale.tune_trials import untimed
from edgeconv.requests.config.reach import NOTHING_GRANTED
from edgeconv.requests.config.tables import Table, read_config
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.recipes import make_recipes
from edgeconv.requests.table import called
from edgeconv.requests.tune import TuneRequest
from edgeconv.types import (
    DataSource,
    LayerRule,
    Loss,
    MetricChoice,
    NpuEstimate,
    NpuLeft,
    Opening,
    Recipe,
    Signature,
    SourceModel,
    TensorSpec,
    TuningTrial,
)
from edgeconv.types.errors import InputRefused, UsageError


def test_a_result_in_which_something_was_refused_is_none_of_other_code(monkeypatch, tmp_path):
    request = TuneRequest(model="m", data=DataSource(kind="npz", location="d.npz"), max_drop=0.1)
    model = SourceModel(path="m", kind="tflite", name="m", sha256="0" * 64, size_bytes=1)
    run = TuneRun(request, model, tmp_path, ("a", "b"), lambda _: None, 0.0)
    good = TuningTrial(name="int8", recipe=Recipe(name="int8"))
    refused = msgspec.structs.replace(good, error="3 dB")
    before = run.key([good]), run.key([good, refused])
    monkeypatch.setattr("edgeconv.plugins.scale.tune_samples.code_hash", lambda: "other")
    assert run.key([good]) == before[0]
    assert run.key([good, refused]) not in before


X = TensorSpec(name="x", shape=(-1, 3), dtype="float32")


def local_data(text: str, x: Any, labels: np.ndarray | None, count: int) -> LocalDataSet:
    return LocalDataSet(
        text=text,
        inputs=(X,),
        columns={"x": x},
        labels=labels,
        is_text=False,
        preprocessing={},
        at=np.arange(count),
    )


def source(count: int, classes: int = 3, *, labels: bool = True) -> LocalDataSet:
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    numbers = np.arange(count) % classes if labels else None
    return local_data("made.npz", x, numbers, count)


def request(**fields) -> TuneRequest:
    return TuneRequest(**{"model": "m.tflite", "data": "d.npz", "max_drop": 0.01, **fields})


def first_column(part: LocalDataSet) -> list[float]:
    return part.take(np.arange(part.count)).arrays["x"][:, 0].tolist()


@given(st.integers(40, 400), st.integers(1, 7), st.sampled_from([1, 4, 8]))
@settings(max_examples=60, deadline=None)
def test_no_sample_is_in_both_halves_and_the_fresh_one_is_no_smaller(count, classes, batch):
    parts = split_samples(source(count, classes), None, 0.005, batch)
    searched, fresh = set(first_column(parts.search)), set(first_column(parts.fresh))
    assert not searched & fresh
    assert len(searched) + len(fresh) == count // batch * batch
    assert len(fresh) >= len(searched) >= count // 2 - batch
    assert not len(searched) % batch
    assert not len(fresh) % batch


def test_both_halves_have_equal_shares_of_the_labels_and_are_the_same_each_time():
    parts, again = (split_samples(source(300), None, 0.005, 1) for _ in range(2))
    for part in (parts.search, parts.fresh):
        assert part.labels is not None
        assert np.bincount(part.labels).tolist() == [50, 50, 50]
    assert first_column(parts.search) == first_column(again.search)


def test_a_label_stays_with_its_sample():
    parts = split_samples(source(90, 5), None, 0.005, 1)
    for part in (parts.search, parts.fresh):
        assert [int(x / 3) % 5 for x in first_column(part)] == part.labels.tolist()


def test_no_more_samples_are_used_than_are_asked_for():
    parts = split_samples(source(300), 120, 0.005, 1)
    assert (parts.search.count, parts.fresh.count) == (60, 60)


def test_too_few_samples_are_refused_with_the_number_that_is_wanted():
    with fails(InputRefused):
        split_samples(source(39), None, 0.005, 1)
    with fails(InputRefused):
        split_samples(source(100), 30, 0.01, 1)


def test_the_calibration_file_has_search_samples_only_and_equal_bytes(tmp_path):
    parts = split_samples(source(100), None, 0.005, 1)
    content = archive_of(parts.search, 1)
    assert content == archive_of(parts.search, 1)
    with np.load(io.BytesIO(content)) as archive:
        assert archive.files == ["x"]
        assert set(archive["x"][:, 0]) <= set(first_column(parts.search))
        assert len(archive["x"]) == 50
    (tmp_path / "c.npz").write_bytes(content)
    assert open_samples(str(tmp_path / "c.npz"), (X,)).count == 50


def test_the_calibration_file_has_what_is_stored_and_not_what_preprocessing_makes(tmp_path):
    steps = parse_preprocessing("scale=1/255")
    stored = np.tile(np.arange(100, dtype=np.uint8)[:, None], (1, 3))
    np.savez(tmp_path / "d.npz", x=stored)
    opened = open_samples(str(tmp_path / "d.npz"), (X,), preprocessing=steps)
    parts = split_samples(opened, None, 0.5, 1)
    with np.load(io.BytesIO(archive_of(parts.search, 1))) as archive:
        assert archive["x"].dtype == np.uint8


def test_calibration_samples_that_are_fresh_ones_too_are_refused():
    parts = split_samples(source(100), None, 0.5, 1)
    with fails(InputRefused):
        refuse_shared(source(100), parts.fresh)
    refuse_shared(parts.search, parts.fresh)
    # One of forty is by chance.
    few = first_column(parts.search)[:39] + first_column(parts.fresh)[:1]
    mostly = source(100).only(np.array([int(x / 3) for x in few]))
    refuse_shared(mostly, parts.fresh)


def test_pictures_of_several_sizes_need_calibration_samples_of_their_own():
    class Pictures:
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> np.ndarray:
            return np.zeros((3 + index % 2,), np.uint8)

    opened = local_data("p", Pictures(), None, 60)
    with fails(InputRefused):
        archive_of(split_samples(opened, None, 0.5, 1).search, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"objective": "npu-latency"},
        {"npu": "ethos-u55-128"},
        {"recipes": ("int8", "qat")},
        {"recipes": ("int9",)},
        {"max_drop": 1.0, "metric": MetricChoice("top5")},
    ],
)
def test_impossible_options_are_refused(fields):
    with fails(UsageError):
        refuse_options(request(**fields))


def test_a_loss_in_the_unit_of_the_outputs_may_be_any_number():
    mae = called(TuneRequest, ("m", "d.npz"), {"max_drop": 500.0, "metric": "mae"})
    assert mae.max_drop == 500
    refuse_options(mae)
    # Only the labels tell the metric where none is chosen.
    refuse_options(request(max_drop=1.0))
    refuse_budget(request(max_drop=1.0), "mae")
    with fails(UsageError):
        refuse_budget(request(max_drop=1.0), "top1")


@pytest.mark.parametrize("labels", [{}, {"y": np.arange(100) % 3}, {"y": np.arange(100) / 7}])
def test_a_loss_that_no_share_can_have_is_refused_before_the_model_is_converted(labels, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((100, 3), "f"), **labels)
    asked = request(data=parse_source(f"{tmp_path}/d.npz"), max_drop=2.0)
    signature = Signature(key="s", inputs=(X,), outputs=(msgspec.structs.replace(X, name="y"),))
    has_numbers = labels and labels["y"].dtype.kind == "f"
    with (
        contextlib.nullcontext() if has_numbers else pytest.raises(UsageError),
        tune_samples.open_samples(asked, signature, tmp_path / "c.npz") as samples,
    ):
        assert samples.search.count == 50


def test_the_uniform_recipes_are_tried_from_the_cheapest_and_float32_for_latency_only():
    size = uniform_recipes(request(), 500, equalizes=True)
    names = dict.fromkeys(recipe.name for recipe in size)
    assert list(names)[:3] == ["weight-only-int4", "int8x4", "int8"]
    assert "float32" not in names
    latency = uniform_recipes(request(objective="latency"), 500, equalizes=True)
    assert "float32" in [r.name for r in latency]
    on_npu = request(objective="npu-latency", npu="ethos-u55-128")
    names = dict.fromkeys(r.name for r in uniform_recipes(on_npu, 500, equalizes=True))
    assert list(names) == ["int8", "int16x8"]
    chosen = msgspec.structs.replace(on_npu, recipes=("float16", "int8"))
    names = dict.fromkeys(r.name for r in uniform_recipes(chosen, 500, equalizes=True))
    assert list(names) == ["int8", "float16"]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"on_npu": 3, "macs_on_npu": 200, "latency_us": 5.0}, ""),
        ({"on_npu": 0}, "no operator is on ethos-u55-128"),
        ({"on_npu": 2, "macs_on_npu": 150, "latency_us": 5.0}, "25.0% of the multiplications"),
    ],
)
def test_a_time_of_a_part_of_the_work_is_no_candidate(counts, reason):
    left = (NpuLeft(operator="SVDF", count=1),)
    estimate = NpuEstimate(
        npu="ethos-u55-128", compiler="v", operators=3, macs=200, left=left, **counts
    )
    assert untimed(estimate)[: len(reason) or None] == reason
    trial = TuningTrial(
        name="int8", recipe=Recipe(name="int8"), size_bytes=9, npu=estimate, error=untimed(estimate)
    )
    assert trial.cost("npu-latency") == (float("inf") if reason else 5.0)


LAYERWISE = ("rounding", "bias-correction")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("float16", [("minmax", ())]),
        ("weight-only-int8", [("minmax", ()), ("minmax", LAYERWISE)]),
        ("int16x8", [("minmax", ()), ("minmax", LAYERWISE), ("auto", ("auto",))]),
        ("weight-only-int4", [("minmax", LAYERWISE), ("minmax", ("equalization", *LAYERWISE))]),
        (
            "int8",
            [
                ("minmax", ()),
                ("minmax", LAYERWISE),
                ("minmax", ("equalization", *LAYERWISE)),
                ("auto", LAYERWISE),
                ("auto", ("auto",)),
            ],
        ),
    ],
)
def test_a_uniform_recipe_names_its_methods_and_comes_with_more_of_them_each_time(name, settings):
    recipes = uniform_recipes(request(recipes=(name,)), 500, equalizes=True)
    assert [(r.calibration_range, r.methods) for r in recipes] == settings


@pytest.mark.parametrize(
    ("calibration", "methods"),
    [
        (15, [(), ("equalization",), ("auto",)]),
        (31, [(), ("bias-correction",), ("equalization", "bias-correction"), ("auto",)]),
    ],
)
def test_a_method_that_needs_more_calibration_samples_than_there_are_is_not_tried(
    calibration, methods
):
    recipes = uniform_recipes(request(recipes=("int8",)), calibration, equalizes=True)
    assert [recipe.methods for recipe in recipes] == methods
    assert {recipe.calibration_range for recipe in recipes[:-1]} == {"minmax"}


def test_equalization_is_tried_only_for_a_model_that_has_layers_for_it():
    recipes = uniform_recipes(request(), 500, equalizes=False)
    assert not any("equalization" in recipe.methods for recipe in recipes)


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


@given(st.lists(NAMES, unique=True, max_size=4), st.sampled_from(["int8", "int8x4", "dynamic"]))
@settings(max_examples=40, deadline=None)
def test_the_recipe_file_says_the_same_recipe(tmp_path_factory, names, to):
    layers = [LayerRule(pattern=f"a/{name}", precision="int8") for name in names]
    ranges = {"calibration_range": "mse"} if to != "dynamic" else {}
    (recipe,) = make_recipes(
        [to], engine="litert", methods=["rounding"], layers=layers, full_integer=True, **ranges
    )
    text = recipe_text(recipe, request(batch=1), Opening(), "c.npz", "scale=1/255")
    file = tmp_path_factory.mktemp("recipe") / "m.recipe.toml"
    file.write_text(text, encoding="utf-8")
    table = Table(read_config(file), "convert", NOTHING_GRANTED)
    read = table.request(ConvertRequest, {"model": "model.tflite"})
    assert recipes_of(read) == (recipe,)
    assert str(read.calibration[""]) == str(file.parent / "c.npz")
    assert (read.preprocess.by_input, read.batch) == (parse_preprocessing("scale=1/255"), 1)


def lost(name: str, drop: float) -> TuningTrial:
    (recipe,) = make_recipes([name])
    loss = Loss(value=0.9 - drop, drop=drop, samples=100, variance=0.1)
    return TuningTrial(name=name, recipe=recipe, loss=loss)


def test_the_advice_has_the_shares_as_measured_and_the_command(tmp_path):
    keras = SourceModel(path="/m/a b.keras", kind="keras", name="a", sha256="0", size_bytes=1)
    trials = [lost("int8", 0.04), lost("weight-only-int8", 0.01)]
    said, command = qat_advice(keras, request(max_drop=0.005), trials, "")
    says(said)
    assert command.startswith("edgeconv convert '/m/a b.keras' --to qat --training TRAIN.npz")
    assert qat_advice(keras, request(max_drop=0.05), trials, "") == ()


def test_qat_takes_what_has_its_layers(tmp_path):
    saved = SourceModel(path=str(tmp_path), kind="saved_model", name="a", sha256="0", size_bytes=1)
    assert not can_be_trained(saved)
    (tmp_path / "keras_metadata.pb").touch()
    assert can_be_trained(saved)
