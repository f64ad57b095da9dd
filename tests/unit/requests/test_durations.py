"""Periods as they are typed."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import fails

from edgeconv.requests.texts import parse_period, period_text
from edgeconv.types.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds", "again"),
    [
        ("10ms", 0.01, "10ms"),
        (" 0.5 s ", 0.5, "500ms"),
        ("250us", 250e-6, "250us"),
        ("16.7ms", 0.0167, "16.7ms"),
        ("1e3µs", 1e-3, "1ms"),
        ("10s", 10.0, "10s"),
    ],
)
def test_a_period_is_a_number_with_its_unit(text, seconds, again):
    assert parse_period(text) == pytest.approx(seconds, rel=1e-12)
    assert period_text(parse_period(text)) == again


@pytest.mark.parametrize(
    "text", ["10", "0ms", "-1ms", "11s", "10h", "ms", "", "1.2.3ms", "1e999s", "nan s", "10ms 5ms"]
)
def test_what_is_not_a_period_is_refused_with_what_to_write(text):
    with fails(UsageError):
        parse_period(text)


@given(st.floats(min_value=1e-6, max_value=10.0))
def test_the_text_of_a_period_is_read_as_that_period(seconds):
    assert parse_period(period_text(seconds)) == pytest.approx(seconds, rel=1e-9)


@given(st.text(max_size=12))
def test_any_text_is_a_period_within_the_bounds_or_refused(text):
    with contextlib.suppress(UsageError):
        assert 0 < parse_period(text) <= 10
