"""Strings as samples and as outputs: read from every kind of data, stored, compared."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from example_records import example, write_records
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from sources import load_samples, open_samples
from wording import fails

from edgeconv.conversion.output_checks import verify_errors
from edgeconv.data import (
    parse_preprocessing,
    read_samples,
    sha256_samples,
    synthetic_samples,
    write_samples,
)
from edgeconv.data.arrays import LONGEST_BYTES, ended, ended_list, plain
from edgeconv.data.handover import RowsFile
from edgeconv.data.samples import Samples
from edgeconv.measure.metrics.agreement import agreements
from edgeconv.measure.metrics.scoring import chosen_output
from edgeconv.plugins.devices import tfserving
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes import runner
from edgeconv.runtimes.interface import Model
from edgeconv.runtimes.tensors import refuse_strings
from edgeconv.statistics.outputs import output_errors
from edgeconv.types import Signature, TensorSpec
from edgeconv.types.errors import InputRefused, VerificationFailed

USER = TensorSpec(name="user", shape=(-1, 1), dtype="string")
FLAT = TensorSpec(name="user", shape=(-1,), dtype="string")
RIDE = TensorSpec(name="ride", shape=(-1, 2), dtype="float32")
ODD = [b"", b"a\0", b"\0\0", "Käse 🧀".encode(), b"\xff\x01", b"x" * 300]


def words(samples: Samples, name: str = "user") -> list[Any]:
    return plain(samples.arrays[name]).ravel().tolist()


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_any_bytes_come_back_and_the_runner_writes_them_alike(values):
    stored = ended_list(values, "x")
    assert plain(stored).tolist() == values
    details = {"dtype": np.bytes_, "quantization": (0.0, 0)}
    assert runner.to_tensor(stored, details).tolist() == values
    again = runner.from_tensor(np.array([*values, None], object)[:-1], details)
    assert plain(again).tolist() == values


def test_strings_are_saved_without_pickle_and_hashed_whatever_the_longest(tmp_path):
    samples = Samples({"user": ended_list(ODD, "x").reshape(3, 2)}, None, "x")
    write_samples(samples, tmp_path / "a")
    back = read_samples(tmp_path / "a")
    assert words(back) == ODD
    assert back.arrays["user"].shape == (3, 2)
    short = Samples({"user": ended_list([b"a", b"b"], "x")}, None, "")
    wide = Samples({"user": ended_list([b"a", b"b", b"long" * 9], "x")[:2]}, None, "")
    cut = Samples({"user": ended_list([b"ab", b""], "x")}, None, "")
    assert sha256_samples(short) == sha256_samples(wide) != sha256_samples(cut)


def test_rows_of_strings_may_get_longer_as_they_come(tmp_path):
    first, later = ended_list([b"a", b"b"], "x"), ended_list([b"much longer"], "x")
    file = RowsFile(tmp_path / "0.npy", 3, first)
    file.write(2, later)
    file.write(0, first)
    file.close()
    stored = np.load(tmp_path / "0.npy", allow_pickle=False)
    assert plain(stored).tolist() == [b"a", b"b", b"much longer"]


@pytest.mark.parametrize("values", [[b"a", 3], [b"x" * (LONGEST_BYTES + 1)], ["\ud800"]])
def test_what_is_no_string_is_refused(values):
    with fails(InputRefused):
        ended(np.array([*values, None], object)[:-1], "here")


def test_an_npz_has_strings_of_either_kind_and_never_objects(tmp_path):
    text = np.array([["Käse"], [""], ["b"]])
    np.savez(tmp_path / "a.npz", user=text)
    np.savez(tmp_path / "b.npz", user=np.char.encode(text, "utf-8"))
    for name in ("a", "b"):
        loaded = load_samples(str(tmp_path / f"{name}.npz"), (USER,))
        assert words(loaded) == ["Käse".encode(), b"", b"b"]
    np.savez(tmp_path / "c.npz", user=text.astype(object))
    with fails(InputRefused):
        load_samples(str(tmp_path / "c.npz"), (USER,))


def test_a_large_npy_of_strings_is_read_row_by_row(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", np.array(["a", "longer", ""]))
    monkeypatch.setattr("edgeconv.data.kinds.npy._AT_ONCE_BYTES", 1)
    assert words(load_samples(str(tmp_path / "a.npy"), (FLAT,))) == [b"a", b"longer", b""]


RIDES = "user,a,b,label\n007, 1,2,0\n Käse ,3,4,1\n,5,6,0\n"


@pytest.fixture
def rides(tmp_path) -> str:
    path = tmp_path / "rides.csv"
    path.write_text(RIDES, encoding="utf-8")
    return str(path)


def test_text_of_a_csv_stays_as_it_is_for_an_input_of_strings(rides):
    loaded = load_samples(f"{rides}?user=user&ride=a:b&labels=label", (RIDE, USER))
    assert words(loaded) == [b"007", " Käse ".encode(), b""]
    assert loaded.arrays["ride"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert loaded.labels is not None
    assert words(load_samples(f"{rides}?features=a", (USER,))) == [b" 1", b"3", b"5"]


def test_a_table_with_a_column_for_every_input_needs_no_more_said(rides):
    a = TensorSpec(name="a", shape=(-1, 1), dtype="float32")
    assert load_samples(rides, (a, USER)).arrays["a"].ravel().tolist() == [1, 3, 5]
    with fails(InputRefused):
        load_samples(rides, (RIDE, USER))


def test_numbers_for_strings_and_strings_for_numbers_say_what_to_do(rides, tmp_path):
    with fails(InputRefused):
        load_samples(f"{rides}?user=user&ride=user", (RIDE, USER))
    np.savez(tmp_path / "n.npz", user=np.ones((3, 1), np.int64), ride=np.array([["a", "b"]] * 3))
    with fails(InputRefused):
        load_samples(f"{tmp_path}/n.npz?user=user", (USER,))
    with fails(InputRefused):
        load_samples(f"{tmp_path}/n.npz?ride=ride", (RIDE,))
    np.savez(tmp_path / "l.npz", user=np.array([["a"]] * 3), labels=np.array(["x"] * 3))
    with fails(InputRefused):
        load_samples(f"{tmp_path}/l.npz", (USER,))


def test_preprocessing_of_strings_is_refused_and_can_be_left_out(rides):
    source, inputs = f"{rides}?user=user&ride=a:b", (RIDE, USER)
    with fails(InputRefused):
        load_samples(source, inputs, preprocessing=parse_preprocessing("scale=1/2"))
    steps = parse_preprocessing("scale=1/2&user.none")
    halved = load_samples(source, inputs, preprocessing=steps)
    assert halved.arrays["ride"][0].tolist() == [0.5, 1]
    assert words(halved)[0] == b"007"


@pytest.mark.parametrize("dictionary", [False, True])
def test_parquet_has_strings_and_lists_of_them(dictionary, tmp_path):
    text = pa.array(["1", "Käse", ""])
    columns = {
        "user": text.dictionary_encode() if dictionary else text,
        "pair": pa.array([["a", "b"], ["c", ""], ["e", "f"]]),
        "ride": pa.array([1.0, 2.0, 3.0]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    pair = TensorSpec(name="pair", shape=(-1, 2), dtype="string")
    source = f"{tmp_path}/a.parquet?user=user&pair=pair"
    loaded = load_samples(source, (USER, pair))
    assert words(loaded) == [b"1", "Käse".encode(), b""]
    assert words(loaded, "pair") == [b"a", b"b", b"c", b"", b"e", b"f"]
    with fails(InputRefused):
        load_samples(f"{tmp_path}/a.parquet?features=ride", (USER,))


def test_tfrecords_have_strings(tmp_path):
    records = (example(user=[value]) for value in (b"a", b"much longer\0"))
    write_records(tmp_path / "a.tfrecord", *records)
    (tmp_path / "spec.toml").write_text('[features.user]\ndtype = "string"\nshape = [1]\n')
    source = f"tfrecord:{tmp_path}/a.tfrecord?spec={tmp_path}/spec.toml"
    assert words(load_samples(source, (USER,))) == [b"a", b"much longer\0"]
    (tmp_path / "spec.toml").write_text('[features.user]\ndtype = "int64"\n')
    with fails(InputRefused):
        load_samples(source, (USER,))


def test_a_function_may_return_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mywords.py").write_text("def load():\n    return {'user': [['a'], [b'b\\0']]}\n")
    samples = open_samples("function:mywords:load", (USER,), allow_code=True)
    assert words(samples.take(np.arange(2))) == [b"a", b"b\0"]


def test_made_up_strings_are_words_of_every_vocabulary_and_one_of_none():
    made = words(synthetic_samples((USER,), 4, 0, [(b"a", b"b"), (), (b"c",)]))
    assert made[0] in (b"a", b"b")
    assert made[1] == b"c"
    assert made[3] not in (b"a", b"b", b"c")
    assert len(set(words(synthetic_samples((USER,), 4, 0)))) == 2


def test_a_string_that_differs_is_an_error_as_large_as_the_signal():
    want = {"label": ended_list([b"cat"] * 9 + [b"dog"], "x")}
    have = {"label": ended_list([b"cat"] * 10, "x")}
    (error,) = output_errors(want, have, {})
    assert error.snr_db == pytest.approx(10)
    assert error.argmax_agreement == pytest.approx(0.9)
    (floating,) = make_recipes(["float32"])
    with pytest.raises(VerificationFailed):
        verify_errors(floating, (error,))
    (equal,) = output_errors(want, want, {})
    assert verify_errors(floating, (equal,)) == ()


def test_agreement_of_strings_counts_those_that_differ():
    want = {"label": ended_list([b"a", b"b", b"c", b"d"], "x")}
    have = {"label": ended_list([b"a", b"b", b"c", b"much longer"], "x")}
    (agreement,) = agreements(have, want, "baseline")
    assert (agreement.flips, agreement.cosine) == (1, 0.75)


def test_labels_are_not_compared_with_strings():
    outputs = {"label": ended_list([b"a"], "x"), "p": np.ones((1, 3), np.float32)}
    with fails(InputRefused):
        chosen_output(outputs, "label")


def test_runtimes_of_numbers_refuse_strings_by_name():
    signature = Signature(key="serving_default", inputs=(USER,), outputs=(RIDE,))
    model = Model(file=Path("a.tflite"), signature=None)
    with fails(InputRefused):
        refuse_strings(model, signature, "LiteRT.js")


def test_tensorflow_serving_is_not_sent_strings():
    session = tfserving.ServingSession(None, Model(file=Path("a.tflite"), signature=None))
    with fails(InputRefused):
        session.run({"user": ended_list([b"a"], "x")})
