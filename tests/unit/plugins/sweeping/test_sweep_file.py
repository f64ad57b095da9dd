"""sweep.toml: what it combines, and an error with its line for all that is wrong."""

from pathlib import Path

import pytest
from sweeps import SWEEP, planned, write_models

from edgeconv.types.errors import InputRefused, UsageError

DATA = '[data.test]\nsource = "test.npz?labels=y"\n'
CALIBRATED = DATA + 'calibration = "cal.npz"\n'
TOP = 'models = ["nets/*.tflite"]\nrecipes = ["float32"]\n'


@pytest.fixture
def folder(tmp_path) -> Path:
    write_models(tmp_path, "a", "b")
    return tmp_path


def test_every_combination_is_a_cell(folder):
    text = 'runtimes = ["litert", "tflite-micro"]\n' + SWEEP + CALIBRATED.replace("test]", "more]")
    plan = planned(folder, text)
    names = {cell.name for cell in plan.cells}
    assert len(names) == len(plan.cells) == 2 * 2 * 2 * 2
    assert ("nets/b.tflite", "more", "int8", "tflite-micro") in names
    assert [len(job.cells) for job in plan.jobs] == [4, 4, 4, 4]


def test_a_model_may_have_its_own_data_sets_and_calibration(folder):
    text = SWEEP + CALIBRATED.replace("test]", "more]")
    text += '[model."*/b.*"]\ndata = ["more"]\ncalibration = "test.npz"\n'
    plan = planned(folder, text)
    pairs = {(cell.model, cell.data) for cell in plan.cells}
    assert pairs == {
        *(("nets/a.tflite", "test"), ("nets/a.tflite", "more")),
        ("nets/b.tflite", "more"),
    }
    own = plan.jobs[-1].converting
    assert own.calibration[""].location == str(folder / "test.npz")


def test_a_model_may_have_its_own_options_and_limits(folder):
    general = '[bench]\nmetric = "top1"\nsamples = 9\n[budget]\nmax-accuracy-drop = 0.01\n'
    own = '[model."*/b.*".bench]\nmetric = "top5"\n[model."*/b.*".convert]\nbatch = 1\n'
    own += '[model."*/b.*".budget]\nmax-size-bytes = 100\n'
    plan = planned(folder, SWEEP + general + own)
    a, b = plan.jobs
    assert a.converting is not None and b.converting is not None  # noqa: PT018
    assert (a.converting.batch, b.converting.batch) == (None, 1)
    metrics = [[str(each) for each in job.measuring.measuring.metrics] for job in (a, b)]
    assert metrics == [["top1"], ["top5"]]
    assert [job.measuring.samples for job in (a, b)] == [9, 9]
    for model, limits in (
        ("nets/a.tflite", {"max-accuracy-drop": 0.01}),
        ("nets/b.tflite", {"max-accuracy-drop": 0.01, "max-size-bytes": 100}),
    ):
        written = plan.file.budget_of(model).limits("int8")
        assert {name: limit.limit for name, limit in written.items()} == limits


def test_a_search_is_a_job_of_itself_in_each_runtime(folder):
    recipe = '"tune( max-drop = 0.5,trials=3 )"'
    plan = planned(folder, SWEEP.replace('"int8"', recipe))
    searches = [job for job in plan.jobs if job.tuning]
    assert [len(job.cells) for job in searches] == [1, 1]
    tuning = searches[0].tuning
    assert (tuning.max_drop, tuning.trials) == (0.5, 3)
    assert searches[0].cells[0].recipe == "tune(max-drop=0.5, trials=3)"


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("modles = []\n" + TOP, 1, "did you mean 'models'"),
        (TOP.replace("nets/*", "nets/x*"), 1, "no model matches"),
        (TOP.replace('["float32"]', "[]"), 2, "recipes is empty"),
        (TOP.replace('"float32"', '"float32", "float32"'), 2, "twice"),
        (TOP.replace('"float32"', '"all", "int8"'), 2, "recipes has int8 twice"),
        (TOP.replace('"float32"', '"flaot32"'), 2, "unknown recipe"),
        (TOP.replace('"float32"', '"tune(trials=3)"'), 2, "no max-drop"),
        (TOP.replace('"float32"', '"tune(max-drop=a)"'), 2, "must be a number"),
        (TOP.replace('"float32"', '"tune(max-drop=1, out=x)"'), 2, "is not an option"),
        (TOP.replace('"float32"', '"tune(max-drop=0.1)"'), 2, "needs data"),
        (TOP.replace('"float32"', '"int8\\u0007"'), 2, "printable"),
        (TOP + 'runtimes = ["lite"]\n', 3, "line 3: runtimes is not understood"),
        (TOP.replace("float32", "int8"), 1, "add calibration ="),
        (TOP.replace("float32", "int8") + DATA, 3, "calibration samples are needed for int8"),
        (TOP + 'runtimes = ["tfserving:http://x"]\n', 3, "which a configuration alone may not do"),
        (TOP + 'gate = "any"\n', 3, "every-cell, a-cell-per-model"),
        (TOP + "timing = 1\n", 3, "must be one of false, true"),
        (TOP + "[data.test]\n", 3, "has no source"),
        (TOP + DATA + "labels = 1\n", 5, "known: source, calibration, preprocess"),
        (TOP + '[data.test]\nsource = "gone.npz"\n', 3, "gone.npz"),
        (TOP + '[data.test]\nsource = "../x.npz"\n', 4, "not in the project"),
        (TOP + '[data.test]\nsource = "function:a:b"\n', 4, "names code"),
        (TOP + DATA + 'preprocess = "scael=2"\n', 5, "scael"),
        (TOP + DATA + '[model."c*"]\ndata = ["test"]\n', 5, "matches no model"),
        (TOP + DATA + '[model."nets*"]\ndata = ["text"]\n', 6, "no data set 'text'"),
        (TOP + "[convert]\nto = 'int8'\n", 4, "is set by the sweep"),
        (TOP + "[convert]\nsampels = 3\n", 4, "did you mean 'samples'"),
        (TOP + "[bench]\nsamples = 'x'\n", 4, "must be a whole number"),
        (TOP + "[model.'*'.convert]\nto = 'int8'\n", 4, "is set by the sweep"),
        (TOP + "[model.'*'.bench]\nmetrik = 'f1'\n", 4, "did you mean 'metric'"),
        (TOP + "[model.'*'.bench]\nsamples = 'x'\n", 4, "must be a whole number"),
        (TOP + "[model.'*'.budget]\nmax-drop = 1\n", 4, "unknown limit"),
        (TOP + "[budget]\nmax-drop = 1\n", 4, "unknown limit"),
        (TOP.replace("nets/*.tflite", "../a.*"), 1, "not in the project"),
    ],
)
def test_what_is_wrong_has_its_line(folder, text, line, part):
    inner = folder / "inner"
    inner.mkdir()
    (folder / "a.tflite").write_bytes((folder / "nets" / "a.tflite").read_bytes())
    for name in ("nets", "test.npz", "cal.npz"):
        (folder / name).rename(inner / name)
    with pytest.raises((UsageError, InputRefused)) as caught:
        planned(inner, text)
    assert caught.value.location == f"{inner / 'sweep.toml'}:{line}"
    assert part in str(caught.value)


def test_a_file_that_is_not_a_model_is_refused_with_the_line(folder):
    (folder / "nets" / "readme.tflite").write_text("no model", encoding="utf-8")
    with pytest.raises(InputRefused, match=r"line 1: nets/readme\.tflite: "):
        planned(folder)


def test_the_name_of_a_model_that_cannot_be_shown_is_refused(folder):
    (folder / "nets" / "a.tflite").rename(folder / "nets" / "\x1b[2Ja.tflite")
    with pytest.raises(UsageError, match="printable characters only"):
        planned(folder)
