"""Outputs whose parts share a scale: found, measured by part, and given their own scales."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from detectors import (
    ANCHORS,
    CLASSES,
    KEY,
    Head,
    joined_head,
    one_layer,
    samples,
    separate_outputs,
    two_levels,
)

from edgeconv import convert
from edgeconv.model.tflite.cut import joined_outputs
from edgeconv.model.tflite.flatbuffer import parse, serialize
from edgeconv.quantize.calibrate import CalibratedGraph, Feed
from edgeconv.quantize.found_rules import find_shared_scales, with_own_scales
from edgeconv.quantize.quantize import MethodSettings
from edgeconv.quantize.trials import QuantizeTrials, outputs_of
from edgeconv.reporting.pages import text_of
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Artifact, Conversion, LayerRule, SharedScale

# The quantizer chooses this mode itself.


def graph(model: bytes, count: int = 64) -> CalibratedGraph:
    return CalibratedGraph(model, {KEY: Feed({"x": samples(count)}, 1)}, threads=1)


def recipe(name: str = "int8", methods: str = "auto", **changes: Any) -> Any:
    (made,) = make_recipes([name], methods=[methods], **changes)
    return made


def test_the_values_of_an_output_are_traced_to_the_tensors_that_were_joined():
    (joined,) = joined_outputs(two_levels())
    parts = joined.labels.reshape(2 * ANCHORS, 4 + CLASSES)
    assert [sorted(set(row)) for row in parts.tolist()] == [[0, 2]] * ANCHORS + [[1, 3]] * ANCHORS
    assert (parts[:ANCHORS, :4] == 0).all()
    assert (parts[ANCHORS:, 4:] == 3).all()
    assert joined.is_joined
    assert [name for name, _ in joined.layers] == [
        "net/all_boxes/concat",
        "net/all_scores/concat",
        "net/detections/concat",
        "net/flat/Reshape",
    ]


def test_only_what_gives_parts_of_different_ranges_one_scale_gets_a_rule():
    (shared,) = find_shared_scales(graph(two_levels()), recipe())
    assert shared.layers == ("detections", "flat")
    assert shared.rules == tuple(
        LayerRule(pattern=name, precision="float32") for name in shared.layers
    )
    boxes, scores = shared.parts
    assert boxes.span[1] > 200
    assert 0 <= scores.span[0] < scores.span[1] <= 1
    assert scores.snr_db < 6
    assert scores.own_snr_db > 30


@pytest.mark.parametrize(
    ("model", "layer", "precision"),
    [(joined_head(), "detections", "float32"), (one_layer(), "out", "int16x8")],
    ids=["joined", "channels of one layer"],
)
def test_each_part_gets_its_own_scale_by_the_cheapest_rule(model, layer, precision):
    calibrated = graph(model)
    found = find_shared_scales(calibrated, recipe())
    with_rules, (shared,) = with_own_scales(recipe(), found)
    assert shared.applied
    assert with_rules.layers == (LayerRule(pattern=layer, precision=precision),)
    large, small = shared.parts
    assert small.snr_db < 6
    assert small.own_snr_db > 30
    assert large.own_snr_db > large.snr_db - 1
    # What has the rule is not found again, and methods that were named get no rule.
    assert find_shared_scales(calibrated, with_rules) == ()
    plain = recipe(methods="none")
    assert with_own_scales(plain, found) == (plain, found)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (joined_head(width=0.1), "int8"),
        (separate_outputs(), "int8"),
        (joined_head(), "int16x8"),
        (joined_head(), "dynamic"),
        (one_layer((1.0, 0.7, 0.4, 0.25, 0.15, 0.1)), "int8"),
        (one_layer((1.0, 1.0, 0.01, 1.0, 0.01, 1.0)), "int8"),
    ],
    ids=["similar ranges", "outputs", "16 bits", "float", "gradual", "dead channels"],
)
def test_what_loses_nothing_is_not_found(model, name):
    assert find_shared_scales(graph(model), recipe(name)) == ()


def test_the_error_of_a_small_part_does_not_hide_in_that_of_the_whole_output():
    calibrated = graph(joined_head())
    trials = QuantizeTrials(calibrated, calibrated.feeds)
    whole = outputs_of(calibrated.model, calibrated.feeds, threads=1)[KEY, "detections"]
    (boxes, scores) = trials.expected.values()
    np.testing.assert_array_equal(np.concatenate([boxes, scores], axis=-1), whole)
    assert all(name.startswith("detections (") for _, name in trials.expected)
    trial = trials.run(recipe(), MethodSettings("minmax", ()))
    assert trial.snr_db < 6


@pytest.mark.parametrize("layers", [(), (LayerRule(pattern="*", precision="int4"),)])
def test_weights_of_4_bits_do_not_hide_what_a_shared_scale_costs(layers):
    eight, four = (
        find_shared_scales(graph(two_levels()), recipe(name, **more))
        for name, more in (("int8", {}), ("int8x4", {"layers": layers}))
    )
    assert eight[0].rules
    assert four == eight


def test_an_integer_output_has_one_scale_and_no_rule():
    (shared,) = find_shared_scales(graph(joined_head()), recipe(output_type="int8"))
    assert shared.rules == ()
    assert shared.parts[1].own_snr_db is None


def test_a_model_whose_shapes_do_not_fit_is_left_alone():
    head = Head()
    y = head.join("net/y", [head.features, head.features], (1, 7), 1)
    assert joined_outputs(head.packed(y)) == ()
    head = Head()
    y = head.join("net/y", [head.features, head.features], (1, 48), 9)
    assert joined_outputs(head.packed(y)) == ()
    head = Head()
    y = head.join("net/y", [head.features, head.x], (1, 40), 1)
    head.operators[-1].builtinOptions = None
    head.operators[-1].builtinOptionsType = 0
    assert joined_outputs(head.packed(y)) == ()


def test_a_file_that_joins_nothing_many_times_over_does_not_take_long():
    head = Head()
    y = head.output("net/nothing", (1, 0))
    head.operator("RELU", [head.x], [y])
    for level in range(60):
        y = head.join(f"net/{level}", [y, y], (1, 0), 1)
    assert joined_outputs(head.packed(y)) == ()


@pytest.fixture(scope="module")
def conversions(tmp_path_factory) -> dict[str, Conversion]:
    folder = tmp_path_factory.mktemp("detector")
    (folder / "ssd.tflite").write_bytes(joined_head())
    np.savez(folder / "samples.npz", x=samples(120))
    return {
        methods: convert(
            folder / "ssd.tflite",
            out=folder / methods,
            to=[recipe(methods=methods)],
            calibration=str(folder / "samples.npz"),
        )
        for methods in ("none", "auto")
    }


def of_parts(conversion: Conversion) -> list[float]:
    """The signal-to-noise ratios of boxes and scores on fresh samples, in decibels."""
    (artifact,) = conversion.artifacts
    file = Path(conversion.directory, artifact.file).read_bytes()
    feeds = {KEY: Feed({"x": samples(100, seed=7)}, 1)}
    want, have = (
        outputs_of(model, feeds, threads=1)[KEY, "detections"] for model in (joined_head(), file)
    )
    error = have - want
    return [
        float(10 * np.log10(np.var(want[..., part]) / np.mean(error[..., part] ** 2)))
        for part in (slice(4), slice(4, None))
    ]


def test_auto_publishes_a_detector_whose_scores_are_those_of_the_float_model(conversions):
    (boxes, scores), (own_boxes, own_scores) = map(of_parts, conversions.values())
    assert scores < 6 < 30 < own_scores
    assert own_boxes > boxes - 1
    (plain,), (auto,) = (each.artifacts for each in conversions.values())
    assert [each.shared_scales[0].applied for each in (plain, auto)] == [False, True]
    assert auto.shared_scales[0].rules == (LayerRule(pattern="detections", precision="float32"),)
    assert auto.recipe.layers == ()
    assert auto.size_bytes < plain.size_bytes + 1000


def test_the_table_says_in_one_line_what_shares_a_scale_and_which_rule_helps(conversions):
    plain, auto = (
        next(line.strip() for line in text_of(each, verbose=True).splitlines() if "--layer" in line)
        for each in conversions.values()
    )
    assert "share one scale, SNR" in plain
    assert "; --layer detections=float32 gives each its own, SNR" in plain
    assert auto.startswith("detections: --layer detections=float32 gives each its own, SNR")


def test_a_file_whose_tensors_have_no_names_is_converted_and_its_layers_are_named(tmp_path):
    nameless = parse(joined_head(), where="it")
    for tensor in nameless.subgraphs[0].tensors:
        tensor.name = ""
    (tmp_path / "ssd.tflite").write_bytes(serialize(nameless))
    np.savez(tmp_path / "samples.npz", x=samples(120))
    source = str(tmp_path / "samples.npz")
    conversion = convert(
        tmp_path / "ssd.tflite", out=tmp_path / "out", to=[recipe()], calibration=source
    )
    (artifact,) = conversion.artifacts
    assert artifact.shared_scales[0].rules == (
        LayerRule(pattern="concatenation", precision="float32"),
    )
    assert any("no name, or the same one" in note for note in artifact.notes)


def test_a_manifest_without_the_field_is_read(conversions):
    (artifact,) = conversions["none"].artifacts
    old = msgspec.to_builtins(artifact)
    del old["shared_scales"]
    assert msgspec.convert(old, Artifact).shared_scales == ()
    assert all(isinstance(each, SharedScale) for each in artifact.shared_scales)
