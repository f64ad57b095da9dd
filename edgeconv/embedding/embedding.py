"""The verb `embed`: a published model into a directory of an app's or firmware's project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.embedding.plan import EmbedPlan, embedded_already, plan_embed
from edgeconv.errors import InputRefused
from edgeconv.plugins import embed_target
from edgeconv.store import scratch_directory
from edgeconv.types import Allowance, Embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.embedding.interface import Embedding, Port
    from edgeconv.requests.embed import EmbedRequest


class EmbedResult(NamedTuple):
    """A finished embedding; `saving` describes what converting the model again saved."""

    request: EmbedPlan
    embedded: Embedded
    is_new: bool
    saving: str = ""


def embed(
    request: EmbedRequest, *, on_progress: Callable[[str], None] = lambda _: None
) -> Embedded:
    """Write what a target needs of a published .tflite into a directory.

    What is up to date is neither written nor run. A note on the file's last check is a line of
    progress.

    Raises `UsageError` for a bad target, option or symbol, `InputRefused` for an artifact, data or
    labels that do not fit, `OutputRefused` where a foreign file is in the way or nothing can be
    written, `ToolFailed` where the model does not run, `CheckFailed` for an artifact that its last
    check rejected.
    """
    result = embed_or_keep(request, on_progress)
    if result.request.check_note:
        on_progress(result.request.check_note)
    return result.embedded


def embed_or_keep(request: EmbedRequest, on_progress: Callable[[str], None]) -> EmbedResult:
    """What `embed` does, with its plan, and whether anything was written."""
    from edgeconv.embedding.depfile import write_depfile

    plan, saving = plan_embed(request), ""
    if request.remake:
        from edgeconv.embedding.remake import remake

        artifact, saving = remake(plan, on_progress)
        plan = plan_embed(msgspec.structs.replace(request, artifact=str(artifact)))
    existing = embedded_already(plan)
    embedded = existing or perform(
        plan,
        allow_code=request.allow_code,
        allowance=request.allowance,
        on_progress=on_progress,
    )
    if request.depfile:
        write_depfile(plan, Path(request.depfile), request.depfile_target)
    return EmbedResult(plan, embedded, existing is None, saving)


def perform(
    plan: EmbedPlan,
    *,
    allow_code: bool = False,
    allowance: Allowance = Allowance(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Embedded:
    """Write what is planned, even if it is up to date. Raises as `embed` does."""
    from edgeconv.embedding.npu import compiled_for_npu
    from edgeconv.embedding.writing import listed, write_embedding

    module = embed_target(plan.target)
    on_progress(f"golden vectors for {plan.published.model.name}")
    embedding = make_embedding(
        plan, allow_code=allow_code, allowance=allowance, on_progress=on_progress
    )
    compiled_from = ""
    npu_notes: tuple[str, ...] = ()
    with scratch_directory() as scratch:
        if plan.npu:
            on_progress(f"compiling {plan.published.model.name} for {plan.npu}")
            compiled_from = embedding.sha256
            embedding, npu_notes = compiled_for_npu(embedding, plan.npu, scratch, allowance)
        files = {**module.files(embedding)}
        if plan.bom:
            files[f"{plan.symbol}.cdx.json"] = plan.bom
        notes = module.notes(embedding) if hasattr(module, "notes") else ()
        embedded = Embedded(
            target=plan.target,
            name=embedding.name,
            symbol=plan.symbol,
            key=plan.key,
            model_sha256=embedding.sha256,
            compiled_from=compiled_from,
            files=listed(files),
            options=plan.options,
            notes=(*plan.published.notes, *npu_notes, *notes),
        )
        waiting = f"waiting for another run that writes in {plan.directory}"
        write_embedding(plan.directory, files, embedded, on_wait=lambda: on_progress(waiting))
    return embedded


def make_embedding(
    plan: EmbedPlan,
    *,
    allow_code: bool = False,
    allowance: Allowance = Allowance(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Embedding:
    """What the target gets: the model is run for its golden vectors. Raises as `embed`."""
    from edgeconv.embedding.accessors import check_port, ports
    from edgeconv.embedding.golden import golden, golden_samples, run_samples
    from edgeconv.embedding.interface import MICRO, Embedding
    from edgeconv.embedding.micro import refuse_for_micro
    from edgeconv.runtimes.interface import Model
    from edgeconv.runtimes.tensors import signature_of

    published, signature = plan.published, plan.signature
    for spec in (*signature.inputs, *signature.outputs):
        check_port(spec)
    graph = signature_of(Model(file=published.model, signature=signature.key or None))
    samples, classes = golden_samples(plan, allow_code=allow_code, allowance=allowance)
    is_stateful = _is_stateful(published.model.read_bytes())
    if plan.kernels == MICRO:
        data = published.model.read_bytes()
        refuse_for_micro(data, published.artifact.name, signature.key)
    run = run_samples(plan, samples, allowance, afresh=is_stateful, on_progress=on_progress)
    outputs = ports(
        signature.outputs, [s.name for s in graph.outputs], run.output_shapes(signature)
    )
    labels = plan.labels or classes
    defaults = {name: option.default for name, option in embed_target(plan.target).OPTIONS.items()}
    return Embedding(
        artifact=published.portable,
        model=published.model,
        symbol=plan.symbol,
        signature=signature,
        inputs=ports(
            signature.inputs,
            [spec.name for spec in graph.inputs],
            run.shapes(),
            published.artifact.preprocessing,
        ),
        outputs=outputs,
        golden=golden(run, plan),
        labels=labels,
        labeled=_labeled_output(labels, outputs),
        is_stateful=is_stateful,
        options={**defaults, **plan.options},
    )


def _labeled_output(labels: tuple[str, ...], outputs: tuple[Port, ...]) -> int | None:
    """The output that has a value for each label; the first, where there are several."""
    if not labels:
        return None
    for port in outputs:
        if port.fixed and port.fixed[-1] == len(labels):
            return port.index
    shapes = ", ".join(f"{port.name!r} {list(port.fixed)}" for port in outputs)
    raise InputRefused(
        f"no output has {len(labels)} values, one per label: {shapes}",
        hint="give one label per line, in the order of the classes",
    )


def _is_stateful(data: bytes) -> bool:
    from edgeconv.tflite.flatbuffer import operator_name, parse

    model = parse(data, where="the model")
    return any(
        any(tensor.isVariable for tensor in graph.tensors)
        or any(operator_name(model, operator) == "VAR_HANDLE" for operator in graph.operators)
        for graph in model.subgraphs
    )
