"""An `embed` as checked, and whether it is up to date already; without numpy."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data as samples
from edgeconv.embedding.accessors import identifiers
from edgeconv.embedding.interface import LITERT, MICRO
from edgeconv.embedding.npu import npu_of
from edgeconv.embedding.published import Published, find_published, published_file
from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.plugins import embed_target
from edgeconv.reporting.last_check import require_passed
from edgeconv.runtimes.choice import default_target
from edgeconv.runtimes.npu.vela import compiler
from edgeconv.source import refuse_unusable
from edgeconv.store import hash_of, read_noun, refuse_pointer, sha256_file, tool_versions
from edgeconv.types import DataSource, Embedded, Signature
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from edgeconv.requests.embed import EmbedRequest
    from edgeconv.types import NpuChoice

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
    `check_note` is a note on the file's last check, "" where it passed. `bom` is the bill of
    materials, b"" for none.
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
    bom: bytes = b""

    @property
    def kernels(self) -> str:
        """The runtime whose outputs are the golden ones: those of the code that is written."""
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
        materials: tuple[str, ...] = (hashlib.sha256(self.bom).hexdigest(),) if self.bom else ()
        if self.kernels != LITERT:
            materials += (default_target(self.kernels).version,)
        if self.npu:
            materials += (compiler(),)
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
    if request.report and not request.bom:
        raise UsageError("--report is for the bill of materials", hint="add --bom")
    if request.vectors < 1:
        raise UsageError(f"--vectors {request.vectors}: at least one golden vector is needed")
    published = find_published(published_file(Path(request.artifact), request.recipe))
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
        bom=_bom(published, request.report) if request.bom else b"",
    )


def noted(request: EmbedPlan, embedded: Embedded) -> Embedded:
    """What was embedded, with the note on its last check, which is not in the record."""
    note = (request.check_note,) if request.check_note else ()
    return msgspec.structs.replace(embedded, notes=(*embedded.notes, *note))


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
        raise InputRefused(f"labels {path} cannot be read: {error.strerror}") from error
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


def _bom(published: Published, report: str | Path) -> bytes:
    from edgeconv.embedding.bom import bom

    return bom(published, report)


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
