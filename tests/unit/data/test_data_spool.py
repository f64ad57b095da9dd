"""Arrays handed over to another process, and rows that are written as they come."""

import threading
from pathlib import Path

import numpy as np
import pytest
from sources import open_samples
from wording import fails

from edgeconv.conversion.prepare import Reference
from edgeconv.data import LabelUse, Samples, SamplesHash, parse_preprocessing, sha256_samples
from edgeconv.data.handover import RowsFile, put_part, take_parts, waiting_parts
from edgeconv.data.samples import write_arrays
from edgeconv.tf.reference import ReferenceOutputs
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, OutputRefused

X = np.arange(24, dtype=np.float32).reshape(12, 2)


def test_parts_are_taken_in_order_and_waited_for(tmp_path):
    def hand_over() -> None:
        for number in range(4):
            put_part(Samples({"x": X[3 * number : 3 * number + 3]}, None, "s"), tmp_path, number)

    thread = threading.Thread(target=hand_over)
    thread.start()
    taken = [part.arrays["x"].copy() for part in take_parts(tmp_path, 12)]
    thread.join()
    np.testing.assert_array_equal(np.concatenate(taken), X)
    assert waiting_parts(tmp_path) == 0


def test_what_a_child_answered_is_read_by_name_and_never_through_a_link(tmp_path):
    (tmp_path / "0").mkdir()
    write_arrays([X, X[:, 0]], tmp_path / "0")
    answer = ReferenceOutputs(outputs={"serve": ("scores", "boxes")})
    answers = Reference(directory=tmp_path, answer=answer)
    np.testing.assert_array_equal(answers.arrays("serve")["scores"], X)
    np.testing.assert_array_equal(answers.arrays("serve")["boxes"], X[:, 0])
    (tmp_path / "0" / "1.npy").rename(tmp_path / "elsewhere.npy")
    (tmp_path / "0" / "1.npy").symlink_to(tmp_path / "elsewhere.npy")
    with fails(InputRefused):
        answers.arrays("serve")


def test_rows_may_be_written_in_any_order(tmp_path):
    file = RowsFile(tmp_path / "rows" / "0.npy", 12, X[:1])
    for start in (6, 0, 3, 9):
        file.write(start, X[start : start + 3])
    file.close()
    np.testing.assert_array_equal(np.load(tmp_path / "rows" / "0.npy"), X)


@pytest.mark.parametrize("rows", [X[:2].astype(np.float64), X[:2, :1]])
def test_rows_of_another_kind_are_refused(tmp_path, rows):
    file = RowsFile(tmp_path / "0.npy", 12, X)
    with fails(InputRefused):
        file.write(0, rows)
    file.close()


def test_rows_that_do_not_fit_on_the_disk_are_refused(tiny_disk):
    file = RowsFile(tiny_disk / "0.npy", 10**5, X)
    with fails(OutputRefused):
        file.write(0, np.zeros((10**5, 2), np.float32))
    file.close()


def test_the_hash_of_parts_is_that_of_the_whole():
    labels = np.arange(12)
    digest = SamplesHash()
    for rows in (slice(0, 5), slice(5, 6), slice(6, 12)):
        digest.update(Samples({"x": X[rows], "y": X[rows, :1]}, labels[rows], "s"))
    whole = Samples({"y": X[:, :1], "x": X}, labels, "s")
    assert digest.hexdigest() == sha256_samples(whole)


def hash_of(source: str, preprocess: str = "none", size: int = 5) -> str:
    """That of all samples of a SOURCE for an input of any shape, read `size` at a time."""
    spec = TensorSpec(name="x", shape=(1, -1, -1), dtype="float32")
    opened = open_samples(source, (spec,), preprocessing=parse_preprocessing(preprocess))
    digest = SamplesHash()
    for _ in opened.chunks(np.arange(opened.count), size, digest):
        pass
    return digest.hexdigest()


@pytest.fixture
def images(tmp_path) -> Path:
    """data.npz, with the images x, (12, 4, 3) of uint8, and their labels."""
    pixels = np.arange(144, dtype=np.uint8).reshape(12, 4, 3)
    np.savez(tmp_path / "data.npz", x=pixels, labels=np.arange(12) % 3)
    return tmp_path / "data.npz"


def test_stored_samples_have_the_same_hash_whatever_is_done_to_them(images):
    scaled = hash_of(str(images), "scale=1/255")
    assert scaled == hash_of(str(images), "scale=1/127.5&mean=1", size=12)
    stored = dict(np.load(images))
    assert scaled == sha256_samples(Samples({"x": stored["x"]}, stored["labels"], ""))


def test_the_hash_of_stored_samples_tells_a_pixel_a_label_and_no_labels_apart(images):
    before = dict(np.load(images))
    hashes = {hash_of(str(images), "scale=1/255")}
    for name in ("x", "labels"):
        changed = before[name].copy()
        changed.flat[-1] += 1
        np.savez(images, **{**before, name: changed})
        hashes.add(hash_of(str(images), "scale=1/255"))
    np.savez(images, x=before["x"])
    hashes.add(hash_of(str(images), "scale=1/255"))
    assert len(hashes) == 4


def test_samples_read_one_by_one_have_the_hash_of_the_same_read_at_once(
    images, tmp_path, monkeypatch
):
    stored = dict(np.load(images))
    np.save(tmp_path / "x.npy", stored["x"])
    np.save(tmp_path / "y.npy", stored["labels"])
    source = f"npy:{tmp_path}/x.npy?labels={tmp_path}/y.npy"
    at_once = hash_of(source, "scale=1/255")
    assert at_once == hash_of(str(images), "scale=1/255")
    monkeypatch.setattr("edgeconv.data.kinds.npy._AT_ONCE_BYTES", 10)
    assert hash_of(source, "scale=1/255") == at_once


def test_the_shapes_of_samples_that_differ_in_them_are_part_of_the_hash():
    def of(*shapes: tuple[int, ...]) -> str:
        digest = SamplesHash()
        for shape in shapes:
            digest.add("x", np.zeros((1, *shape), np.uint8))
        return digest.hexdigest()

    assert of((2, 3), (3, 2)) != of((3, 2), (2, 3))
    assert of((2, 3), (2, 3)) != of((2, 3), (6,)) != of((6,), (2, 3))


def test_a_large_npy_is_read_row_by_row(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("edgeconv.data.kinds.npy._AT_ONCE_BYTES", 10)
    opened = open_samples(
        f"npy:{tmp_path}/x.npy", (TensorSpec(name="x", shape=(1, 2), dtype="float32"),)
    )
    assert not isinstance(opened.columns["x"], np.ndarray)
    parts = [part.arrays["x"] for part in opened.chunks(np.array([1, 4, 7, 8, 11]), 2)]
    assert [len(part) for part in parts] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(parts), X[[1, 4, 7, 8, 11]])
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    with fails(InputRefused):
        open_samples(f"npy:{tmp_path}/x.npy", opened.inputs)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-4])
    with fails(InputRefused):
        open_samples(f"npy:{tmp_path}/x.npy", opened.inputs)


def test_labels_may_be_any_numbers_where_such_are_asked_for(tmp_path):
    spec = TensorSpec(name="x", shape=(1, 2), dtype="float32")
    for labels in (np.linspace(0, 1, 12), np.full((12, 3), -1)):
        np.savez(tmp_path / "d.npz", x=X, labels=labels)
        opened = open_samples(str(tmp_path / "d.npz"), (spec,), labels=LabelUse(needs="numbers"))
        np.testing.assert_array_equal(opened.labels, labels)
        with pytest.raises(InputRefused):
            open_samples(str(tmp_path / "d.npz"), (spec,))
    np.savez(tmp_path / "d.npz", x=X, labels=np.full(12, np.nan))
    with fails(InputRefused):
        open_samples(str(tmp_path / "d.npz"), (spec,), labels=LabelUse(needs="numbers"))
    (tmp_path / "d.csv").write_text("a,b,y\n" + "1,2,0.5\n" * 12)
    opened = open_samples(f"{tmp_path}/d.csv?labels=y", (spec,), labels=LabelUse(needs="numbers"))
    assert opened.labels.tolist() == [0.5] * 12
