"""One search at work: what its result depends on, where its files go, and its samples.

It may use some samples, and is judged by fresh ones that it may not use.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from edgeconv import data
from edgeconv.conversion.plan import REVISION
from edgeconv.conversion.run import Run, Split, split_opened
from edgeconv.data.checks import as_written
from edgeconv.data.preprocessing import describe
from edgeconv.data.source import DataSet
from edgeconv.measure.metrics.scoring import labels_of_one
from edgeconv.measure.model_files import float_inputs
from edgeconv.model.source import opening_key
from edgeconv.plugins import npu_compiler
from edgeconv.plugins.scale.tune_search import LEAST_SAMPLES, enough_samples
from edgeconv.reporting.units import is_share
from edgeconv.requests.recipes import recipe_names
from edgeconv.requests.texts import source_within
from edgeconv.requests.tune import TuneRequest
from edgeconv.system.store import code_hash, hash_of, publish_all, tool_versions
from edgeconv.types import (
    QAT,
    DataIdentity,
    DataSource,
    Signature,
    SourceModel,
    TensorSpec,
    TuningTrial,
)
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    from typing import Self

# Counts up when kept trials are to be evaluated again.
_REVISION = 2


@dataclass(frozen=True)
class TuneRun:
    """A request with its model identified.

    `identities` are the hashes of the samples, and of those that calibrate ("" for no others).
    `started_s` is on the clock of `time.monotonic`.
    """

    request: TuneRequest
    model: SourceModel
    directory: Path
    identities: tuple[str, str]
    on_progress: Callable[[str], None]
    started_s: float

    @property
    def end_s(self) -> float:
        """When the time is up, on the clock of `time.monotonic`."""
        return self.started_s + self.request.time_limit_s

    def key(self, trials: Iterable[TuningTrial]) -> str:
        """The key of a result with these trials, which the limits decide as well.

        What was refused, other code of edgeconv may take.
        """
        refused = any(trial.error for trial in trials)
        return hash_of(self._key(self.request), code_hash() if refused else "")

    @property
    def result_file(self) -> Path:
        """Where the result goes."""
        return self.directory / f"{self.model.name}.tuning.json"

    @property
    def recipe_file(self) -> Path:
        """Where the recipe goes."""
        return self.directory / f"{self.model.name}.recipe.toml"

    @property
    def calibration_file(self) -> Path:
        """Where calibration samples go that are taken from the search samples."""
        return self.directory / f"{self.model.name}.calibration.npz"

    @property
    def work(self) -> Path:
        """Where the trials are until the search is finished."""
        return self.directory / f".{self.model.name}.tuning"

    def trials_directory(self) -> Path:
        """Where trials are kept that another run can use again; it is made if need be.

        Neither the limits nor the budget decide what a trial is.
        """
        request = msgspec.structs.replace(
            self.request, max_drop=0.0, objective="size", recipes=(), trials=1, time_limit_s=1.0
        )
        directory = self.work / self._key(request)[:24]
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _key(self, request: TuneRequest) -> str:
        model = (self.model.sha256, opening_key(self.model))
        content = (str(request.data), str(request.calibration or ""), self.identities)
        tools = (tool_versions(), npu_compiler().compiler() if request.npu else "")
        return hash_of((REVISION, _REVISION), model, content, request.settings(), tools)


def refuse_options(request: TuneRequest) -> None:
    """Raise `UsageError` for options that do not go together."""
    if (request.objective == "npu-latency") != (request.npu is not None):
        raise UsageError(
            "--objective npu-latency and --npu NAME belong together",
            hint="--objective npu-latency --npu ethos-u55-128",
        )
    if request.metric:
        refuse_budget(request, str(request.metric))
    if request.recipes and QAT in recipe_names(request.recipes):
        raise UsageError(
            "qat is training, which a search does not do",
            hint="remove it; if nothing else meets the budget, the command for it is shown",
        )


def refuse_budget(request: TuneRequest, metric: str) -> None:
    """Raise `UsageError` for a budget that no share can lose, where the metric is one."""
    if request.max_drop >= 1 and is_share(metric):
        raise UsageError(
            f"--max-drop {request.max_drop:g} is no budget: less than 1 can be lost of a share",
            hint="0.01 is one point of accuracy; for a loss in the outputs' unit add --metric mae",
        )


Array = np.ndarray[Any, Any]

MOST_CALIBRATION = 500
# A trial is to take seconds; the other samples are fresh.
_MOST_SEARCH = 4000
# The fraction of samples that may be equal by chance.
_BY_CHANCE = 0.05


class SampleHalves(NamedTuple):
    """The two parts of a data set. They share no sample, and `fresh` is at least as large."""

    search: DataSet
    fresh: DataSet


@dataclass(frozen=True, eq=False)
class SearchSamples:
    """The samples of one search, open to be read.

    `calibration_source` is the SOURCE of the samples `calibration`, and `recipe_source` the same
    relative to the folder of the recipe. `output` is the one that the labels are for, if that is
    known.
    """

    search: DataSet
    fresh: DataSet
    batch: int
    calibration: DataSet
    calibration_source: DataSource
    recipe_source: DataSource
    calibration_identity: DataIdentity
    output: str | None


@contextlib.contextmanager
def open_samples(
    request: TuneRequest, signature: Signature, calibration_file: Path
) -> Iterator[SearchSamples]:
    """The samples of a request for a model, to be read within the block.

    Calibration samples are the user's. Where there are none, they are taken from the search
    samples and stored in `calibration_file`, which the recipe names. Raises as
    `data.opened_samples`, `split_samples` and `refuse_budget` do, and `UsageError` for labels of
    several outputs.
    """
    outputs = tuple(spec.name for spec in signature.outputs)
    steps, execution = request.preprocess.by_input, request.execution
    opening = functools.partial(
        data.opened_samples,
        inputs=float_inputs(signature),
        preprocessing=steps,
        allow_code=execution.allow_code,
        allowance=execution.allowance,
    )
    labels = data.LabelUse(needs="numbers" if request.metric else "either", outputs=outputs)
    with opening(request.data, labels=labels) as given:
        opened, output = _of_one_output(given, outputs, request)
        # Floats may be classes or numbers, which only the model's output tells.
        if not request.metric and (opened.labels is None or opened.labels.dtype.kind in "iu"):
            refuse_budget(request, "")
        batch = data.batch_size(opened.inputs)
        search, fresh = split_samples(opened, request.samples, request.max_drop, batch)
        if request.calibration and not request.calibration.held:
            source = request.calibration
            recipe_source = source_within(source, Path.cwd())
        else:
            # The recipe names a file, also where the samples came from memory.
            content = archive_of(search, batch)
            if request.calibration:
                without = data.LabelUse(needs="none", outputs=outputs)
                with opening(request.calibration, labels=without) as own:
                    content = archive_of(own, batch, own.count)
            publish_all({calibration_file: content})
            source = DataSource(kind="npz", location=str(calibration_file))
            recipe_source = structs.replace(source, location=calibration_file.name)
        of_classes = data.LabelUse(needs="if classes", outputs=outputs)
        with opening(source, labels=of_classes) as calibration:
            if request.calibration:
                refuse_shared(calibration, fresh)
            yield SearchSamples(
                search=search,
                fresh=fresh,
                batch=batch,
                calibration=calibration,
                calibration_source=source,
                recipe_source=recipe_source,
                calibration_identity=DataIdentity(
                    source=str(request.calibration or recipe_source),
                    samples=calibration.count,
                    sha256=data.identity(source, allow_code=execution.allow_code),
                    preprocessing=describe(steps),
                ),
                output=output,
            )


def _of_one_output(
    samples: DataSet, outputs: Sequence[str], request: TuneRequest
) -> tuple[DataSet, str | None]:
    """The samples with the labels of the output that a search is for, and its name."""
    output, labels = request.output or None, samples.labels
    is_own = request.metric is not None and request.metric.module
    if labels is None or not labels.dtype.names or is_own:
        return samples, output
    labels, output = labels_of_one(labels, outputs, output)
    return replace(samples, labels=labels), output


class SampleOpener:
    """Opens the samples of one search once it is known what its model takes.

    Leaving it as a context manager closes them.
    """

    def __init__(self, run: TuneRun) -> None:
        self._run = run
        self._stack = contextlib.ExitStack()
        self._samples: SearchSamples | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def samples(self) -> SearchSamples:
        """The samples, once they were read for a signature."""
        assert self._samples is not None, "a model has a signature"
        return self._samples

    def split(self, run: Run, signature: Signature, _: Sequence[Sequence[bytes]]) -> Split:
        """What calibrates and what is held back, for `conversion.run.Run`."""
        self._stack.close()
        opening = open_samples(self._run.request, signature, self._run.calibration_file)
        self._samples = self._stack.enter_context(opening)
        return split_opened(run, signature, self._samples.calibration)


def split_samples(source: DataSet, count: int | None, budget: float, batch: int) -> SampleHalves:
    """`count` samples of the source (None: all), half to search with and half fresh.

    They are drawn by a fixed seed, in equal shares of every label, both halves in whole batches.
    Raises `InputRefused` for too few.
    """
    total = source.count if count is None else min(count, source.count)
    least = max(LEAST_SAMPLES, 2 * batch)
    if total < least:
        raise InputRefused(
            f"{source.text}: {total} samples; a search and its confirmation need at least {least}",
            hint=f"a budget of {budget:g} needs {enough_samples(budget)} or more",
        )
    chosen = _choose(source, np.arange(source.count), total // batch * batch)
    searched = min(total // 2, _MOST_SEARCH) // batch * batch
    search = _choose(source, chosen, searched)
    return SampleHalves(source.only(search), source.only(np.setdiff1d(chosen, search)))


def _choose(source: DataSet, pool: Array, count: int) -> Array:
    labels = None if source.labels is None else source.labels[pool]
    return data.seeded_choice(data.Samples({"": pool}, labels, source.text), count).arrays[""]


def archive_of(search: DataSet, batch: int, most: int = MOST_CALIBRATION) -> bytes:
    """An .npz of up to `most` of the samples as they are stored, by input, without labels.

    Raises `InputRefused` where they differ in shape, which an array cannot.
    """
    count = min(search.count, max(most, batch)) // batch * batch
    stored = search.stored(_choose(search, np.arange(search.count), count))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for spec in search.inputs:
            # A member without a time, so that equal samples give equal bytes.
            member = zipfile.ZipInfo(f"{spec.name}.npy")
            with archive.open(member, "w", force_zip64=True) as stream:
                array = _stacked(search, spec, stored[spec.name])
                np.lib.format.write_array(stream, array, allow_pickle=False)
    return file.getvalue()


def _stacked(source: DataSet, spec: TensorSpec, stored: Array | list[Array]) -> Array:
    where = f"{source.text}: input {spec.name!r}"
    if isinstance(stored, np.ndarray):
        has_steps = bool({"", spec.name} & source.preprocessing.keys())
        return as_written(where, stored, spec, has_steps=has_steps) if source.is_text else stored
    if len({(item.shape, item.dtype) for item in stored}) > 1:
        raise InputRefused(
            f"{where} has samples of several shapes, which cannot be kept as calibration samples",
            hint="give other calibration samples with --calibration SOURCE",
        )
    return np.stack(stored)


def refuse_shared(calibration: DataSet, fresh: DataSet) -> None:
    """Raise `InputRefused` where calibration samples are among the fresh ones as well.

    A few are equal by chance. What is read one by one, as pictures are, is not compared.
    """
    calibrating, new = _sample_hashes(calibration), _sample_hashes(fresh)
    if calibrating is None or new is None:
        return
    shared = len(calibrating & new)
    if shared > _BY_CHANCE * len(calibrating):
        raise InputRefused(
            f"{shared} of {len(calibrating)} samples of {calibration.text} are among the fresh "
            f"ones of {fresh.text}, which nothing may have used before",
            hint="give other calibration samples, or remove --calibration: then the search "
            "samples calibrate",
        )


def _sample_hashes(source: DataSet) -> set[bytes] | None:
    """The hashes of the stored samples; None where they are read one by one."""
    names = sorted(spec.name for spec in source.inputs)
    first = source.stored(np.arange(1))
    if any(isinstance(first[name], list) for name in names):
        return None
    stored = source.stored(np.arange(source.count))
    return {
        hashlib.sha256(b"".join(stored[name][index].tobytes() for name in names)).digest()
        for index in range(source.count)
    }
