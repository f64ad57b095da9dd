import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeconv.reporting import units

POSITIVE = st.floats(min_value=1e-3, max_value=1e14)
FRACTION = st.floats(min_value=0, max_value=1)
ANY = st.floats(allow_nan=True, allow_infinity=True)
_FACTORS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "µs": 1.0, "ms": 1e3, "s": 1e6}


def read(text: str) -> float:
    """The number that a size or time says."""
    number, unit = text.split(" ")
    return float(number) * _FACTORS[unit]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (71_400, "71.4 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (13_922_088, "13.9 MB"),
        (2_500_000_000_000_000, "2500 TB"),
        (-1500, "−1.50 kB"),
        (None, "–"),
        (math.nan, "NaN"),
        (math.inf, "∞ B"),
    ],
)
def test_a_size_is_written_with_three_digits_and_a_prefix(value, text):
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.250 µs"), (61.4, "61.4 µs"), (999.7, "1.00 ms"), (8020, "8.02 ms"), (5e9, "5000 s")],
)
def test_a_time_is_written_in_microseconds_milliseconds_or_seconds(value, text):
    assert units.duration(value) == text


@given(POSITIVE, POSITIVE)
def test_a_larger_size_or_time_never_reads_as_smaller(a, b):
    low, high = sorted((a, b))
    assert read(units.size(low)) <= read(units.size(high))
    assert read(units.duration(low)) <= read(units.duration(high))


@given(st.floats(min_value=1e-3, max_value=9.99e14), st.integers(2, 8))
def test_a_size_is_within_its_last_digit_and_below_a_thousand_units(v, digits):
    text = units.size(v, digits)
    assert float(text.split(" ")[0]) < 1000
    assert read(text) == pytest.approx(v, rel=0.51 * 10.0 ** (1 - digits))


@given(ANY)
@example(-0.0)
@example(1.797693134862316e308)
@example(5e-324)
def test_no_number_breaks_any_unit(value):
    for form in (
        units.size,
        units.duration,
        units.percent,
        units.points,
        units.times,
        units.decibels,
    ):
        text = form(value)
        assert re.fullmatch(
            r"NaN|exact|none|[<>]?−?(∞|\d+(\.\d+)?(e[+-]\d+)?)( ?(B|[kMGT]B|µs|ms|s|%|pp|dB|×))?",
            text,
        )
        assert ("NaN" in text) == math.isnan(value)


@given(FRACTION)
def test_only_all_is_100_percent_and_only_nothing_is_0(fraction):
    assert (units.percent(fraction) == "100 %") == (fraction == 1)
    assert (units.percent(fraction) in ("0 %", "0.00 %")) == (fraction == 0)


def test_shares_close_to_all_and_nothing_say_so():
    assert units.percent(0.99999) == ">99.99 %"
    assert units.percent(0.0000001) == "<0.01 %"
    assert units.percent(0.9778) == "97.78 %"


def test_a_gain_is_a_negative_drop_and_a_tiny_one_has_no_minus():
    assert units.points(-0.0028) == "−0.28 pp"
    assert units.points(-0.0000001) == "0.00 pp"


def test_very_large_and_very_small_numbers_have_an_exponent():
    assert units.significant(3.9e35) == "3.90e+35"
    assert units.significant(-0.0000446) == "−4.46e-05"
    assert units.significant(0.000446) == "0.000446"


def test_equal_outputs_are_exact_and_a_useless_one_is_negative():
    assert units.decibels(200.0) == "exact"
    assert units.decibels(-200.0) == "none"
    assert units.decibels(-3.14) == "−3.1 dB"


def test_speed_up_is_the_inverse_of_the_latency_ratio():
    assert units.speed_up(0.5) == 2.0
    assert units.speed_up(0.0) == math.inf
    assert units.speed_up(None) is None


@given(st.text())
def test_foreign_text_becomes_one_printable_line_and_stays_so(text):
    shown = units.plain(text)
    assert "\n" not in shown
    assert "\x1b" not in shown
    assert all(character.isprintable() or character.isspace() for character in shown)
    assert units.plain(shown) == shown


def test_control_and_direction_characters_are_spelled_out():
    assert units.plain("a\x1b[31mb\n\u202ec") == r"a\u001b[31mb\n\u202ec"


def test_the_first_line_is_the_first_that_is_not_blank():
    assert units.plain_line("\n  one \ntwo") == "one"
    assert units.plain_line("") == ""
