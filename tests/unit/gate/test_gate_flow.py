"""The flow of a check: what is done again, and what is answered from before."""

from pathlib import Path
from typing import Any

import pytest
import report_example as example
from msgspec.structs import replace
from tiny_tflite import float_model, int8_model, packed
from wording import fails

from edgeconv.conversion import convert
from edgeconv.data import parse_source
from edgeconv.gate.check import publish
from edgeconv.gate.flow import Checking
from edgeconv.gate.jobs import ModelJob
from edgeconv.measure import bench
from edgeconv.reporting.verdicts import render
from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.convert import ConvertRequest
from edgeconv.types import (
    Accuracy,
    Budget,
    Checked,
    Conversion,
    Execution,
    Failure,
    GateStatistics,
    Limits,
    Measuring,
    MetricChoice,
    Report,
)
from edgeconv.types.errors import InputRefused, OutputRefused, UsageError

LENIENT = Budget(every=Limits(max_size_ratio=100.0))


def wrong_on(report: Report, wrong: int) -> Report:
    """The same report, all models wrong on the first so many samples."""

    def changed(row: Any) -> Any:
        before = row.accuracy
        correct = "0" * wrong + before.correct[wrong:]
        value = correct.count("1") / len(correct)
        accuracy = Accuracy(value=value, samples=before.samples, correct=correct)
        return replace(row, accuracy=accuracy)

    return replace(
        report,
        baseline=changed(report.baseline),
        measurements=tuple(map(changed, report.measurements)),
    )


class Work:
    """The steps of a job, and how often each was asked for."""

    def __init__(self, directory: Path) -> None:
        self.conversions = 0
        self.benches = 0
        self.asked: list[BenchRequest] = []
        self.conversion = Conversion(
            directory=str(directory), artifacts=(example.artifact("float32"),)
        )
        row = example.measurement("float32")
        self.report = replace(example.report(), measurements=(row,), verdict=None, comparisons=())

    def convert(self, _: ConvertRequest, **_told: Any) -> Conversion:
        self.conversions += 1
        return self.conversion

    def bench(self, asked: BenchRequest, **_told: Any) -> Report:
        self.benches += 1
        self.asked.append(asked)
        names = [Path(file).name for file in asked.models]
        assert names == [self.conversion.artifacts[0].file]
        return self.report


@pytest.fixture
def model(tmp_path) -> Path:
    """The trained model; nothing but its content is looked at."""
    path = tmp_path / "digits.tflite"
    path.write_bytes(packed(float_model()))
    return path


@pytest.fixture
def work(tmp_path, monkeypatch) -> Work:
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    work = Work(tmp_path)
    # By whatever name the test puts in their place later.
    # The modules, not their names: pytester forgets modules that their packages still have.
    monkeypatch.setattr(convert, "convert", lambda *a, **k: work.convert(*a, **k))
    monkeypatch.setattr(bench, "bench", lambda *a, **k: work.bench(*a, **k))
    return work


def job(work: Work, model: Path, **changes: Any) -> ModelJob:
    values: dict[str, Any] = {
        "name": "digits",
        "source": str(model),
        "budget": LENIENT,
        "converting": ConvertRequest(model=str(model), to=("float32",)),
        "measuring": BenchRequest(models=(str(model),)),
    }
    return ModelJob(**(values | changes))


def checking(**changes: Any) -> Checking:
    return Checking(**({"statistics": GateStatistics(), "execution": Execution()} | changes))


def test_a_check_is_answered_from_before_where_nothing_changed(work, model):
    first = checking().check(job(work, model))
    assert first.verdict.ok
    assert not first.reused
    again = checking().check(job(work, model))
    assert again == replace(first, reused=True)
    assert (work.conversions, work.benches) == (2, 1)


def test_what_the_conversion_found_changed_is_said_once(work, model):
    told = replace(work.conversion, notes=("made again",))
    for conversion in (told, told, work.conversion):
        work.conversion = conversion
        assert checking().check(job(work, model)).notes.count("made again") == len(conversion.notes)


def test_a_failure_of_other_code_is_none_of_this(work, model, monkeypatch):
    strict = Budget(every=Limits(max_size_bytes=1.0))
    assert not checking().check(job(work, model, budget=strict)).verdict.ok
    assert checking().check(job(work, model, budget=strict)).reused
    monkeypatch.setattr("edgeconv.gate.flow.code_hash", lambda: "other")
    assert not checking().check(job(work, model, budget=strict)).reused
    # What was measured stays.
    assert work.benches == 1


@pytest.mark.parametrize(
    "change",
    [
        {"measuring": BenchRequest(models=("m",), measuring=Measuring(rounds=9))},
        {"name": "other"},
        {"slices": "slices.txt"},
    ],
    ids=["settings", "name", "slices"],
)
def test_what_changes_the_measuring_is_measured_again(work, model, change, monkeypatch):
    monkeypatch.chdir(model.parent)
    Path("slices.txt").write_text("a\n" * example.SAMPLES)
    checking().check(job(work, model))
    assert not checking().check(job(work, model, **change)).reused
    assert work.benches == 2


def test_another_source_or_another_artifact_is_measured_again(work, model):
    checking().check(job(work, model))
    model.write_bytes(packed(int8_model()))
    assert not checking().check(job(work, model)).reused
    changed = replace(work.conversion.artifacts[0], sha256="e" * 64)
    work.conversion = replace(work.conversion, artifacts=(changed,))
    assert not checking().check(job(work, model)).reused
    assert work.benches == 3


def test_what_changes_while_it_is_measured_is_not_kept(work, model):
    bench = work.bench

    def changing(asked: BenchRequest, *, on_progress: Any) -> Report:
        model.write_bytes(packed(int8_model()))
        return bench(asked, on_progress=on_progress)

    work.bench = changing

    before = model.read_bytes()
    checking().report(job(work, model))
    model.write_bytes(before)
    assert checking().report(job(work, model)) == work.report
    assert work.benches == 2


def test_another_budget_judges_the_same_report_again(work, model):
    checking().check(job(work, model))
    strict = Budget(every=Limits(max_size_bytes=1.0))
    judged = checking().check(job(work, model, budget=strict))
    assert not judged.reused
    assert not judged.verdict.ok
    assert work.benches == 1
    assert not checking(statistics=GateStatistics(confidence=0.9)).check(job(work, model)).reused
    assert work.benches == 1


def test_without_the_cache_everything_is_measured_once_a_run(work, model):
    run = checking(execution=Execution(use_cache=False))
    run.check(job(work, model))
    assert run.report(job(work, model)) == work.report
    assert (work.conversions, work.benches) == (1, 1)
    assert not run.check(job(work, model)).reused


def test_a_recipe_that_could_not_be_converted_breaks_every_limit(work, model):
    failure = Failure(recipe="int8", error="VerificationFailed", message="3 dB is too little")
    work.conversion = replace(work.conversion, failures=(failure,))
    found = checking().check(job(work, model))
    (missing,) = (f for f in found.verdict.findings if f.model == "int8")
    assert missing.outcome == "missing"
    assert not found.verdict.ok
    # Why stands where "not measured" does, in every format with texts.
    for name in ("text", "json", "junit", "sarif", "github-comment", "github-annotations"):
        assert "3 dB is too little" in render(Checked(checks=(found,)), name), name
    # It may do better the next time.
    assert not checking().check(job(work, model)).reused
    assert work.benches == 2


def test_the_checkpoint_is_measured_beside_the_rest(work, model):
    checkpoint = replace(example.baseline(), sha256="c" * 64)

    bench = work.bench

    def beside(asked: BenchRequest, *, on_progress: Any) -> Report:
        if asked.baseline:
            return replace(work.report, baseline=checkpoint)
        return bench(asked, on_progress=on_progress)

    work.bench = beside

    run = checking()
    report = run.report(job(work, model, checkpoint=str(model)))
    assert report.checkpoint == replace(checkpoint, name="checkpoint")
    assert report.baseline == work.report.baseline


def test_a_model_that_is_not_locked_says_so(work, model):
    check = checking().check(job(work, model))
    assert (check.unlocked, check.is_locked, check.verdict.ok) == ("no lock", False, True)
    for name in ("text", "junit", "sarif", "github-comment"):
        assert "no lock: retraining is not guarded" in render(Checked(checks=(check,)), name), name
    assert checking(has_lock=True).check(job(work, model)).unlocked == "not in the lock"
    assert not checking(accepting=True).check(job(work, model)).unlocked


def test_a_loss_of_the_trained_model_fails_without_a_limit_on_it(work, model):
    run = checking(accepting=True)
    state = run.accepted(job(work, model))
    work.report = wrong_on(work.report, 75)
    model.write_bytes(model.read_bytes() + b"\0")
    locked = {"digits": state}
    check = checking(has_lock=True, locked=locked).check(job(work, model))
    (lost,) = (finding for finding in check.verdict.findings if not finding.ok)
    assert (lost.model, lost.limit, lost.reference) == ("digits_cnn", "max-accuracy-drop", "lock")
    assert (lost.outcome, lost.severity, lost.actual) == (
        "failed",
        "error",
        pytest.approx(75 / 360),
    )
    # A test of a team names the limits of an artifact, which is another question.
    own = job(work, model, guards_trained=False)
    assert checking(has_lock=True, locked=locked).check(own).verdict.ok


def test_what_may_be_chance_is_no_loss_of_the_trained_model(work, model):
    run = checking(accepting=True)
    state = run.accepted(job(work, model))
    work.report = wrong_on(work.report, 2)
    model.write_bytes(model.read_bytes() + b"\0")
    check = checking(has_lock=True, locked={"digits": state}).check(job(work, model))
    assert {finding.limit for finding in check.verdict.findings} == {"max-size-ratio"}
    assert check.verdict.ok


def test_nothing_converted_is_an_error_with_its_reason(work, model):
    failure = Failure(recipe="int8", error="ToolFailed", message="no such operator")
    work.conversion = Conversion(directory=".", artifacts=(), failures=(failure,))
    with fails(InputRefused):
        checking().check(job(work, model))
    assert work.benches == 0


def test_a_job_without_a_limit_is_refused_before_the_work(work, model):
    with fails(UsageError):
        checking().check(job(work, model, budget=Budget()))
    assert work.conversions == 0


@pytest.mark.parametrize("content", [b"a\nb\n", b"a\n" + b"b" * 201 + b"\n", b"\xff\xfe\n", None])
def test_slices_that_do_not_fit_are_refused(work, model, tmp_path, content):
    slices = tmp_path / "slices.txt"
    if content is not None:
        slices.write_bytes(content)
    with fails(InputRefused):
        checking().check(job(work, model, slices=str(slices)))


@pytest.mark.parametrize(
    ("limits", "is_timed"),
    [
        ({"max_size_ratio": 100.0}, False),
        ({"max_accuracy_drop": 0.5}, False),
        ({"max_latency_ratio": 9.0}, True),
        ({"max_latency_p50_us": 1e9}, True),
        ({"max_peak_memory_bytes": 1e9}, True),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else next(iter(value)),
)
@pytest.mark.parametrize("recipe", ["", "int8"])
def test_times_are_measured_only_where_a_limit_needs_them(work, model, limits, is_timed, recipe):
    given = Limits(**limits)
    budget = Budget(recipe={recipe: given}) if recipe else Budget(every=given)
    checking().check(job(work, model, budget=budget))
    assert [one.measuring.is_timed for one in work.asked] == [is_timed]


def test_a_report_without_times_does_not_answer_a_limit_on_them(work, model):
    checking().check(job(work, model))
    timed = Budget(every=Limits(max_latency_ratio=9.0))
    run = checking()
    run.check(job(work, model, budget=timed))
    # In one process too, as in a team's own tests.
    run.check(job(work, model))
    assert [one.measuring.is_timed for one in work.asked] == [False, True]
    run.check(job(work, model, budget=timed))
    assert work.benches == 2


def test_the_check_after_an_update_measures_nothing(work, model, tmp_path):
    (tmp_path / "test.npz").write_bytes(b"samples")
    on = BenchRequest(models=("m",), data=parse_source(str(tmp_path / "test.npz")))
    state = checking().accepted(job(work, model, measuring=on))
    assert "top1" in {stage.accuracy.metric for stage in state.stages if stage.accuracy}
    checking(locked={"digits": state}, has_lock=True).check(job(work, model, measuring=on))
    assert work.benches == 1


def test_the_locked_metric_is_measured_too_where_the_test_data_are_the_same(work, model, tmp_path):
    (tmp_path / "test.npz").write_bytes(b"samples")

    def on(name: str) -> BenchRequest:
        return BenchRequest(
            models=("m",),
            data=parse_source(str(tmp_path / name)),
            measuring=Measuring(metrics=(MetricChoice("top5"),)),
        )

    state = checking().accepted(job(work, model, measuring=on("test.npz")))
    run = checking(locked={"digits": state}, has_lock=True)
    run.report(job(work, model, measuring=on("test.npz")))
    assert work.asked[-1].measuring.metrics == (MetricChoice("top5"), MetricChoice("top1"))
    (tmp_path / "other.npz").write_bytes(b"others")
    run = checking(locked={"digits": state}, has_lock=True)
    run.report(job(work, model, measuring=on("other.npz")))
    assert work.asked[-1].measuring.metrics == (MetricChoice("top5"),)


def test_test_data_that_is_not_there_is_told_before_the_conversion(work, model, tmp_path):
    measuring = BenchRequest(models=(str(model),), data=parse_source(str(tmp_path / "gone.npz")))
    with fails(InputRefused):
        checking().check(job(work, model, measuring=measuring))
    assert work.conversions == 0


def test_a_job_of_github_gets_a_summary_without_which_the_outputs_are_still_written(
    tmp_path, monkeypatch
):
    checked = Checked(config="edgeconv.toml", checks=())
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    publish(checked, {})
    assert (tmp_path / "summary.md").read_text() == render(checked, "github-summary")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    with pytest.raises(OutputRefused):
        publish(checked, {tmp_path / "junit.xml": "junit"})
    assert (tmp_path / "junit.xml").is_file()
