"""The kind `wavs`: a directory of WAV files, one a sample.

`edgeconv.data.kinds.folders` says where the labels come from. Audio is as it is stored,
(length,) or (length, channels): int16, int32 or float32 (float64 where a file has it). 24 bits
come as int32 in their upper bits, and the unsigned 8 bits of WAV as int8, so that silence is 0
in every width. All files have the same rate; `rate=8000` demands that one.
"""

from __future__ import annotations

import itertools
import struct
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from edgeconv.data.arrays import Arrays, opened, refuse_larger
from edgeconv.data.kinds import folders
from edgeconv.types.errors import InputRefused, UsageError

if TYPE_CHECKING:
    import numpy as np

OPTIONS = folders.OPTIONS | {"rate"}

_WAYS = ("folder", "prefix", "none")
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_BITS = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64)}
_OTHER_STARTS = {b"RIFX": "a big-endian WAV file", b"RF64": "an RF64 file", b"FORM": "an AIFF file"}

_MOST_CHUNKS = 1000

# What scipy can raise on a file whose chunks are whole.
_BAD_WAV = (ValueError, struct.error, EOFError, UnboundLocalError)


class _Format(NamedTuple):
    """What the `fmt ` chunk says."""

    tag: int
    channels: int
    rate_hz: int
    block_bytes: int
    bits: int


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hash of the files' names and bytes and of their classes. Raises `InputRefused`."""
    return folders.identity(location, options, _WAYS)


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The clips, of any dtype of audio, each decoded when needed; the labels; the rate.

    Raises `UsageError` for a wrong option, and `InputRefused` for a directory that is not laid
    out in classes, or has a file in it that is not a whole WAV file or has another rate.
    """
    folders.refuse_names(location, array_names)
    demanded_hz = _rate_option(options)
    listing = folders.listed(location, options, _WAYS)
    by_rate: dict[int, list[Path]] = {}
    for path in listing.files:
        by_rate.setdefault(_checked_format(path).rate_hz, []).append(path)
    rate_hz = _same_rate(location, by_rate, demanded_hz)
    return replace(listing.arrays(_decoded), rate_hz=rate_hz)


def _rate_option(options: Mapping[str, str]) -> int | None:
    text = options.get("rate")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 1 << 32):
        raise UsageError(
            f"rate={text} is not a sample rate", hint="in samples per second: rate=16000"
        )
    return int(text)


def _same_rate(location: str, by_rate: dict[int, list[Path]], demanded_hz: int | None) -> int:
    other = {rate: paths for rate, paths in by_rate.items() if rate != demanded_hz}
    if demanded_hz is not None and other:
        each = "; ".join(f"{rate} Hz: {folders.some(paths)}" for rate, paths in other.items())
        raise InputRefused(
            f"{location} has files with a rate other than {demanded_hz} Hz: {each}",
            hint=f"resample them, for example with sox IN.wav -r {demanded_hz} OUT.wav",
        )
    if len(by_rate) > 1:
        each = "; ".join(f"{rate} Hz: {folders.some(paths)}" for rate, paths in by_rate.items())
        raise InputRefused(
            f"{location} has files of different rates: {each}",
            hint="resample them to the one that the model was trained with",
        )
    return next(iter(by_rate))


def _checked_format(path: Path) -> _Format:
    """The format in the file's header. Raises `InputRefused` unless all chunks are whole."""
    with opened(path) as (file, size_bytes):
        start = file.read(12)
        if start[:4] != b"RIFF" or start[8:] != b"WAVE":
            other = _OTHER_STARTS.get(start[:4], "not a WAV file")
            raise InputRefused(
                f"{path} is {other}: it begins with {start!r}",
                hint="the files of such a directory are WAV: convert it or move it away",
            )
        end = 8 + int.from_bytes(start[4:8], "little")
        _refuse_cut(path, end, size_bytes)
        chunks = _chunks(path, file, end)
        if b"fmt " not in chunks or b"data" not in chunks:
            raise InputRefused(f"{path} has no audio in it: its chunks are {list(chunks)}")
        wav = _format(path, file, *chunks[b"fmt "])
    data_bytes = chunks[b"data"][1]
    if not data_bytes or data_bytes % wav.block_bytes:
        what = "no audio in it" if not data_bytes else "a last sample that is cut short"
        raise InputRefused(f"{path} has {what}: {data_bytes:,} bytes", hint="write it again")
    return wav


def _chunks(path: Path, file: IO[bytes], end: int) -> dict[bytes, tuple[int, int]]:
    """Where each chunk's content begins, and its bytes, by the chunk's name."""
    chunks: dict[bytes, tuple[int, int]] = {}
    position = 12
    for number in itertools.count():
        if position + 8 > end:
            break
        if number == _MOST_CHUNKS:
            raise InputRefused(f"{path} is damaged: it has more than {_MOST_CHUNKS} chunks")
        file.seek(position)
        name, length = struct.unpack("<4sI", file.read(8))
        position += 8
        _refuse_cut(path, position + length, end)
        if name == b"data" and (name in chunks or b"fmt " not in chunks):
            raise InputRefused(f"{path} is damaged: its data comes twice, or before its format")
        chunks[name] = (position, length)
        # A chunk of odd length is followed by a byte that fills it up.
        position += length + length % 2
    return chunks


def _format(path: Path, file: IO[bytes], position: int, length: int) -> _Format:
    file.seek(position)
    content = file.read(min(length, 40))
    if len(content) < 16:
        raise InputRefused(f"{path} is damaged: its format has {len(content)} bytes, not 16")
    tag, channels, rate_hz, _, block_bytes, bits = struct.unpack_from("<HHIIHH", content)
    if tag == _EXTENSIBLE and len(content) == 40:
        (tag,) = struct.unpack_from("<H", content, 24)
    if bits not in _BITS.get(tag, ()):
        raise InputRefused(
            f"{path} has {bits}-bit audio of format {tag}, which is not read",
            hint="write it as PCM, for example with ffmpeg -i IN.wav -c:a pcm_s16le OUT.wav",
        )
    if not (channels and rate_hz) or block_bytes != channels * bits // 8:
        raise InputRefused(
            f"{path} is damaged: {channels} channels of {bits} bits in {block_bytes} bytes, "
            f"at {rate_hz} Hz"
        )
    return _Format(tag, channels, rate_hz, block_bytes, bits)


def _refuse_cut(path: Path, declared_bytes: int, size_bytes: int) -> None:
    if declared_bytes > size_bytes:
        raise InputRefused(
            f"{path} is cut short: it should have {declared_bytes:,} bytes and has {size_bytes:,}",
            hint="copy it again; a program that wrote to a pipe leaves the length open, and "
            "ffmpeg -i IN.wav OUT.wav sets it",
        )


def _decoded(path: Path) -> np.ndarray[Any, Any]:
    """The audio of one file. Raises `InputRefused`."""
    import numpy as np
    from scipy.io import wavfile

    bits = _checked_format(path).bits
    with opened(path) as (file, size_bytes), warnings.catch_warnings():
        # 24 bits become 32, and scipy has both at once.
        refuse_larger(str(path), size_bytes * (3 if bits == 24 else 1), "cut it into clips")
        # These two warnings leave the audio whole; the third one does not.
        warnings.simplefilter("error", wavfile.WavFileWarning)
        warnings.filterwarnings("ignore", "Chunk .non-data. not", wavfile.WavFileWarning)
        warnings.filterwarnings("ignore", "Incomplete chunk ID", wavfile.WavFileWarning)
        try:
            _, audio = wavfile.read(file)
        except (*_BAD_WAV, wavfile.WavFileWarning) as error:
            raise InputRefused(
                f"{path} is not a readable WAV file: {error}", hint="write it again"
            ) from error
        except MemoryError as error:
            raise InputRefused(f"{path} does not fit into memory ({size_bytes:,} bytes)") from error
    if bits == 8:
        return np.asarray((audio ^ 0x80).view(np.int8))
    return np.asarray(audio)
