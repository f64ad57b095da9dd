"""The kinds of data, each on files that are good, damaged and hostile."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeconv.data import memory
from edgeconv.data.kinds import npy, npz, sklearn_bundled
from edgeconv.errors import EdgeconvError, InputRefused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

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


def test_an_npz_gives_its_arrays_by_name_as_they_are_stored(tmp_path: Path) -> None:
    place = saved_npz(tmp_path / "a.npz", image=IMAGES, other=IMAGES.T.astype(np.int8))
    read = npz.read(place, {}, None)
    assert list(read.by_name) == ["image", "other"]
    np.testing.assert_array_equal(read.by_name["image"], IMAGES)
    np.testing.assert_array_equal(read.by_name["other"], IMAGES.T)
    assert read.by_name["other"].dtype == np.int8
    assert read.labels is None


def test_an_npz_takes_an_array_called_labels_as_the_labels(tmp_path: Path) -> None:
    read = npz.read(saved_npz(tmp_path / "a.npz", image=IMAGES, labels=LABELS), {}, None)
    assert list(read.by_name) == ["image"]
    assert read.labels is not None
    assert read.labels.tolist() == [3, 1]


def test_an_npz_reads_only_what_is_wanted(tmp_path: Path) -> None:
    bad = np.array([{"never": "unpickled"}], object)
    place = saved_npz(tmp_path / "a.npz", x_test=IMAGES, y_test=LABELS, x_train=bad)
    read = npz.read(place, {"labels": "y_test"}, frozenset({"x_test"}))
    assert list(read.by_name) == ["x_test"]
    assert read.labels is not None
    assert read.labels.tolist() == [3, 1]


def test_a_compressed_npz_reads_the_same(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", image=IMAGES)
    read = npz.read(str(tmp_path / "a.npz"), {}, None)
    np.testing.assert_array_equal(read.by_name["image"], IMAGES)


def test_an_array_name_that_is_not_in_the_npz_gets_a_suggestion(tmp_path: Path) -> None:
    place = saved_npz(tmp_path / "a.npz", x_test=IMAGES)
    with pytest.raises(UsageError, match="did you mean 'x_test'"):
        npz.read(place, {"labels": "x_tst"}, None)
    with pytest.raises(UsageError, match="unknown array"):
        npz.read(place, {}, frozenset({"nothing"}))


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.abort, ()


def test_pickled_arrays_are_never_unpickled(tmp_path: Path) -> None:
    place = saved_npz(tmp_path / "a.npz", image=np.array([Bomb()], object))
    with pytest.raises(InputRefused, match="pickled Python objects"):
        npz.read(place, {}, None)
    np.save(tmp_path / "a.npy", np.array([Bomb()], object))
    with pytest.raises(InputRefused, match="pickled Python objects"):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_a_bare_pickle_is_refused_and_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputRefused, match="not a readable"):
        npz.read(str(path), {}, None)
    with pytest.raises(InputRefused, match="not a numpy array"):
        npy.read(str(path), {}, None)


def test_structured_arrays_are_refused(tmp_path: Path) -> None:
    place = saved_npz(tmp_path / "a.npz", image=np.zeros(2, [("a", "i4"), ("b", "f4")]))
    with pytest.raises(InputRefused, match="not numbers"):
        npz.read(place, {}, None)


@pytest.mark.parametrize("kind", [npz, npy])
class TestBadFiles:
    def test_a_missing_file(self, kind: Any, tmp_path: Path) -> None:
        with pytest.raises(InputRefused, match="does not exist"):
            kind.read(str(tmp_path / "gone"), {}, None)

    def test_an_empty_file(self, kind: Any, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(InputRefused, match=r"empty \(0 bytes\)"):
            kind.read(str(tmp_path / "a"), {}, None)

    def test_a_directory(self, kind: Any, tmp_path: Path) -> None:
        with pytest.raises(InputRefused, match="is a directory"):
            kind.read(str(tmp_path), {}, None)

    def test_a_pipe_is_refused_instead_of_waited_for(self, kind: Any, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputRefused, match="device or pipe"):
            kind.read(str(tmp_path / "pipe"), {}, None)

    def test_a_path_the_system_cannot_take(self, kind: Any, tmp_path: Path) -> None:
        with pytest.raises(InputRefused, match="cannot be read: File name too long"):
            kind.read(str(tmp_path / ("a" * 300)), {}, None)

    def test_a_file_without_read_permission(self, kind: Any, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x")
        (tmp_path / "a").chmod(0)
        if os.access(tmp_path / "a", os.R_OK):
            pytest.skip("this user may read every file")
        with pytest.raises(InputRefused, match="Permission denied"):
            kind.read(str(tmp_path / "a"), {}, None)

    def test_a_file_of_something_else(self, kind: Any, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"not an array at all" * 10)
        with pytest.raises(InputRefused):
            kind.read(str(tmp_path / "a"), {}, None)


def test_every_truncation_of_an_npz_is_refused(tmp_path: Path) -> None:
    place = saved_npz(tmp_path / "a.npz", image=IMAGES)
    whole = (tmp_path / "a.npz").read_bytes()
    for length in range(1, len(whole)):
        (tmp_path / "a.npz").write_bytes(whole[:length])
        with pytest.raises(InputRefused):
            npz.read(place, {}, None)


def test_every_truncation_of_an_npy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    whole = npy_bytes(IMAGES)
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputRefused):
            npy.read(str(path), {}, None)


def test_an_npy_with_more_after_its_array_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_bytes(IMAGES) + npy_bytes(IMAGES))
    with pytest.raises(InputRefused, match="after the end of its array"):
        npy.read(str(tmp_path / "a.npy"), {}, None)


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(-1, -1)", "(2.5,)", "'ab'", "None"])
def test_an_npy_header_that_lies_is_refused(shape: str, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_with_shape(shape) + bytes(4))
    with pytest.raises(InputRefused):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_an_npy_that_declares_more_than_it_has_is_told_to_be_cut_short(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_with_shape("(1000000000000,)") + bytes(4))
    with pytest.raises(InputRefused, match="cut short: it should have 4,000,000,000,"):
        npy.read(str(tmp_path / "a.npy"), {}, None)


@pytest.mark.parametrize(
    "header", ["(", "if x:\n   a\n  b", "{'descr': '<f4'", "1 + ", "\0", "(" * 900]
)
def test_an_npy_header_that_does_not_parse_is_refused(header: str, tmp_path: Path) -> None:
    text = f"{header}\n".encode()
    whole = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    (tmp_path / "a.npy").write_bytes(whole)
    with pytest.raises(InputRefused, match="not a numpy array"):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_an_npy_of_a_later_format_version_is_refused(tmp_path: Path) -> None:
    whole = bytearray(npy_bytes(IMAGES))
    whole[6] = 9
    (tmp_path / "a.npy").write_bytes(whole)
    with pytest.raises(InputRefused):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_RATIO_MATTERS_BYTES", 1 << 20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, image=np.zeros((4, 1 << 20), np.uint8))
    with pytest.raises(InputRefused, match="would unpack to"):
        npz.read(str(path), {}, None)


def test_zeros_below_the_size_that_matters_are_no_bomb(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", image=np.zeros((4, 1 << 20), np.uint8))
    assert npz.read(str(tmp_path / "a.npz"), {}, None).by_name["image"].shape == (4, 1 << 20)


def test_an_archive_that_declares_more_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = saved_npz(tmp_path / "a.npz", a=np.zeros(600, np.uint8), b=np.zeros(600, np.uint8))
    monkeypatch.setattr(memory, "_limit_bytes", 1000)
    with pytest.raises(InputRefused, match="1,456 bytes of memory") as refused:
        npz.read(place, {}, None)
    assert "--memory-limit-mib" in refused.value.hint


def test_a_single_array_over_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "a.npy", np.zeros(1000, np.uint8))
    monkeypatch.setattr(memory, "_limit_bytes", 999)
    with pytest.raises(InputRefused, match="1,000 bytes of memory, and 999 is the most"):
        npy.read(str(tmp_path / "a.npy"), {}, None)


def test_a_zip_without_arrays_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(InputRefused, match="holds no arrays"):
        npz.read(str(tmp_path / "a.npz"), {}, None)


def test_a_single_array_called_npz_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(npy_bytes(IMAGES))
    with pytest.raises(InputRefused, match="use npy:"):
        npz.read(str(tmp_path / "a.npz"), {}, None)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_damaged_file_gives_an_array_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    packed = io.BytesIO()
    np.savez_compressed(packed, image=IMAGES)
    for kind, whole in ((npy, npy_bytes(IMAGES)), (npz, packed.getvalue())):
        damaged = bytearray(whole)
        for position, value in changes:
            damaged[position % len(damaged)] = value
        (folder / "a").write_bytes(damaged)
        try:
            read = kind.read(str(folder / "a"), {}, None)
        except EdgeconvError:
            continue
        assert all(array.dtype.kind in "biufc" for array in read.by_name.values())


def test_an_npy_gives_one_array_without_a_name_and_labels_from_a_second_file(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    read = npy.read(str(tmp_path / "x.npy"), {"labels": str(tmp_path / "y.npy")}, None)
    np.testing.assert_array_equal(read.by_name[""], IMAGES)
    assert read.labels is not None
    assert read.labels.tolist() == [3, 1]


def test_a_column_ordered_npy_reads_as_it_was(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(IMAGES))
    np.testing.assert_array_equal(npy.read(str(tmp_path / "x.npy"), {}, None).by_name[""], IMAGES)


def test_an_npy_has_no_names_to_choose_by(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", IMAGES)
    with pytest.raises(UsageError, match="without a name"):
        npy.read(str(tmp_path / "x.npy"), {}, frozenset({"x"}))


def test_the_bundled_digits_are_images_from_0_to_1_with_their_labels() -> None:
    read = sklearn_bundled.read("digits", {}, None)
    image = read.by_name["image"]
    assert image.shape == (1797, 8, 8, 1)
    assert image.dtype == np.float32
    assert (image.min(), image.max()) == (0.0, 1.0)
    assert read.labels is not None
    assert read.labels[:5].tolist() == [0, 1, 2, 3, 4]


def test_the_bundled_digits_have_no_other_arrays() -> None:
    with pytest.raises(UsageError, match="did you mean 'image'"):
        sklearn_bundled.read("digits", {}, frozenset({"images"}))


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("iris", (150, 4), 3), ("wine", (178, 13), 3), ("breast_cancer", (569, 30), 2)],
)
def test_the_bundled_tables_are_rows_with_their_labels_and_class_names(
    name: str, shape: tuple[int, int], classes: int
) -> None:
    read = sklearn_bundled.read(name, {}, None)
    rows = read.by_name["x"]
    assert isinstance(rows, np.ndarray)
    assert rows.shape == shape
    assert rows.dtype == np.float32
    assert read.labels is not None
    assert np.unique(read.labels).tolist() == list(range(classes))
    assert len(read.class_names) == classes


def test_the_bundled_diabetes_rows_have_no_labels() -> None:
    read = sklearn_bundled.read("diabetes", {}, None)
    rows = read.by_name["x"]
    assert isinstance(rows, np.ndarray)
    assert (rows.shape, rows.dtype) == ((442, 10), np.float32)
    assert read.labels is None
