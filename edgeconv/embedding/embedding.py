"""The verb `embed`: a published model into a directory of an app's or firmware's project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edgeconv.embedding.plan import EmbedPlan, embedded_already, plan_of
from edgeconv.errors import InputRefused
from edgeconv.plugins import embed_target
from edgeconv.types import Allowance, Embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgeconv.embedding.interface import Embedding, Port
    from edgeconv.requests.embed import EmbedRequest


class EmbedResult(NamedTuple):
    """An embedding that is done: `saving` says what converting the model again saved."""

    request: EmbedPlan
    embedded: Embedded
    is_new: bool
    saving: str = ""


def embed(asked: EmbedRequest, *, on_progress: Callable[[str], None] = lambda _: None) -> Embedded:
    """Write what a target needs of a published .tflite into a directory; what is there is kept.

    Where all is up to date nothing is written or run. What there is to say of the file's last
    check is told as progress.

    Raises `UsageError` for a target, option or symbol that cannot be, `InputRefused` for an
    artifact, data or labels that do not fit, `OutputRefused` where something foreign is in the
    way or nothing can be written, `ToolFailed` where the model does not run, `CheckFailed` for an
    artifact that its last check rejected.
    """
    done = embed_or_keep(asked, on_progress)
    if done.request.check_note:
        on_progress(done.request.check_note)
    return done.embedded


def embed_or_keep(asked: EmbedRequest, on_progress: Callable[[str], None]) -> EmbedResult:
    """What `embed` does, with what it was made of, and whether anything was written."""
    from edgeconv.embedding.depfile import write_depfile

    request, saving = plan_of(asked), ""
    if asked.remake:
        from edgeconv.embedding.remake import remake

        artifact, saving = remake(request, on_progress)
        request = plan_of(msgspec.structs.replace(asked, artifact=str(artifact)))
    found = embedded_already(request)
    embedded = found or perform(
        request,
        allow_code=asked.allow_code,
        allowance=asked.allowance,
        on_progress=on_progress,
    )
    if asked.depfile:
        write_depfile(request, Path(asked.depfile), asked.depfile_target)
    return EmbedResult(request, embedded, found is None, saving)


def perform(
    request: EmbedPlan,
    *,
    allow_code: bool = False,
    allowance: Allowance = Allowance(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Embedded:
    """Write what is asked for, whether or not it is there already. Raises as `embed` does."""
    from edgeconv.embedding.writing import listed, write_embedding

    module = embed_target(request.target)
    on_progress(f"golden vectors for {request.published.model.name}")
    embedding = make_embedding(request, allow_code=allow_code, allowance=allowance)
    files = {**module.files(embedding)}
    if request.bom:
        files[f"{request.symbol}.cdx.json"] = request.bom
    embedded = Embedded(
        target=request.target,
        name=embedding.name,
        symbol=request.symbol,
        key=request.key,
        model_sha256=embedding.sha256,
        files=listed(files),
        options=request.options,
        notes=(
            *request.published.notes,
            *(module.notes(embedding) if hasattr(module, "notes") else ()),
        ),
    )
    waiting = f"waiting for another run that writes in {request.directory}"
    write_embedding(request.directory, files, embedded, on_wait=lambda: on_progress(waiting))
    return embedded


def make_embedding(
    request: EmbedPlan, *, allow_code: bool = False, allowance: Allowance = Allowance()
) -> Embedding:
    """What the target is given: the model is run for its golden vectors. Raises as `embed`."""
    from edgeconv.embedding.accessors import check_port, ports
    from edgeconv.embedding.golden import golden, golden_samples, run_samples
    from edgeconv.embedding.interface import Embedding
    from edgeconv.runtimes.interface import Model
    from edgeconv.runtimes.tensors import signature_of

    published = request.published
    signature = request.signature
    for spec in (*signature.inputs, *signature.outputs):
        check_port(spec)
    model = Model(file=published.model, signature=signature.key or None)
    graph = signature_of(model)
    samples, classes = golden_samples(
        published,
        signature,
        request.data,
        request.vectors,
        allow_code=allow_code,
        allowance=allowance,
    )
    is_stateful = _is_stateful(published.model.read_bytes())
    run = run_samples(published, signature, samples, allowance, afresh=is_stateful)
    outputs = ports(
        signature.outputs, [s.name for s in graph.outputs], run.output_shapes(signature)
    )
    labels = request.labels or classes
    return Embedding(
        artifact=published.portable,
        model=published.model,
        symbol=request.symbol,
        signature=signature,
        inputs=ports(
            signature.inputs,
            [spec.name for spec in graph.inputs],
            run.shapes(),
            published.artifact.preprocessing,
        ),
        outputs=outputs,
        golden=golden(run, signature, published, request.data),
        labels=labels,
        labelled=_labelled(labels, outputs),
        is_stateful=is_stateful,
        options={**_defaults(request.target), **request.options},
    )


def _defaults(target: str) -> dict[str, str]:
    return {name: option.default for name, option in embed_target(target).OPTIONS.items()}


def _labelled(labels: tuple[str, ...], outputs: tuple[Port, ...]) -> int | None:
    """The output that has a value for each label; the first, where there are several."""
    if not labels:
        return None
    for port in outputs:
        if port.fixed and port.fixed[-1] == len(labels):
            return port.index
    shapes = ", ".join(f"{port.name!r} {list(port.fixed)}" for port in outputs)
    raise InputRefused(
        f"there are {len(labels)} labels, and no output has so many values: {shapes}",
        hint="one label a line, in the order of the classes",
    )


def _is_stateful(data: bytes) -> bool:
    from edgeconv.tflite.flatbuffer import operator_name, parse

    model = parse(data, where="the model")
    return any(
        any(tensor.isVariable for tensor in graph.tensors)
        or any(operator_name(model, operator) == "VAR_HANDLE" for operator in graph.operators)
        for graph in model.subgraphs
    )
