"""Limits by runtime: a file may be right in one set of kernels and wrong in another."""

from pathlib import Path

import msgspec
from report_example import accuracy, measurement, report
from wording import fails

from edgeconv.gate.budget import check
from edgeconv.requests.config import lock
from edgeconv.requests.config.file import load_config
from edgeconv.types import Budget, Limits, Lock, LockedModel, Measurement, Report
from edgeconv.types.errors import UsageError

MICRO, LITERT = "tflite-micro", "litert"


def in_both() -> Report:
    """int8 in two runtimes; in the one without times it loses 20 samples more."""
    row = msgspec.structs.replace(measurement("int8"), name="int8 in litert", measured_in=LITERT)
    other = msgspec.structs.replace(
        row,
        name="int8 in tflite-micro",
        measured_in=MICRO,
        latency=None,
        latency_ratio=None,
        peak_memory_bytes=None,
        accuracy=accuracy(1, 23),
    )
    return msgspec.structs.replace(report(), measurements=(row, other))


def outcomes(budget: Budget, of: Report | None = None) -> dict[tuple[str, str], str]:
    findings = check(of or in_both(), budget).findings
    return {(each.model, each.limit): each.outcome for each in findings}


def test_a_limit_for_a_runtime_takes_the_place_of_the_others_there():
    budget = Budget(
        every=Limits(max_accuracy_drop=0.03),
        recipe={"int8": Limits(max_accuracy_drop=0.02)},
        runtime={MICRO: Limits(max_accuracy_drop=0.2)},
    )
    assert outcomes(budget) == {
        ("int8 in litert", "max-accuracy-drop"): "passed",
        ("int8 in tflite-micro", "max-accuracy-drop"): "passed",
    }
    strict = msgspec.structs.replace(budget, runtime={})
    assert outcomes(strict)["int8 in tflite-micro", "max-accuracy-drop"] == "failed"


def test_a_limit_on_times_is_for_the_runtimes_that_have_them():
    budget = Budget(every=Limits(max_latency_p50_us=1000.0, max_peak_memory_bytes=10**9))
    assert outcomes(budget) == {
        ("int8 in litert", "max-latency-p50-us"): "passed",
        ("int8 in litert", "max-peak-memory-bytes"): "passed",
    }


def test_a_runtimes_own_limit_on_times_does_not_pass_without_times():
    budget = Budget(runtime={MICRO: Limits(max_latency_p50_us=1000.0)})
    assert outcomes(budget) == {("int8 in tflite-micro", "max-latency-p50-us"): "missing"}


def test_a_limit_on_times_that_no_runtime_has_does_not_pass():
    example = in_both()
    alone = msgspec.structs.replace(example, measurements=example.measurements[1:])
    budget = Budget(every=Limits(max_latency_p50_us=1000.0))
    assert set(outcomes(budget, alone).values()) == {"missing"}


def test_a_runtime_with_limits_that_was_not_measured_fails():
    budget = Budget(runtime={"web": Limits(min_accuracy=0.5)})
    assert outcomes(budget) == {("web", "min-accuracy"): "missing"}


def locked(*rows: Measurement) -> LockedModel:
    return lock.locked_model("m", msgspec.structs.replace(in_both(), measurements=rows), {})


def test_a_model_is_compared_with_the_answers_of_the_same_kernels():
    here, there = in_both().measurements
    model = locked(here, there)
    # Under other names, as with another set of runtimes.
    for row in (here, there):
        stage = model.stage_of(msgspec.structs.replace(row, name="int8"))
        assert (stage.measured_in, stage.accuracy) == (row.measured_in, row.accuracy)


def test_kernels_that_the_lock_does_not_know_are_compared_and_never_the_same():
    here, there = in_both().measurements
    unlabeled = [msgspec.structs.replace(row, accuracy=None, metrics=()) for row in (here, there)]
    example = msgspec.structs.replace(in_both(), measurements=tuple(unlabeled))
    budget = Budget(every=Limits(max_flip_rate=0.0))
    verdict = check(example, budget, locked=locked(unlabeled[0]))
    by_lock = {each.model: each.outcome for each in verdict.findings if each.reference == "lock"}
    assert by_lock["int8 in litert"] == "passed"
    assert by_lock["int8 in tflite-micro"] == "missing"


def test_the_lock_says_which_kernels_answered_and_an_old_one_does_not(tmp_path):
    path = tmp_path / "edgeconv.lock"
    lock.write(Lock(models={"m": locked(*in_both().measurements)}), path)
    assert path.read_text().count('measured-in = "tflite-micro"') == 1
    assert lock.read(path).models["m"] == locked(*in_both().measurements)
    old = msgspec.structs.replace(in_both().measurements[0], measured_in="")
    assert locked(old).stages[-1].measured_in is None


def config_of(tmp_path: Path, budget: str) -> Path:
    path = tmp_path / "edgeconv.toml"
    path.write_text(f'[model.m]\nsource = "m"\n{budget}')
    return path


def test_the_configuration_has_a_table_for_each_runtime(tmp_path):
    path = config_of(
        tmp_path,
        "[budget]\nmax-accuracy-drop = 0.01\n"
        '[budget.runtime."tflite-runtime==2.14.0"]\nmax-accuracy-drop = 0.05\n'
        "[model.m.budget.runtime.tflite-micro]\nmax-accuracy-drop = 0.02\n",
    )
    config = load_config(path, {})
    budget = config.models["m"].budget
    assert budget.limits("int8", MICRO)["max-accuracy-drop"].limit == 0.02
    assert budget.limits("int8", "tflite-runtime==2.14.0")["max-accuracy-drop"].limit == 0.05
    assert budget.limits("int8", LITERT)["max-accuracy-drop"].limit == 0.01
    lines = [
        config.limit_line("max-accuracy-drop", model="m", recipe="int8", runtime=runtime)
        for runtime in (LITERT, "tflite-runtime==2.14.0", MICRO)
    ]
    assert lines == [4, 6, 8]


def test_an_unknown_limit_of_a_runtime_is_refused_with_its_line(tmp_path):
    path = config_of(tmp_path, "[budget.runtime.tflite-micro]\nmax-drop = 0.01\n")
    with fails(UsageError):
        load_config(path, {})
    with fails(UsageError):
        load_config(config_of(tmp_path, "[budget.runtime.tflite-micro]\n"), {})
