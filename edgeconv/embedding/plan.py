"""What an `embed` is asked for, checked, and whether it is there already; without numpy."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edgeconv import data as samples
from edgeconv.embedding.accessors import identifiers
from edgeconv.embedding.published import Published, find_published, published_file
from edgeconv.errors import InputRefused, UsageError, unknown_name
from edgeconv.plugins import embed_target
from edgeconv.reporting.last_check import require_passed
from edgeconv.source import refuse_unusable
from edgeconv.store import hash_of, read_noun, refuse_pointer, sha256_file, tool_versions
from edgeconv.types import Allowance, Embedded, Signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeconv.requests.embed import EmbedRequest

RECORD = "edgeconv-embedded.json"
# It is there while files are being put in place, and where a run was killed over that.
JOURNAL = ".edgeconv-embedding.json"
_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*_?")
_LONGEST_SYMBOL = 48
_MOST_LABELS = 100_000
# What decides the code, the golden inputs and the golden outputs.
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
# Headers of C23 and POSIX, and of toolchains, without their .h: in a directory of -I, SYMBOL.h
# would be found in their place.
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
    """An `embed`, checked: what is embedded, how, and where to.

    `data_identity` is the hash of what the SOURCE `data` has, "" for synthetic vectors.
    `check_note` is what there is to say of the file's last check, "" where it passed. `bom` is
    the bill of materials that goes with it, b"" for none.
    """

    published: Published
    target: str
    directory: Path
    symbol: str
    signature: Signature
    options: dict[str, str] = {}
    data: str = ""
    data_identity: str = ""
    labels: tuple[str, ...] = ()
    labels_file: Path | None = None
    vectors: int = 2
    check_note: str = ""
    bom: bytes = b""

    @property
    def key(self) -> str:
        """The hash of all that decides what is written."""
        artifact = self.published.artifact
        materials = (hashlib.sha256(self.bom).hexdigest(),) if self.bom else ()
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


def plan_embed(
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
    allowance: Allowance = Allowance(),
    bom: bool = False,
    report: str | Path = "",
) -> EmbedPlan:
    """What is asked for, once it is known to be possible. See `embed` for the arguments.

    Raises `UsageError` for a name, option or symbol that cannot be, `InputRefused` for an
    artifact, data or labels that cannot be taken, `CheckFailed` for a rejected artifact.
    """
    module = embed_target(target)
    given = dict(options or {})
    for name, value in given.items():
        if name not in module.OPTIONS:
            raise unknown_name(f"option of {target}", name, module.OPTIONS)
        module.OPTIONS[name].check(name, value)
    if report and not bom:
        raise UsageError("a report is for the bill of materials", hint="give --bom with --report")
    if vectors < 1:
        raise UsageError(f"{vectors} golden vectors: at least one is needed")
    published = find_published(artifact)
    chosen = _signature_of(published, signature)
    refuse_unusable(str(published.model), chosen)
    return EmbedPlan(
        published=published,
        target=target,
        directory=Path(directory),
        symbol=_checked(symbol) if symbol else _symbol_of(published),
        signature=chosen,
        options=given,
        data=data,
        data_identity=samples.identity(data, allow_code=allow_code, allowance=allowance)
        if data
        else "",
        labels=read_labels(Path(labels)) if labels else (),
        labels_file=Path(labels) if labels else None,
        vectors=vectors,
        check_note=require_passed(
            published.model, published.artifact.sha256, is_required=require_check
        ),
        bom=_bom(published, report) if bom else b"",
    )


def plan_of(asked: EmbedRequest) -> EmbedPlan:
    """What is asked for, as `plan_embed` gives it; of a directory, its one artifact."""
    return plan_embed(
        published_file(Path(asked.artifact), asked.recipe),
        asked.target,
        asked.directory,
        symbol=asked.symbol,
        signature=asked.signature,
        data=asked.data,
        labels=asked.labels,
        vectors=asked.vectors,
        options=asked.options,
        allow_code=asked.allow_code,
        require_check=asked.require_check,
        allowance=asked.allowance,
        bom=asked.bom,
        report=asked.report,
    )


def noted(request: EmbedPlan, embedded: Embedded) -> Embedded:
    """What was embedded, with the note on its last check: that is no part of the record."""
    note = (request.check_note,) if request.check_note else ()
    return msgspec.structs.replace(embedded, notes=(*embedded.notes, *note))


def embedded_already(request: EmbedPlan) -> Embedded | None:
    """What is in the directory, if it is whole and what the request would write; else None."""
    record = request.directory / RECORD
    if is_torn(request.directory) or not record.is_file():
        return None
    try:
        embedded = read_noun(record, Embedded, what="record of an embedding")
    except InputRefused:
        return None
    if embedded.key != request.key:
        return None
    whole = all(_is_whole(request.directory / one.path, one.sha256) for one in embedded.files)
    return embedded if whole else None


def is_torn(directory: Path) -> bool:
    """Whether a run that wrote there was killed: it may have left what only the next one knows."""
    return (directory / JOURNAL).exists()


def _is_whole(path: Path, sha256: str) -> bool:
    return path.is_file() and sha256_file(path) == sha256


def read_labels(path: Path) -> tuple[str, ...]:
    """The lines of a file of labels, one for each class. Raises `InputRefused`."""
    refuse_pointer(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputRefused(f"labels {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputRefused(f"labels {path} are not UTF-8: {error}") from error
    # Not `splitlines`, for which some characters inside a label end a line.
    lines = text.removesuffix("\n").split("\n")
    labels = tuple(line.removesuffix("\r") for line in lines)
    if len(labels) > _MOST_LABELS:
        raise InputRefused(f"labels {path} are {len(labels)} lines, more than any model's classes")
    if not all(label.strip() for label in labels):
        number = next(i for i, label in enumerate(labels, 1) if not label.strip())
        raise InputRefused(
            f"labels {path}: line {number} is empty", hint="one label a line, as many as classes"
        )
    return labels


def _bom(published: Published, report: str | Path) -> bytes:
    from edgeconv.embedding.bom import bom

    return bom(published, report)


def _signature_of(published: Published, key: str) -> Signature:
    found = {one.key: one for one in published.artifact.signatures}
    if key in found:
        return found[key]
    if key:
        raise unknown_name("signature", key, found)
    if len(found) != 1:
        raise UsageError(
            f"{published.model} has the signatures {', '.join(found)}",
            hint="choose one with --signature KEY",
        )
    return published.artifact.signature


def _checked(symbol: str) -> str:
    if not _SYMBOL.fullmatch(symbol):
        raise UsageError(
            f"symbol {symbol!r} is no identifier that C and C++ leave to a program",
            hint="begin with a letter; letters, digits and single underscores",
        )
    if symbol in RESERVED_IN_C:
        raise UsageError(f"symbol {symbol!r} is a word of C or C++", hint=f"--symbol {symbol}_net")
    if symbol.lower() in _HEADERS:
        raise UsageError(
            f"symbol {symbol!r} would make {symbol}.h, which a compiler takes for the system's",
            hint=f"--symbol {symbol}_net",
        )
    if len(symbol) > _LONGEST_SYMBOL:
        raise UsageError(f"symbol {symbol!r} has {len(symbol)} characters", hint="48 at most")
    return symbol


def _symbol_of(published: Published) -> str:
    name = identifiers([published.artifact.name], "snake", (), "model")[0]
    symbol = name[:_LONGEST_SYMBOL].rstrip("_")
    return f"{symbol}_model" if symbol in RESERVED_IN_C | _HEADERS else symbol
