"""The time of each operator as the difference of two models, one of which ends before it.

For use in a child process: it runs the models.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.runtimes.runner import time_call
from edgeconv.tflite.cut import prefixes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

_WARMUP = 3


def prefix_times(
    path: Path, inputs: Arrays, threads: int, limits: tuple[int, float, int]
) -> tuple[float, frozenset[int], list[float]]:
    """Microseconds of the whole model, the operators in a delegate, and each operator's time.

    `inputs` have the model's shapes and dtypes. The models that end before and after an operator
    run alternately; its time is the median of the differences, and at least 0. `limits`: pairs of
    runs an operator at most, seconds for all of them at most, pairs at least. The model has one
    signature and no open dimensions. Raises `ToolFailed` where it does not run.
    """
    whole = InProcessModel(open_interpreter(path.read_bytes(), threads=threads))
    invoke = whole.settle(dict(inputs))
    total_us = float(np.median([time_call(invoke)[1] for _ in range(limits[0] // 2)][_WARMUP:]))
    ended = list(prefixes(path.read_bytes()))
    seconds = limits[1] / max(1, len(ended))
    before, times_us = None, []
    for data in ended:
        after = InProcessModel(open_interpreter(data, threads=threads)).settle(dict(inputs))
        times_us.append(_difference_us(before, after, limits[0], seconds, limits[2]))
        before = after
    return total_us, delegated(whole.interpreter._get_ops_details(), len(ended)), times_us


def delegated(operators: Sequence[Mapping[str, Any]], count: int) -> frozenset[int]:
    """Which of the graph's first `count` operators a delegate runs.

    `operators` are the interpreter's, as dictionaries: those of the graph, then the parts that
    delegates run. Such a part is what leads from its inputs to its outputs.
    """
    makers = {
        int(tensor): number
        for number, operator in enumerate(operators[:count])
        for tensor in operator["outputs"]
    }
    inside: set[int] = set()
    for part in operators[count:]:
        inputs = {int(tensor) for tensor in part["inputs"]}
        waiting = [int(tensor) for tensor in part["outputs"]]
        while waiting:
            tensor = waiting.pop()
            number = makers.get(tensor)
            if number is None or tensor in inputs or number in inside:
                continue
            inside.add(number)
            waiting += [int(index) for index in operators[number]["inputs"]]
    return frozenset(inside)


def _difference_us(
    before: Callable[[], None] | None,
    after: Callable[[], None],
    most: int,
    seconds: float,
    least: int,
) -> float:
    differences: list[float] = []
    for _ in range(_WARMUP):
        time_call(after)[1]
    deadline = time.monotonic() + seconds
    while len(differences) < least or (len(differences) < most and time.monotonic() < deadline):
        without_us = time_call(before)[1] if before is not None else 0.0
        differences.append(time_call(after)[1] - without_us)
    return max(0.0, float(np.median(differences)))
