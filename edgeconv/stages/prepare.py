"""The first stage: the float32 graph, the samples, and what the trained model says to them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data
from edgeconv.nouns import CalibrationRecord, Signature
from edgeconv.plan import SERVING, resolve
from edgeconv.store import hash_of
from edgeconv.tf.convert import FloatGraph, FloatJob, to_float
from edgeconv.tf.reference import ReferenceDone, ReferenceJob, run_reference
from edgeconv.tflite import ensure_signature, summarise
from edgeconv.workers import start_task

if TYPE_CHECKING:
    from edgeconv.data import Samples
    from edgeconv.nouns import TensorSpec
    from edgeconv.stages import Run
    from edgeconv.workers import Task

_STAGE = "float"
_SYNTHETIC_SAMPLES = 4
_SYNTHETIC_SEED = 20240


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """The stored samples: those to calibrate with (None: none were given), and the held-back.

    `batch` is the leading dimension that the model takes.
    """

    calibration: Path | None
    held_back: Path
    record: CalibrationRecord | None
    batch: int
    notes: tuple[str, ...] = ()

    @property
    def synthetic(self) -> bool:
        """Whether the samples are made up."""
        return self.calibration is None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What every recipe starts from.

    `saved_model` is what TensorFlow's converter read, None for a .tflite source;
    `reference` holds the trained model's outputs on the held-back samples, likewise.
    """

    float_model: Path
    signature: Signature
    saved_model: str | None
    saved_model_signature: str
    reference: Path | None
    reference_outputs: tuple[str, ...]
    split: Split
    notes: tuple[str, ...] = ()


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache keeps beside the float32 graph."""

    saved_model: str | None
    saved_model_signature: str
    reference_outputs: tuple[str, ...]
    notes: tuple[str, ...]


def prepare(run: Run) -> Prepared:
    """Everything the recipes need. Raises an `EdgeconvError` where the model or data are bad."""
    plan = run.plan
    chosen = resolve(plan)
    if chosen is not None and plan.model.kind == "tflite":
        return _from_tflite(run, chosen)
    key = hash_of(plan.float_key, plan.calibration, plan.calibration_identity, plan.samples)
    entry = run.cache.find(_STAGE, key)
    if entry is None:
        return _from_tensorflow(run, key, chosen)
    found = msgspec.json.decode((entry / "entry.json").read_bytes(), type=_Entry)
    exported = found.saved_model is None
    return _prepared(
        run,
        found,
        entry / "float.tflite",
        entry / "reference",
        str(entry / "saved_model") if exported else plan.model.path,
        None,
    )


def _from_tflite(run: Run, chosen: Signature) -> Prepared:
    run.on_progress("reading the float32 model")
    original = Path(run.plan.model.path).read_bytes()
    signed = ensure_signature(original)
    file = run.scratch / "float.tflite"
    file.write_bytes(signed)
    note = "the source has no signature; it was given serving_default"
    signature = _signature(signed, chosen.key or SERVING)
    return Prepared(
        float_model=file,
        signature=signature,
        saved_model=None,
        saved_model_signature="",
        reference=None,
        reference_outputs=(),
        split=split_samples(run, signature.inputs),
        notes=(note,) if signed != original else (),
    )


def _from_tensorflow(run: Run, key: str, chosen: Signature | None) -> Prepared:
    plan = run.plan
    file, exported = run.scratch / "float.tflite", run.scratch / "saved_model"
    reference = run.scratch / "reference"
    reference.mkdir()
    split: Split | None = None
    asking: Task[ReferenceDone] | None = None
    with contextlib.ExitStack() as children:
        run.on_progress("converting to float32 with TensorFlow")
        # TensorFlow goes first, since it takes longest; the samples are read meanwhile.
        converting = children.enter_context(_start_float(run, chosen, file, exported))
        if chosen is not None and plan.batch is None:
            split = split_samples(run, chosen.inputs)
            asking = _start_reference(run, plan.model.path, chosen.key, split, reference)
            children.enter_context(asking)
        graph = converting.result(run.on_progress)
        if split is None or asking is None:
            signature = _signature(file.read_bytes(), graph.signature)
            split = split_samples(run, signature.inputs)
            asking = _start_reference(run, graph.saved_model, graph.signature, split, reference)
            children.enter_context(asking)
        outputs = asking.result().outputs
    made = exported.is_dir()
    entry = _Entry(
        saved_model=None if made else graph.saved_model,
        saved_model_signature=graph.signature,
        reference_outputs=outputs,
        notes=graph.notes,
    )
    _keep(run, key, entry, file, reference, exported if made else None)
    return _prepared(run, entry, file, reference, graph.saved_model, split)


def _keep(
    run: Run, key: str, entry: _Entry, file: Path, reference: Path, exported: Path | None
) -> None:
    index = run.scratch / "entry.json"
    index.write_bytes(msgspec.json.encode(entry))
    files = {"float.tflite": file, "entry.json": index, "reference": reference}
    run.cache.keep(_STAGE, key, files | ({"saved_model": exported} if exported else {}))


def _prepared(
    run: Run, entry: _Entry, file: Path, reference: Path, saved_model: str, split: Split | None
) -> Prepared:
    signature = _signature(file.read_bytes(), entry.saved_model_signature)
    return Prepared(
        float_model=file,
        signature=signature,
        saved_model=saved_model,
        saved_model_signature=entry.saved_model_signature,
        reference=reference,
        reference_outputs=entry.reference_outputs,
        split=split or split_samples(run, signature.inputs),
        notes=entry.notes,
    )


def _start_float(
    run: Run, chosen: Signature | None, file: Path, exported: Path
) -> Task[FloatGraph]:
    plan = run.plan
    job = FloatJob(
        path=plan.model.path,
        kind=plan.model.kind,
        signature=chosen.key if chosen else None,
        batch=plan.batch,
        target=str(file),
        saved_model=str(exported),
    )
    return start_task(
        to_float,
        job,
        label="TensorFlow's converter",
        scratch=run.scratch,
        allowance=run.execution.allowance,
    )


def _start_reference(
    run: Run, saved_model: str, signature: str, split: Split, directory: Path
) -> Task[ReferenceDone]:
    job = ReferenceJob(
        saved_model=saved_model,
        signature=signature,
        samples=str(split.held_back),
        batch=split.batch,
        directory=str(directory),
    )
    return start_task(
        run_reference,
        job,
        label="the trained model in TensorFlow",
        scratch=run.scratch,
        allowance=run.execution.allowance,
    )


def _signature(model: bytes, key: str) -> Signature:
    summary = summarise(model, where="the float32 model")
    return next(signature for signature in summary.signatures if signature.key == key)


def split_samples(run: Run, inputs: tuple[TensorSpec, ...]) -> Split:
    """Read, check, split and store the samples; made-up ones where none were given."""
    plan = run.plan
    batch = plan.batch or data.batch_size(inputs)
    if plan.calibration is None:
        made_up = data.synthetic_samples(inputs, _SYNTHETIC_SAMPLES * batch, _SYNTHETIC_SEED)
        return Split(
            calibration=None, held_back=_store(run, made_up, "held-back"), record=None, batch=batch
        )
    samples = data.load_samples(plan.calibration, inputs)
    calibration, held_back = data.split_calibration(samples, plan.samples, batch=batch)
    record = CalibrationRecord(
        source=plan.calibration,
        samples=calibration.count,
        sha256=data.sha256_samples(calibration),
        range=next((r.calibration_range for r in plan.recipes if r.full_integer), "minmax"),
    )
    overlap = calibration.count + held_back.count > samples.count
    note = "verified on calibration samples: the source has no others to hold back"
    return Split(
        calibration=_store(run, calibration, "calibration"),
        held_back=_store(run, held_back, "held-back"),
        record=record,
        batch=batch,
        notes=(note,) if overlap else (),
    )


def _store(run: Run, samples: Samples, name: str) -> Path:
    directory = run.scratch / name
    data.write_samples(samples, directory)
    return directory
