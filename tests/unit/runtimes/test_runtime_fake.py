from pathlib import Path

import numpy as np
import pytest
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import fails

from edgeconv.runtimes.choice import parse_choice
from edgeconv.runtimes.interface import Model, RuntimeSettings
from edgeconv.runtimes.kinds.fake import open_runtime
from edgeconv.types import RuntimeChoice, Timing
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

SAMPLES = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
TIMING = Timing(warmup=3, repeats=7)


@pytest.fixture
def model(tmp_path) -> Model:
    file = tmp_path / "model.tflite"
    file.write_bytes(packed(float_model()))
    return Model(file=file)


def opened(tmp_path: Path, place: str = "", version: str = ""):
    text = f"fake=={version}" if version else f"fake:{place}" if place else "fake"
    return open_runtime(parse_choice(text), RuntimeSettings(scratch=tmp_path))


def outputs(tmp_path: Path, model: Model, samples=SAMPLES) -> dict[str, np.ndarray]:
    with opened(tmp_path) as runtime:
        session = runtime.start(model)
        given = session.run(samples)
        session.close()
    return given


def test_times_are_the_same_in_every_run_and_as_many_as_asked_for(tmp_path, model):
    with opened(tmp_path) as runtime:
        first, second = (runtime.time(model, SAMPLES, TIMING) for _ in range(2))
    assert first == second
    assert len(first.samples_us) == 7
    assert len(set(first.samples_us)) == 7
    assert first.warmup == 3
    assert first.first_us > max(first.samples_us) > min(first.samples_us) > 50


def test_a_larger_model_takes_longer_and_more_memory(tmp_path, model):
    larger = tmp_path / "larger.tflite"
    larger.write_bytes(model.file.read_bytes() + bytes(100_000))
    with opened(tmp_path) as runtime:
        small = runtime.time(model, SAMPLES, TIMING)
        large = runtime.time(Model(file=larger), SAMPLES, TIMING)
    assert min(large.samples_us) > max(small.samples_us)
    assert large.memory_bytes > small.memory_bytes


def test_outputs_have_the_models_shape_and_depend_on_the_sample_alone(tmp_path, model):
    given = outputs(tmp_path, model)
    assert {name: (v.shape, v.dtype) for name, v in given.items()} == {
        "y": ((3, 3), np.dtype("float32"))
    }
    assert len({tuple(row) for row in given["y"]}) == 3
    turned = outputs(tmp_path, model, {"x": SAMPLES["x"][::-1]})
    np.testing.assert_array_equal(turned["y"], given["y"][::-1])


def test_outputs_are_the_same_on_every_machine_and_in_every_release(tmp_path, model):
    (first, *_), *_ = outputs(tmp_path, model)["y"]
    # The model itself changes it by half a hundredth at most.
    assert first == pytest.approx(0.56, abs=0.006)


def test_two_models_nearly_agree(tmp_path, model):
    other = tmp_path / "int8.tflite"
    other.write_bytes(packed(int8_model()))
    a, b = outputs(tmp_path, model)["y"], outputs(tmp_path, Model(file=other))["y"]
    assert b.dtype == np.float32
    assert 0 < np.abs(a - b).max() <= 0.01


def test_an_output_without_the_batch_and_one_of_integers_are_made_up_as_well(tmp_path):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    best = graph.tensor("best", (1,), "int64")
    count = graph.tensor("count", (), "int32")
    file = tmp_path / "two.tflite"
    file.write_bytes(packed(graph.model([x], [best, count])))
    given = outputs(tmp_path, Model(file=file))
    assert (given["best"].shape, given["best"].dtype) == ((1 * 3,), np.dtype("int64"))
    assert set(given["best"].tolist()) <= {0, 1}
    assert (given["count"].shape, given["count"].dtype) == ((3,), np.dtype("int32"))


def test_a_slow_device_is_as_much_slower_as_asked_for(tmp_path, model):
    with opened(tmp_path) as fast, opened(tmp_path, "slow=3") as slow:
        pairs = zip(
            fast.time(model, SAMPLES, TIMING).samples_us,
            slow.time(model, SAMPLES, TIMING).samples_us,
            strict=True,
        )
    assert [b / a for a, b in pairs] == pytest.approx([3] * 7)


def test_a_model_that_is_to_fail_neither_loads_nor_is_timed_and_others_are(tmp_path, model):
    good = tmp_path / "good.tflite"
    good.write_bytes(model.file.read_bytes())
    with opened(tmp_path, "failing=model.tflite") as runtime:
        with fails(ToolFailed):
            runtime.time(model, SAMPLES, TIMING)
        with fails(ToolFailed):
            runtime.start(model)
        assert runtime.time(Model(file=good), SAMPLES, TIMING).samples_us


def test_a_device_is_gone_after_as_many_times_as_asked_for(tmp_path, model):
    with opened(tmp_path, "gone=1") as runtime:
        assert runtime.time(model, SAMPLES, TIMING).samples_us
        with fails(ToolFailed):
            runtime.time(model, SAMPLES, TIMING)


def test_that_nothing_is_run_is_said(tmp_path):
    said: list[str] = []
    settings = RuntimeSettings(scratch=tmp_path, on_progress=said.append)
    with open_runtime(RuntimeChoice(name="fake"), settings) as runtime:
        assert runtime.environment.host == "fake"
    assert said == ["the runtime is fake: nothing runs, times and outputs are invented"]


@pytest.mark.parametrize(
    ("place", "version"), [("fast=3", ""), ("slow=very", ""), ("slow", ""), ("", "2.0")]
)
def test_an_option_that_cannot_be_is_refused(tmp_path, place, version):
    with fails(UsageError), opened(tmp_path, place, version):
        pass


def test_samples_for_other_inputs_and_files_that_are_no_models_are_refused(tmp_path, model):
    junk = tmp_path / "junk.tflite"
    junk.write_bytes(b"no model at all")
    with opened(tmp_path) as runtime:
        with fails(InputRefused):
            runtime.time(model, {"z": SAMPLES["x"]}, TIMING)
        with fails(InputRefused):
            runtime.start(Model(file=junk))
        with fails(UsageError):
            runtime.start(Model(file=model.file, signature="serve"))
