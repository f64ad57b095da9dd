"""Test data in memory whose labels are floats."""

import contextlib

import numpy as np
import pytest

from edgeconv.requests.bench import BenchRequest
from edgeconv.requests.in_memory import InMemory
from edgeconv.requests.table import called
from edgeconv.requests.tune import TuneRequest

X = np.zeros((120, 4), np.float32)


def test_labels_that_are_floats_are_measured_as_numbers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    values = pandas.Series(np.float64([1.0, 2.0] * 60))
    for data in (
        (X, values.to_numpy()),
        (frame, values),
        [(X[:60], values[:60]), (X[60:], values[60:])],
    ):
        for kind, model, metrics in (
            (BenchRequest, {"models": ["m.tflite"]}, lambda request: request.measuring.metrics),
            (
                TuneRequest,
                {"model": "m.keras", "max_drop": 0.01},
                lambda request: (request.metric,),
            ),
        ):
            for given, expected in (({}, "mae"), ({"metric": "mse"}, "mse")):
                with contextlib.ExitStack() as stack:
                    memory, said = InMemory(stack), list[str]()
                    request = called(kind, (), {**model, "data": data, **given}, memory.filed)
                    (metric,) = metrics(memory.measured(request, said.append))
                assert metric.name == expected
                assert said == ([] if given else ["the labels are floats, so the metric is mae"])


def test_zeros_and_ones_are_classes_also_as_floats():
    for labels in (np.eye(10)[np.arange(120) % 10], np.float32([0, 1] * 60)):
        with contextlib.ExitStack() as stack:
            memory = InMemory(stack)
            request = called(
                BenchRequest, (), {"models": ["m.tflite"], "data": (X, labels)}, memory.filed
            )
            assert memory.measured(request, print) is request
