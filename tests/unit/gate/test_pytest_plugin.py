import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.fft  # Of those that no process can import twice, as pytest in a test would.
import pytest
from commands import captured
from forking import edgeconv_command
from loaded_modules import loaded_by
from tiny_tflite import BIASES, WEIGHTS, float_model, packed
from wording import fails

from edgeconv.gate import pytest_plugin
from edgeconv.gate.check import Project
from edgeconv.requests.check import CheckRequest
from edgeconv.types import Limits
from edgeconv.types.errors import UsageError

pytest_plugins = ("pytester",)

CONFIG = """\
[model.tiny]
source = "tiny.tflite"

[convert]
to = ["float32", "int8"]
calibration = "calibration.npz"
out = "made"

[bench]
data = "test.npz?labels=y"
rounds = 3
warmup = 1
repeats = 5
warmup-seconds = 0.01
seconds = 0.01

[budget]
max-size-bytes = 100_000

[budget.recipe.int8]
max-accuracy-drop = 0.2
"""

QUICK = CONFIG.replace("rounds = 3", "rounds = 1")


def samples() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(3).normal(size=(400, 4)).astype(np.float32)
    return x, (x @ WEIGHTS.T.astype(np.float32) + BIASES).argmax(axis=1)


@pytest.fixture
def project(pytester, monkeypatch, cache) -> Path:
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    x, labels = samples()
    (pytester.path / "tiny.tflite").write_bytes(
        packed(float_model(signature=("serving_default", ["x"], ["y"])))
    )
    np.savez(pytester.path / "test.npz", x=x, y=labels)
    np.savez(pytester.path / "calibration.npz", x=x)
    (pytester.path / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    return pytester.path


def run(pytester: pytest.Pytester, body: str, *options: str) -> pytest.RunResult:
    """pytest with the plugin that the entry point registers."""
    lines = "\n    ".join(body.strip().splitlines())
    pytester.makepyfile(f"def test_it(edgeconv_artifact):\n    {lines}\n")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_limits_that_hold_pass_and_what_was_measured_can_be_asked_for(pytester, project):
    done = run(
        pytester,
        """
int8 = edgeconv_artifact("tiny", "int8")
int8.assert_within(max_accuracy_drop=0.2)
int8.assert_within(max_relative_accuracy_drop=0.3)
int8.assert_within(min_accuracy=0.5)
int8.assert_within(max_class_drop=0.9)
int8.assert_within(max_flip_rate=0.5)
int8.assert_within(max_size_bytes=100_000)
int8.assert_within(max_size_ratio=100)
int8.assert_within(max_latency_ratio=1000)
int8.assert_within(max_peak_memory_bytes=1 << 30)
int8.assert_within(oldest_runtime="2.14.0")
int8.assert_within(max_arena_bytes=100_000, min_output_snr_db=5)
int8.assert_within(allowed_operators=["FULLY_CONNECTED", "QUANTIZE", "DEQUANTIZE"])
int8.assert_within_budget()
assert int8.path.read_bytes()[4:8] == b"TFL3"
assert int8.path.parent.name == "made"
assert int8.measurement.size_bytes == int8.path.stat().st_size
assert int8.report.data.samples == 400
assert edgeconv_artifact("tiny", "float32").measurement.recipe == "float32"
""",
    )
    done.assert_outcomes(passed=1)
    assert (project / "made").is_dir()


def test_a_limit_that_is_broken_fails_with_what_was_measured(pytester, project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = run(pytester, f"{INT8}.assert_within(max_size_bytes=10)", "--color=no")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*edgeconv_artifact(*assert_within(max_size_bytes=10)*"])
    text = done.stdout.str()
    assert "max-size-bytes" in text
    assert "10 B" in text
    # The line of the summary says it too.
    done.stdout.fnmatch_lines(["FAILED *AssertionError: FAIL tiny: 1 of 1 limit broken*"])
    assert "pytest_plugin.py" not in text


def test_a_number_that_is_missing_fails(pytester, project):
    path = project / "edgeconv.toml"
    text = QUICK.replace('data = "test.npz?labels=y"', "")
    path.write_text(text, encoding="utf-8")
    done = run(pytester, 'edgeconv_artifact("tiny", "int8").assert_within(max_accuracy_drop=0.5)')
    done.assert_outcomes(failed=1)
    assert "not measured" in done.stdout.str()


def test_too_few_samples_fail_or_warn_as_the_configuration_says(pytester, project):
    x, labels = samples()
    np.savez(project / "test.npz", x=x[:20], y=labels[:20])
    path = project / "edgeconv.toml"
    path.write_text(QUICK, encoding="utf-8")
    test = 'edgeconv_artifact("tiny", "int8").assert_within(max_accuracy_drop=0.01)'
    done = run(pytester, test)
    done.assert_outcomes(failed=1)
    assert "samples are needed, there are 20" in done.stdout.str()
    path.write_text(f'{QUICK}\n[check]\ninconclusive = "warn"\n', encoding="utf-8")
    done = run(pytester, test, "-W", "default")
    done.assert_outcomes(passed=1, warnings=1)
    assert "EdgeconvWarning" in done.stdout.str()
    assert "inconclusive" in done.stdout.str()


INT8 = 'edgeconv_artifact("tiny", "int8")'
REFUSED = {
    'edgeconv_artifact("tony", "int8")': "unknown model 'tony'",
    'edgeconv_artifact("tiny", "int4")': "unknown recipe of model 'tiny' 'int4'",
    f"{INT8}.assert_within(max_size=1)": "unknown limit 'max_size'",
    f"{INT8}.assert_within()": "give a limit to check",
    f'{INT8}.assert_within(max_size_bytes=float("nan"))': (
        "max_size_bytes must be a finite number of 0 or more, not nan"
    ),
    f'{INT8}.assert_within(max_size_bytes="10")': "max_size_bytes must be a finite",
    f"{INT8}.assert_within(max_size_bytes=True)": "0 or more, not True",
    f"{INT8}.assert_within(min_accuracy=-1)": "min_accuracy must be a finite",
    f"{INT8}.assert_within(oldest_runtime=2.14)": "oldest_runtime must be a text",
    f'{INT8}.assert_within(allowed_operators="ADD")': "a list of names",
}


def test_what_is_not_understood_is_a_message_without_a_traceback(pytester, project):
    tests = [
        f"def test_{number}(edgeconv_artifact):\n    {test}\n"
        for number, test in enumerate(REFUSED)
    ]
    pytester.makepyfile("\n".join(tests))
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    done.assert_outcomes(failed=len(REFUSED))
    text = done.stdout.str()
    for said in REFUSED.values():
        assert said in text
    assert "Traceback" not in text
    assert "During handling" not in text
    assert "pytest_plugin.py" not in text


def test_without_a_configuration_it_says_how_to_get_one(pytester):
    done = run(pytester, 'edgeconv_artifact("tiny", "int8")')
    done.assert_outcomes(failed=1)
    assert "there is no edgeconv.toml" in done.stdout.str()
    assert "edgeconv init" in done.stdout.str()


@pytest.mark.parametrize("place", ["no/edgeconv.toml", "other.toml"])
def test_a_configuration_that_is_not_there_is_refused(tmp_path, place):
    with fails(UsageError):
        Project(CheckRequest(config=str(tmp_path / place)), print)


def test_the_configuration_may_be_elsewhere_and_the_directory_stays(pytester, project):
    below = project / "below"
    below.mkdir()
    for name in ("edgeconv.toml", "tiny.tflite", "test.npz", "calibration.npz"):
        (project / name).rename(below / name)
    done = run(
        pytester,
        """
import os
before = os.getcwd()
assert edgeconv_artifact("tiny", "int8").path.parent.parent.name == "below"
assert os.getcwd() == before
""",
        *("--edgeconv-config", "below/edgeconv.toml"),
    )
    done.assert_outcomes(passed=1)


@pytest.mark.parametrize("place", [".", "tests"])
def test_the_configuration_is_that_of_the_current_or_of_the_root_directory(
    pytester, project, monkeypatch, place
):
    """With the root above: a project in a repository of several, and one called from within."""
    root = project if place == "tests" else project.parent
    (project / "tests").mkdir()
    pytester.makepyfile('def test_it(edgeconv_artifact):\n    edgeconv_artifact("tiny", "int8")\n')
    monkeypatch.chdir(project / place)
    done = captured(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={root}", project]
    )
    assert f"rootdir: {root}" in done.stdout
    assert "1 passed" in done.stdout, done.stdout


def test_a_lock_that_was_edited_fails_the_test(pytester, project):
    (project / "edgeconv.lock").write_text("format = 1\n[model.tiny]\nx = 1\n", encoding="utf-8")
    done = run(pytester, 'edgeconv_artifact("tiny", "int8")')
    done.assert_outcomes(failed=1)
    assert "not as `edgeconv check --update` wrote it" in done.stdout.str()


def test_what_was_accepted_is_compared_with_too(pytester, project):
    command = [*edgeconv_command(), "check", "--update", "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    test = 'edgeconv_artifact("tiny", "int8").assert_within(max_accuracy_drop=0, max_size_bytes=1)'
    done = run(pytester, test)
    done.assert_outcomes(failed=1)
    assert "max-accuracy-drop (lock)" in done.stdout.str()
    # Only a check without limits of its own guards the trained model.
    model, weights = project / "tiny.tflite", WEIGHTS.astype(np.float32)
    model.write_bytes(model.read_bytes().replace(weights.tobytes(), (-weights).tobytes()))
    run(pytester, f"{INT8}.assert_within(max_size_bytes=100_000)").assert_outcomes(passed=1)


def test_code_of_the_configuration_runs_where_it_is_allowed_only(pytester, project):
    (project / "mine.py").write_text(
        "import numpy as np\ndef right(outputs, labels):\n    return np.ones(len(labels))\n",
        encoding="utf-8",
    )
    text = CONFIG.replace("[bench]", '[bench]\nmetric = ["mine:right"]')
    (project / "edgeconv.toml").write_text(text, encoding="utf-8")
    test = 'assert edgeconv_artifact("tiny", "int8").measurement.accuracy.value == 1'
    done = run(pytester, test)
    done.assert_outcomes(failed=1)
    assert "--allow-code" in done.stdout.str()


@pytest.mark.slow
def test_processes_of_xdist_take_turns(pytester, project):
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.parametrize('size', range(4))\n"
        "def test_it(edgeconv_artifact, size):\n"
        "    edgeconv_artifact('tiny', 'int8').assert_within(max_size_bytes=90_000 + size)\n"
    )
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2")
    done.assert_outcomes(passed=4)


def test_a_run_that_does_not_use_it_loads_nothing_of_it(pytester):
    pytester.makepyfile(
        "import sys\n"
        "def test_it():\n"
        "    assert 'edgeconv.gate.pytest_plugin' in sys.modules\n"
        "    loaded = {name for name in sys.modules if name.startswith('edgeconv.')}\n"
        "    assert loaded == {'edgeconv.gate', 'edgeconv.gate.pytest_plugin'}, loaded\n"
        "    assert not {'numpy', 'msgspec', 'click', 'rich'} & set(sys.modules)\n"
    )
    done = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-W", "error"), timeout=60
    )
    done.assert_outcomes(passed=1)


def test_its_options_are_in_the_help(pytester):
    text = pytester.runpytest_subprocess("--help").stdout.str()
    assert "--edgeconv-config" in text
    assert "--edgeconv-allow-code" in text


def test_it_loads_nothing_heavy():
    """It is loaded wherever pytest runs."""
    assert loaded_by("import edgeconv.gate.pytest_plugin") == set()


def test_every_assertion_is_a_limit_of_a_budget():
    """What the methods say they hold is what a budget has."""
    seen: dict[str, object] = {}

    class Asked(pytest_plugin.EdgeconvArtifact):
        def __init__(self) -> None:
            pass

        def assert_within(self, **limits: object) -> None:
            seen.update(limits)

    methods = [name for name in vars(pytest_plugin.EdgeconvArtifact) if name.startswith("assert_")]
    for name in set(methods) - {"assert_within", "assert_within_budget"}:
        getattr(Asked(), name)(0.5)
    assert len(seen) == len(methods) - 2
    assert set(seen) <= set(Limits.__struct_fields__)
