"""The verb `embed`: a published model into a directory of an app's or firmware's project."""

import contextlib
import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from edgeconv.data.location import roots_of
from edgeconv.embedding.accessors import check_port, ports
from edgeconv.embedding.interface import MICRO, Embedding, Port, compiled_for_npu
from edgeconv.embedding.plan import JOURNAL, RECORD, EmbedPlan, embedded_already, plan_embed
from edgeconv.model.tflite.flatbuffer import operator_name, parse
from edgeconv.plugins import embed_target
from edgeconv.reporting.files import verdict_file
from edgeconv.requests.embed import EmbedRequest
from edgeconv.runtimes.interface import Model
from edgeconv.system.store import (
    json_with_checksum,
    owned,
    publish_all,
    publish_bytes,
    read_noun,
    refuse_inputs,
    scratch_directory,
    sha256_file,
    sweep_unfinished,
)
from edgeconv.system.store.notes import was_converted
from edgeconv.types import Allowance, Embedded, EmbeddedFile
from edgeconv.types.errors import InputRefused, OutputRefused, UsageError

Files = Mapping[str, bytes | Path]


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
    plan, saving = plan_embed(request), ""
    if request.remake:
        from edgeconv.embedding.remake import remake

        artifact, saving = remake(plan, on_progress)
        plan = plan_embed(msgspec.structs.replace(request, artifact=str(artifact)))
    existing = embedded_already(plan)
    embedded = existing or perform(
        plan, allow_code=request.allow_code, allowance=request.allowance, on_progress=on_progress
    )
    if request.depfile:
        target = request.depfile_target or str((plan.directory / RECORD).absolute())
        publish_bytes(make_rule(target, dependencies(plan)), Path(request.depfile))
    return EmbedResult(plan, embedded, existing is None, saving)


def perform(
    plan: EmbedPlan,
    *,
    allow_code: bool = False,
    allowance: Allowance = Allowance(),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Embedded:
    """Write what is planned, even if it is up to date. Raises as `embed` does."""
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
        notes = module.notes(embedding) if hasattr(module, "notes") else ()
        embedded = Embedded(
            target=plan.target,
            name=embedding.name,
            symbol=plan.symbol,
            key=plan.key,
            model_sha256=embedding.sha256,
            interface_id=embedding.interface_id,
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
    from edgeconv.embedding.golden import golden, golden_samples, run_samples
    from edgeconv.embedding.micro import refuse_for_micro
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
            run.shapes(signature),
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
    model = parse(data, where="the model")
    return any(
        any(tensor.isVariable for tensor in graph.tensors)
        or any(operator_name(model, operator) == "VAR_HANDLE" for operator in graph.operators)
        for graph in model.subgraphs
    )


# Writes the files of an embedding: all of them or none, and no foreign file is touched.
# A journal with their names is written first; the record is written last, and then the journal is
# removed. So a run that is killed at any moment leaves only files that the next one knows.


class WriteJournal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files that a run was about to write or remove."""

    files: tuple[str, ...]


def listed(files: Files) -> tuple[EmbeddedFile, ...]:
    """The files with their hashes, sorted by path."""
    return tuple(
        EmbeddedFile(path=path, sha256=_sha256(content)) for path, content in sorted(files.items())
    )


def write_embedding(
    directory: Path, files: Files, embedded: Embedded, *, on_wait: Callable[[], None] = lambda: None
) -> None:
    """Make the directory contain these files, and no others of an earlier run.

    An unchanged file is not touched, so that builds see no change. Raises `OutputRefused` where it
    cannot be written, and, before any change, where a foreign file is in the way.
    """
    with owned(directory, on_wait=on_wait):
        record, journal = _record(directory), _journal(directory)
        earlier = {*record, *journal}
        for path in files:
            _refuse_foreign(directory, path, earlier)
        for folder in {(directory / path).parent for path in journal}:
            sweep_unfinished(folder)
        changed = [path for path in sorted(files) if not _is_same(directory / path, files[path])]
        # The unchanged files that earlier runs wrote and this one does not.
        stale = sorted(
            path
            for path in earlier - set(files)
            if path in journal or _is_what(directory / path, record[path])
        )
        refuse_inputs(directory / path for path in (*changed, *stale))
        text = json_with_checksum(embedded, indent=2)
        if changed or stale or journal or not _is_same(directory / RECORD, text):
            begun = WriteJournal(files=tuple(sorted(earlier | set(files))))
            publish_bytes(msgspec.json.encode(begun), directory / JOURNAL)
            _put(directory, files, changed, stale, text)


def _put(
    directory: Path, files: Files, changed: list[str], stale: list[str], record: bytes
) -> None:
    with _refusals(directory):
        for path in changed:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
    try:
        publish_all({directory / path: files[path] for path in changed})
    except OutputRefused:
        # The journal and empty folders, where no file was written.
        if not any(_is_same(directory / path, files[path]) for path in changed):
            for path in changed:
                _remove_empty(directory, (directory / path).parent)
            with contextlib.suppress(OSError):
                (directory / JOURNAL).unlink()
        raise
    with _refusals(directory):
        for path in stale:
            (directory / path).unlink(missing_ok=True)
            _remove_empty(directory, (directory / path).parent)
    publish_bytes(record, directory / RECORD)
    with _refusals(directory):
        (directory / JOURNAL).unlink(missing_ok=True)


def _record(directory: Path) -> dict[str, str]:
    """The files of an earlier run and their hashes. Raises `InputRefused` for a bad record."""
    if not (directory / RECORD).is_file():
        return {}
    embedded = read_noun(directory / RECORD, Embedded, what="record of an embedding")
    files = {file.path: file.sha256 for file in embedded.files}
    _safe(directory / RECORD, tuple(files))
    return files


def _journal(directory: Path) -> tuple[str, ...]:
    """The files of a run that did not finish."""
    if not (directory / JOURNAL).is_file():
        return ()
    journal = read_noun(directory / JOURNAL, WriteJournal, what="journal of an embedding")
    return _safe(directory / JOURNAL, journal.files)


def _safe(source: Path, paths: tuple[str, ...]) -> tuple[str, ...]:
    """`paths`; `InputRefused` for one outside of the directory, which must not be deleted."""
    directory = source.parent
    for path in paths:
        parts = PurePosixPath(path)
        is_below = not parts.is_absolute() and ".." not in parts.parts
        links = any((directory / each).is_symlink() for each in parts.parents)
        if not is_below or links or path != str(parts) or path == ".":
            raise InputRefused(
                f"{source} names the file {path!r}, which is not below its directory",
                hint="it was edited; remove it and the files that edgeconv wrote",
            )
    return paths


def _refuse_foreign(directory: Path, path: str, earlier: set[str]) -> None:
    target = directory / path
    if path not in earlier and (target.exists() or target.is_symlink()):
        raise OutputRefused(
            f"{target} exists, and edgeconv did not write it",
            hint="move it, or choose another directory with -o",
        )
    for parent in target.relative_to(directory).parents[:-1]:
        folder = directory / parent
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise OutputRefused(
                f"{folder} is not a directory", hint="move it, or choose another -o"
            )


def _remove_empty(directory: Path, folder: Path) -> None:
    while folder != directory:
        try:
            folder.rmdir()
        except OSError:
            return  # It is not empty.
        folder = folder.parent


def _is_same(target: Path, content: bytes | Path) -> bool:
    return _is_what(target, _sha256(content))


def _is_what(target: Path, sha256: str) -> bool:
    return target.is_file() and not target.is_symlink() and sha256_file(target) == sha256


def _sha256(content: bytes | Path) -> str:
    if isinstance(content, Path):
        return sha256_file(content)
    return hashlib.sha256(content).hexdigest()


@contextlib.contextmanager
def _refusals(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputRefused(
            f"cannot write in {directory}: {error.strerror}",
            hint="choose another directory with -o",
        ) from error


# Depfiles, the files that a result depends on, in the format of Make, Ninja and CMake.


def dependencies(request: EmbedPlan) -> tuple[Path, ...]:
    """All existing files that an embedding depends on, absolute and sorted.

    They are the .tflite, its manifest, the verdict of its last check, the labels and the data. For
    a .tflite converted here, also the trained model and the calibration samples; another's manifest
    could name the whole disk.
    """
    artifact, source = request.published.artifact, request.published.source
    is_ours = was_converted(source, artifact.source_sha256)
    sources = [request.data] if request.data else []
    sources += [source for _, source in request.published.calibration] if is_ours else []
    model = request.published.model
    roots = [model, request.published.manifest, verdict_file(model)]
    roots += [source] if is_ours else []
    roots += [request.labels_file] if request.labels_file else []
    roots += [root for source in sources for root in roots_of(source)]
    found = (file for root in roots for file in with_content(root) if file.exists())
    return tuple(sorted(set(map(Path.absolute, found))))


def make_rule(target: str, files: Iterable[Path]) -> bytes:
    """The rule `target: files`, and an empty rule for each file, so that it may be deleted."""
    names = [_escaped(str(file)) for file in files]
    rule = f"{_escaped(target)}:" + "".join(f" \\\n  {name}" for name in names) + "\n"
    return (rule + "".join(f"\n{name}:\n" for name in names)).encode()


def with_content(root: Path) -> Iterator[Path]:
    """The file, which may be missing; a directory, with all in it; or what a glob matches."""
    if root.is_dir():
        yield from _below(root, frozenset())
    elif root.exists() or not glob.has_magic(str(root)):
        yield root
    else:
        # A glob, and the directory where a new file may match it.
        yield from (Path(name) for name in glob.glob(str(root)))  # noqa: PTH207
        fixed = [each for each in root.parents if not glob.has_magic(str(each))]
        yield fixed[0]


def _below(directory: Path, above: frozenset[Path]) -> Iterator[Path]:
    """A directory and its content, also behind links, except those to a directory above."""
    real = directory.resolve()
    if real in above:
        return
    yield directory
    for path in directory.iterdir():
        if path.is_dir():
            yield from _below(path, above | {real})
        elif path.is_file():
            yield path


def _escaped(path: str) -> str:
    """A path as Make and Ninja read it."""
    if "\n" in path:
        raise UsageError(f"{path!r} has a newline, which a depfile cannot contain")
    escaped = path.replace("\\", "\\\\")
    for sign in (" ", "#"):
        escaped = escaped.replace(sign, "\\" + sign)
    return escaped.replace("$", "$$")
