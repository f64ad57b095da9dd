import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from edgeconv.models import bert_mlm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from places import SHARED
from wording import fails

WIKITEXT = SHARED / "wikitext2_valid_test"
LENGTH, MASKED = bert_mlm.LENGTH, bert_mlm.MASKED


def texts(directory: Path, train: str, test: str) -> str:
    (directory / bert_mlm.TRAIN_FILE).write_text(train, encoding="utf-8")
    (directory / bert_mlm.TEST_FILE).write_text(test, encoding="utf-8")
    return str(directory)


def small_place(directory: Path) -> str:
    """Three training passages, one for testing, and some words over."""
    words = [f"w{number % 40}" for number in range(3 * LENGTH + 5)]
    return texts(directory, " ".join(words), " ".join(words[: LENGTH + 3]))


def unmasked(x: dict[str, np.ndarray], y: np.ndarray) -> np.ndarray:
    whole = x["token_ids"].copy()
    np.put_along_axis(whole, x["mask_positions"], y, axis=1)
    return whole


def test_the_samples_are_int32_passages_masked_six_times(tmp_path):
    data = bert_mlm.data(small_place(tmp_path))
    for x, y, count in ((data.x_train, data.y_train, 18), (data.x_test, data.y_test, 1)):
        assert {name: array.shape for name, array in x.items()} == {
            "token_ids": (count, LENGTH),
            "mask_positions": (count, MASKED),
        }
        assert y.shape == (count, MASKED)
        assert {array.dtype for array in (*x.values(), y)} == {np.dtype(np.int32)}


def test_every_copy_of_a_passage_is_masked_elsewhere_and_is_the_same_beneath(tmp_path):
    data = bert_mlm.data(small_place(tmp_path))
    whole = unmasked(data.x_train, data.y_train)
    np.testing.assert_array_equal(whole[:3], whole[3:6])
    positions = data.x_train["mask_positions"]
    assert (positions[:3] != positions[3:6]).any(axis=1).all()


def test_all_copies_of_a_passage_are_one_group_and_short_ones_are_left_out(tmp_path):
    words = [f"w{number}" for number in range(LENGTH)]
    place = texts(tmp_path, " ".join([*words, *["<unk>"] * LENGTH, *words[::-1]]), " ".join(words))
    data = bert_mlm.data(place)
    whole = unmasked(data.x_train, data.y_train)
    assert len(whole) == 2 * bert_mlm.COPIES
    for group in (0, 1):
        assert len(np.unique(whole[data.groups_train == group], axis=0)) == 1


def test_the_same_words_are_masked_at_every_call(tmp_path):
    place = small_place(tmp_path)
    first, second = bert_mlm.data(place), bert_mlm.data(place)
    for name in ("token_ids", "mask_positions"):
        np.testing.assert_array_equal(first.x_train[name], second.x_train[name])
        np.testing.assert_array_equal(first.x_test[name], second.x_test[name])
    np.testing.assert_array_equal(first.y_train, second.y_train)


PASSAGES = arrays.arrays(
    np.int32, st.tuples(st.integers(1, 4), st.just(LENGTH)), elements=st.sampled_from([0, 2, 3, 9])
)


@settings(deadline=None)
@given(passages=PASSAGES, seed=st.integers(0, 5))
def test_under_the_masks_are_known_words_and_between_them_all_the_others(passages, seed):
    passages = passages[(passages != bert_mlm.UNKNOWN).sum(axis=1) >= MASKED]
    x, y = bert_mlm.masked(passages, seed)
    np.testing.assert_array_equal(unmasked(x, y), passages)
    assert (y >= bert_mlm.SPECIALS).all()
    assert ((x["token_ids"] == bert_mlm.MASK).sum(axis=1) == MASKED).all()
    assert (np.diff(x["mask_positions"], axis=1) > 0).all()


def test_the_vocabulary_counts_from_2_by_how_common_a_word_is_then_by_alphabet():
    words = ["d", "a", "c", "a", "<unk>", "<unk>", "<unk>", "c", "b"]
    assert bert_mlm.vocabulary(words) == {"a": 2, "c": 3, "b": 4, "d": 5}


def test_the_vocabulary_is_as_large_as_the_model_and_no_larger():
    words = [f"w{number}" for number in range(9000)]
    numbers = bert_mlm.vocabulary(words).values()
    assert (min(numbers), max(numbers)) == (2, bert_mlm.VOCABULARY - 1)


def test_a_word_of_the_test_text_that_training_has_not_is_unknown(tmp_path):
    train = " ".join(["The", "the", "a"] * LENGTH)
    place = texts(tmp_path, train, " ".join(["the", "novel"] * (LENGTH // 2)))
    data = bert_mlm.data(place)
    whole = unmasked(data.x_test, data.y_test)
    np.testing.assert_array_equal(whole[0], [2, bert_mlm.UNKNOWN] * (LENGTH // 2))


def test_without_a_place_it_says_which_files_it_needs():
    with fails(FileNotFoundError):
        bert_mlm.data()


def test_a_missing_file_is_named(tmp_path):
    (tmp_path / bert_mlm.TRAIN_FILE).write_text("a word")
    with fails(FileNotFoundError):
        bert_mlm.data(str(tmp_path))


def test_a_text_shorter_than_one_passage_is_refused(tmp_path):
    place = texts(tmp_path, "a " * LENGTH, "three words only")
    with fails(ValueError):
        bert_mlm.data(place)


def test_a_text_of_unknown_words_is_refused(tmp_path):
    place = texts(tmp_path, "a " * LENGTH, "novel " * LENGTH)
    with fails(ValueError):
        bert_mlm.data(place)


def test_what_is_not_utf_8_is_refused(tmp_path):
    place = texts(tmp_path, "a " * LENGTH, "")
    (tmp_path / bert_mlm.TEST_FILE).write_bytes(b"\xff\xfe" * 200)
    with fails(ValueError):
        bert_mlm.data(place)


def test_without_keras_hub_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with fails(ModuleNotFoundError) as caught:
        bert_mlm.build()
    assert caught.value.name == "keras_hub"


@pytest.mark.skipif(not WIKITEXT.is_dir(), reason="WikiText-2 is not beside the checkout")
def test_wikitext_gives_40104_training_and_7537_test_passages():
    data = bert_mlm.data(str(WIKITEXT))
    assert data.y_train.shape == (6 * 6683, MASKED)
    assert data.y_test.shape == (7537, MASKED)
    assert (data.x_test["token_ids"] == bert_mlm.UNKNOWN).mean() == pytest.approx(0.1835, abs=0.001)
    ((number, _),) = Counter(data.y_train.ravel().tolist()).most_common(1)
    assert number == bert_mlm.SPECIALS
