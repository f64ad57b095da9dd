"""`convert` on real models: what comes out is what was asked for, and computes what it should."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import captured
from edge_models import (
    Lite,
    Made,
    declared_release,
    images,
    invoked,
    only,
    operators,
    weight_elements,
)
from sources import split_taken

from edgeconv.data import Samples
from edgeconv.model.tflite import with_needs_declared
from edgeconv.system.store import read_noun, sha256_file, sha256_tree
from edgeconv.tf.convert import FloatJob
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types import RECIPE_NAMES, Artifact, RecipeName

SOURCES = {
    "legacy": "legacy",
    "legacy.h5": "legacy",
    "legacy.keras": "legacy",
    "modern": "modern",
    "modern.h5": "modern",
    "modern.keras": "modern",
    "by_hand/float32.tflite": "legacy",
}
# The largest error of a probability, by recipe: float32 and float16 rounding, then 8 bits.
TOLERANCES: dict[RecipeName, float] = {
    "float32": 1e-6,
    "float16": 2e-3,
    "dynamic": 0.05,
    "weight-only-int8": 0.05,
    "int8": 0.08,
    "int16x8": 0.05,
}


@pytest.fixture(params=SOURCES)
def made(request, workshop) -> Made:
    return workshop.convert(request.param)


@pytest.fixture
def legacy(workshop) -> Made:
    return workshop.convert("legacy")


@pytest.fixture
def held_back() -> np.ndarray:
    return split_taken(Samples({"image": images()}, None, ""), None)[1].arrays["image"]


def test_every_kind_of_source_gives_all_six_recipes_from_the_first_engine(made):
    assert made.conversion.failures == ()
    assert tuple(a.recipe.name for a in made.conversion.artifacts) == RECIPE_NAMES
    assert {a.engine for a in made.conversion.artifacts} == {"litert"}
    files = {path.name for path in made.directory.iterdir()}
    stems = {Path(a.file).stem for a in made.conversion.artifacts}
    assert files == {f"{s}{e}" for s in stems for e in (".tflite", ".json")} | {".edgeconv.lock"}


@pytest.mark.parametrize("source", SOURCES)
def test_every_artifact_answers_as_the_trained_model_does(source, workshop, zoo):
    made = workshop.convert(source)
    trained = np.load(zoo / "outputs" / f"{SOURCES[source]}.npy")
    for recipe, tolerance in TOLERANCES.items():
        answers = only(Lite(made.file(recipe)).run(image=images()))
        assert np.abs(answers - trained).max() <= tolerance, recipe
        assert np.mean(answers.argmax(1) == trained.argmax(1)) >= 0.95, recipe


def test_the_float32_model_is_byte_for_byte_what_the_public_converter_makes_inside(legacy, zoo):
    assert (
        legacy.file("float32").read_bytes() == (zoo / "by_hand" / "float32_raw.tflite").read_bytes()
    )


def test_the_float32_model_has_the_operators_and_answers_of_the_public_converters(legacy, zoo):
    by_hand = zoo / "by_hand" / "float32.tflite"
    assert operators(legacy.file("float32")) == operators(by_hand)
    ours, theirs = (only(Lite(f).run(image=images())) for f in (legacy.file("float32"), by_hand))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_the_manifest_on_disk_is_what_convert_returned(made):
    for artifact in made.conversion.artifacts:
        manifest = (made.directory / artifact.file).with_suffix(".json")
        assert read_noun(manifest, Artifact, what="manifest") == artifact


def test_the_manifest_has_the_hashes_of_the_source_and_of_the_file(made, zoo, request):
    source = zoo / request.node.callspec.params["made"]
    expected = sha256_tree(source) if source.is_dir() else sha256_file(source)
    for artifact in made.conversion.artifacts:
        file = made.directory / artifact.file
        assert artifact.sha256 == sha256_file(file)
        assert artifact.size_bytes == file.stat().st_size
        assert (artifact.source_sha256, artifact.source_path) == (expected, source.name)


def test_the_manifest_has_the_operators_that_are_in_the_file(made):
    for artifact in made.conversion.artifacts:
        listed = {(o.name, o.version): o.count for o in artifact.operators}
        assert listed == dict(operators(made.directory / artifact.file)), artifact.recipe.name


def declares_what_it_needs(made: Made, artifact: Artifact) -> bool:
    """Whether the file has the manifest's release, and its operators the versions they need."""
    oldest = artifact.oldest_runtime
    assert oldest.version
    assert all(need.declared == need.version for need in oldest.operators)
    return declared_release(made.directory / artifact.file) == oldest.version


def test_an_older_runtime_refuses_what_it_cannot_run(made):
    assert all(declares_what_it_needs(made, each) for each in made.conversion.artifacts)
    assert made["dynamic"].oldest_runtime != made["float32"].oldest_runtime


@pytest.mark.slow
def test_so_it_does_what_the_second_engine_made(workshop):
    made = workshop.convert(
        "legacy", "float16,dynamic,int8,int16x8", engine="tflite", methods=["none"]
    )
    assert {each.engine for each in made.conversion.artifacts} == {"tflite"}
    assert all(declares_what_it_needs(made, each) for each in made.conversion.artifacts)


@pytest.mark.parametrize("io", [("float32", "float32"), ("int8", "int8"), ("int8", "uint8")])
def test_the_manifest_has_the_tensors_as_the_interpreter_reports_them(io, workshop):
    made = workshop.convert("legacy", "int8", input_type=io[0], output_type=io[1])
    lite, signature = Lite(made.file("int8")), made["int8"].signature
    for specs, details in ((signature.inputs, lite.inputs), (signature.outputs, lite.outputs)):
        assert {spec.name for spec in specs} == details.keys()
        for spec in specs:
            found = details[spec.name]
            assert spec.dtype == np.dtype(found["dtype"]).name
            assert list(spec.shape) == list(found["shape_signature"])
            np.testing.assert_array_equal(
                spec.scale, found["quantization_parameters"]["scales"].astype(float)
            )
            assert list(spec.zero_point) == list(found["quantization_parameters"]["zero_points"])


@pytest.mark.parametrize("recipe", ["float32", "dynamic", "weight-only-int8", "int8"])
def test_the_manifest_has_the_share_of_weights_that_is_really_quantised(recipe, legacy):
    counts = weight_elements(legacy.file(recipe))
    share = counts["int8"] / counts.total()
    assert legacy[recipe].quantized_weight_share == pytest.approx(share, rel=1e-6)


def test_the_manifest_has_the_error_on_the_samples_that_were_held_back(legacy, held_back):
    ours = only(Lite(legacy.file("int8")).run(image=held_back))
    reference = only(Lite(legacy.file("float32")).run(image=held_back)).astype(np.float64)
    error = ours - reference
    (stated,) = legacy["int8"].verification.outputs
    assert legacy["int8"].verification.samples == len(held_back)
    assert stated.max_abs_error == pytest.approx(np.abs(error).max(), rel=1e-3)
    assert stated.snr_db == pytest.approx(
        10 * np.log10(reference.var() / (error**2).mean()), abs=0.1
    )
    assert legacy["float32"].verification.reference == "trained model in TensorFlow"
    assert legacy["int8"].verification.reference == "float32 .tflite"
    assert legacy["int8"].verification.runtime.startswith("ai_edge_litert ")


def test_the_manifest_says_which_samples_calibrated(legacy, zoo):
    (record,) = legacy["int8"].calibration
    assert (record.source, record.samples) == (str(zoo / "images.npz"), 35)
    assert record.range == "minmax"
    # Its methods are chosen with them.
    assert [each.sha256 for each in legacy["dynamic"].calibration] == [record.sha256]
    assert legacy["float32"].calibration == ()


@pytest.mark.parametrize(
    ("recipe", "io"),
    [
        ("int8", ("int8", "int8")),
        ("int8", ("uint8", "uint8")),
        ("int8", ("int8", "uint8")),
        ("int8", ("float32", "int8")),
        ("int16x8", ("int16", "float32")),
        ("int16x8", ("int16", "int16")),
    ],
)
def test_inputs_and_outputs_have_the_types_that_were_asked_for_and_compute_the_same(
    recipe, io, workshop, legacy
):
    made = workshop.convert("legacy", recipe, input_type=io[0], output_type=io[1])
    lite = Lite(made.file(recipe))
    (taken,), (given,) = lite.inputs.values(), lite.outputs.values()
    assert (np.dtype(taken["dtype"]).name, np.dtype(given["dtype"]).name) == io
    with_float = only(Lite(legacy.file(recipe)).run(image=images()))
    np.testing.assert_allclose(only(lite.run(image=images())), with_float, rtol=0, atol=1e-6)


def test_nothing_but_the_ends_of_an_integer_model_is_float(made):
    for recipe in ("int8", "int16x8"):
        assert made[recipe].float_operators == ()
        counts = operators(made.file(recipe))
        bridges = {name: n for (name, _), n in counts.items() if name in ("QUANTIZE", "DEQUANTIZE")}
        assert bridges == {"QUANTIZE": 1, "DEQUANTIZE": 1}


def test_one_of_several_signatures_is_converted_by_its_name(workshop):
    made = workshop.convert("many", "float32", calibration=None, signature="double")
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(Lite(made.file("float32")).run(x=rows)["y"], 2 * rows)
    assert made["float32"].signature.key == "double"


def test_of_numbered_versions_the_highest_is_converted_under_the_parents_name(workshop, zoo):
    artifact = workshop.convert("versions", "float32", calibration=None)["float32"]
    assert artifact.source_path == "10"
    assert artifact.file == "versions.float32.tflite"
    assert "version 10 of 1, 2, 10" in artifact.notes


@pytest.mark.parametrize("source", ["modern", "modern.keras", "legacy.h5"])
def test_batch_fixes_the_leading_dimension(source, workshop, zoo):
    made = workshop.convert(source, "float32,int8", batch=4)
    trained = np.load(zoo / "outputs" / f"{SOURCES[source]}.npy")
    for recipe, tolerance in (("float32", 1e-6), ("int8", TOLERANCES["int8"])):
        lite = Lite(made.file(recipe))
        assert list(lite.inputs["image"]["shape_signature"]) == [4, 8, 8, 1]
        answers = only(lite.runner(image=images()[:4]))
        assert np.abs(answers - trained[:4]).max() <= tolerance
    assert "changed before conversion: batch fixed to 4" in made["int8"].notes


def test_a_model_with_a_fixed_batch_is_verified_in_whole_batches(workshop):
    made = workshop.convert("fixed", "all", calibration="rows.npz")
    assert made.conversion.failures == ()
    assert {a.verification.samples for a in made.conversion.artifacts} == {3}
    assert {a.signature.inputs[0].shape for a in made.conversion.artifacts} == {(3, 4)}


def test_a_model_of_two_inputs_and_two_outputs_is_calibrated_and_judged_by_name(workshop, zoo):
    made = workshop.convert("two_inputs", calibration="pairs.npz")
    assert made.conversion.failures == ()
    pairs = dict(np.load(zoo / "pairs.npz"))
    exact = Lite(made.file("float32")).run(**pairs)
    assert len(exact) == 2
    for name, values in Lite(made.file("int8")).run(**pairs).items():
        assert np.abs(values - exact[name]).max() < 0.2 * exact[name].std()
    stated = made["int8"].verification.outputs
    assert {error.output for error in stated} == exact.keys()


def test_token_ids_stay_integers_in_every_recipe(workshop, zoo):
    made = workshop.convert("embedding", calibration="tokens.npz")
    assert made.conversion.failures == ()
    tokens = np.load(zoo / "tokens.npz")["tokens"]
    exact = only(Lite(made.file("float32")).run(tokens=tokens))
    for recipe in RECIPE_NAMES:
        lite = Lite(made.file(recipe))
        assert lite.inputs["tokens"]["dtype"] is np.int32
        assert np.abs(only(lite.run(tokens=tokens)) - exact).max() < 0.1 * np.abs(exact).max()


@pytest.mark.parametrize("source", ["lstm", "lstm.keras"])
def test_a_recurrent_model_is_converted_at_a_fixed_batch(source, workshop):
    made = workshop.convert(source, "float32,dynamic", calibration="steps.npz", batch=1)
    assert made.conversion.failures == ()
    assert made["float32"].verification.outputs[0].snr_db > 100


@pytest.mark.parametrize("source", ["lstm", "lstm.keras"])
def test_a_recurrent_model_keeps_no_state_between_invokes(source, workshop, zoo):
    made = workshop.convert(source, "float32,dynamic,int8", calibration="steps.npz", batch=1)
    assert made.conversion.failures == ()
    sample = next(iter(np.load(zoo / "steps.npz").values()))[:1]
    for recipe in ("float32", "dynamic", "int8"):
        assert not any("keeps its state" in w for w in made[recipe].verification.warnings)
        first, second = invoked(made.file(recipe), np.concatenate([sample, sample]))
        np.testing.assert_array_equal(first, second)


def test_a_fused_recurrent_layer_is_said_to_keep_its_state(workshop):
    made = workshop.convert(
        "lstm", "float32,dynamic", calibration="steps.npz", batch=1, fuse_lstm=True
    )
    (warning,) = made["float32"].verification.warnings
    assert warning.startswith("UNIDIRECTIONAL_SEQUENCE_LSTM keeps its state between invokes")


@pytest.mark.slow
def test_what_the_first_engine_leaves_in_float_the_second_makes_and_that_is_said(workshop):
    made = workshop.convert("lstm", "int8", calibration="steps.npz", batch=1, fuse_lstm=True)
    artifact = made["int8"]
    assert artifact.engine == "tflite"
    assert artifact.float_operators == ()
    assert [(step.attempt, step.failed) for step in artifact.ladder] == [
        (
            "batch fixed to 1",
            "int8: these operators compute in float: UNIDIRECTIONAL_SEQUENCE_LSTM",
        ),
        ("batch fixed to 1, quantized with TFLiteConverter", ""),
    ]


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param("float16", marks=pytest.mark.slow),
        pytest.param("dynamic", marks=pytest.mark.slow),
        "int8",
    ],
)
def test_the_second_engine_gives_the_bytes_of_a_hand_written_script(recipe, workshop, zoo):
    io = {"input_type": "int8", "output_type": "uint8"} if recipe == "int8" else {}
    made = workshop.convert("legacy", recipe, engine="tflite", **io)
    assert made[recipe].engine == "tflite"
    by_hand = zoo / "by_hand" / f"{recipe}.tflite"
    assert made.file(recipe).read_bytes() == with_needs_declared(by_hand.read_bytes())


def test_the_second_engine_has_no_weight_only_recipe_and_says_so(workshop):
    made = workshop.convert(
        "many", "float32,weight-only-int8", calibration=None, signature="project", engine="tflite"
    )
    assert [failure.recipe for failure in made.conversion.failures] == ["weight-only-int8"]
    assert "has no weight-only-int8" in made.conversion.failures[0].message
    assert [a.recipe.name for a in made.conversion.artifacts] == ["float32"]


@pytest.mark.slow
def test_an_integer_model_of_integer_ends_with_an_operator_in_float_is_refused_by_its_name(
    workshop,
):
    made = workshop.convert("sine", "int8", input_type="int8", output_type="int8")
    (failure,) = made.conversion.failures
    assert (failure.recipe, failure.error) == ("int8", "VerificationFailed")
    assert "these operators compute in float: SIN" in failure.message
    assert "leave out --io" in failure.hint
    assert not list(made.directory.glob("*int8*"))


@pytest.mark.slow
def test_an_operator_that_only_a_float_kernel_computes_stays_so_and_is_named(workshop):
    made = workshop.convert("sine", "int8")
    assert made.conversion.failures == ()
    assert made["int8"].float_operators == ("SIN",)
    assert made["int8"].quantized_weight_share == 1
    (left,) = made["int8"].left_in_float
    assert (left.name, left.count, left.reason) == ("SIN", 1, "no kernel")
    assert 0 < made["int8"].integer_share < 1
    refused = workshop.convert("sine", "int8", full_integer=True)
    assert "--full-integer" in refused.conversion.failures[0].hint


def test_without_samples_the_verification_says_that_it_made_them_up(workshop):
    made = workshop.convert(
        "weightless", "float32,float16,dynamic,weight-only-int8", calibration=None
    )
    assert made["float32"].verification.synthetic
    assert not workshop.convert("legacy")["float32"].verification.synthetic


def test_the_moving_average_gives_other_scales_than_minima_and_maxima(workshop):
    minmax = workshop.convert("legacy", "int8", input_type="int8", output_type="int8")["int8"]
    ema = workshop.convert(
        "legacy", "int8", input_type="int8", output_type="int8", calibration_range="ema"
    )["int8"]
    scale_of = {a.calibration[0].range: a.signature.inputs[0].scale[0] for a in (minmax, ema)}
    assert scale_of["minmax"] == pytest.approx(1 / 255, rel=1e-4)
    assert scale_of["ema"] < 0.98 * scale_of["minmax"]


def test_an_unchanged_saved_model_is_converted_without_the_rest_of_tensorflow(zoo, tmp_path):
    """It takes four times as long with it, and nothing else would notice."""
    job = FloatJob(
        path=str(zoo / "legacy"),
        kind="saved_model",
        signatures=("serving_default",),
        fixed=FixedShapes(),
        unroll=False,
        select_ops=False,
        target=str(tmp_path / "float.tflite"),
        exported=str(tmp_path / "exported"),
        rewritten=str(tmp_path / "rewritten"),
    )
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(job))
    program = (
        "import sys, msgspec\n"
        "from edgeconv.tf.convert import FloatJob, to_float\n"
        "to_float(msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=FloatJob))\n"
        "print('keras' in sys.modules, hasattr(sys.modules['tensorflow'], 'keras'))\n"
    )
    done = captured([sys.executable, "-c", program, tmp_path / "job.json"])
    assert done.stdout.split() == ["False", "False"], done.stderr[-2000:]
    assert (tmp_path / "float.tflite").stat().st_size > 1000
