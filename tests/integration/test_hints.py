"""What a refusal advises is done as it is printed, and the model converts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forking import output_of
from places import SUPPORT

REFUSED, FAILED = 3, 4
FLOATS = "--to float32"
QUICK = "--to int8 --methods none"
INTEGERS = f"{QUICK} --calibration"
TRAINING = "--to qat --qat-epochs 1 --training"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of hint_zoo.py."""
    root = tmp_path_factory.mktemp("hints")
    output_of(SUPPORT / "hint_zoo.py", root)
    return root


@pytest.fixture
def converts(place: Path, cli: Any) -> Callable[[str], Any]:
    """Runs `convert` with words, of which those in the place's directory are paths."""

    def found(word: str) -> str:
        is_there = (place / word.partition("?")[0]).exists()
        return str(place / word) if is_there else word

    def run(words: str) -> Any:
        model, *_ = words.split()
        return cli("convert", *map(found, words.split()), "-o", f"out/{model}")

    return run


def hint_of(converts: Callable[[str], Any], words: str) -> str:
    """The hint with which a command is refused."""
    refused = converts(words)
    assert refused.returncode in (REFUSED, FAILED), refused.stderr
    (hint, *_) = re.findall(r"^  next: (.*)", refused.stderr, re.MULTILINE)
    return str(hint)


def advised(hint: str) -> str:
    """The option in a hint, with a size for each that is open."""
    option = re.search(r"(--shape) ([^\s;]+[^\s;,])", hint)
    assert option is not None, hint
    return f"{option[1]} {option[2].replace('?', '12')}"


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (f"bilinear.keras {FLOATS}", "--shape image=1x12x12x3"),
        (f"nearest.keras {FLOATS}", "--shape image=1x12x12x3"),
    ],
)
def test_the_option_that_is_advised_converts_the_model(words, option, converts):
    assert advised(hint_of(converts, words)) == option
    done = converts(f"{words} {option}")
    assert done.returncode == 0, done.stderr


# What is refused; and for each piece of advice some words of it, and the command that follows it.
FOLLOWED = {
    f"hashed {FLOATS}": {
        "give the model its number": f"by_number {FLOATS}",
        "a StringLookup with a vocabulary": f"by_index {FLOATS}",
    },
    f"numbers {FLOATS}": {
        "look up the int64 index of a string, and gather": f"by_index {FLOATS}",
    },
    f"combined {FLOATS}": {
        "tf.image.non_max_suppression_padded": f"padded {FLOATS} --calibration boxes.npz",
    },
    f"grouped.keras {FLOATS}": {"concatenate a Conv3D of each part": f"split.keras {FLOATS}"},
    f"dense.keras {INTEGERS} large.npz": {
        "scaled as in training": f"dense.keras {INTEGERS} x.npz",
    },
    f"huge.keras {INTEGERS} x.npz": {
        "the model's weights": f"dense.keras {INTEGERS} x.npz",
    },
    f"float32_ids.keras {INTEGERS} float32_ids.npz --io int8": {
        "leave --io out": f"float32_ids.keras {INTEGERS} float32_ids.npz",
        "an int32 input": f"int32_ids.keras {INTEGERS} int32_ids.npz --io int8",
    },
    f"cut {FLOATS}": {"copy or export the model again": f"whole {FLOATS}"},
    f"own.keras {FLOATS}": {
        "--custom-objects MODULE": f"own.keras {FLOATS} --custom-objects layers_of_mine.py",
        "export the model as a SavedModel": f"own {FLOATS}",
    },
    f"lambda.keras {FLOATS}": {"export the model as a SavedModel": f"lambda {FLOATS}"},
    f"unbuilt.keras {FLOATS}": {"call it on a batch": f"called.keras {FLOATS}"},
}


# The same of trainings with quantization.
TRAINED = {
    f"two.keras {TRAINING} one_label.npz": {
        "an array for each output": f"two.keras {TRAINING} two_labels.npz",
    },
    f"tanh.keras {TRAINING} seven_labels.npz": {
        "?labels=none": f"tanh.keras {TRAINING} seven_labels.npz?labels=none",
    },
    f"sine.keras {TRAINING} x.npz": {
        "layers of Keras's own": f"tanh.keras {TRAINING} x.npz",
    },
}


@pytest.mark.parametrize(
    ("words", "followed"),
    [
        *FOLLOWED.items(),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in TRAINED.items()),
    ],
)
def test_what_is_advised_converts(words, followed, converts):
    hint = hint_of(converts, words)
    for advice, command in followed.items():
        assert advice in hint
        done = converts(command)
        assert done.returncode == 0, done.stderr


def test_a_size_is_not_advised_where_it_changes_nothing(converts):
    assert "--shape" not in hint_of(converts, f"grouped.keras {FLOATS}")
