"""Cells of simulated length, and the time that their scheduler is compared with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT
from sweeps import planned, write_models


@pytest.fixture(scope="module")
def simulated_cells():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks import simulated_cells

        return simulated_cells


@given(st.lists(st.floats(0.01, 9.0), min_size=1, max_size=40), st.integers(1, 9))
def test_no_schedule_is_below_the_work_or_the_longest_cell(simulated_cells, lengths, cores):
    least = simulated_cells.least_wall_s(lengths, cores)
    bound = max(sum(lengths) / cores, max(lengths))
    assert bound - 1e-9 <= least <= bound + max(lengths) * (1 - 1 / cores) + 1e-9


def test_cells_of_known_length(simulated_cells):
    assert simulated_cells.least_wall_s([3, 1, 1, 2], cores=2) == 4
    assert simulated_cells.least_wall_s([3, 1, 1, 2], cores=1) == 7
    assert simulated_cells.least_wall_s([3, 1], cores=8) == 3


def test_simulated_jobs_are_real_ones_with_a_key_of_their_own(simulated_cells, tmp_path):
    write_models(tmp_path)
    job = planned(tmp_path).jobs[0]
    jobs = simulated_cells.simulated_jobs(job, 300, (0.5, 2.5))
    assert jobs == simulated_cells.simulated_jobs(job, 300, (0.5, 2.5))
    keys = {own.cells[0].key for own in jobs}
    assert len(keys) == 300
    assert {len(key) for key in keys} == {len(job.cells[0].key)}
    assert all(0.5 <= simulated_cells.length_s(key) <= 2.5 for key in keys)
    assert all(len(own.cells) == 1 and own.measuring == job.measuring for own in jobs)
