"""The metrics of a bench, computed from the outputs of every model."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeconv import plugins
from edgeconv.data.code import Blamed, refuse_missing_module, users_code, users_function
from edgeconv.data.strings import holds_strings
from edgeconv.measure.metrics.accuracy import accuracy_of, chosen_output
from edgeconv.measure.metrics.scores import Metric, Scored, SimilarityMetric
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.types import MetricChoice
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from edgeconv.measure.bench_run import BenchRun
    from edgeconv.types import Accuracy

    Outputs = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Scorer:
    """The metrics to compute, by name."""

    run: BenchRun
    metrics: Mapping[str, Metric | SimilarityMetric | MetricChoice]

    def accuracies(self, outputs: Outputs, reference: Outputs | None) -> tuple[Accuracy, ...]:
        """The accuracies of one model's outputs, arrays (n, ...) by name, in the metrics' order.

        `reference` are the outputs to be compared with, if there are any. Raises `ToolFailed` where
        a metric is not finite, `InputRefused` or `UsageError` where outputs, labels and metric do
        not fit each other.
        """
        accuracies = (self._accuracy(name, outputs, reference) for name in self.metrics)
        return tuple(each for each in accuracies if each is not None)

    def _accuracy(self, name: str, outputs: Outputs, reference: Outputs | None) -> Accuracy | None:
        metric, labels = self.metrics[name], self.run.samples.labels
        if isinstance(metric, MetricChoice):
            return self._own(name, metric, outputs)
        if isinstance(metric, SimilarityMetric):
            if reference is None:
                return None
            return accuracy_of(name, metric.score(_numbers(outputs), _numbers(reference)))
        assert labels is not None
        if not outputs:
            raise InputRefused(
                "no output of the model has one row for each sample, which the metric "
                f"{name} needs",
                hint="measure without labels, or export it with the samples in the first dimension",
            )
        scored = metric.score(chosen_output(outputs, self.run.measuring.output), labels)
        return accuracy_of(
            name, scored, counts=metric.counts, higher_is_better=metric.higher_is_better
        )

    def _own(self, name: str, metric: MetricChoice, outputs: Outputs) -> Accuracy:
        import numpy as np

        directory = Path(tempfile.mkdtemp(prefix="metric-", dir=self.run.scratch))
        files = {output: f"{index}.npy" for index, output in enumerate(outputs)}
        for output, file in files.items():
            np.save(directory / file, outputs[output], allow_pickle=False)
        if self.run.samples.labels is not None:
            np.save(directory / "labels.npy", self.run.samples.labels, allow_pickle=False)
        job = OwnJob(metric=metric, directory=str(Path.cwd()), files=str(directory), outputs=files)
        with start_task(
            call_own,
            job,
            label=f"the metric {name}",
            scratch=self.run.scratch,
            access=Access(profile="code", writes=(directory, Path(job.directory))),
            allowance=self.run.execution.allowance,
        ) as task:
            answer = task.result()
        values = np.load(directory / "values.npy", allow_pickle=False)
        if len(values) != self.run.samples.count:
            raise InputRefused(
                f"the metric {name} returned {len(values)} numbers for "
                f"{self.run.samples.count} samples",
                hint="return one number for each sample",
            )
        return accuracy_of(name, Scored(values), higher_is_better=answer.higher_is_better)


class OwnJob(msgspec.Struct, frozen=True, kw_only=True):
    """A metric to call in `directory`; `files` is the directory of the outputs' files."""

    metric: MetricChoice
    directory: str
    files: str
    outputs: dict[str, str]


class OwnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The attribute of the function; its numbers are in values.npy."""

    higher_is_better: bool


def call_own(job: OwnJob) -> OwnAnswer:
    """In a child: call the user's metric. Raises `UsageError`, `InputRefused`."""
    import numpy as np

    from edgeconv.data.strings import as_tensorflow_takes

    name, files = str(job.metric), Path(job.files)
    with users_code(job.directory):
        function = users_function(job.metric.module, job.metric.name, job.directory)
        outputs = as_tensorflow_takes({n: np.load(files / f) for n, f in job.outputs.items()})
        labels = np.load(files / "labels.npy") if (files / "labels.npy").exists() else None
        with Blamed(name, job.directory):
            values: Any = function(outputs, labels)
        with Blamed(f"{name}, what it returned,", job.directory):
            values = np.asarray(values, np.float64)
            if values.ndim != 1:
                raise InputRefused(
                    f"{name} returned an array of shape {values.shape}",
                    hint="return one number for each sample: shape (n,)",
                )
            np.save(files / "values.npy", values)
            return OwnAnswer(higher_is_better=bool(getattr(function, "higher_is_better", True)))


def _numbers(outputs: Outputs) -> dict[str, NDArray[np.generic]]:
    """The outputs that are not strings."""
    return {name: array for name, array in outputs.items() if not holds_strings(array)}


def metrics_of(
    choices: Sequence[MetricChoice], *, allow_code: bool
) -> dict[str, Metric | SimilarityMetric | MetricChoice]:
    """The metrics to compute, by their texts. Raises `UsageError`, `InputRefused`."""
    return {str(choice): _metric(choice, allow_code=allow_code) for choice in choices}


def _metric(choice: MetricChoice, *, allow_code: bool) -> Metric | SimilarityMetric | MetricChoice:
    if not choice.module:
        metric: Metric | SimilarityMetric = plugins.metric(choice.name)
        return metric
    if not allow_code:
        raise UsageError(
            f"the metric {choice} is code, which was not allowed to run",
            hint="look at what it does, and allow it: allow_code=True",
        )
    refuse_missing_module(choice.module, str(Path.cwd()))
    return choice


def wants_labels(metric: Metric | SimilarityMetric | MetricChoice) -> bool:
    """Whether it needs labels."""
    return isinstance(metric, Metric)
