from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgeconv.tf.qat.sparse import Pruning, _largest, assign_clusters

kernels = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=1, max_dims=4, max_side=6),
    elements=st.floats(-100, 100, width=32),
)


@given(kernels, st.floats(0, 1))
def test_a_mask_has_the_share_of_zeros_asked_for_where_the_smallest_numbers_are(kernel, share):
    mask = _largest(kernel, share)
    assert mask.shape == kernel.shape
    assert np.sum(mask == 0) == round(share * kernel.size)
    kept, gone = np.abs(kernel[mask == 1]), np.abs(kernel[mask == 0])
    assert not kept.size or not gone.size or gone.max() <= kept.min()


def test_the_share_rises_along_a_cubic_and_stays():
    pruning = Pruning(0.5, steps=100)
    assert pruning.share_at(0) == 0
    assert pruning.share_at(25) == pytest.approx(0.5 * (1 - (2 / 3) ** 3))
    assert pruning.share_at(75) == 0.5
    assert pruning.share_at(100) == 0.5


@given(kernels, st.integers(1, 8))
def test_clusters_are_at_most_as_many_as_asked_for_and_numbered_upwards(kernel, clusters):
    values = kernel.reshape(-1)
    assigned = assign_clusters(values, clusters)
    assert set(assigned) == set(range(assigned.max() + 1))
    assert assigned.max() < clusters
    # Those of a larger number are never lower.
    assert (np.diff(assigned[np.argsort(values, kind="stable")]) >= 0).all()


def test_numbers_that_lie_together_are_a_cluster():
    values = np.array([5.0, 0.1, -3.1, 0.0, 5.2, -2.9], np.float32)
    assert assign_clusters(values, 3).tolist() == [2, 1, 0, 1, 2, 0]


def test_a_centre_that_nothing_is_near_to_is_no_cluster():
    assert assign_clusters(np.array([0.0, 0.0, 9.0], np.float32), 5).tolist() == [0, 0, 1]


def test_no_numbers_have_no_clusters():
    assert assign_clusters(np.zeros(0, np.float32), 4).tolist() == []
