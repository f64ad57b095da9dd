"""Paths at which there is no data of a kind: refused by name, and never waited for."""

import os
from pathlib import Path
from typing import Any

import pytest
from wording import fails

from edgeconv.data.kinds import csv_file, images, npy, npz, parquet, tfrecord, wavs
from edgeconv.types.errors import InputRefused

FILES = [csv_file, npy, npz, parquet, tfrecord]


def empty(path: Path) -> None:
    path.touch()


def unreadable(path: Path) -> None:
    path.write_bytes(b"x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")


def damaged(path: Path) -> None:
    path.write_bytes(b"\xff not an array at all" * 10)


def read(kind: Any, path: Path) -> None:
    options = {}
    if kind is tfrecord:
        spec = path.with_name("spec.toml")
        spec.write_text('[features.x]\ndtype = "int64"\n', encoding="utf-8")
        options = {"spec": str(spec)}
    kind.read(str(path), options, None)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (None, "does not exist"),
        (empty, "0 bytes"),
        (os.mkdir, "directory"),
        (os.mkfifo, "device or pipe"),
        (unreadable, "Permission denied"),
        (damaged, ""),
    ],
)
def test_a_file_of_no_such_data_is_refused(kind, make, said, tmp_path):
    path = tmp_path / "a"
    if kind is parquet and make is os.mkdir:
        said = "no"  # A directory may hold the files of one table.
    if make:
        make(path)
    with pytest.raises(InputRefused) as refused:
        read(kind, path)
    assert str(path) in refused.value.message
    assert said in refused.value.message


@pytest.mark.parametrize("kind", [csv_file, npy, npz, images, wavs])
def test_a_path_that_the_system_does_not_take_is_refused(kind, tmp_path):
    with pytest.raises(InputRefused):
        read(kind, tmp_path / ("a" * 300))


def test_a_pattern_that_matches_no_file_is_refused(tmp_path):
    with fails(InputRefused):
        read(tfrecord, tmp_path / "gone-*")
