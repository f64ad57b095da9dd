"""The outputs of models over all samples: what any loop gives, only in parallel."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from tiny_tflite import Graph, float_model, int8_model, packed
from wording import says

from edgeconv.data import Samples
from edgeconv.data.evaluation import EvaluationSet
from edgeconv.measure.models import BenchRun, MeasuredModel, evaluate, widened
from edgeconv.runtimes.choice import open_runtime, parse_choice
from edgeconv.runtimes.interface import Model, Runtime, RuntimeSettings
from edgeconv.types import Execution, Measuring
from edgeconv.types.errors import ToolFailed

X = np.random.default_rng(4).uniform(-4, 4, (301, 4)).astype(np.float32)


@pytest.fixture
def litert(tmp_path) -> Iterator[Runtime]:
    with open_runtime(parse_choice("litert"), RuntimeSettings(scratch=tmp_path)) as runtime:
        yield runtime


def bench_of(place: Path, x: np.ndarray = X, batch: int = 1, threads: int = 2) -> BenchRun:
    sampled = EvaluationSet(Samples({"x": x}, None, "made here"), None, batch)
    return BenchRun(sampled, Measuring(), Execution(threads=threads), place, lambda _: None)


def stored(place: Path, name: str, model: schema.ModelT) -> Model:
    file = place / name
    file.write_bytes(packed(model))
    return Model(file=file)


def one_by_one(runtime: Runtime, model: Model, x: np.ndarray = X) -> dict[str, Any]:
    session = runtime.start(model)
    outputs = session.run({"x": x})
    session.close()
    return outputs


def test_every_model_has_the_outputs_it_has_one_by_one(tmp_path, litert):
    models = [
        stored(tmp_path, "float.tflite", float_model()),
        stored(tmp_path, "int8.tflite", int8_model()),
    ]
    models = [MeasuredModel(model.file.stem, model, litert) for model in models]
    run = bench_of(tmp_path)
    evaluate(run, models)
    for one in models:
        assert one.error is None
        assert list(one.outputs) == ["y"]
        expected = one_by_one(litert, one.model)["y"]
        assert one.outputs["y"].tobytes() == expected.tobytes()
        assert isinstance(one.outputs["y"], np.memmap)


def sum_of_batch() -> schema.ModelT:
    """y = x + the sum of x over the batch: one sample at a time that is 2 x."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32", dynamic=True)
    axis = graph.tensor("axis", (1,), "int32", data=np.array([0], np.int32))
    total = graph.computed("total", (4,), "SUM", [x, axis])
    y = graph.computed("y", (1, 4), "ADD", [x, total], dynamic=True)
    return graph.model([x], [y])


def test_a_model_that_mixes_the_samples_of_a_batch_is_run_one_by_one(tmp_path, litert):
    model = stored(tmp_path, "mixing.tflite", sum_of_batch())
    wide = widened(litert, model, Samples({"x": X[:64]}, None, ""), 301)
    wide.session.close()
    assert wide.model.batch == 1
    measured = MeasuredModel("mixing", model, litert)
    evaluate(bench_of(tmp_path), [measured])
    np.testing.assert_array_equal(measured.outputs["y"], 2 * X)


def test_a_quick_model_takes_more_samples_at_once(tmp_path, litert):
    model = stored(tmp_path, "float.tflite", float_model())
    samples = Samples({"x": X[:64]}, None, "")
    wide = widened(litert, model, samples, 301)
    wide.session.close()
    assert wide.model.batch > 1
    few = widened(litert, model, samples, 100)
    few.session.close()
    assert few.model.batch == 1


def test_a_fixed_batch_is_kept(tmp_path, litert):
    graph = Graph()
    x, y = (graph.tensor(name, (3, 4), "float32") for name in "xy")
    graph.operator("ADD", [x, x], [y])
    model = Model(file=stored(tmp_path, "three.tflite", graph.model([x], [y])).file, batch=3)
    measured = MeasuredModel("three", model, litert)
    evaluate(bench_of(tmp_path, X[:300], batch=3), [measured])
    np.testing.assert_array_equal(measured.outputs["y"], 2 * X[:300])


class Breaking:
    """A runtime like another, of which each session fails at its third question."""

    def __init__(self, runtime: Runtime) -> None:
        self.environment, self.sessions = runtime.environment, runtime.sessions
        self._runtime = runtime
        self.closed = self.started = 0

    def start(self, model: Model) -> Any:
        self.started += 1
        return _Session(self, self._runtime.start(model))


class _Session:
    def __init__(self, owner: Breaking, session: Any) -> None:
        self._owner, self._session, self._asked = owner, session, 0

    def run(self, inputs: Any) -> Any:
        self._asked += 1
        if self._asked == 3:
            raise ToolFailed("the device is gone")
        return self._session.run(inputs)

    def close(self) -> None:
        self._owner.closed += 1
        self._session.close()


def test_what_fails_on_the_way_has_its_error_and_the_rest_goes_on(tmp_path, litert):
    breaking = Breaking(litert)
    model = stored(tmp_path, "float.tflite", float_model())
    gone = MeasuredModel("gone", model, breaking)
    well = MeasuredModel("well", model, litert)
    absent = MeasuredModel("absent", Model(file=tmp_path / "absent.tflite"), litert)
    evaluate(bench_of(tmp_path, X[:100]), [gone, absent, well])
    says(gone.error)
    says(absent.error)
    assert (gone.outputs, absent.outputs, well.error) == ({}, {}, None)
    assert well.outputs["y"].shape == (100, 3)
    assert breaking.closed == breaking.started


def test_an_output_without_a_batch_dimension_belongs_to_each_sample(tmp_path, litert):
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    axes = graph.tensor("axes", (1,), "int32", data=np.array([0], np.int32))
    y = graph.computed("y", (1, 4), "ADD", [x, x])
    total = graph.computed("total", (4,), "SUM", [x, axes])
    measured = MeasuredModel(
        "two", stored(tmp_path, "two.tflite", graph.model([x], [y, total])), litert
    )
    evaluate(bench_of(tmp_path, X[:20]), [measured])
    assert {name: values.shape for name, values in measured.outputs.items()} == {
        "total": (20, 4),
        "y": (20, 4),
    }


def test_no_more_than_a_few_parts_are_read_ahead(tmp_path, litert):
    """Else a slow model would have all samples in memory."""
    read, done = [], []

    class Counted(EvaluationSet):
        def part_size(self, *_: int) -> int:
            return 10

        def parts(self, size: int) -> Iterator[Samples]:
            for part in super().parts(size):
                read.append(len(read) - len(done))
                yield part

    class Slow(Breaking):
        def start(self, model: Model) -> Any:
            session = super().start(model)
            session.run = lambda inputs: (time.sleep(0.01), done.append(1), answer(inputs))[-1]
            return session

    def answer(inputs: Any) -> Any:
        return {"y": 2 * inputs["x"]}

    run = bench_of(tmp_path)
    sampled = Counted(Samples({"x": X[:200]}, None, ""), None, 1)
    measured = MeasuredModel("slow", stored(tmp_path, "float.tflite", float_model()), Slow(litert))
    evaluate(BenchRun(sampled, run.measuring, run.execution, tmp_path, run.on_progress), [measured])
    np.testing.assert_array_equal(measured.outputs["y"], 2 * X[:200])
    assert len(read) == 20
    assert max(read) <= 2 * 2 + 1
