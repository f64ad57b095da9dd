"""The check, through the real command line, in the days of a team that ships a digit reader."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from commands import captured
from forking import edgeconv_command
from places import SHARED
from zoo import stocked

from edgeconv.reporting.units import percent
from edgeconv.requests.config import lock
from edgeconv.requests.config.lock import FILE_NAME
from edgeconv.types import Check, Checked, Finding, StageState

MNIST = SHARED / "mnist" / "mnist.npz"
BAD_CLASS = "7"
CONFIG = """\
[model.mnist]
source = "model"

[convert]
to = ["float32", "int8"]
preprocess = "scale=1/255"
calibration = "calibration.npz"
out = "made"

[bench]
data = "test.npz?labels=digit"
rounds = 1
warmup = 1
warmup-seconds = 0.05
repeats = 5
seconds = 0.05

[budget]
max-accuracy-drop = 0.02
max-class-drop = 0.25
"""

pytestmark = pytest.mark.skipif(
    not MNIST.is_file(), reason="the data sets are not beside the checkout"
)


@dataclass
class Answer:
    """What one `edgeconv check` ended with and wrote."""

    code: int
    text: str
    errors: str
    checked: Checked | None = None

    @property
    def check(self) -> Check:
        assert self.checked is not None, self.errors
        (check,) = self.checked.checks
        return check

    @property
    def stages(self) -> dict[str, StageState]:
        return {state.model: state for state in self.check.stages}

    def broken(self) -> set[str]:
        return {finding.model for finding in self.check.verdict.findings if not finding.ok}

    def findings(self, limit: str) -> list[Finding]:
        return [finding for finding in self.check.verdict.findings if finding.limit == limit]


@dataclass
class Team:
    """A project of the team, and the models it may have trained."""

    place: Path
    models: Path

    def has(self, model: str) -> None:
        """This is the trained model now."""
        shutil.rmtree(self.place / "model", ignore_errors=True)
        shutil.copytree(self.models / model, self.place / "model")

    def configures(self, old: str, new: str) -> None:
        path = self.place / "edgeconv.toml"
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def checks(self, *options: str) -> Answer:
        result = self.place / "check.json"
        result.unlink(missing_ok=True)
        words = ("check", "--quiet", "--output", "json=check.json", *options)
        done = self._runs(*edgeconv_command(), *words)
        checked = None
        if result.is_file():
            checked = msgspec.json.decode(result.read_bytes(), type=Checked)
        return Answer(done.returncode, done.stdout, done.stderr, checked)

    def tests(self) -> subprocess.CompletedProcess[str]:
        """The team's own test, with the plugin."""
        (self.place / "test_model.py").write_text(
            "def test_digits(edgeconv_artifact):\n"
            '    edgeconv_artifact("mnist", "int8").assert_within(max_class_drop=0.25)\n',
            encoding="utf-8",
        )
        return self._runs(
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_model.py"
        )

    def embeds(self) -> subprocess.CompletedProcess[str]:
        """The file of the app is taken over into its sources."""
        words = ("--target", "c", "-o", "app", "--require-check")
        return self._runs(*edgeconv_command(), "embed", "made/model.int8.tflite", *words)

    def _runs(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "EDGECONV_CACHE_DIR": str(self.models / "cache")}
        environment.pop("GITHUB_ACTIONS", None)
        return captured(command, cwd=self.place, env=environment)


def write_data(place: Path) -> None:
    with np.load(MNIST) as data:
        images, digits = data["x_test"], data["y_test"].astype(np.int64)
        some = data["x_train"][40_000:40_300]
    np.savez(place / "test.npz", image=images[:2000], digit=digits[:2000])
    np.savez(place / "few.npz", image=images[:50], digit=digits[:50])
    np.savez(place / "calibration.npz", image=some)
    # As the training had them; the conversion scales them again.
    np.savez(place / "scaled.npz", image=(some / 255).astype(np.float32))


@pytest.fixture(scope="module")
def accepted(tmp_path_factory) -> Team:
    """The project on the day its first model was accepted."""
    models = tmp_path_factory.mktemp("models")
    stocked(models, "keras_zoo:story", MNIST)
    team = Team(tmp_path_factory.mktemp("team"), models)
    write_data(team.place)
    (team.place / "edgeconv.toml").write_text(CONFIG, encoding="utf-8")
    team.has("accepted")
    answer = team.checks("--update")
    assert answer.code == 0, answer.text + answer.errors
    return team


@pytest.fixture
def team(accepted, tmp_path) -> Team:
    """The same project, for one story."""
    place = tmp_path / "team"
    shutil.copytree(accepted.place, place)
    return Team(place, accepted.models)


def locked_bytes(team: Team) -> bytes:
    return (team.place / FILE_NAME).read_bytes()


def test_what_was_accepted_is_in_the_lock_and_checking_it_again_measures_nothing(team):
    model = lock.read(team.place / FILE_NAME).models["mnist"]
    assert [stage.name for stage in model.stages] == ["baseline", "float32", "int8"]
    assert {"source", "calibration data", "test data"} <= model.inputs.keys()
    assert model.test_samples == 2000
    again = team.checks()
    assert again.code == 0
    assert again.check.is_locked
    assert again.check.summary == "Every model is as locked."
    assert team.checks().check.reused


def test_a_good_retrain_passes(team):
    before = locked_bytes(team)
    team.has("good")
    answer = team.checks()
    assert answer.code == 0, answer.text
    stages = answer.stages
    assert all(stage.changed for stage in stages.values())
    assert not any(stage.moved and (stage.drop or 0) > 0 for stage in stages.values())
    assert answer.check.changes == ("the source model changed since the lock",)
    assert locked_bytes(team) == before


@pytest.mark.slow
def test_a_retrain_with_a_corrupted_class_fails_and_the_class_is_named(team):
    before = locked_bytes(team)
    team.has("bad")
    answer = team.checks()
    assert answer.code == 1
    assert answer.broken() == {"baseline", "float32", "int8"}
    worst = answer.check.classes[0]
    assert (worst.kind, worst.name, worst.reference) == ("class", BAD_CLASS, "lock")
    assert worst.drop > 0.5
    assert {finding.subject for finding in answer.findings("max-class-drop") if not finding.ok} == {
        BAD_CLASS
    }
    assert answer.check.summary.startswith("The trained model lost ")
    assert answer.check.summary.endswith("the source model changed since the lock.")
    assert f"max-class-drop of {BAD_CLASS} (lock)" in answer.text
    assert locked_bytes(team) == before
    tested = team.tests()
    assert tested.returncode == 1
    assert f"max-class-drop of {BAD_CLASS} (lock)" in tested.stdout


def test_calibration_with_wrong_preprocessing_fails_and_float32_is_said_to_be_fine(team):
    team.configures("calibration.npz", "scaled.npz")
    answer = team.checks()
    assert answer.code == 1
    assert answer.broken() == {"int8"}
    assert answer.stages["float32"].changed is False
    assert (answer.stages["float32"].moved, answer.stages["int8"].moved) == (False, None)
    missing = [one for one in answer.findings("max-accuracy-drop") if one.model == "int8"]
    assert {one.outcome for one in missing} == {"missing"}
    assert all("cannot be what the model was trained on" in one.reason for one in missing)
    summary = answer.check.summary
    assert summary.startswith("Every model is as locked; "), summary
    assert "the calibration data changed since the lock" in summary
    assert summary in answer.text
    shipped = team.embeds()
    assert (shipped.returncode, (team.place / "app").exists()) == (1, False)
    assert "was not measured by its last check" in shipped.stderr


def test_wrong_preprocessing_fails_is_accepted_by_name_only_and_is_not_shipped(team):
    before = locked_bytes(team)
    team.configures('preprocess = "scale=1/255"', 'preprocess = "scale=1/1020"')
    answer = team.checks()
    assert answer.code == 1
    assert answer.broken() == {"baseline", "float32", "int8"}
    drops = [one for one in answer.findings("max-accuracy-drop") if one.reference == "lock"]
    assert {one.outcome for one in drops} == {"failed"}
    assert all(f" here, {percent(one.before)} in the lock" in one.reason for one in drops)
    assert "--update" not in answer.text
    assert "convert --preprocess" in answer.check.summary
    shipped = team.embeds()
    assert (shipped.returncode, (team.place / "app").exists()) == (1, False)
    assert "model.int8.tflite failed its last check" in shipped.stderr
    refused = team.checks("--update")
    assert (refused.code, locked_bytes(team)) == (1, before)
    assert "mnist is worse than what is locked" in refused.errors
    names = ["mnist:trained", "mnist:float32", "mnist:int8"]
    words = [word for name in names for word in ("--accept-drop", name)]
    assert " ".join(words) in refused.errors
    partly = team.checks("--update", *words[:2])
    assert (partly.code, locked_bytes(team)) == (1, before)
    assert team.checks("--update", *words).code == 0
    noted = lock.read(team.place / FILE_NAME).models["mnist"].accepted
    assert [one.stage for one in noted] == ["baseline", "float32", "int8"]
    after = team.checks()
    assert after.code == 0
    assert team.embeds().returncode == 0
    assert f"by `edgeconv check --update {' '.join(words)}`" in after.text


@pytest.mark.slow
def test_another_converter_alters_bytes_but_not_behaviour_and_passes_with_a_note(team):
    before = (team.place / "made" / "model.int8.tflite").read_bytes()
    team.configures("[convert]", '[convert]\nengine = "tflite"')
    answer = team.checks()
    assert (team.place / "made" / "model.int8.tflite").read_bytes() != before
    assert answer.code == 0, answer.text
    int8 = answer.stages["int8"]
    assert (int8.changed, int8.moved) == (True, False)
    assert answer.check.summary == (
        "The bytes of int8 changed (convert --engine default → tflite), "
        "its accuracy did not beyond chance."
    )
    assert answer.check.summary in answer.text


def test_fifty_images_are_inconclusive_and_it_says_how_many_would_do(team):
    team.configures("test.npz", "few.npz")
    answer = team.checks("--lock", "none.lock")
    assert answer.code == 1
    drops = answer.findings("max-accuracy-drop")
    assert {finding.outcome for finding in drops} == {"inconclusive"}
    needed = max(finding.samples_needed or 0 for finding in drops)
    assert 500 < needed < 20_000
    broken = [one for one in answer.check.verdict.findings if one.outcome == "inconclusive"]
    most = max(broken, key=lambda one: one.samples_needed or 0)
    of = f" of {most.subject}" if most.subject else ""
    said = f"{most.samples_needed:,} samples{of} are needed, there are {most.samples}"
    assert answer.text.count("Inconclusive (?): ") == answer.text.count(said) == 1
    assert "would be enough" not in answer.text
    # Beside a lock of other samples nothing can be paired, and that never passes.
    beside = team.checks()
    assert beside.code == 1
    outcomes = {
        one.outcome for one in beside.findings("max-accuracy-drop") if one.reference == "lock"
    }
    assert outcomes == {"missing"}
    assert "the test data changed since the lock" in beside.check.summary


def test_a_lock_edited_by_hand_is_refused(team):
    text = locked_bytes(team).decode()
    line = next(line for line in text.splitlines() if line.startswith("accuracy = "))
    edited = text.replace(line, "accuracy = 0.1", 1)
    (team.place / FILE_NAME).write_text(edited, encoding="utf-8")
    for options in ((), ("--update",)):
        answer = team.checks(*options)
        assert answer.code == 3
        assert "the lock of model 'mnist' is not as" in answer.errors
        assert "git checkout" in answer.errors
    assert locked_bytes(team).decode() == edited


@pytest.mark.slow
def test_the_checkpoint_is_a_stage_of_its_own(team):
    shutil.copy(team.models / "accepted.keras", team.place / "digits.keras")
    team.configures('source = "model"', 'source = "model"\ncheckpoint = "digits.keras"')
    answer = team.checks("--update")
    assert answer.code == 0, answer.text
    team.has("bad")
    answer = team.checks()
    assert answer.code == 1
    assert [state.stage for state in answer.check.stages] == [
        *("checkpoint", "trained", "float32", "quantized")
    ]
    assert answer.check.summary.startswith(
        "The checkpoint is as locked, but the trained model lost"
    )
