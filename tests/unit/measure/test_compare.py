"""What changed between two reports or two .tflite files."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_example as example
import tiny_tflite
from click.testing import CliRunner
from wording import fails, says

from edgeconv import compare
from edgeconv.cli.verbs import compare as command
from edgeconv.measure.compare import compare_reports
from edgeconv.reporting.pages import text_of
from edgeconv.system.store import sha256_file
from edgeconv.types import (
    Accuracy,
    Difference,
    FlipCount,
    ModelDifference,
    NumberChange,
    Report,
    TensorChange,
    TensorSpec,
)
from edgeconv.types.errors import InputRefused


def of_models(*models: Any, **changes: Any) -> Report:
    return msgspec.structs.replace(
        example.report(), measurements=models, baseline=None, comparisons=(), **changes
    )


def changed(**changes: Any) -> Any:
    return msgspec.structs.replace(example.measurement("int8"), **changes)


def numbers(model: ModelDifference) -> dict[str, NumberChange]:
    return {change.quantity: change for change in model.numbers}


def the_only(difference: Difference) -> ModelDifference:
    (model,) = difference.models
    return model


def test_a_report_beside_itself_has_no_change():
    same = compare_reports(example.report(), example.report())
    assert len(same.models) == 8
    assert not any(m.numbers or m.operators or m.tensors or m.flips for m in same.models)
    assert all(m.same_file for m in same.models)
    assert (same.only_before, same.only_after, same.refused) == ((), (), ())


def test_reports_are_compared_in_memory_as_from_their_files(tmp_path):
    before, after = example.report(), of_models(changed(size_bytes=5000), title="after")
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(before))
    read = compare(tmp_path / "report.json", after)
    assert msgspec.structs.replace(read, before=before.title) == compare(before, after)
    assert (read.after, len(read.models)) == ("after", 1)
    with fails(InputRefused):
        compare(before, "net.int8.tflite")


def test_size_latency_accuracy_and_flips_are_told_from_before_to_after():
    before, after = example.measurement("int8"), example.measurement("qat")
    after = msgspec.structs.replace(after, name=before.name)
    found = the_only(compare_reports(of_models(before), of_models(after)))
    assert not found.same_file
    size = numbers(found)["size_bytes"]
    assert (size.before, size.after) == (46_872, 46_904)
    accuracy = numbers(found)["metric:top1"]
    assert (accuracy.before, accuracy.after) == (350 / 360, 353 / 360)
    assert accuracy.interval[0] < 3 / 360 < accuracy.interval[1]
    assert numbers(found)["metric:f1"].interval is None
    assert (found.fixed, found.broken) == (3, 0)
    assert found.flips[0] == FlipCount(label=7, before=9, after=7, samples=(1,))
    assert "arena_bytes" not in numbers(found)


def timed(p50_us: float, factor: float, rounds: int = 3) -> Any:
    """A row whose median time has an interval of that factor to either side."""
    latency = msgspec.structs.replace(
        example.measurement("int8").latency,
        rounds_us=((p50_us,),) * rounds,
        p50_us=p50_us,
        p50_interval_us=(p50_us / factor, p50_us * factor),
    )
    return changed(latency=latency)


def change_of_p50(before: Any, after: Any) -> NumberChange:
    return numbers(the_only(compare_reports(of_models(before), of_models(after))))["latency_p50_us"]


def test_the_change_of_a_median_time_has_the_interval_of_both():
    change = change_of_p50(timed(100.0, 1.1), timed(120.0, 1.0))
    assert change.interval == pytest.approx((120 / 1.1 - 100, 120 * 1.1 - 100))
    wider = change_of_p50(timed(100.0, 1.1), timed(120.0, 1.1))
    factor = 1.1**2**0.5
    assert wider.interval == pytest.approx((120 / factor - 100, 120 * factor - 100))
    text = text_of(compare_reports(of_models(timed(100.0, 1.1)), of_models(timed(120.0, 1.0))))
    assert "+20.00 % [9.09, 32.00]" in text


def test_a_lone_round_and_a_time_of_nothing_have_no_interval():
    assert change_of_p50(timed(100.0, 1.1, rounds=1), timed(120.0, 1.1)).interval is None
    assert change_of_p50(timed(100.0, 1.1), timed(120.0, 1.1, rounds=1)).interval is None
    assert change_of_p50(timed(0.0, 1.1), timed(120.0, 1.1)).interval is None


def test_flips_are_grouped_by_what_they_were_and_are():
    def classes(*predicted: int) -> Accuracy:
        return Accuracy(value=0.5, samples=4, correct="0110", predicted=predicted)

    before = of_models(changed(accuracy=classes(1, 1, 2, 2)), labels=(0, 1, 2, 0))
    after = of_models(changed(accuracy=classes(3, 1, 2, 3)), labels=(0, 1, 2, 0))
    assert the_only(compare_reports(before, after)).flips == (
        FlipCount(label=0, before=1, after=3, samples=(0,)),
        FlipCount(label=0, before=2, after=3, samples=(3,)),
    )


def test_models_are_matched_by_name_then_by_recipe_and_the_rest_is_listed():
    renamed = changed(name="other-name")
    only_here = example.measurement("float16")
    before = of_models(example.measurement("int8"), example.measurement("float32"))
    after = of_models(example.measurement("float32"), renamed, only_here)
    found = compare_reports(before, after)
    assert [(m.before, m.after) for m in found.models] == [
        ("digits_cnn-float32", "digits_cnn-float32"),
        ("digits_cnn-int8", "other-name"),
    ]
    assert (found.only_before, found.only_after) == ((), ("digits_cnn-float16",))


def test_two_reports_of_one_model_each_are_of_that_model():
    found = compare_reports(
        of_models(changed(name="a", recipe=None)), of_models(changed(name="b", recipe=None))
    )
    assert the_only(found).before == "a"
    assert the_only(found).after == "b"


def test_times_of_two_machines_are_refused_and_the_rest_is_shown():
    elsewhere = msgspec.structs.replace(example.report().environment, machine="pi")
    found = compare_reports(
        of_models(example.measurement("int8")),
        of_models(
            changed(
                latency=example.latency(90),
                size_bytes=50_000,
                peak_memory_bytes=1,
                sha256="9" * 64,
                accuracy=example.accuracy(0, 3),
            ),
            environment=elsewhere,
        ),
    )
    says(found.refused)
    assert set(numbers(the_only(found))) == {"size_bytes", "metric:top1"}
    assert the_only(found).broken == 1


def test_accuracies_on_other_samples_are_refused_and_the_times_are_shown():
    data = msgspec.structs.replace(example.report().data, sha256="e" * 64)
    after = changed(accuracy=example.accuracy(0, 3), latency=example.latency(90))
    found = compare_reports(of_models(example.measurement("int8")), of_models(after, data=data))
    assert len(found.refused) == 1
    says(found.refused[0])
    model = the_only(found)
    assert "latency_p50_us" in numbers(model)
    assert "metric:top1" not in numbers(model)
    assert (model.fixed, model.broken, model.flips) == (None, None, ())


def test_operators_and_ends_are_compared_where_the_reports_have_the_manifests():
    before = of_models(example.measurement("float32"))
    after = of_models(
        msgspec.structs.replace(example.measurement("int8"), name="digits_cnn-float32")
    )
    model = the_only(compare_reports(before, after))
    assert [(o.operator, o.version, o.before, o.after) for o in model.operators] == [
        ("CONV_2D", 1, 2, 0),
        ("CONV_2D", 3, 0, 2),
        ("FULLY_CONNECTED", 1, 2, 0),
        ("FULLY_CONNECTED", 4, 0, 2),
    ]
    (tensor,) = model.tensors
    assert (tensor.role, tensor.before.dtype, tensor.after.dtype) == ("input", "float32", "int8")


def test_an_empty_report_is_refused():
    empty = of_models()
    with fails(InputRefused):
        compare_reports(example.report(), empty)


# Files


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    """A float and an int8 model of the same layer."""
    before, after = tmp_path / "float.tflite", tmp_path / "int8.tflite"
    signature = ("serving_default", ["x"], ["y"])
    before.write_bytes(tiny_tflite.packed(tiny_tflite.float_model(signature=signature)))
    after.write_bytes(tiny_tflite.packed(tiny_tflite.int8_model()))
    return before, after


def test_two_files_differ_in_size_operators_tensors_and_ends(files):
    model = the_only(compare(*files))
    size = numbers(model)["size_bytes"]
    assert (size.before, size.after) == tuple(file.stat().st_size for file in files)
    share = numbers(model)["quantized_weight_share"]
    assert (share.before, share.after) == (0.0, 1.0)
    assert [(o.operator, o.version, o.before, o.after) for o in model.operators] == [
        ("FULLY_CONNECTED", 1, 1, 0),
        ("FULLY_CONNECTED", 4, 0, 1),
    ]
    assert [(t.role, t.after.name if t.after else "") for t in model.tensors] == [
        ("input", "x"),
        ("output", "y"),
        *(("inside", name) for name in "xwby"),
    ]
    weights = next(t.after for t in model.tensors if t.after and t.after.name == "w")
    assert (weights.dtype, weights.scale, weights.zero_point) == ("int8", (1.0,), (0,))


def test_many_equal_values_are_told_once(files):
    spec = TensorSpec(name="a/Relu;a/BiasAdd", shape=(2,), dtype="int8")
    many = msgspec.structs.replace(spec, scale=(0.5, 0.25), zero_point=(0, 0))
    change = TensorChange(role="inside", before=spec, after=many)
    model = ModelDifference(before="m", after="m", same_file=False, tensors=(change,))
    text = text_of(Difference(before="x", after="y", models=(model,)))
    assert "  a/Relu …: scale none → 0.25 to 0.5 in 2 channels, " in text
    assert "zero point none → 0 in 2 channels" in text


def test_a_changed_scale_alone_is_found(files, tmp_path):
    model = tiny_tflite.int8_model()
    model.subgraphs[0].tensors[3].quantization.scale[0] = 32.0
    other = tmp_path / "other.tflite"
    other.write_bytes(tiny_tflite.packed(model))
    difference = compare(files[1], other)
    found = the_only(difference)
    assert [t.role for t in found.tensors] == ["output", "inside"]
    assert found.operators == ()
    assert "output y: scale 64 → 32" in text_of(difference)


def test_a_file_beside_itself_is_the_same(files):
    same = compare(files[0], files[0])
    assert the_only(same).same_file
    assert the_only(same).numbers == the_only(same).operators == the_only(same).tensors == ()
    assert "nothing changed" in text_of(same)


def test_what_the_manifests_say_of_closeness_is_compared(files):
    for file, recipe in zip(files, ("float16", "int8"), strict=True):
        artifact = msgspec.structs.replace(example.artifact(recipe), sha256=sha256_file(file))
        file.with_suffix(".json").write_bytes(msgspec.json.encode(artifact))
    difference = compare(*files)
    change = numbers(the_only(difference))["snr_db:probabilities"]
    assert (change.before, change.after) == (66.1, 27.3)
    assert "−38.8 dB" in text_of(difference)
    assert "SNR at conversion of probabilities" in text_of(difference)
    error = numbers(the_only(difference))["max_error:probabilities"]
    assert error.before < 0.001 < error.after
    files[0].with_suffix(".json").write_text("{}", encoding="utf-8")
    without = compare(*files)
    assert "snr_db:probabilities" not in numbers(the_only(without))
    assert without.refused[0].startswith("manifests: ")


def test_distances_from_different_references_are_not_compared(files):
    for file, reference in zip(
        files, ("trained model in TensorFlow", "float32 .tflite"), strict=True
    ):
        artifact = example.artifact("int8")
        checked = msgspec.structs.replace(artifact.verification, reference=reference)
        artifact = msgspec.structs.replace(artifact, sha256=sha256_file(file), verification=checked)
        file.with_suffix(".json").write_bytes(msgspec.json.encode(artifact))
    assert "snr_db:probabilities" not in numbers(the_only(compare(*files)))


def test_a_change_within_noise_is_said_to_be_that():
    noisy = of_models(timed(100.0, 1.1)), of_models(timed(110.0, 1.1))
    said = text_of(compare_reports(*noisy))
    says(said)
    sure = of_models(timed(100.0, 1.01)), of_models(timed(110.0, 1.01))
    assert "noise" not in text_of(compare_reports(*sure))
    right = changed(accuracy=example.accuracy(1, 3)), changed(accuracy=example.accuracy(2, 1))
    said = text_of(compare_reports(*(of_models(one) for one in right)))
    says(said)


def test_the_change_of_a_high_percentile_has_an_interval_by_rounds_too():
    one, other = example.latency(100.0), example.latency(103.0)
    reports = (of_models(changed(latency=latency)) for latency in (one, other))
    found = numbers(the_only(compare_reports(*reports)))
    for percent in (90, 99):
        interval = found[f"latency_p{percent}_us"].interval
        assert interval[0] < 0 < interval[1]
    lone = (of_models(changed(latency=example.latency(p50, rounds=1))) for p50 in (100.0, 103.0))
    assert numbers(the_only(compare_reports(*lone)))["latency_p90_us"].interval is None


def test_a_manifest_of_another_file_is_not_believed(files):
    files[0].with_suffix(".json").write_bytes(msgspec.json.encode(example.artifact("int8")))
    says(compare(*files).refused)


def test_a_report_and_a_file_are_refused(files, tmp_path):
    report = tmp_path / "report.json"
    report.write_bytes(msgspec.json.encode(example.report()))
    with fails(InputRefused):
        compare(files[0], report)
    with fails(InputRefused):
        compare(report, tmp_path / "gone.json")
    (tmp_path / "bad.tflite").write_bytes(b"no model")
    with pytest.raises(InputRefused):
        compare(files[0], tmp_path / "bad.tflite")


# The command


def test_the_command_ends_with_0_whatever_changed(files):
    done = CliRunner().invoke(command, [str(file) for file in files])
    assert done.exit_code == 0
    for said in ("float.tflite → int8.tflite", "FULLY_CONNECTED", "input x: float32 → int8"):
        assert said in done.stdout
    as_json = CliRunner().invoke(command, [*(str(file) for file in files), "--json"])
    assert msgspec.json.decode(as_json.stdout, type=Difference) == compare(*files)


def test_the_text_of_two_reports_has_units_and_signs():
    before, after = example.measurement("int8"), example.measurement("int16x8")
    after = msgspec.structs.replace(after, name=before.name)
    text = text_of(compare_reports(of_models(before), of_models(after)))
    assert "46.87 kB  48.02 kB" in text
    assert "+2.44 %" in text
    assert re.search(r"97.22 % +94.72 % +−2.50 pp \[", text)
    assert "1 became right, 10 became wrong" in text


def test_of_many_flips_the_first_are_shown_and_all_on_demand():
    flips = tuple(FlipCount(label=None, before=i, after=i + 1, samples=(i,)) for i in range(30))
    model = ModelDifference(before="a", after="a\x1b[31m", same_file=False, flips=flips)
    difference = Difference(before="x", after="y", models=(model,))
    few, every = text_of(difference), text_of(difference, everything=True)
    assert "and 18 more: --all shows them" in few
    assert "from class 29 to 30" not in few
    assert "1 sample from class 29 to 30: 29" in every
    assert "\x1b" not in few
