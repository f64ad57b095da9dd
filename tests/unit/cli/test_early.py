"""What is wrong and can be known early is said before TensorFlow starts."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from embed_models import float_tiny
from foreign_files import POINTER
from keras_files import IMAGE_AND_META, given, layer, sequential, write_keras
from tiny_saved_model import meta_graph, signature, tensor, write_saved_model
from wording import fails

from edgeconv.cli import cli
from edgeconv.data.code import refuse_missing_module
from edgeconv.plugins import TRACKERS, tracker
from edgeconv.reporting.trackers import mlflow
from edgeconv.system.processes import workers
from edgeconv.types.errors import EdgeconvError, InputRefused, OutputRefused, UsageError

ONE_INPUT = sequential(given("image", (None, 8, 8)), layer("Dense", "d", units=2))
NEVER_CALLED = sequential(layer("Flatten", "f"), layer("Dense", "d", units=2))


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A directory with models and samples, in which only children that read a Keras file answer."""
    monkeypatch.chdir(tmp_path)
    write_keras(tmp_path / "two.keras", IMAGE_AND_META)
    write_keras(tmp_path / "one.keras", ONE_INPUT)
    write_keras(tmp_path / "unbuilt.keras", NEVER_CALLED)
    ends = signature({"image": tensor((-1, 8, 8))}, {"y": tensor((-1, 2))})
    write_saved_model(tmp_path / "net", meta_graph({"serving_default": ends}))
    float_tiny(tmp_path / "published")
    labels = np.arange(20) % 2
    np.savez("imge.npz", imge=np.zeros((20, 8, 8), np.float32), size=labels)
    np.savez("large.npz", image=np.zeros((20, 9, 8), np.float32), labels=labels)
    np.savez("good.npz", image=np.zeros((20, 8, 8), np.float32), labels=labels)
    np.savez("more.npz", x=np.zeros((20, 4), np.float32), more=labels, labels=labels)
    np.savez("x.npz", x=np.zeros((20, 4), np.float32), labels=labels)
    Path("mine.py").write_text("raise RuntimeError('this was imported')\n")
    Path("other.csv").write_text("a,b\n")
    Path("pointer.npz").write_bytes(POINTER)
    Path("hollow").mkdir()

    waits = workers.Child.wait

    def only_to_read_a_file(child: workers.Child, *arguments: Any) -> None:
        # They read a Keras file without Keras, in a fraction of a second.
        is_quick = child.label in ("scanning", "reading a Keras file")
        assert is_quick, f"{child.label} was waited for"
        waits(child, *arguments)

    monkeypatch.setattr(workers.Child, "wait", only_to_read_a_file)
    return tmp_path


def is_refused(*arguments: str, by: type[EdgeconvError] = EdgeconvError) -> None:
    with fails(by):
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    "arguments",
    [
        "convert one.keras --to int8 --calibration imge.npz",
        "convert one.keras --to int8 --calibration large.npz",
        "convert net --to int8 --calibration imge.npz",
        "convert net --to int8 --batch 1 --calibration imge.npz",
        "convert unbuilt.keras --to float32",
        "doctor one.keras imge.npz",
        "doctor one.keras gone.npz",
        "doctor two.keras good.npz",
        "doctor unbuilt.keras good.npz",
        "bench published --data x.npz --metric nomodule:f",
        "bench published --data x.npz --metric min:f",
        "bench published --data x.npz --output scores",
        "bench published --data x.npz --baseline two.keras",
        "bench published --data more.npz --baseline net",
        "train digit_cnn",
        "train hollow",
        "train my.module",
        "train min.py",
        "train digits_cnn --data gone",
        "train digits_cnn --data pointer.npz",
        "train mine.py --data pointer.npz",
        "train mine.py --data .",
    ],
)
def test_it_is_said_before_any_child_answers_that_does_more_than_read_a_file(place, arguments):
    is_refused(*arguments.split())


@pytest.mark.parametrize(
    ("tracker", "error"),
    [
        ("csv:other.csv", InputRefused),
        ("csv:pointer.npz", InputRefused),
        ("csv:/proc/none/a.csv", OutputRefused),
        ("tensorboard:/proc/none", OutputRefused),
        ("mlflow:sqlite:///a.db", UsageError),
        ("mlfow:x", UsageError),
    ],
)
def test_a_tracker_that_cannot_log_is_refused_before_the_check(place, monkeypatch, tracker, error):
    monkeypatch.setattr(mlflow, "find_spec", lambda _: None)
    # And not for its configuration, which is not there.
    is_refused("check", "--track", tracker, by=error)


def test_every_tracker_can_refuse():
    assert all(callable(tracker(kind).refuse) for kind in TRACKERS)


def test_a_module_is_found_without_importing_any_part_of_it(tmp_path, monkeypatch):
    package = tmp_path / "parent" / "inner"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").write_text("raise RuntimeError('this was imported')\n")
    (package / "model.py").write_text("")
    (tmp_path / "spread").mkdir()
    (tmp_path / "spread" / "model.py").write_text("")
    for name in ("parent", "parent.inner", "parent.inner.model", "spread.model", "json.decoder"):
        refuse_missing_module(name, str(tmp_path))
    for name in ("paren", "parent.iner", "parent.inner.model.deeper", "spread", "json.nothing"):
        with fails(InputRefused):
            refuse_missing_module(name, str(tmp_path))
    assert "parent" not in sys.modules
