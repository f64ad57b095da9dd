"""Invokes in a period and cold starts, for real, in LiteRT."""

from tiny_tflite import float_model, packed

from edgeconv import bench
from edgeconv.types import Measuring, Timing

PERIOD_US = 20_000.0


def test_the_period_is_kept_and_the_times_are_of_different_kinds(tmp_path):
    model = tmp_path / "float.tflite"
    model.write_bytes(packed(float_model(signature=("serving_default", ["x"], ["y"]))))
    timing = Timing(warmup=2, warmup_seconds=0.1, repeats=12, seconds=5.0)
    measuring = Measuring(rounds=2, timing=timing, every=PERIOD_US / 1e6, cold=3)
    (row,) = bench([model], measuring=measuring).measurements
    assert row.error == ""
    # Sleep never ends early, and even a busy machine ends most sleeps of 20 ms in 40.
    assert PERIOD_US <= row.paced.distance_us < 2 * PERIOD_US
    assert [len(samples) for samples in row.paced.rounds_us] == [12, 12]
    assert len(row.cold.rounds_us) == 3
    # A tiny model takes a microsecond without a pause, tens after sleep, and hundreds with a load.
    assert row.latency.p50_us < row.paced.p50_us < row.cold.p50_us
