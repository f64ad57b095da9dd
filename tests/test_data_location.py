from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edgeconv.data import identity
from edgeconv.data.location import Location, parse_location
from edgeconv.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_kind_is_taken_from_the_ending() -> None:
    assert parse_location("data/a.npz") == Location("npz", "data/a.npz", {})
    assert parse_location("A.NPY").kind == "npy"


def test_a_named_kind_wins_over_the_ending() -> None:
    assert parse_location("npz:samples.zip") == Location("npz", "samples.zip", {})
    assert parse_location("sklearn:digits") == Location("sklearn", "digits", {})


def test_options_follow_a_question_mark_in_the_order_given() -> None:
    location = parse_location("mnist.npz?image=x_test&labels=y_test")
    assert list(location.options.items()) == [("image", "x_test"), ("labels", "y_test")]


def test_an_option_value_may_hold_an_equals_sign_and_a_colon() -> None:
    assert parse_location("a.npz?in:0=b=c").options == {"in:0": "b=c"}


def test_a_path_with_a_directory_may_hold_a_colon() -> None:
    assert parse_location("./a:b.npz") == Location("npz", "./a:b.npz", {})


def test_an_unknown_kind_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'sklearn'") as error:
        parse_location("sklern:digits")
    assert error.value.exit_code == 2


def test_an_unknown_ending_is_refused_and_the_kinds_are_named() -> None:
    with pytest.raises(UsageError, match=r"known: npy, npz, sklearn"):
        parse_location("samples.bin")


def test_a_directory_is_refused_as_input(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="is a directory"):
        parse_location(str(tmp_path))


@pytest.mark.parametrize("source", ["", "npz:", "npz:?labels=y"])
def test_a_source_without_a_place_is_a_usage_error(source: str) -> None:
    with pytest.raises(UsageError):
        parse_location(source)


@pytest.mark.parametrize("options", ["", "labels", "labels=", "=y", "labels=y&"])
def test_a_malformed_option_is_a_usage_error(options: str) -> None:
    with pytest.raises(UsageError, match="is no option"):
        parse_location(f"a.npz?{options}")


def test_an_option_given_twice_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="'labels' twice"):
        parse_location("a.npz?labels=a&labels=b")


def test_identity_follows_the_content_and_the_options_but_not_the_place(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        np.save(tmp_path / f"{name}.npy", np.array([value], np.float32))
    a, b, c = (identity(str(tmp_path / f"{name}.npy")) for name in "abc")
    assert a == b != c
    assert identity(f"{tmp_path / 'a.npy'}?image=x") != a


def test_identity_of_an_npy_covers_its_labels_file(tmp_path: Path) -> None:
    labels = tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", np.zeros((2, 1), np.float32))
    np.save(labels, np.array([0, 1]))
    source = f"{tmp_path / 'x.npy'}?labels={labels}"
    before = identity(source)
    np.save(labels, np.array([1, 1]))
    assert identity(source) != before


def test_identity_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="does not exist"):
        identity(str(tmp_path / "gone.npz"))


def test_identity_refuses_an_unknown_scikit_learn_set() -> None:
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        identity("sklearn:digit")


def test_identity_imports_neither_numpy_nor_scikit_learn(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=np.zeros((1, 1), np.float32))
    np.save(tmp_path / "a.npy", np.zeros((1, 1), np.float32))
    program = (
        "import sys\n"
        "from edgeconv.data import identity\n"
        "for source in sys.argv[1:]: identity(source)\n"
        "print([name for name in ('numpy', 'sklearn') if name in sys.modules])\n"
    )
    sources = [str(tmp_path / "a.npz"), str(tmp_path / "a.npy"), "sklearn:digits"]
    done = subprocess.run(
        [sys.executable, "-c", program, *sources], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
