"""The kinds of data, each on files that are good, damaged and hostile."""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wording import fails

from edgeconv.data.kinds import npy, npz, sklearn_bundled
from edgeconv.types.errors import InputRefused, UsageError

# A header that looks as if Python 2 wrote it; damaged headers can, too.
pytestmark = pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file:UserWarning")

IMAGES = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
LABELS = np.array([3, 1], np.uint8)


def saved_npz(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def npy_bytes(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_with_shape(shape: str, descr: str = "'<f4'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def test_an_npz_gives_its_arrays_by_name_as_they_are_stored(tmp_path):
    place = saved_npz(tmp_path / "a.npz", image=IMAGES, other=IMAGES.T.astype(np.int8))
    read = npz.read(place, {}, None)
    assert list(read.by_name) == ["image", "other"]
    np.testing.assert_array_equal(read.by_name["image"], IMAGES)
    np.testing.assert_array_equal(read.by_name["other"], IMAGES.T)
    assert read.by_name["other"].dtype == np.int8
    assert read.labels is None


def test_an_npz_takes_an_array_called_labels_as_the_labels(tmp_path):
    read = npz.read(saved_npz(tmp_path / "a.npz", image=IMAGES, labels=LABELS), {}, None)
    assert list(read.by_name) == ["image"]
    assert read.labels.tolist() == [3, 1]


def test_an_npz_reads_only_what_is_wanted(tmp_path):
    bad = np.array([{"never": "unpickled"}], object)
    place = saved_npz(tmp_path / "a.npz", x_test=IMAGES, y_test=LABELS, x_train=bad)
    read = npz.read(place, {"labels": "y_test"}, frozenset({"x_test"}))
    assert list(read.by_name) == ["x_test"]
    assert read.labels.tolist() == [3, 1]


def test_a_compressed_npz_reads_the_same(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", image=IMAGES)
    read = npz.read(str(tmp_path / "a.npz"), {}, None)
    np.testing.assert_array_equal(read.by_name["image"], IMAGES)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


def npz_bytes(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def with_header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + f"{text}\n".encode()


def zip_of_notes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("notes.txt", "hello")
    return stream.getvalue()


PICKLED = np.array([Bomb()], object)
FIELDS = np.zeros(2, [("a", "i4"), ("b", "f4")])


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (npz, npz_bytes(image=PICKLED)),
        (npy, npy_bytes(PICKLED)),
        # Loading either of these would abort this process.
        (npz, pickle.dumps(Bomb())),
        (npy, pickle.dumps(Bomb())),
        (npz, npz_bytes(image=FIELDS)),
        (npz, zip_of_notes()),
        (npz, npy_bytes(IMAGES)),
        (npy, npy_bytes(IMAGES) * 2),
        (npy, npy_with_shape("(1000000000000,)") + bytes(4)),
        (npy, npy_bytes(IMAGES).replace(b"NUMPY\x01", b"NUMPY\x09")),
        *((npy, npy_with_shape(x) + bytes(4)) for x in ("(-1, -1)", "(2.5,)", "'ab'", "None")),
        *(
            (npy, with_header(text))
            for text in ("(", "if x:\n   a\n  b", "{'descr': '<f4'", "1 + ", "\0", "(" * 900)
        ),
    ],
)
def test_what_is_no_array_of_numbers_is_refused_and_never_run(kind, content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    with fails(InputRefused):
        kind.read(str(tmp_path / "a"), {}, None)


@pytest.mark.parametrize(
    ("kind", "whole"), [(npz, npz_bytes(image=IMAGES)), (npy, npy_bytes(IMAGES))]
)
def test_every_truncation_is_refused(kind, whole, tmp_path):
    for length in range(1, len(whole)):
        (tmp_path / "a").write_bytes(whole[:length])
        with pytest.raises(InputRefused):
            kind.read(str(tmp_path / "a"), {}, None)


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("edgeconv.data.arrays._RATIO_MATTERS_BYTES", 1 << 20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=np.zeros((4, 1 << 20), np.uint8))
    with fails(InputRefused):
        npz.read(str(path), {}, None)


def test_zeros_below_the_size_that_matters_are_no_bomb(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", image=np.zeros((4, 1 << 20), np.uint8))
    assert npz.read(str(tmp_path / "a.npz"), {}, None).by_name["image"].shape == (4, 1 << 20)


def test_a_single_array_over_the_limit_is_refused(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.zeros(1000, np.uint8))
    monkeypatch.setattr("edgeconv.data.arrays._limit_bytes", 999)
    with fails(InputRefused):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_an_npy_gives_one_array_without_a_name_and_labels_from_a_second_file(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    read = npy.read(str(tmp_path / "x.npy"), {"labels": str(tmp_path / "y.npy")}, None)
    np.testing.assert_array_equal(read.by_name[""], IMAGES)
    assert read.labels.tolist() == [3, 1]


def test_a_column_ordered_npy_reads_as_it_was(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(IMAGES))
    np.testing.assert_array_equal(npy.read(str(tmp_path / "x.npy"), {}, None).by_name[""], IMAGES)


def test_an_npy_has_no_names_to_choose_by(tmp_path):
    np.save(tmp_path / "x.npy", IMAGES)
    with fails(UsageError):
        npy.read(str(tmp_path / "x.npy"), {}, frozenset({"x"}))


def test_the_bundled_digits_are_images_from_0_to_1_with_their_labels():
    read = sklearn_bundled.read("digits", {}, None)
    image = read.by_name["image"]
    assert image.shape == (1797, 8, 8, 1)
    assert image.dtype == np.float32
    assert (image.min(), image.max()) == (0.0, 1.0)
    assert read.labels[:5].tolist() == [0, 1, 2, 3, 4]


def test_the_bundled_digits_have_no_other_arrays():
    with fails(UsageError):
        sklearn_bundled.read("digits", {}, frozenset({"images"}))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("iris", (150, 4), 3), ("wine", (178, 13), 3), ("breast_cancer", (569, 30), 2)],
)
def test_the_bundled_tables_are_rows_with_their_labels_and_class_names(name, shape, classes):
    read = sklearn_bundled.read(name, {}, None)
    rows = read.by_name["x"]
    assert isinstance(rows, np.ndarray)
    assert rows.shape == shape
    assert rows.dtype == np.float32
    assert read.labels is not None
    assert np.unique(read.labels).tolist() == list(range(classes))
    assert len(read.class_names) == classes


def test_the_bundled_diabetes_rows_have_no_labels():
    read = sklearn_bundled.read("diabetes", {}, None)
    rows = read.by_name["x"]
    assert isinstance(rows, np.ndarray)
    assert (rows.shape, rows.dtype) == ((442, 10), np.float32)
    assert read.labels is None
