"""The metrics of a bench, computed from the outputs of every model, and which samples changed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgeconv import plugins
from edgeconv.data.arrays import as_tensorflow_takes, holds_strings
from edgeconv.data.checks import check_labels, class_numbers
from edgeconv.data.code import Blamed, refuse_missing_module, users_code, users_function
from edgeconv.measure.metrics import classes
from edgeconv.measure.metrics.scores import Metric, Scored, SimilarityMetric
from edgeconv.measure.models import BenchRun
from edgeconv.runtimes.interface import Arrays
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.types import MAE, TOP1, Accuracy, MetricChoice, TensorSpec
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError, unknown_name
from edgeconv.types.words import quoted


def top1(outputs: Arrays, labels: NDArray[np.generic], output: str | None) -> Accuracy:
    """Top-1 accuracy of one output, (n, classes) or (n, 1), against `labels`, (n,).

    `output` names it; None takes the only one. Ties go to the lowest class. A sample
    whose scores are not all finite counts as wrong. Raises `UsageError` if the output
    must be named, `InputRefused` if it does not fit the labels.
    """
    scored = classes.TOP1.score(chosen_output(outputs, output), labels)
    return accuracy_of("top1", scored, counts=True)


def commonest_share(labels: NDArray[np.generic]) -> float:
    """The share of the commonest of `labels`, (n,); 1 of none."""
    if not len(labels):
        return 1.0
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


Labels = NDArray[Any]


def labels_by_output(
    labels: Labels | None, names: Collection[str], output: str | None
) -> dict[str, Labels]:
    """The labels (n, ...) of each output that is measured; see `Samples.labels`.

    `names` are those of all outputs; `output` is the one to measure, None for all with labels.
    Raises `UsageError` for an unknown one, and where one array may be for any of several.
    """
    if output is not None:
        chosen_name(names, output)
    if labels is None:
        return {}
    if not labels.dtype.names:
        return {chosen_name(names, output): labels}
    labeled = {name: labels[name] for name in labels.dtype.names}
    if output is None:
        return labeled
    if output not in labeled:
        raise UsageError(
            f"the output {output!r} has no labels", hint=f"labels are there for {quoted(labeled)}"
        )
    return {output: labeled[output]}


def labels_of_one(
    labels: Labels | None, names: Collection[str], output: str | None
) -> tuple[Labels | None, str | None]:
    """The labels (n, ...) of the only output that is measured, and its name; None without labels.

    The arguments and errors are those of `labels_by_output`. Raises `UsageError` for labels of
    several outputs.
    """
    labeled = labels_by_output(labels, names, output)
    if len(labeled) > 1:
        raise UsageError(
            f"there are labels of {len(labeled)} outputs, {quoted(labeled)}, and this takes those "
            "of one",
            hint=f"choose one: --output {next(iter(labeled))}",
        )
    return next(((each, name) for name, each in labeled.items()), (None, output))


def usual_metric(
    source: str, output: TensorSpec, labels: Labels, *, are_named: bool
) -> MetricChoice:
    """The metric of an output's labels (n, ...): top1 of classes, mae of other numbers.

    Whole numbers for an output of one number are classes where they are two neighbors at most, or
    one array for a whole model: `are_named` says that they are labels of this output. Floats but
    zeros and ones are classes where they are one for several numbers. Raises `InputRefused` for
    labels that are neither.
    """
    values = math.prod(output.shape[1:])
    if labels.dtype.kind == "f" and class_numbers(labels) is None:
        if values <= 1 or math.prod(labels.shape[1:]) > 1:
            return MAE
        labels = whole_numbers(labels)
    if labels.dtype.kind in "iu" and are_named and values == 1 and np.ptp(labels) > 1:
        return MAE
    check_labels(source, labels, len(labels), what=f"the labels of the output {output.name!r}")
    return TOP1


def whole_numbers(labels: Labels) -> Labels:
    """Floats that are whole numbers as integers; other labels as they are."""
    is_whole = labels.dtype.kind == "f" and (labels == np.rint(labels)).all()
    return labels.astype(np.int64) if is_whole else labels


def accuracy_of(
    metric: str, scored: Scored, *, counts: bool = False, higher_is_better: bool = True
) -> Accuracy:
    """The accuracy of a metric's values. Raises `ToolFailed` if one is not finite."""
    bad = np.flatnonzero(~np.isfinite(scored.values))
    if bad.size:
        raise ToolFailed(
            f"the metric {metric} gives {scored.values[bad[0]]} for sample {bad[0]}"
            + (f", and nothing finite for {bad.size} samples" if bad.size > 1 else ""),
            hint="look at the model's outputs for that sample, or at the metric",
        )
    return Accuracy(
        metric=metric,
        value=float(scored.values.mean()),
        samples=len(scored.values),
        higher_is_better=higher_is_better,
        correct="".join("1" if value else "0" for value in scored.values) if counts else "",
        per_sample=() if counts else tuple(scored.values.tolist()),
        predicted=() if scored.predicted is None else tuple(scored.predicted.tolist()),
    )


def chosen_output(outputs: Arrays, output: str | None) -> NDArray[np.generic]:
    """The output of that name, (n, ...); None takes the only one.

    Raises `UsageError`, and `InputRefused` for an output of strings.
    """
    name = chosen_name(outputs, output)
    if holds_strings(outputs[name]):
        numbers = [each for each, array in outputs.items() if not holds_strings(array)]
        raise InputRefused(
            f"output {name!r} holds strings, and labels are compared with numbers",
            hint=f"choose another one: --output {numbers[0]}"
            if numbers
            else "measure without labels: the strings are compared with the trained model's",
        )
    return outputs[name]


def chosen_name(names: Collection[str], output: str | None) -> str:
    """The name of the output that labels are for; None takes the only one. Raises `UsageError`."""
    if output is None and len(names) == 1:
        return next(iter(names))
    if output is None:
        raise UsageError(
            f"the model has {len(names)} outputs: {', '.join(sorted(names))}",
            hint="say with --output which one the labels are for, or give labels of each under "
            "its name",
        )
    if output not in names:
        raise unknown_name("output", output, names)
    return output


def flips(before: Accuracy, after: Accuracy) -> tuple[int, int]:
    """How many samples went from wrong to right, and from right to wrong.

    Raises `InputRefused` for accuracies of different numbers of samples.
    """
    if len(before.correct) != len(after.correct):
        raise InputRefused(
            f"accuracies of {before.samples} and {after.samples} samples cannot be compared"
        )
    pairs = list(zip(before.correct, after.correct, strict=True))
    return pairs.count(("0", "1")), pairs.count(("1", "0"))


@dataclass(frozen=True)
class Scorer:
    """The metrics to compute, by name, with the labels (n, ...) of each output that has some.

    `usual` is the metric of each output, where none was chosen for all of them.
    """

    run: BenchRun
    metrics: Mapping[str, Metric | SimilarityMetric | MetricChoice]
    labels: Mapping[str, Labels]
    usual: Mapping[str, MetricChoice]

    def accuracies(self, outputs: Arrays, reference: Arrays | None) -> tuple[Accuracy, ...]:
        """The accuracies of one model's outputs, arrays (n, ...) by name, in the metrics' order.

        `reference` are the outputs to be compared with, if there are any. Raises `ToolFailed` where
        a metric is not finite, `InputRefused` or `UsageError` where outputs, labels and metric do
        not fit each other.
        """
        found: list[Accuracy] = []
        refused: dict[str, InputRefused] = {}
        for name, metric in self.metrics.items():
            if isinstance(metric, MetricChoice):
                found.append(self._own(name, metric, outputs))
            elif isinstance(metric, Metric):
                found += self._labeled(name, metric, outputs, refused)
            elif reference is not None:
                scored = metric.score(_numbers(outputs), _numbers(reference))
                found.append(accuracy_of(name, scored))
        measured = {each.output for each in found}
        for output, error in refused.items():
            if output not in measured:
                raise InputRefused(f"the output {output!r}: {error.message}", hint=error.hint)
        return tuple(found)

    def labels_of(self, accuracy: Accuracy | None) -> Labels | None:
        """The labels (n, ...) that an accuracy is of, of classes (n,); None without labels."""
        labels = next(iter(self.labels.values()), self.run.samples.labels)
        if accuracy is None or labels is None:
            return labels
        if accuracy.output:
            labels = self.labels[accuracy.output]
        return class_numbers(labels) if accuracy.predicted else labels

    def _labeled(
        self, name: str, metric: Metric, outputs: Arrays, refused: dict[str, InputRefused]
    ) -> Iterator[Accuracy]:
        """The metric of each output that it is for; of several, `refused` has the others."""
        if not outputs:
            raise InputRefused(
                "no output of the model has one row for each sample, which the metric "
                f"{name} needs",
                hint="measure without labels, or export it with the samples in the first dimension",
            )
        for output, labels in self.labels.items():
            if str(self.usual.get(output, name)) != name:
                continue
            # A trained model, such as a checkpoint, may call its only output otherwise.
            own = None if len(outputs) == len(self.labels) == 1 else output
            try:
                scored = metric.score(chosen_output(outputs, own), labels)
            except InputRefused as error:
                if len(self.labels) == 1:
                    raise
                refused.setdefault(output, error)
                continue
            accuracy = accuracy_of(
                name, scored, counts=metric.counts, higher_is_better=metric.higher_is_better
            )
            shown = output if len(self.labels) > 1 else ""
            yield msgspec.structs.replace(accuracy, output=shown)

    def _own(self, name: str, metric: MetricChoice, outputs: Arrays) -> Accuracy:
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
    name, files = str(job.metric), Path(job.files)
    with users_code(job.directory):
        function = users_function(job.metric.module, job.metric.name, job.directory)
        outputs = as_tensorflow_takes({n: np.load(files / f) for n, f in job.outputs.items()})
        labels: Any = np.load(files / "labels.npy") if (files / "labels.npy").exists() else None
        if labels is not None and labels.dtype.names:
            labels = {each: labels[each] for each in labels.dtype.names}
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


def _numbers(outputs: Arrays) -> dict[str, NDArray[np.generic]]:
    """The outputs that are not strings."""
    return {name: array for name, array in outputs.items() if not holds_strings(array)}


def make_scorer(run: BenchRun, outputs: Sequence[TensorSpec]) -> Scorer:
    """The metrics of a run, of labels of these outputs by their names, and the usual ones.

    Raises as `labels_by_output`, `usual_metric` and `metrics_of`.
    """
    choices, allow_code = run.measuring.metrics, run.execution.allow_code
    metrics = metrics_of(choices, allow_code=allow_code)
    is_used = not choices or any(map(wants_labels, metrics.values()))
    specs = {spec.name: spec for spec in outputs}
    given = run.samples.labels if is_used else None
    labels = labels_by_output(given, specs, run.measuring.output)
    if choices:
        return Scorer(run, metrics, labels, {})
    are_named = given is not None and bool(given.dtype.names)
    usual = {
        name: usual_metric(run.samples.text, specs[name], each, are_named=are_named)
        for name, each in labels.items()
    }
    labels = {n: whole_numbers(each) if usual[n] == TOP1 else each for n, each in labels.items()}
    # Accuracies have drops, flips and classes to show, so they come first.
    labels = dict(sorted(labels.items(), key=lambda each: usual[each[0]] != TOP1))
    usual = {name: usual[name] for name in labels}
    return Scorer(run, metrics_of([*usual.values()], allow_code=allow_code), labels, usual)


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
