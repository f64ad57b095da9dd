"""The factors that equalization divides and multiplies by."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgeconv.statistics.balance import balancing_logarithms

RANGES = arrays(np.float64, 8, elements=st.just(0.0) | st.floats(1e-6, 1e6))


@given(first=RANGES, second=RANGES)
def test_both_ranges_of_a_channel_are_alike_afterwards_and_one_at_rest_stays(first, second):
    with np.errstate(divide="ignore"):
        factors = np.exp(balancing_logarithms(np.log(first), np.log(second)))
    alive = (first > 0) & (second > 0)
    np.testing.assert_allclose((first / factors)[alive], (second * factors)[alive], rtol=1e-9)
    assert (factors[~alive] == 1).all()
