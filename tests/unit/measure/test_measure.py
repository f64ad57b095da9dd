"""Accuracy, percentiles, and what is found to measure."""

import contextlib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_example import accuracy, artifact, baseline, measurement, qat, training
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import fails

from edgeconv import bench
from edgeconv.conversion.states import state_notes
from edgeconv.data import Samples
from edgeconv.measure.bench import (
    accuracy_warnings,
    compared,
    range_warnings,
    training_data_warnings,
    with_baseline,
)
from edgeconv.measure.metrics.scoring import flips, top1
from edgeconv.measure.model_files import find_baseline, find_model_files, record_of
from edgeconv.measure.timing import make_latency, refuse_other_inputs
from edgeconv.statistics.comparison import paired_difference
from edgeconv.system.store import sha256_file
from edgeconv.types import (
    Accuracy,
    Artifact,
    CalibrationRecord,
    InputRange,
    Measurement,
    Measuring,
    RecipeName,
    Report,
    Signature,
    SourceModel,
    TensorSpec,
    Timing,
)
from edgeconv.types.errors import InputRefused, UsageError

QUICK = Measuring(rounds=2, timing=Timing(warmup=1, repeats=5, seconds=1.0))
SIGNATURE = ("serving_default", ["x"], ["y"])


def scores_for(classes: list[int], width: int) -> np.ndarray:
    return np.eye(width, dtype=np.float32)[classes]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_top1_is_the_share_of_samples_whose_best_class_is_the_label(pairs):
    labels = np.array([label for label, _ in pairs])
    answer = top1({"y": scores_for([said for _, said in pairs], 5)}, labels, None)
    right = [label == said for label, said in pairs]
    assert answer.correct == "".join("01"[r] for r in right)
    assert answer.value == pytest.approx(sum(right) / len(right))
    assert answer.samples == len(pairs)


def test_a_score_that_is_not_finite_is_a_wrong_answer():
    scores = scores_for([1, 2], 3)
    scores[0, 0] = np.nan
    assert top1({"y": scores}, np.array([1, 2]), None).correct == "01"


def test_labels_beyond_the_classes_and_outputs_that_are_no_scores_are_refused():
    with fails(InputRefused):
        top1({"y": scores_for([0], 3)}, np.array([3]), None)
    with fails(InputRefused):
        top1({"y": np.zeros((2, 3, 4), np.float32)}, np.array([0, 1]), None)
    with fails(InputRefused):
        top1({"y": scores_for([0], 3)}, np.array([0, 1]), None)


def test_of_several_outputs_one_must_be_named():
    outputs = {"age": scores_for([0], 3), "sex": scores_for([1], 2)}
    with fails(UsageError):
        top1(outputs, np.array([1]), None)
    with fails(UsageError):
        top1(outputs, np.array([1]), "sexx")
    assert top1(outputs, np.array([1]), "sex").value == 1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=50))
def test_fixed_less_broken_is_the_change_in_right_answers(pairs):
    labels = np.zeros(len(pairs), np.int64)
    before, after = (
        top1({"y": scores_for([0 if p[i] else 1 for p in pairs], 2)}, labels, None) for i in (0, 1)
    )
    fixed, broken = flips(before, after)
    assert fixed - broken == after.correct.count("1") - before.correct.count("1")
    assert flips(before, before) == (0, 0)


def publish(directory: Path, recipe: RecipeName = "int8", content: bytes | None = None) -> Path:
    """A tiny model with a manifest, as `convert` would publish it."""
    directory.mkdir(exist_ok=True)
    make = float_model if recipe == "float32" else int8_model
    file = directory / f"tiny.{recipe}.tflite"
    file.write_bytes(content or packed(make(signature=SIGNATURE)))
    manifest = msgspec.structs.replace(
        artifact(recipe), name="tiny", file=file.name, sha256=sha256_file(file)
    )
    file.with_suffix(".json").write_bytes(msgspec.json.encode(manifest))
    return file


def test_a_published_directory_is_found_whole_and_in_the_order_of_the_recipes(tmp_path):
    for recipe in ("qat", "int8", "float32"):
        publish(tmp_path, recipe)
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")
    names = [subject.name for subject in find_model_files([tmp_path], None)]
    assert names == ["float32", "int8", "qat"]


def test_a_file_that_changed_since_its_manifest_is_refused(tmp_path):
    file = publish(tmp_path)
    file.write_bytes(packed(float_model(signature=SIGNATURE)))
    with fails(InputRefused):
        find_model_files([file], None)


def test_what_is_no_tflite_and_a_directory_without_any_are_refused(tmp_path):
    with fails(InputRefused):
        find_model_files([tmp_path], None)
    with fails(InputRefused):
        find_model_files([tmp_path / "gone.tflite"], None)


def test_equal_recipes_of_several_directories_are_told_apart_by_as_little_as_does(tmp_path):
    for place in ("old/run", "new/run", "c"):
        (tmp_path / place).mkdir(parents=True)
        publish(tmp_path / place)
        publish(tmp_path / place, "float32")

    def names(*places: str) -> list[str]:
        return [one.name for one in find_model_files([tmp_path / each for each in places], None)]

    assert names("c") == ["float32", "int8"]
    assert names("c", "new/run") == ["c/float32", "c/int8", "run/float32", "run/int8"]
    files = ("old/run/tiny.int8.tflite", "new/run/tiny.int8.tflite", "c/tiny.float32.tflite")
    assert names(*files) == ["old/run/int8", "new/run/int8", "c/float32"]
    for file in tmp_path.rglob("*.json"):
        file.unlink()
    assert names("c", "new/run") == [
        *("c/tiny.float32", "c/tiny.int8"),
        *("run/tiny.float32", "run/tiny.int8"),
    ]


def test_copies_of_a_model_in_one_directory_are_told_apart_by_their_files(tmp_path):
    file = publish(tmp_path)
    copy = tmp_path / "copy.tflite"
    copy.write_bytes(file.read_bytes())
    manifest = msgspec.json.decode(file.with_suffix(".json").read_bytes())
    copy.with_suffix(".json").write_bytes(msgspec.json.encode(manifest | {"file": copy.name}))
    assert [one.name for one in find_model_files([file, copy], None)] == ["tiny.int8", "copy"]
    with fails(UsageError):
        find_model_files([file, tmp_path / "." / file.name], None)


def test_a_time_is_beside_that_of_the_float32_file_of_its_own_directory():
    def row(name: str, group: str, recipe: RecipeName, p50_us: float) -> Measurement:
        latency = make_latency(((p50_us,),), load_us=(1.0,), first_us=(1.0,), threads=1, batch=1)
        return Measurement(
            name=name,
            role="artifact",
            runtime="litert 2",
            sha256="",
            size_bytes=1,
            recipe=recipe,
            group=group,
            latency=latency,
        )

    rows = [
        row("a/float32", "a", "float32", 100.0),
        row("b/float32", "b", "float32", 10.0),
        row("b/int8", "b", "int8", 5.0),
        row("c/int8", "c", "int8", 50.0),
    ]
    assert [with_baseline(one, None, rows).latency_ratio for one in rows] == [1.0, 1.0, 0.5, 0.5]


def test_a_baseline_that_is_gone_is_a_note_and_not_an_error(tmp_path):
    publish(tmp_path)
    model, notes = find_baseline(find_model_files([tmp_path], None), None)
    assert model is None
    assert "is not there" in notes[0]


def test_bench_measures_every_model_in_every_round(tmp_path):
    publish(tmp_path, "float32")
    publish(tmp_path, "int8")
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(12, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=samples, labels=rng.integers(0, 3, 12))
    report = bench([tmp_path], data=str(tmp_path / "data.npz"), measuring=QUICK)
    floating, integer = report.measurements
    for row in (floating, integer):
        assert row.error == ""
        assert [len(one) for one in row.latency.rounds_us] == [5, 5]
        assert row.accuracy.samples == 12
        assert row.peak_memory_bytes is not None
    assert floating.latency_ratio == 1.0
    assert report.baseline is None
    assert report.data.samples == 12


def test_every_accuracy_is_held_against_the_baseline_sample_by_sample(tmp_path):
    for recipe in ("float32", "int8", "qat"):
        publish(tmp_path / "made", recipe)
    trained = tmp_path / "trained.tflite"
    trained.write_bytes(packed(float_model(signature=SIGNATURE)))
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(40, 4)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=samples, labels=rng.integers(0, 3, 40))
    report = bench(
        [tmp_path / "made"],
        data=str(tmp_path / "data.npz"),
        preprocess="none",
        baseline=trained,
        measuring=QUICK,
    )
    floating, plain, trained_on = report.measurements
    for row in report.measurements:
        drop, *interval = paired_difference(report.baseline.accuracy.correct, row.accuracy.correct)
        assert row.accuracy_drop == drop
        # The float32 file is the very baseline.
        expected = (0.0, 0.0) if row is floating else tuple(interval)
        assert row.accuracy_drop_interval == expected
        assert drop == pytest.approx(report.baseline.accuracy.value - row.accuracy.value)
    assert floating.accuracy_drop == 0.0
    (comparison,) = report.comparisons
    assert (comparison.model, comparison.other) == ("qat", "int8")
    assert plain.accuracy == trained_on.accuracy
    assert (comparison.difference, comparison.fixed, comparison.broken) == (0.0, 0, 0)
    assert comparison.interval[0] == -comparison.interval[1] < 0
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


def test_what_has_no_accuracy_has_no_drop_and_no_interval():
    row = msgspec.structs.replace(
        measurement("int8"), accuracy=None, accuracy_drop=None, accuracy_drop_interval=None,
        fixed=None, broken=None,
    )  # fmt: skip
    made = with_baseline(row, baseline(), ())
    assert made.size_ratio == row.size_bytes / baseline().size_bytes
    assert made.accuracy_drop is made.accuracy_drop_interval is made.fixed is None
    alone = with_baseline(measurement("int8"), None, (measurement("float32"),))
    assert alone.latency_ratio is not None


def test_quantisation_aware_training_is_compared_with_the_int8_of_its_own_model():
    def named(name: str, recipe: RecipeName) -> tuple[Measurement, Artifact]:
        made = msgspec.structs.replace(measurement(recipe), name=f"{name}.{recipe}")
        return made, msgspec.structs.replace(artifact(recipe), name=name)

    both = [named("a", "int8"), named("b", "int8"), named("b", "qat"), named("c", "qat")]
    rows, artifacts = zip(*both, strict=True)
    (comparison,) = compared(rows, artifacts)
    assert (comparison.model, comparison.other) == ("b.qat", "b.int8")
    # The example's baseline is right in 352: int8 lost three and won one, qat lost one and won two.
    assert (comparison.fixed, comparison.broken) == (3, 0)
    assert comparison.difference == 3 / 360
    assert compared(rows, [None] * 4) == ()
    unmeasured = [msgspec.structs.replace(row, accuracy=None) for row in rows]
    assert compared(unmeasured, artifacts) == ()


def test_an_artifact_measured_on_what_it_was_trained_on_is_doubted():
    trained = artifact("qat")
    (doubt,) = training_data_warnings((artifact("int8"), trained), qat().source)
    assert doubt.startswith("qat was trained on sklearn:digits, the samples it is measured on")
    assert training_data_warnings((trained,), "other.npz") == ()


@pytest.mark.parametrize(
    ("high", "offset", "is_other"),
    [
        (1, 0, False),
        (2, 0.5, False),
        (255, 0, True),
        (1, 9, True),
        # -1 to 1 for 0 to 1; a few values below zero are nothing.
        (2, -1, True),
        (2, -0.2, False),
    ],
)
def test_an_evaluation_set_in_another_scale_than_the_calibration_set_is_named(
    high, offset, is_other
):
    image = InputRange(name="image", low=0, high=1, mean=0.4, deviation=0.3)
    made = artifact("int8")
    record = CalibrationRecord(
        signature="s", source="train.npz", samples=9, sha256="", range="minmax", inputs=(image,)
    )
    calibrated = msgspec.structs.replace(made, calibration=(record,))
    measured = InputRange(
        name="image", low=offset, high=high + offset, mean=0.4 * high + offset, deviation=0.3 * high
    )
    warnings = range_warnings((calibrated, calibrated), [measured])
    assert len(warnings) == is_other
    assert all("int8 was calibrated on samples at a different scale" in each for each in warnings)
    # Old manifests have no ranges, and other inputs are not compared.
    old = msgspec.structs.replace(record, inputs=())
    before = msgspec.structs.replace(made, calibration=(old,))
    assert range_warnings((before,), [measured]) == ()
    renamed = msgspec.structs.replace(measured, name="other")
    assert range_warnings((calibrated,), [renamed]) == ()


@pytest.mark.parametrize("name", ["accuracy", "sparse_categorical_accuracy"])
def test_a_model_far_below_its_training_record_is_doubted(name):
    labels = np.arange(360) % 10
    record = msgspec.structs.replace(training(), test_metrics={"loss": 0.1, name: 0.97})
    far = msgspec.structs.replace(baseline(), accuracy=accuracy(0, 60))
    (doubt,) = accuracy_warnings(far, labels, record)
    assert "has 0.811 here and 0.970 in its record" in doubt
    assert accuracy_warnings(baseline(), labels, record) == ()
    other = msgspec.structs.replace(record, test_metrics={"masked_accuracy": 0.97})
    assert accuracy_warnings(far, labels, other) == ()


@pytest.mark.parametrize(("value", "image", "table"), [(0.7, 1, 1), (0.8, 1, 0), (0.9, 0, 0)])
def test_a_model_near_chance_is_doubted_but_of_a_table_only_one_that_guesses(value, image, table):
    labels = np.arange(400) % 4 == 0
    weak = msgspec.structs.replace(baseline(), accuracy=Accuracy(value=value, samples=400))
    assert len(accuracy_warnings(weak, labels, None)) == image
    assert len(accuracy_warnings(weak, labels, None, is_table=True)) == table


def test_samples_are_preprocessed_as_the_manifests_say_unless_told_otherwise(tmp_path):
    publish(tmp_path, "float32")
    samples = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    source = str(tmp_path / "data.npz")
    np.savez(source, x=samples)
    declared = bench([tmp_path], data=source, measuring=QUICK)
    given = bench([tmp_path], data=source, preprocess="none", measuring=QUICK)
    assert (declared.data.preprocessing, given.data.preprocessing) == ("scale=1/16", "")
    # The same samples; what is done to them is said beside it.
    assert declared.data.sha256 == given.data.sha256
    assert "preprocessing was given; the manifests say scale=1/16" in given.notes


def test_a_model_that_does_not_run_has_its_error_and_the_others_are_measured(tmp_path):
    publish(tmp_path, "float32")
    broken = int8_model(signature=SIGNATURE)
    broken.operatorCodes[0].version = 9999
    publish(tmp_path, "int8", packed(broken))
    report = bench([tmp_path], measuring=QUICK)
    good, bad = report.measurements
    assert good.latency is not None
    assert bad.latency is None
    assert "9999" in bad.error


def test_models_of_different_inputs_are_not_measured_together(tmp_path):
    publish(tmp_path, "float32")
    other = tmp_path / "other.tflite"
    graph = Graph()
    x, y = (graph.tensor(name, (1, 5), "float32") for name in "xy")
    graph.operator("RELU", [x], [y])
    other.write_bytes(packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))))
    with fails(InputRefused):
        bench([tmp_path, other], measuring=QUICK)


def _relu(path: Path, size: int, *, is_open: bool = False) -> Path:
    graph = Graph()
    x, y = (graph.tensor(name, (1, size), "float32") for name in "xy")
    if is_open:
        for tensor in graph.tensors:
            tensor.shapeSignature = np.array([1, -1], np.int32)
    graph.operator("RELU", [x], [y])
    path.write_bytes(packed(graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))))
    return path


def test_a_size_that_one_file_leaves_open_is_the_one_that_another_fixes(tmp_path):
    """As full-integer recipes fix it where the float ones do not: their directory is one run."""
    open_size = _relu(tmp_path / "open.tflite", 1, is_open=True)
    fixed = _relu(tmp_path / "fixed.tflite", 4)
    np.save(tmp_path / "four.npy", np.arange(-8, 8, dtype=np.float32).reshape(4, 4))
    for files in ([open_size, fixed], [fixed, open_size]):
        report = bench(files, data=str(tmp_path / "four.npy"), measuring=QUICK)
        assert [row.error for row in report.measurements] == ["", ""]
        assert report.data.samples == 4
    # Without data, samples are made in the size that both take.
    made = bench([open_size, fixed], measuring=QUICK)
    assert [row.error for row in made.measurements] == ["", ""]
    np.save(tmp_path / "five.npy", np.ones((4, 5), np.float32))
    with fails(InputRefused):
        bench([open_size, fixed], data=str(tmp_path / "five.npy"), measuring=QUICK)
    third = _relu(tmp_path / "third.tflite", 5)
    with fails(InputRefused):
        bench([open_size, fixed, third], measuring=QUICK)


def test_one_input_is_the_same_whatever_a_file_calls_it(tmp_path):
    """A quantised file of another tool, without signatures, beside the float32 model."""
    trained = tmp_path / "trained.tflite"
    trained.write_bytes(packed(float_model(signature=("predict", ["image"], ["scores"]))))
    unsigned = int8_model(signature=None)
    unsigned.subgraphs[0].tensors[0].name = "serving_default_in:0"
    (tmp_path / "download.tflite").write_bytes(packed(unsigned))
    np.savez(tmp_path / "data.npz", image=np.eye(4, dtype=np.float32), labels=np.arange(4) % 3)
    report = bench(
        [tmp_path / "download.tflite"],
        baseline=trained,
        data=str(tmp_path / "data.npz"),
        measuring=QUICK,
    )
    (row,) = report.measurements
    assert row.error == ""
    assert row.sha256 == sha256_file(tmp_path / "download.tflite")
    assert row.accuracy is not None
    assert row.accuracy_drop is not None
    (agreement,) = row.agreement
    assert agreement.output == "scores"
    assert agreement.snr_db > 5
    (note,) = [note for note in report.notes if "other names" in note]
    assert note.endswith("'serving_default_in:0' as 'image', 'y' as 'scores'")


def test_a_baseline_may_call_its_only_input_otherwise(tmp_path):
    one, other = (TensorSpec(name=name, shape=(-1, 4), dtype="float32") for name in ("a", "b"))
    samples = Samples({"x": np.zeros((2, 4), np.float32)}, None, "")
    for inputs in ((one,), (one, other)):
        signature = Signature(key="s", inputs=inputs, outputs=())
        saved = SourceModel(
            path="m", kind="saved_model", name="m", sha256="", size_bytes=1, signatures=(signature,)
        )
        with fails(InputRefused) if len(inputs) > 1 else contextlib.nullcontext():
            refuse_other_inputs(samples, saved, "s")


def test_a_runtime_that_is_not_there_is_said_so(tmp_path):
    publish(tmp_path, "float32")
    with fails(UsageError):
        bench([tmp_path], measuring=msgspec.structs.replace(QUICK, python="/nowhere/python"))


def test_the_record_that_lies_beside_the_baseline_is_found_and_a_broken_one_is_none(tmp_path):
    record = training()
    (tmp_path / "1.training.json").write_bytes(msgspec.json.encode(record))
    saved = SourceModel(
        path=str(tmp_path / "1"), kind="saved_model", name="net", sha256="0", size_bytes=1
    )
    keras = msgspec.structs.replace(saved, path=str(tmp_path / "1.keras"), kind="keras")
    assert record_of(saved) == record_of(keras) == record
    assert record_of(msgspec.structs.replace(saved, path=str(tmp_path / "2"))) is None
    (tmp_path / "1.training.json").write_bytes(b"{}")
    assert record_of(saved) is None
    assert record_of(None) is None


def test_a_file_that_has_states_of_its_own_is_said_to_run_on_those_of_the_data(tmp_path):
    publish(tmp_path, "float32")
    manifest = publish(tmp_path).with_suffix(".json")
    stateful = msgspec.structs.replace(
        msgspec.json.decode(manifest.read_bytes(), type=Artifact),
        notes=state_notes({"h": "h_next"}, is_declared=False),
    )
    manifest.write_bytes(msgspec.json.encode(stateful))
    report = bench([tmp_path], measuring=QUICK)
    (note,) = (each for each in report.notes if "the states that the data has" in each)
    assert note.startswith("int8: ")
