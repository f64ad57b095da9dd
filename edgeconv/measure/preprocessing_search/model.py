"""A model of any kind, and its outputs: the part of `doctor` that starts processes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edgeconv import data, source
from edgeconv.errors import InputRefused
from edgeconv.measure.model_files import find_model_files, float_inputs, preprocessing_of
from edgeconv.measure.trained import run_trained
from edgeconv.processes.sandbox import Access
from edgeconv.processes.tasks import start_task
from edgeconv.runtimes.local import start_run
from edgeconv.source.scanning import admit_model
from edgeconv.store import tool_versions
from edgeconv.tf.baseline import BaselineJob
from edgeconv.tf.keras_files import ExportJob, export_file
from edgeconv.types import Opening
from edgeconv.types.words import SERVING_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edgeconv.data import Samples
    from edgeconv.types import (
        Execution,
        Preprocessing,
        Signature,
        SourceKind,
        SourceModel,
        TensorSpec,
    )

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """Where and how a model is run, and where progress goes."""

    scratch: Path
    execution: Execution
    on_progress: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SearchedModel:
    """A model with one float input.

    `path` and `kind` are those of what is run: a Keras file was exported as a SavedModel.
    `declared` is the preprocessing in its manifest, by input.
    """

    path: Path
    kind: SourceKind
    key: str
    spec: TensorSpec
    declared: Mapping[str, Preprocessing]

    @property
    def batch(self) -> int:
        """How many samples the model takes at once."""
        return data.batch_size((self.spec,))


def open_model(
    context: SearchContext, model: str | Path, key: str | None, opening: Opening = Opening()
) -> SearchedModel:
    """The model at a path. Raises an `EdgeconvError` for one that cannot be searched."""
    allow_code = context.execution.allow_code
    admit_model(model, opening, allow_code=allow_code, trusted=context.execution.trusted)
    loaded = source.load_to_run(model, opening, allow_code=allow_code)
    declared: Mapping[str, Preprocessing] = {}
    if loaded.kind == "tflite":
        model_files = find_model_files((loaded.path,), key, context.execution.trusted)
        signature = model_files[0].signature
        declared, _ = preprocessing_of(model_files, None)
    else:
        loaded = _exported(context, loaded)
        signature = source.chosen_signature(loaded, key)
    return SearchedModel(
        path=Path(loaded.path),
        kind=loaded.kind,
        key=signature.key,
        spec=only_float_input(str(model), signature),
        declared=declared,
    )


def run_model(
    context: SearchContext, searched: SearchedModel, samples: Samples
) -> tuple[dict[str, Array], str]:
    """The outputs (n, ...) by name, and the runtime. Raises an `EdgeconvError`."""
    if searched.kind == "tflite":
        stored = context.scratch / "samples"
        data.write_samples(samples, stored)
        return _run_tflite(context, searched, stored)
    return _run_tensorflow(context, searched, samples)


def _exported(context: SearchContext, model: SourceModel) -> SourceModel:
    """A SavedModel as TensorFlow takes it; a Keras file is exported as one."""
    target = context.scratch / "loaded" / "exported"
    if model.kind == "saved_model":
        return msgspec.structs.replace(model, path=source.serving_path(model, target))
    context.on_progress("loading the Keras file")
    job = ExportJob(path=model.path, kind=model.kind, target=str(target), opening=model.opening)
    with start_task(
        export_file,
        job,
        label="loading the Keras file",
        scratch=context.scratch,
        access=Access(
            reads=(Path(model.path), *source.code_directories(model.opening)),
            writes=(target.parent,),
        ),
        allowance=context.execution.allowance,
    ) as task:
        task.result(context.on_progress)
    exported = source.load(target)
    signatures = tuple(s for s in exported.signatures if s.key == SERVING_DEFAULT)
    return msgspec.structs.replace(exported, signatures=signatures)


def only_float_input(model: str, signature: Signature) -> TensorSpec:
    """The one input of a signature. Raises `InputRefused` for several, or one of integers."""
    inputs = float_inputs(signature)
    if len(inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in inputs) or "none"
        raise InputRefused(
            f"{model} has {len(inputs)} inputs ({names}), and doctor tries preprocessings of one",
            hint="compare them one by one: edgeconv bench --preprocess 'INPUT.scale=1/255'",
        )
    (spec,) = inputs
    if not spec.dtype.startswith("float"):
        raise InputRefused(
            f"{model}: its input {spec.name!r} takes {spec.dtype}, so there is no scale to find",
            hint="whole numbers and strings go in as they are: if the accuracy is wrong, look at "
            "the labels and, for tokens and words, at the vocabulary",
        )
    return spec


def _run_tflite(
    context: SearchContext, searched: SearchedModel, stored: Path
) -> tuple[dict[str, Array], str]:
    with start_run(
        searched.path,
        stored,
        scratch=context.scratch,
        signature=searched.key or None,
        batch=searched.batch,
        threads=context.execution.threads,
        allowance=context.execution.allowance,
    ) as running:
        run = running.result()
        return run.outputs, f"{run.runtime} {run.version}"


def _run_tensorflow(
    context: SearchContext, searched: SearchedModel, samples: Samples
) -> tuple[dict[str, Array], str]:
    job = BaselineJob(
        path=str(searched.path),
        kind=searched.kind,
        signature=searched.key,
        inputs="",
        outputs="",
        samples=samples.count,
        warmup=0,
        repeats=0,
        threads=context.execution.threads,
    )
    _, outputs, _ = run_trained(
        job,
        [samples],
        scratch=context.scratch,
        allowance=context.execution.allowance,
        on_progress=context.on_progress,
    )
    return outputs, f"tensorflow {tool_versions()['tensorflow']}"
