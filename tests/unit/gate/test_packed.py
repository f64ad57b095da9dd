from __future__ import annotations

import base64
import math
import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeconv.config.packed import (
    pack_classes,
    pack_numbers,
    pack_right,
    unpack_classes,
    unpack_numbers,
    unpack_right,
)

CLASSES = st.integers(-(2**62), 2**62 - 1)


@given(st.text("01"))
def test_right_and_wrong_come_back(correct):
    assert unpack_right(pack_right(correct), len(correct)) == correct


@given(st.lists(st.tuples(CLASSES, CLASSES)), st.booleans())
def test_classes_come_back_beside_others_or_alone(pairs, alone):
    classes = tuple(one for one, _ in pairs)
    beside = () if alone else tuple(other for _, other in pairs)
    assert unpack_classes(pack_classes(classes, beside), len(classes), beside) == classes


@given(st.lists(st.floats()))
def test_numbers_come_back_to_the_last_bit(numbers):
    back = unpack_numbers(pack_numbers(numbers), len(numbers))
    assert struct.pack(f"{len(back)}d", *back) == struct.pack(f"{len(numbers)}d", *numbers)


@pytest.mark.parametrize(
    ("classes", "letter"),
    [((0, 127), "b"), ((-129,), "h"), ((128,), "h"), ((40_000,), "i"), ((2**31,), "q"), ((), "b")],
)
def test_classes_take_as_many_bytes_as_they_need(classes, letter):
    assert pack_classes(classes).startswith(f"{letter}:")


def test_ten_thousand_samples_take_a_few_kilobytes():
    drawn = random.Random(5)
    correct = "".join("0" if drawn.random() < 0.02 else "1" for _ in range(10_000))
    classes = [drawn.randrange(10) for _ in correct]
    like = [one if drawn.random() > 0.01 else drawn.randrange(10) for one in classes]
    assert len(pack_right(correct)) < 1_000
    assert len(pack_classes(classes)) < 7_000
    assert len(pack_classes(like, classes)) < 700


@pytest.mark.parametrize("samples", [0, 1, 7, 9, 16, 17])
def test_lines_of_another_number_of_samples_are_refused(samples):
    with pytest.raises(ValueError, match=r"samples|bytes"):
        unpack_right(pack_right("11010101"), samples)
    with pytest.raises(ValueError, match="bytes"):
        unpack_classes(pack_classes(range(8)), samples)
    with pytest.raises(ValueError, match="bytes"):
        unpack_numbers(pack_numbers([0.5] * 8), samples)


def test_bits_beyond_the_samples_are_refused():
    with pytest.raises(ValueError, match="more than 7 samples"):
        unpack_right(pack_right("10000000"), 7)


def test_classes_beside_others_are_not_read_without_them():
    packed = pack_classes((3, 4), (3, 5))
    assert unpack_classes(packed, 2, (3, 5)) == (3, 4)
    with pytest.raises(ValueError, match="zip"):
        unpack_classes(packed, 2, (3,))


@pytest.mark.parametrize("line", ["§", "AAAA", "eA", "eNpj+E8CAADafCvV" + "AAAA", "====", "b:"])
def test_damaged_lines_are_refused(line):
    with pytest.raises(ValueError, match=r"damaged|bytes"):
        unpack_right(line, 360)


def test_a_line_without_its_end_is_refused_though_all_numbers_are_there():
    whole = base64.b64decode(pack_numbers([0.5, 0.25]))
    for cut in (whole[:-1], whole + b"\0"):
        with pytest.raises(ValueError, match="does not hold the 16 bytes"):
            unpack_numbers(base64.b64encode(cut).decode(), 2)


def test_a_line_that_would_fill_the_memory_is_refused_without_that():
    bomb = base64.b64encode(zlib.compress(bytes(200 << 20), 9)).decode()
    with pytest.raises(ValueError, match="does not hold the 2 bytes"):
        unpack_right(bomb, 16)


def test_not_a_number_is_kept_as_one():
    assert math.isnan(unpack_numbers(pack_numbers([math.nan]), 1)[0])
