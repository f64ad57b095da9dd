import re
import sys
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from commands import captured
from doctor_models import classifier, images, stored
from golden_files import assert_golden
from wording import says

from edgeconv.cli.verbs import doctor as command
from edgeconv.reporting.pages import text_of
from edgeconv.types import Accuracy, DataIdentity, Diagnosis, Trial

# (name, steps, right of 48, low, high)
_TRIALS = (
    ("−1 to 1", "scale=1/127.5&mean=1", 44, 0.8045, 0.9671),
    ("standardized", "mean=123.51,123.07,115.7&std=60.432,59.693,63.936", 43, 0.7785, 0.9547),
    ("0 to 1", "scale=1/255", 21, 0.3070, 0.5773),
    ("as stored", "dtype=float32", 5, 0.0453, 0.2218),
)


def trial(number: int, *, fits: bool, now: bool, none_fits: bool) -> Trial:
    name, steps, right, low, high = _TRIALS[number]
    if none_fits:
        right, (low, high) = 5, _TRIALS[-1][3:]
    accuracy = Accuracy(value=right / 48, samples=48, correct="1" * right + "0" * (48 - right))
    return Trial(
        name=name,
        preprocess=steps,
        accuracy=accuracy,
        interval=(low, high),
        fits=fits,
        is_current=now,
    )


def diagnosis(fits: int, now: int, **changes: Any) -> Diagnosis:
    trials = tuple(
        trial(n, fits=n < fits, now=n == now, none_fits=not fits) for n in range(len(_TRIALS))
    )
    whole = Diagnosis(
        model="models/flowers",
        runtime="tensorflow 2.21.0",
        data=DataIdentity(
            source="images:flowers", samples=48, sha256="0" * 64, preprocessing=_TRIALS[now][1]
        ),
        available=120,
        stored_dtype="uint8",
        stored_limits=(0.0, 255.0),
        classes=10,
        scores="probabilities",
        label_offset=0,
        guessing=5 / 48,
        chance=1e-9 if fits else 0.4,
        trials=trials,
    )
    return msgspec.structs.replace(whole, **changes)


EXAMPLES = (
    diagnosis(1, 3, label_offset=1, classes=1001),
    diagnosis(2, 0, notes=("one word more",)),
    diagnosis(0, 3, scores="logits", available=48),
    diagnosis(1, 0, label_offset=-1),
)


def test_a_type_that_only_doctor_changes_by_itself_is_something_to_change():
    plain = diagnosis(1, 0)
    (now, *others) = plain.trials
    typed = msgspec.structs.replace(now, preprocess="dtype=float32")
    says(text_of(msgspec.structs.replace(plain, trials=(typed, *others))).splitlines()[-1])
    floats = msgspec.structs.replace(plain, trials=(typed, *others), stored_dtype="float64")
    assert text_of(floats).splitlines()[-1] == text_of(plain).splitlines()[-1]


@pytest.mark.parametrize(("width", "name"), [(None, "wide"), (80, "80"), (40, "40")])
def test_the_diagnoses_look_as_they_did(width, name):
    shown = [text_of(each, width=width) for each in EXAMPLES]
    assert_golden(f"diagnosis_{name}.txt", "\n\n\n".join(shown) + "\n")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
def test_no_line_is_wider_than_asked_and_the_text_to_use_is_there(width):
    text = text_of(EXAMPLES[0], width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "--preprocess'scale=1/127.5&mean=1'" in re.sub(r"\s", "", text)


def test_a_hostile_name_is_shown_harmlessly():
    hostile = "[bold]x[/]\x1b[31m\n"
    text = text_of(diagnosis(1, 3, model=hostile, notes=(hostile,)))
    assert text.count(r"[bold]x[/]\u001b[31m\n") == 2
    assert "\x1b" not in text


@pytest.fixture
def source(tmp_path) -> str:
    return stored(tmp_path / "raw.npz", *images())


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(each) for each in arguments])


def test_a_fit_ends_with_0_and_the_text_to_use(tmp_path, source):
    done = run(classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1"), source)
    assert done.exit_code == 0, done.output
    assert "  --preprocess 'scale=1/127.5&mean=1'\n" in done.stdout
    assert "In use now: “as stored”" in done.stdout
    assert "running the model with 12 preprocessings" in done.stderr


def test_no_fit_ends_with_1_and_what_else_to_check(tmp_path):
    pixels, labels = images()
    shifted = stored(tmp_path / "wrong.npz", pixels, (labels * 5 + 3) % 12)
    done = run(classifier(tmp_path / "m.tflite", "scale=1/255"), shifted, "-q", "--samples", 96)
    assert done.exit_code == 1, done.output
    assert "None of 12 preprocessings is clearly better" in done.stdout
    assert "order of the training" in done.stdout
    assert done.stderr == ""


def test_json_is_the_diagnosis_and_agrees_with_the_exit_code(tmp_path, source):
    file = classifier(tmp_path / "m.tflite", "scale=1/127.5&mean=1")
    done = run(file, source, "--json", "-q", "--preprocess", "scale=1/127.5&mean=1")
    read = msgspec.json.decode(done.stdout, type=Diagnosis)
    assert (read.ok, done.exit_code) == (True, 0)
    assert [(t.preprocess, t.is_current) for t in read.fits] == [("scale=1/127.5&mean=1", True)]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gone", "x.npz"], 3, "gone does not exist"),
        (["{model}", "gone.npz?labels=y"], 3, "gone.npz does not exist"),
        (["{model}"], 2, "missing argument DATA"),
        (["{model}", "{source}", "--samples", "3"], 2, "at least 8"),
        (["{model}", "{source}", "--preprocess", "scal=1/255"], 2, "did you mean 'scale'"),
        (["--help"], 0, "DATA"),
    ],
)
def test_the_program_ends_with_the_documented_exit_code_and_loads_no_tensorflow(
    arguments, code, says, tmp_path, source
):
    model = classifier(tmp_path / "m.tflite", "scale=1/255")
    program = (
        "import sys\n"
        "from edgeconv.cli import run\n"
        "code = run()\n"
        "heavy = {'tensorflow', 'keras', 'tf_keras'} & {*sys.modules}\n"
        "heavy |= {'numpy', 'scipy'} & {*sys.modules} if '--help' in sys.argv else set()\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)\n"
    )
    filled = [each.format(model=model, source=source) for each in arguments]
    done = captured([sys.executable, "-c", program, "doctor", *filled], cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert says in (done.stderr if code else done.stdout)
