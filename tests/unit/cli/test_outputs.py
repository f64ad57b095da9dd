"""No verb writes over what it reads: the configuration, the lock, a model, samples, a report."""

import os
import shutil
from pathlib import Path

import pytest
from build_project import CONFIG as BUILT
from build_project import write_project

from edgeconv.cli import run
from edgeconv.reporting.trackers.csv_file import COLUMNS
from edgeconv.requests.request import leaves_of
from edgeconv.requests.table import VERBS
from edgeconv.system.store import publish_all, reading, refuse_inputs
from edgeconv.types.errors import UsageError

TIMES = """\
rounds = 1
warmup = 1
repeats = 5
warmup-seconds = 0.01
seconds = 0.01
"""
CONFIG = f'{BUILT}[budget]\nmax-size-bytes = 100_000\n[bench]\nout = "reports"\n{TIMES}'
SWEEP = """\
models = ["net.tflite"]
recipes = ["float32"]
[data.own]
source = "csv:swept/sweep.csv"
"""
INT8 = "net.tflites/net.int8.tflite"
REPORT = "reports/report.json"
NAMED = "twice/net.float32.tflite"
# Of each option that names an output: a command that would replace a file, and that file.
REPLACING = {
    ("check", "output"): (["check", "--output", "text=edgeconv.toml"], "edgeconv.toml"),
    ("check", "track"): (["check", "--config", "sliced.toml", "--track", "csv:log.csv"], "log.csv"),
    ("convert", "out"): (["convert", "net.tflite", "--to", "float32", "-o", "twice"], NAMED),
    ("bench", "out"): (
        ["bench", INT8, "--data", "npz:new/report.json", "-o", "new"],
        "new/report.json",
    ),
    ("tune", "out"): (
        ["tune", "net.tflite", "--data", "csv:new/net.tuning.json", "-o", "new", "--max-drop=1"],
        "new/net.tuning.json",
    ),
    ("sweep", "out"): (["sweep", "sweep.toml", "-o", "swept"], "swept/sweep.csv"),
    ("embed", "out"): (
        [
            "embed",
            "app/py/net/model.tflite",
            "--target",
            "python",
            "-o",
            "app/py",
            "--symbol",
            "other",
        ],
        "app/py/net/model.tflite",
    ),
    ("embed", "depfile"): (
        ["embed", INT8, "--target", "python", "-o", "new", "--depfile", f"./{INT8}"],
        INT8,
    ),
    ("build", "depfile"): (["build", "--depfile", "cal.npz"], "cal.npz"),
    ("report", "out"): (["report", REPORT, "-o", "reports", "--format", "json"], REPORT),
    ("visualize", "out"): (["visualize", INT8, "--report", REPORT, "-o", REPORT], REPORT),
    ("demo", "out"): (["demo", "-o", "."], "edgeconv.toml"),
}
# They write under names that nothing has yet.
NEW_NAMES = {("train", "out"), ("train", "checkpoint-dir"), ("train", "tensorboard-dir")}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A project that was checked, measured, accepted and embedded."""
    folder = write_project(tmp_path_factory.mktemp("made"), CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECONV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(folder)
        assert run(["check", "-q"]) == 0
        assert run(["check", "--update", "-q"]) == 0
        embedding = ["embed", INT8, "--target", "python", "-o", "app/py", "--symbol", "net", "-q"]
        assert run(embedding) == 0
    for path in ("new/net.tuning.json", "new/report.json", "swept/sweep.csv"):
        Path(folder, path).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "cal.npz", folder / path)
    Path(folder, NAMED).parent.mkdir()
    Path(folder, NAMED).symlink_to("../net.tflite")
    (folder / "sweep.toml").write_text(SWEEP, encoding="utf-8")
    (folder / "log.csv").write_text(",".join(COLUMNS) + "\n", encoding="utf-8")
    sliced = CONFIG.replace("[convert]", 'slices = "log.csv"\n[convert]')
    (folder / "sliced.toml").write_text(sliced, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def project(tmp_path, made, monkeypatch) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(made, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def test_each_option_that_names_an_output_is_here():
    options = {
        (name, leaf.key)
        for name, verb in VERBS.items()
        for leaf in leaves_of(verb.kind)
        if leaf.option.is_output
    }
    assert options == REPLACING.keys() | NEW_NAMES


@pytest.mark.parametrize("option", REPLACING, ids=" ".join)
def test_an_input_is_not_replaced(option):
    words, file = REPLACING[option]
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert run([*words]) == UsageError.exit_code
    assert before[Path(file)] == Path(file).read_bytes()
    now = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert {path for path in before if now.get(path) != before[path]} == set()


@pytest.mark.parametrize(
    "target",
    ["edgeconv.toml", "edgeconv.lock", "net.tflite", "./cal.npz", "app/../hard", "link", "to/hard"],
)
def test_a_verdict_replaces_no_input_under_any_name(target, project):
    os.link("net.tflite", "hard")
    Path("link").symlink_to("edgeconv.toml")
    Path("to").symlink_to(".")
    with Path("edgeconv.toml").open("a", encoding="utf-8") as config:
        config.write(f'[check]\noutput = "text={target}"\n')
    before = Path(target).read_bytes()
    for words in (["check", "-q"], ["check", "-q", "--output", f"text={project / target}"]):
        assert run(words) == UsageError.exit_code
        assert Path(target).read_bytes() == before


def test_a_lock_that_is_not_there_yet_is_no_output():
    Path("edgeconv.lock").unlink()
    assert run(["check", "-q", "--output", "text=edgeconv.lock"]) == UsageError.exit_code
    assert not Path("edgeconv.lock").exists()


def test_an_update_replaces_its_lock_and_nothing_else():
    assert run(["check", "-q", "--update", "--lock", "other.lock"]) == 0
    assert run(["check", "-q", "--update", "--lock", "other.lock"]) == 0
    assert run(["check", "-q", "--update", "--lock", "cal.npz"]) != 0
    assert run(["check", "-q", "--update", "--lock", "edgeconv.toml"]) != 0
    assert Path("edgeconv.toml").read_text(encoding="utf-8") == CONFIG


def test_results_may_stand_in_a_directory_that_is_read():
    for folder in ("images/cat", "model/variables"):
        Path(folder).mkdir(parents=True)
    for path in ("images/cat/1.png", "images/verdict.txt", "model/saved_model.pb"):
        Path(path).write_bytes(b"1")
    with reading([Path("images"), Path("model")]):
        publish_all({Path("images/verdict.txt"): b"2", Path("images/cat/2.png"): b"2"})
        for path in ("images/cat/1.png", "model/saved_model.pb", "model/variables/new"):
            with pytest.raises(UsageError):
                refuse_inputs([Path(path)])
    publish_all({Path("images/cat/1.png"): b"2"})


@pytest.mark.parametrize("target", [INT8, "net.tflites/net.int8.json"])
def test_a_verdict_replaces_no_file_of_the_check(target):
    before = Path(target).read_bytes()
    for _ in range(2):
        assert run(["check", "-q", "--output", f"text={target}"]) == UsageError.exit_code
        assert Path(target).read_bytes() == before
        # As the first check of a project, which publishes it.
        shutil.rmtree("net.tflites")
    assert run(["check", "-q", "--output", "text=net.tflites/verdict.txt"]) == 0
    assert run(["check", "-q", "--output", "text=net.tflites/verdict.txt"]) == 0
