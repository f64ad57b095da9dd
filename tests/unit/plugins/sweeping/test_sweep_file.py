"""sweep.toml: what it combines, and an error with its line for all that is wrong."""

from pathlib import Path

import pytest
from sweeps import SWEEP, planned, write_models
from wording import fails

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
    "text",
    [
        "modles = []\n" + TOP,
        TOP.replace("nets/*", "nets/x*"),
        TOP.replace('["float32"]', "[]"),
        TOP.replace('"float32"', '"float32", "float32"'),
        TOP.replace('"float32"', '"all", "int8"'),
        TOP.replace('"float32"', '"flaot32"'),
        TOP.replace('"float32"', '"tune(trials=3)"'),
        TOP.replace('"float32"', '"tune(max-drop=a)"'),
        TOP.replace('"float32"', '"tune(max-drop=0.5, out=x)"'),
        TOP.replace('"float32"', '"tune(max-drop=0.1)"'),
        TOP.replace('"float32"', '"int8\\u0007"'),
        TOP + 'runtimes = ["lite"]\n',
        TOP.replace("float32", "int8"),
        TOP.replace("float32", "int8") + DATA,
        TOP + 'runtimes = ["tfserving:http://x"]\n',
        TOP + 'gate = "any"\n',
        TOP + "timing = 1\n",
        TOP + "[data.test]\n",
        TOP + DATA + "labels = 1\n",
        TOP + '[data.test]\nsource = "gone.npz"\n',
        TOP + '[data.test]\nsource = "../x.npz"\n',
        TOP + '[data.test]\nsource = "function:a:b"\n',
        TOP + DATA + 'preprocess = "scael=2"\n',
        TOP + DATA + '[model."c*"]\ndata = ["test"]\n',
        TOP + DATA + '[model."nets*"]\ndata = ["text"]\n',
        TOP + "[convert]\nto = 'int8'\n",
        TOP + "[convert]\nsampels = 3\n",
        TOP + "[bench]\nsamples = 'x'\n",
        TOP + "[model.'*'.convert]\nto = 'int8'\n",
        TOP + "[model.'*'.bench]\nmetrik = 'f1'\n",
        TOP + "[model.'*'.bench]\nsamples = 'x'\n",
        TOP + "[model.'*'.budget]\nmax-drop = 1\n",
        TOP + "[budget]\nmax-drop = 1\n",
        TOP.replace("nets/*.tflite", "../a.*"),
    ],
)
def test_what_is_wrong_has_its_line(folder, text):
    inner = folder / "inner"
    inner.mkdir()
    (folder / "a.tflite").write_bytes((folder / "nets" / "a.tflite").read_bytes())
    for name in ("nets", "test.npz", "cal.npz"):
        (folder / name).rename(inner / name)
    with fails((UsageError, InputRefused)):
        planned(inner, text)


def test_a_file_that_is_not_a_model_is_refused_with_the_line(folder):
    (folder / "nets" / "readme.tflite").write_text("no model", encoding="utf-8")
    with fails(InputRefused):
        planned(folder)


def test_the_name_of_a_model_that_cannot_be_shown_is_refused(folder):
    (folder / "nets" / "a.tflite").rename(folder / "nets" / "\x1b[2Ja.tflite")
    with fails(UsageError):
        planned(folder)
