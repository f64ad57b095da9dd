"""An `embed` as checked, and whether it is up to date already; without numpy."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from msgspec.structs import replace

from edgeconv import data as samples
from edgeconv.data import parse_source
from edgeconv.data.location import roots_of
from edgeconv.embedding.accessors import identifiers
from edgeconv.embedding.interface import LITERT, MICRO, npu_of
from edgeconv.model.source import artifact_of_file, refuse_unusable
from edgeconv.plugins import embed_target, npu_compiler
from edgeconv.reporting.files import require_passed
from edgeconv.requests.embed import EmbedRequest
from edgeconv.requests.texts import source_within
from edgeconv.runtimes.choice import default_target
from edgeconv.system.store import (
    also_reading,
    hash_of,
    read_noun,
    refuse_inputs,
    refuse_pointer,
    sha256_file,
    tool_versions,
)
from edgeconv.system.store.notes import find_source
from edgeconv.types import Artifact, DataSource, Embedded, NpuChoice, Signature
from edgeconv.types.errors import InputRefused, UsageError, unknown_name
from edgeconv.types.words import quoted

RECORD = "edgeconv-embedded.json"
# It exists while files are written, and after a run that was killed meanwhile.
JOURNAL = ".edgeconv-embedding.json"
_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*_?")
_LONGEST_SYMBOL = 48
_MOST_LABELS = 100_000
# They decide the code, the golden inputs and the golden outputs.
_TOOLS = ("edgeconv", "ai-edge-litert", "numpy")
# Keywords of C23 and C++23, and names that a program already has.
_WORDS_OF_C = """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor
    bool break case catch char char8_t char16_t char32_t class compl concept const consteval
    constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
    double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
    public reflexpr register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch synchronized template this thread_local throw true try
    typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t
    while xor xor_eq main std
"""
RESERVED_IN_C = frozenset(_WORDS_OF_C.split())
# Headers of C23, POSIX and toolchains, without .h: a SYMBOL.h in a directory of -I would replace
# them.
_HEADERS_OF_C = """
    aio alloca arduino assert complex cpio crypt ctype curses dirent dlfcn elf endian
    errno error features fenv fcntl float fmtmsg fnmatch ftw getopt glob grp iconv inttypes iso646
    langinfo libgen libintl limits link locale malloc math memory monetary mqueue ndbm netdb
    nl_types paths poll printf pthread pwd regex resolv sched search semaphore setjmp signal spawn
    stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn
    string strings stropts syslog tar term termios tgmath threads time trace uchar ulimit unctrl
    unistd utime utmpx values wait wchar wctype windows wordexp
"""
_HEADERS = frozenset(_HEADERS_OF_C.split())


class EmbedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A checked `embed`: what is embedded, how, and where.

    `data_identity` is the hash of the samples of the SOURCE `data`, "" for synthetic vectors.
    `check_note` is a note on the file's last check, "" where it passed.
    """

    published: Published
    target: str
    directory: Path
    symbol: str
    signature: Signature
    options: dict[str, str] = {}
    data: DataSource | None = None
    data_identity: str = ""
    labels: tuple[str, ...] = ()
    labels_file: Path | None = None
    vectors: int = 2
    check_note: str = ""

    @property
    def kernels(self) -> str:
        """The runtime whose outputs are the golden ones: the written code uses its kernels."""
        known = embed_target(self.target).OPTIONS
        chosen = {**{name: option.default for name, option in known.items()}, **self.options}
        return chosen.get("golden") or (MICRO if chosen.get("micro") == "yes" else LITERT)

    @property
    def npu(self) -> NpuChoice | None:
        """The NPU that the model is compiled for, if any. Raises `UsageError` for a bad one."""
        return npu_of(self.options)

    @property
    def key(self) -> str:
        """The hash of all that decides what is written."""
        artifact = self.published.artifact
        materials: tuple[str, ...] = ()
        if self.kernels != LITERT:
            materials += (default_target(self.kernels).version,)
        if self.npu:
            materials += (npu_compiler().compiler(),)
        return hash_of(
            *materials,
            "embed",
            self.target,
            self.symbol,
            self.signature.key,
            self.options,
            self.data_identity,
            self.labels,
            self.vectors,
            (artifact.name, artifact.sha256, artifact.signatures, artifact.preprocessing),
            (artifact.recipe, artifact.oldest_runtime),
            [version for name, version in tool_versions().items() if name in _TOOLS],
        )


def plan_embed(request: EmbedRequest) -> EmbedPlan:
    """The request once it is known to be possible; of a directory, its one artifact.

    Raises `UsageError` for a bad name, option or symbol, `InputRefused` for an artifact, data or
    labels that do not fit, `CheckFailed` for a rejected artifact.
    """
    options = embed_target(request.target).OPTIONS
    for name, value in request.options.items():
        if name not in options:
            raise unknown_name(f"option of {request.target}", name, options)
        options[name].check(name, value)
    npu_of(request.options)
    published = find_published(published_file(Path(request.artifact), request.recipe))
    also_reading((published.model, published.manifest))
    if request.depfile:
        refuse_inputs([Path(request.depfile)])
    signature = _signature_of(published, request.signature)
    refuse_unusable(str(published.model), signature)
    symbol, data = request.symbol, request.data
    return EmbedPlan(
        published=published,
        target=request.target,
        directory=Path(request.directory),
        symbol=_checked_symbol(symbol) if symbol else _symbol_of(published),
        signature=signature,
        options=dict(request.options),
        data=data,
        data_identity=samples.identity(
            data, allow_code=request.allow_code, allowance=request.allowance
        )
        if data
        else "",
        labels=read_labels(Path(request.labels)) if request.labels else (),
        labels_file=Path(request.labels) if request.labels else None,
        vectors=request.vectors,
        check_note=require_passed(
            published.model, published.artifact.sha256, is_required=request.require_check
        ),
    )


def noted(request: EmbedPlan, embedded: Embedded) -> Embedded:
    """What was embedded, with the note on its last check, which is not in the record."""
    note = (request.check_note,) if request.check_note else ()
    return replace(embedded, notes=(*embedded.notes, *note))


def embedded_already(request: EmbedPlan) -> Embedded | None:
    """The embedding in the directory if it is complete and as planned, else None."""
    record = request.directory / RECORD
    if is_torn(request.directory) or not record.is_file():
        return None
    try:
        embedded = read_noun(record, Embedded, what="record of an embedding")
    except InputRefused:
        return None
    if embedded.key != request.key:
        return None
    paths = {request.directory / file.path: file.sha256 for file in embedded.files}
    is_whole = all(path.is_file() and sha256_file(path) == paths[path] for path in paths)
    return embedded if is_whole else None


def is_torn(directory: Path) -> bool:
    """Whether a run that wrote there was killed and left its journal."""
    return (directory / JOURNAL).exists()


def read_labels(path: Path) -> tuple[str, ...]:
    """The lines of a file of labels, one for each class. Raises `InputRefused`."""
    refuse_pointer(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputRefused(
            f"labels {path} cannot be read: {error.strerror}",
            hint="give a text file with the name of a class on each line",
        ) from error
    except UnicodeDecodeError as error:
        raise InputRefused(f"labels {path} are not UTF-8: {error}") from error
    # `splitlines` would end a line at some characters of a label.
    lines = text.removesuffix("\n").split("\n")
    labels = tuple(line.removesuffix("\r") for line in lines)
    if len(labels) > _MOST_LABELS:
        raise InputRefused(f"labels {path}: {len(labels)} lines, more than any model has classes")
    if not all(label.strip() for label in labels):
        number = next(i for i, label in enumerate(labels, 1) if not label.strip())
        raise InputRefused(
            f"labels {path}: line {number} is empty", hint="give one label per class, one per line"
        )
    return labels


def _signature_of(published: Published, key: str) -> Signature:
    signatures = {signature.key: signature for signature in published.artifact.signatures}
    if key in signatures:
        return signatures[key]
    if key:
        raise unknown_name("signature", key, signatures)
    if len(signatures) != 1:
        raise UsageError(
            f"{published.model} has the signatures {quoted(signatures)}",
            hint="choose one with --signature KEY",
        )
    return published.artifact.signature


def _checked_symbol(symbol: str) -> str:
    if not _SYMBOL.fullmatch(symbol):
        raise UsageError(
            f"symbol {symbol!r} is not an identifier that a program may use in C and C++",
            hint="use letters, digits and single underscores, and begin with a letter",
        )
    if symbol in RESERVED_IN_C:
        raise UsageError(
            f"symbol {symbol!r} is a word of C or C++",
            hint=f"choose another: --symbol {symbol}_net",
        )
    if symbol.lower() in _HEADERS:
        raise UsageError(
            f"symbol {symbol!r} makes {symbol}.h, which has the name of a system header",
            hint=f"choose another: --symbol {symbol}_net",
        )
    if len(symbol) > _LONGEST_SYMBOL:
        raise UsageError(f"symbol {symbol!r} has {len(symbol)} characters", hint="use 48 at most")
    return symbol


def _symbol_of(published: Published) -> str:
    name = identifiers([published.artifact.name], "snake", (), "model")[0]
    symbol = name[:_LONGEST_SYMBOL].rstrip("_")
    return f"{symbol}_model" if symbol in RESERVED_IN_C | _HEADERS else symbol


# The .tflite that is embedded, checked against its manifest, or described from its content.


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite and its manifest; without one, `manifest` is the model's path."""

    artifact: Artifact
    model: Path
    manifest: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """A note on a model without a manifest."""
        if self.manifest != self.model:
            return ()
        return (
            f"{self.model.name} has no manifest: edgeconv has not verified it against a float "
            "model, and does not know its preprocessing",
        )

    @property
    def source(self) -> Path:
        """The model that the manifest names."""
        return find_source(
            self.artifact.source_path, self.artifact.source_sha256, self.manifest.parent
        )

    @property
    def calibration(self) -> tuple[tuple[str, DataSource], ...]:
        """The SOURCE of each record, where the project has it, by its signature."""
        records = self.artifact.calibration
        return tuple((record.signature, self._found(record.source)) for record in records)

    def _found(self, text: str) -> DataSource:
        source, tops = parse_source(text), self.manifest.absolute().parents
        likely = (source, *(source_within(source, top) for top in tops))
        there = (each for each in likely if any(path.exists() for path in roots_of(each)))
        return next(there, source)

    @property
    def portable(self) -> Artifact:
        """The manifest without facts of where and how the conversion ran."""
        return replace(self.artifact, source_path="", calibration=(), notes=(), ladder=(), tools={})


def published_file(path: Path, recipe: str = "") -> Path:
    """The .tflite or manifest at `path`; of a directory, the one of the recipe, or the only one.

    Raises `InputRefused` for a directory with none, or with several.
    """
    if not path.is_dir():
        return path
    files = sorted(path.glob("*.json"))
    manifests = (each for each in files if each.with_suffix(".tflite").exists())
    matching = [each for each in manifests if not recipe or each.stem.endswith(f".{recipe}")]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(each.stem for each in matching) or "none"
    expected = f"one published {recipe} model" if recipe else "one published model"
    raise InputRefused(
        f"the directory {path} does not contain exactly {expected}; it has: {names}",
        hint="choose one with --recipe, or give the .tflite",
    )


def find_published(path: str | Path) -> Published:
    """The artifact at `path`: a published .tflite, its manifest, or a directory with only one.

    A .tflite without a manifest is described from its content. Raises `InputRefused` where there is
    no .tflite, or the manifest is of another.
    """
    file = published_file(Path(path))
    manifest = file if file.suffix == ".json" else file.with_suffix(".json")
    if file.suffix != ".json" and not file.is_file():
        raise InputRefused(
            f"{file} does not exist", hint="give a file that `edgeconv convert` published"
        )
    if not manifest.is_file():
        if file.suffix == ".json":
            raise InputRefused(f"{file} does not exist", hint="give the .tflite")
        return Published(artifact=artifact_of_file(file), model=file, manifest=file)
    artifact = read_noun(manifest, Artifact, what="manifest")
    model = manifest.parent / artifact.file
    if file.suffix != ".json" and model.name != file.name:
        raise InputRefused(
            f"{manifest} is the manifest of {artifact.file}, not of {file.name}",
            hint="keep the names that `edgeconv convert` published them under",
        )
    if not model.is_file():
        raise InputRefused(f"{model}, which {manifest.name} describes, does not exist")
    refuse_pointer(model)
    if sha256_file(model) != artifact.sha256:
        raise InputRefused(
            f"{model} is not the file that {manifest.name} describes: its content changed",
            hint="run `edgeconv convert` again to restore it",
        )
    return Published(artifact=artifact, model=model, manifest=manifest)
