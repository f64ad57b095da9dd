"""Labels of a data set: any numbers, by output, only where they are classes, or none."""

import numpy as np
import pytest
from sources import open_local, open_samples, opened_samples, split_taken
from wording import fails

from edgeconv.data import LabelUse, read_samples, write_samples
from edgeconv.types import DataSource, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

IMAGE = TensorSpec(name="image", dtype="float32", shape=(-1, 4))
X = np.arange(48, dtype=np.float32).reshape(12, 4)
KIND, BOX = np.arange(12) % 3, np.arange(24, dtype=np.float64).reshape(12, 2)
BOTH = LabelUse(needs="numbers", outputs=("kind", "box"))


@pytest.fixture
def named(tmp_path):
    np.savez(tmp_path / "named.npz", image=X, kind=KIND.astype(np.uint8), box=BOX)
    return tmp_path / "named.npz"


def test_arrays_under_the_names_of_outputs_are_their_labels(named):
    labels = open_samples(str(named), (IMAGE,), labels=BOTH).labels
    assert labels.dtype.names == ("kind", "box")
    assert np.array_equal(labels["kind"], KIND)
    assert labels["kind"].dtype == np.int64
    assert np.array_equal(labels["box"], BOX)


def test_some_outputs_may_have_none(tmp_path):
    np.savez(tmp_path / "d.npz", image=X, box=BOX)
    assert open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH).labels.dtype.names == ("box",)


def test_labels_of_the_only_output_are_an_array(named, tmp_path):
    np.savez(tmp_path / "d.npz", image=X, box=BOX)
    use = LabelUse(needs="numbers", outputs=("box",))
    assert np.array_equal(open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=use).labels, BOX)


@pytest.mark.parametrize("options", ["image=x&kind=c&box=b", "image=x"])
def test_arrays_are_renamed_for_outputs_as_for_inputs(tmp_path, options):
    names = ("c", "b") if "kind" in options else ("kind", "box")
    np.savez(tmp_path / "d.npz", x=X, **dict(zip(names, (KIND, BOX), strict=True)))
    opened = open_samples(f"{tmp_path}/d.npz?{options}", (IMAGE,), labels=BOTH)
    assert list(opened.columns) == ["image"]
    assert np.array_equal(opened.labels["box"], BOX)


def test_columns_of_a_table_are_labels_of_outputs(tmp_path):
    rows = "\n".join(f"{i},{i + 1},{i + 2},{i + 3},{i % 3},{i / 2},{i}" for i in range(12))
    (tmp_path / "d.csv").write_text(f"a,b,c,d,k,x,y\n{rows}\n")
    source = f"{tmp_path}/d.csv?image=a:d&kind=k&box=x:y"
    labels = open_samples(source, (IMAGE,), labels=BOTH).labels
    assert np.array_equal(labels["kind"].ravel(), KIND)
    assert np.array_equal(labels["box"], np.stack([np.arange(12) / 2, np.arange(12)], axis=1))


def test_they_reach_another_process_and_a_split_with_their_samples(named, tmp_path):
    with opened_samples(str(named), (IMAGE,), labels=BOTH) as opened:
        train, kept = split_taken(opened, 9, held_back=3)
    write_samples(kept, tmp_path / "kept")
    again = read_samples(tmp_path / "kept")
    for samples in (train, again):
        rows = (samples.arrays["image"][:, 0] / 4).astype(int)
        assert np.array_equal(samples.labels["kind"], KIND[rows])
        assert np.array_equal(samples.labels["box"], BOX[rows])
    assert (train.count, again.count) == (9, 3)


def test_labels_and_arrays_for_outputs_together_are_refused(tmp_path):
    np.savez(tmp_path / "d.npz", image=X, box=BOX, labels=KIND)
    with fails(InputRefused):
        open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH)


def test_an_array_of_an_output_is_refused_where_no_such_labels_are_wanted(named):
    with fails(InputRefused):
        open_samples(str(named), (IMAGE,))
    with fails(UsageError):
        open_samples(f"{named}?boxx=box", (IMAGE,), labels=BOTH)


@pytest.mark.parametrize("bad", [BOX[:5], np.full((12, 2), np.nan), BOX.astype(str)])
def test_labels_of_an_output_are_checked_and_named(tmp_path, bad):
    np.savez(tmp_path / "d.npz", image=X, kind=KIND, box=bad)
    with fails(InputRefused):
        open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH)


def test_class_numbers_in_a_column_are_one_a_sample(tmp_path):
    np.savez(tmp_path / "d.npz", image=X, kind=KIND[:, None], box=BOX[:, :1])
    labels = open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH).labels
    assert (labels["kind"].shape, labels["box"].shape) == ((12,), (12, 1))


def test_a_calibration_set_has_the_labels_of_outputs_that_are_classes(named):
    use = LabelUse(needs="if classes", outputs=("kind", "box"))
    labels = open_samples(str(named), (IMAGE,), labels=use).labels
    assert labels.dtype.names == ("kind",)


def test_an_array_alone_is_the_samples_whatever_it_is_called(tmp_path):
    np.savez(tmp_path / "d.npz", kind=X)
    opened = open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH)
    assert (list(opened.columns), opened.labels) == (["image"], None)


def test_an_array_of_no_output_is_named_with_the_output_that_may_be_meant(tmp_path):
    np.savez(tmp_path / "d.npz", image=X, kinds=KIND, box=BOX)
    with fails(InputRefused) as error:
        open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH)
    followed = error.value.hint.split("'")[1]
    assert open_samples(followed, (IMAGE,), labels=BOTH).labels.dtype.names == ("kind", "box")
    # Labels of one array would contradict those by output.
    np.savez(tmp_path / "d.npz", image=X, kinds=KIND, box=BOX, y=KIND)
    with fails(InputRefused) as error:
        open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=BOTH)
    assert "labels=" not in error.value.hint
    held = DataSource(kind="npz", location=f"{tmp_path}/d.npz", held="data (ndarray)")
    with fails(InputRefused) as error:
        open_local(held, (IMAGE,), labels=BOTH)
    assert "'kind'" in error.value.hint


ANY_LABELS = [BOX, KIND.astype(np.float32), KIND[:5], KIND.astype(str), np.full(12, np.nan)]


@pytest.mark.parametrize("labels", ANY_LABELS)
def test_labels_that_are_not_used_may_be_anything(tmp_path, labels):
    np.savez(tmp_path / "d.npz", image=X, labels=labels)
    use = LabelUse(needs="none", outputs=("kind", "box"))
    assert open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=use).labels is None


@pytest.mark.parametrize("labels", [BOX, KIND.astype(np.float32)])
def test_a_calibration_set_needs_no_classes(tmp_path, labels):
    np.savez(tmp_path / "d.npz", image=X, labels=labels)
    use = LabelUse(needs="if classes", outputs=("kind", "box"))
    assert open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=use).labels is None
    np.savez(tmp_path / "d.npz", image=X, labels=KIND)
    assert np.array_equal(open_samples(f"{tmp_path}/d.npz", (IMAGE,), labels=use).labels, KIND)


@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_a_source_can_be_taken_without_its_labels(tmp_path, ending):
    np.savez(tmp_path / "d.npz", image=X, labels=BOX)
    np.save(tmp_path / "d.npy", X)
    opened = open_samples(f"{tmp_path}/d.{ending}?labels=none", (IMAGE,))
    assert opened.labels is None
    assert opened.count == 12
    with opened_samples(f"{tmp_path}/d.{ending}?labels=none", (IMAGE,)) as in_child:
        assert in_child.labels is None
