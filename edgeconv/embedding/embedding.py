"""The verb `embed`: a published model into a directory of an app's or firmware's project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeconv.embedding.request import Request, embedded_already, make_request
from edgeconv.errors import InputRefused
from edgeconv.plugins import embed_target
from edgeconv.types import Allowance, Embedded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from edgeconv.embedding.interface import Embedding, Port


def embed(
    artifact: str | Path,
    target: str,
    directory: str | Path,
    *,
    symbol: str = "",
    signature: str = "",
    data: str = "",
    labels: str | Path = "",
    vectors: int = 2,
    options: Mapping[str, str] | None = None,
    allow_code: bool = False,
    require_check: bool = False,
    bom: bool = False,
    report: str | Path = "",
    allowance: Allowance = Allowance(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Embedded:
    """Write what `target` needs of a published .tflite into `directory`; what is there is kept.

    `artifact` is the .tflite, its manifest beside it. `symbol` begins all generated names, ""
    for the model's name. `signature` is the one to be called, "" for the only one. `data` is a
    SOURCE that the golden vectors are taken from, "" for made-up ones; `vectors` says how many.
    `labels` is a file with the name of each class on a line, "" for those that `data` has.
    `options` are the target's own. `allow_code`: `data` may name a function. `require_check`: an
    artifact that `edgeconv check` never judged is refused too. `bom`: SYMBOL.cdx.json is written
    too, a bill of materials of CycloneDX; `report` is a report.json for its metrics, "" for the one
    beside the artifact, where that measured it. Where all is up to date nothing is
    written or run.

    Raises `UsageError` for a target, option or symbol that cannot be, `InputRefused` for an
    artifact, data or labels that do not fit, `OutputRefused` where something foreign is in the
    way or nothing can be written, `ToolFailed` where the model does not run, `CheckFailed` for an
    artifact that its last check rejected.
    """
    request = make_request(
        artifact,
        target,
        directory,
        symbol=symbol,
        signature=signature,
        data=data,
        labels=labels,
        vectors=vectors,
        options=options,
        allow_code=allow_code,
        require_check=require_check,
        allowance=allowance,
        bom=bom,
        report=report,
    )
    if request.check_note:
        on_progress(request.check_note)
    return embedded_already(request) or perform(
        request, allow_code=allow_code, allowance=allowance, on_progress=on_progress
    )


def perform(
    request: Request,
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
    request: Request, *, allow_code: bool = False, allowance: Allowance = Allowance()
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
