"""Git LFS pointers, wherever a file of the user is read."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from embed_models import float_tiny
from foreign_files import POINTER, write
from sources import identity, open_samples
from tiny_saved_model import write_plain
from tiny_tflite import float_model, packed
from wording import fails

from edgeconv.cli import cli
from edgeconv.embedding.plan import find_published
from edgeconv.model.source import load
from edgeconv.requests.config.lock import read as read_lock
from edgeconv.system.store.files import refuse_pointer
from edgeconv.types import TensorSpec
from edgeconv.types.errors import EdgeconvError, InputRefused

IMAGE = TensorSpec(name="image", shape=(-1, 8, 8, 3), dtype="float32")
SAYS = "is a Git LFS pointer, not the file itself"


def assert_pointer(error: EdgeconvError, file: Path) -> None:
    assert f"{file} {SAYS}" in error.message
    assert error.hint.startswith("run git lfs pull")
    assert error.exit_code == 3


@pytest.mark.parametrize("name", ["m.tflite", "m.keras", "m.h5", "m.hdf5", "m.onnx", "model.json"])
def test_a_model_file_that_is_a_pointer_says_so(tmp_path, name):
    file = write(tmp_path, {name: POINTER}) / name
    with pytest.raises(InputRefused) as caught:
        load(file)
    assert_pointer(caught.value, file)


@pytest.mark.parametrize(
    "name",
    [
        "saved_model.pb",
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
        "assets/words.txt",
    ],
)
@pytest.mark.parametrize("version", ["", "3"])
def test_a_saved_model_with_a_pointer_in_it_says_which_file(tmp_path, name, version):
    net = write_plain(tmp_path / "net" / version)
    write(net, {name: POINTER})
    with pytest.raises(InputRefused) as caught:
        load(tmp_path / "net")
    assert_pointer(caught.value, net / name)


@pytest.mark.parametrize(
    "source",
    [
        "a.npz",
        "a.npy",
        "a.csv",
        "a.tsv",
        "a.parquet",
        "a.tfrecord?spec=good.toml",
        "good.tfrecord?spec=a.toml",
        "images:photos",
        "wavs:sounds",
        "images:good?classes=a.txt",
        "npy:good.npy?labels=a.npy",
        "tfds:set",
        "parquet:rows",
    ],
)
def test_samples_that_are_pointers_say_so_before_anything_is_read(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    names = ("a.npz", "a.npy", "a.csv", "a.tsv", "a.parquet", "a.tfrecord", "a.toml", "a.txt")
    pointers = (
        *names,
        "photos/cat/1.jpg",
        "sounds/yes/1.wav",
        "set/dataset_info.json",
        "rows/1.parquet",
    )
    write(tmp_path, dict.fromkeys(pointers, POINTER))
    write(tmp_path, {"good.toml": b'[features.image]\nencoding = "raw"\ndtype = "uint8"\n'})
    write(tmp_path, {"good.tfrecord": b"x", "good/cat/1.png": b"\x89PNG\r\n\x1a\n"})
    np.save(tmp_path / "good.npy", np.zeros((3, 8, 8, 3), np.float32))
    for read in (lambda: identity(source), lambda: open_samples(source, (IMAGE,))):
        with fails(InputRefused):
            read()


def test_it_is_told_how_many_files_around_it_are_pointers_too(tmp_path):
    photos = {f"photos/{kind}/{i}.jpg": POINTER for kind in ("cat", "dog") for i in range(4)}
    write(tmp_path, {**photos, "photos/cat/real.jpg": b"\xff\xd8\xff"})
    with fails(InputRefused) as caught:
        open_samples(f"images:{tmp_path / 'photos'}", (IMAGE,))
    assert_pointer(caught.value, tmp_path / "photos/cat/0.jpg")
    net = write(write_plain(tmp_path / "net"), {"assets/a": POINTER, "assets/b": POINTER})
    with fails(InputRefused):
        load(net)


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "tiny.float32.tflite"),
        ("bench", "."),
        ("compare", "tiny.float32.tflite", "other.tflite"),
        ("tune", "tiny.float32.tflite", "--data", "a.npz", "--max-drop", "0.01"),
        ("convert", "tiny.float32.tflite", "--to", "float16"),
        ("doctor", "tiny.float32.tflite", "a.npz"),
        ("visualize", "tiny.float32.tflite"),
    ],
)
def test_every_command_that_takes_a_model_says_so_of_a_pointer(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.tflite").write_bytes(packed(float_model()))
    write(tmp_path, {"tiny.float32.tflite": POINTER})
    np.savez("a.npz", x=np.zeros((4, 4), np.float32))
    with pytest.raises(InputRefused) as caught:
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)
    assert_pointer(caught.value, tmp_path / "tiny.float32.tflite")


def test_a_published_model_or_manifest_that_is_a_pointer_says_so(tmp_path):
    for spoiled in (".tflite", ".json"):
        file = float_tiny(tmp_path / spoiled)
        pointer = file.with_suffix(spoiled)
        pointer.write_bytes(POINTER)
        with pytest.raises(InputRefused) as caught:
            find_published(file)
        assert_pointer(caught.value, pointer)


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "a.json"),
        ("compare", "a.json", "a.json"),
        ("check", "--config", "a.toml"),
        (
            "convert",
            "good.tflite",
            "--to",
            "int8",
            "--calibration",
            "a.npz",
            "--preprocess",
            "a.toml",
        ),
        ("embed", "m/tiny.float32.tflite", "--target", "c", "-o", "o", "--labels", "a.txt"),
    ],
)
def test_reports_configurations_and_labels_that_are_pointers_say_so(
    tmp_path, monkeypatch, arguments
):
    monkeypatch.chdir(tmp_path)
    float_tiny(tmp_path / "m")
    write(tmp_path, dict.fromkeys(("a.json", "a.toml", "a.txt", "a.npz"), POINTER))
    (tmp_path / "good.tflite").write_bytes(packed(float_model()))
    with fails(EdgeconvError):
        CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_lock_that_is_a_pointer_says_so(tmp_path):
    file = write(tmp_path, {"edgeconv.lock": POINTER}) / "edgeconv.lock"
    with pytest.raises(InputRefused) as caught:
        read_lock(file)
    assert_pointer(caught.value, file)


def test_what_only_looks_like_a_pointer_is_none(tmp_path):
    for content in (b"", b"version 1\n", POINTER + bytes(2000), b" " + POINTER):
        refuse_pointer(write(tmp_path, {"a.csv": content}) / "a.csv")
    refuse_pointer(tmp_path / "missing")
