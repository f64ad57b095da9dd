import subprocess
import sys

import numpy as np
import pytest
from sources import identity
from wording import fails

from edgeconv.data.location import located, parse_source
from edgeconv.types import DataSource
from edgeconv.types.errors import InputRefused, UsageError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("data/a.npz", "npz"),
        ("A.NPY", "npy"),
        ("./a:b.npz", "npz"),
        ("a.csv", "csv"),
        ("A.TSV", "csv"),
        ("a.parquet", "parquet"),
        ("a.tfrecord", "tfrecord"),
        ("data/a.tfrecords", "tfrecord"),
        ("a.tfrecord-00000-of-00002", "tfrecord"),
        ("a-*.tfrecord*", "tfrecord"),
        ("a.tfrecord.gz", "tfrecord"),
    ],
)
def test_the_kind_is_taken_from_the_ending_unless_it_is_named(text, kind):
    assert parse_source(text) == DataSource(kind=kind, location=text)
    named = DataSource(kind="sklearn", location=text, names_kind=True)
    assert parse_source(f"sklearn:{text}") == named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "npz:",
        "npz:?labels=y",
        "sklern:digits",
        "a.npz?labels=a&labels=b",
        *(f"a.npz?{each}" for each in ("", "labels", "labels=", "=y", "labels=y&")),
    ],
)
def test_what_is_no_source_is_a_usage_error(text):
    with fails(UsageError) as error:
        parse_source(text)
    assert error.value.exit_code == 2


def test_options_follow_a_question_mark_in_the_order_given():
    location = parse_source("mnist.npz?image=x_test&labels=y_test")
    assert list(location.options.items()) == [("image", "x_test"), ("labels", "y_test")]


def test_an_option_value_may_hold_an_equals_sign_and_a_colon():
    assert parse_source("a.npz?in:0=b=c").options == {"in:0": "b=c"}


def test_an_unknown_ending_is_refused_and_the_kinds_are_named():
    with fails(UsageError):
        located(parse_source("samples.bin"))


def test_a_directory_is_told_by_what_it_holds(tmp_path):
    for name, kind in (("dataset_info.json", "tfds"), ("part-0.parquet", "parquet")):
        directory = tmp_path / kind
        directory.mkdir()
        (directory / name).touch()
        assert located(parse_source(str(directory))).kind == kind


@pytest.mark.parametrize("text", ["my.data:load", "mydata:load", "a._b.c2:Loader.load"])
def test_module_and_function_need_no_kind(text):
    assert parse_source(text) == DataSource(kind="function", location=text)
    assert parse_source(f"function:{text}") == DataSource(
        kind="function", location=text, names_kind=True
    )
    assert parse_source(f"{text}?image=x").options == {"image": "x"}


def test_a_module_may_be_called_almost_like_a_kind_where_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails(UsageError):
        parse_source("image:load")
    (tmp_path / "image.py").touch()
    assert parse_source("image:load").kind == "function"


@pytest.mark.parametrize("text", ["no-module:load", "a.b:", "a.b:c-d", "1a.b:c"])
def test_what_is_no_name_in_python_is_no_function(text):
    with pytest.raises(UsageError):
        located(parse_source(text))


def test_code_is_only_run_for_an_identity_where_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fails(UsageError):
        identity("nothing.there:load")
    with fails(InputRefused):
        identity("nothing.there:load", allow_code=True)


def test_identity_follows_the_content_and_the_options_but_not_the_place(tmp_path):
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        np.save(tmp_path / f"{name}.npy", np.array([value], np.float32))
    a, b, c = (identity(str(tmp_path / f"{name}.npy")) for name in "abc")
    assert a == b != c
    assert identity(f"{tmp_path / 'a.npy'}?image=x") != a


def test_identity_of_an_npy_covers_its_labels_file(tmp_path):
    labels = tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", np.zeros((2, 1), np.float32))
    np.save(labels, np.array([0, 1]))
    source = f"{tmp_path / 'x.npy'}?labels={labels}"
    before = identity(source)
    np.save(labels, np.array([1, 1]))
    assert identity(source) != before


def test_identity_refuses_an_unknown_scikit_learn_set():
    with fails(UsageError):
        identity("sklearn:digit")


def test_identity_imports_neither_numpy_nor_scikit_learn(tmp_path):
    np.savez(tmp_path / "a.npz", image=np.zeros((1, 1), np.float32))
    np.save(tmp_path / "a.npy", np.zeros((1, 1), np.float32))
    program = (
        "import sys\n"
        "from edgeconv.data import identity, parse_source\n"
        "for source in sys.argv[1:]: identity(parse_source(source))\n"
        "heavy = ('numpy', 'scipy', 'sklearn', 'pyarrow', 'google.protobuf', 'PIL')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    for name in ("a.csv", "a.parquet", "a.tfrecord", "spec.toml", "images/0.png", "wavs/0.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x", encoding="ascii")
    version = tmp_path / "set" / "1.0.0"
    version.mkdir(parents=True)
    (version / "dataset_info.json").write_text(
        '{"name": "set", "splits": [{"name": "all", "shardLengths": [1]}]}'
    )
    (version / "set-all.tfrecord-00000-of-00001").write_bytes(b"x")
    sources = [str(tmp_path / f"a.{kind}") for kind in ("npz", "npy", "csv", "parquet")]
    sources += [f"{kind}:{tmp_path / kind}?labels=none" for kind in ("images", "wavs")]
    sources += ["sklearn:digits", str(version), f"tfds:set?dir={tmp_path}"]
    sources += [f"{tmp_path / 'a.tfrecord'}?spec={tmp_path / 'spec.toml'}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *sources], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
