"""The kind `images`: a directory of JPEG, PNG and BMP files, told apart by their content.

`edgeconv.data.kinds.folders` says where the labels come from. Pixels are as they are stored:
uint8 (height, width, channels) with 1 channel for gray, 2 for gray and alpha, 3 for RGB and 4
for RGB and alpha, and uint16 (height, width, 1) for 16-bit gray. A palette, CMYK, YCbCr or black
and white is converted to RGB, RGBA or gray. The orientation in the metadata is not applied, nor is
it by TensorFlow's decoders. Images in records are decoded here too.
"""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened, refuse_larger
from edgeconv.data.kinds import folders
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import shortened

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

OPTIONS = folders.OPTIONS

_WAYS = ("folder", "none")
_STARTS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"BM": "BMP"}
_FORMATS = tuple(_STARTS.values())
_OTHER_STARTS = {b"GIF8": "GIF", b"RIFF": "WebP or WAV", b"II*\0": "TIFF", b"MM\0*": "TIFF"}

_AS_STORED = {"L", "LA", "RGB", "RGBA", "I;16"}


def identity(location: str, options: Mapping[str, str]) -> str:
    """The hash of the files' names and bytes and of their classes. Raises `InputRefused`."""
    return folders.identity(location, options, _WAYS)


def read(location: str, options: Mapping[str, str], array_names: frozenset[str] | None) -> Arrays:
    """The images, uint8 or uint16 (height, width, channels), decoded when needed; the labels.

    Raises `UsageError` for a wrong option, and `InputRefused` for a directory that is not laid
    out in classes or has a file in it that does not begin as an image does.
    """
    folders.refuse_names(location, array_names)
    listing = folders.listed(location, options, _WAYS)
    for path in listing.files:
        _refuse_other(path)
    return listing.arrays(_decoded)


def _refuse_other(path: Path) -> None:
    with opened(path) as (file, _):
        start = file.read(8)
    if start.startswith(tuple(_STARTS)):
        return
    other = next((name for begin, name in _OTHER_STARTS.items() if start.startswith(begin)), "")
    raise InputRefused(
        f"{path} is {f'a {other} file' if other else 'not an image'}: it begins with {start!r}",
        hint="the files of an image directory are JPEG, PNG or BMP; convert it or move it away",
    )


def _decoded(path: Path) -> np.ndarray[Any, Any]:
    """The pixels of one file. Raises `InputRefused`, before decoding where it is too large."""
    with opened(path) as (file, _), opened_image(file, _FORMATS, str(path)) as image:
        if image.format == "PNG":
            _refuse_deep_color(path, file)
        image.load()
        return _pixels(path, image)


def _refuse_deep_color(path: Path, file: IO[bytes]) -> None:
    position = file.tell()
    file.seek(12)
    name, depth, color = struct.unpack("!4s8xBB", file.read(14))
    file.seek(position)
    if name != b"IHDR":
        raise InputRefused(f"{path} is a damaged PNG: it does not begin with its header")
    if depth == 16 and color != 0:
        raise InputRefused(
            f"{path} has 16 bits per channel in color, of which Pillow reads only 8",
            hint="save it with 8 bits per channel, or the samples as .npz",
        )


def _pixels(path: Path, image: Image) -> np.ndarray[Any, Any]:
    import numpy as np

    image = rgb_or_gray(image)
    if image.mode not in _AS_STORED:
        raise InputRefused(
            f"{path} has pixels of Pillow's mode {image.mode!r}", hint="save it as RGB or gray"
        )
    pixels = np.asarray(image, np.uint16 if image.mode == "I;16" else np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


MOST_PIXELS = 1 << 26
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_CONVERTED = {"1": "L", "CMYK": "RGB", "YCbCr": "RGB"}
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTH_AT = 24
# What Pillow raises on damaged images.
_BAD_IMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    EOFError,
    OverflowError,
    AttributeError,
    struct.error,
    zlib.error,
)


def decoded(
    data: bytes, formats: tuple[str, ...], channels: int | None, what: str
) -> np.ndarray[Any, Any]:
    """The pixels (height, width, channels), uint8.

    `formats` are those that Pillow may decode. With `channels` of None the image keeps its 1 to
    4 channels. Raises `InputRefused`, naming `what`.
    """
    if data.startswith(_PNG) and data[_PNG_DEPTH_AT : _PNG_DEPTH_AT + 1] == b"\x10":
        raise InputRefused(
            f"{what} has 16 bits per channel, of which Pillow may read only 8",
            hint="write 8 bits per channel, or the bytes of the array",
        )
    import numpy as np

    with opened_image(io.BytesIO(data), formats, what) as image:
        pixels = np.array(_with_channels(image, channels, what))
    return pixels[..., None] if pixels.ndim == 2 else pixels


@contextlib.contextmanager
def opened_image(stream: IO[bytes], formats: tuple[str, ...], what: str) -> Iterator[Image]:
    """The image in a stream, of which only the header has been read.

    Raises `InputRefused` with `what` named where it is too large or no such image, or where
    decoding it fails in the block.
    """
    from PIL import Image, ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        # A program that uses edgeconv may have set it; half an image is not a sample.
        raise InputRefused(f"{what} is not read while Pillow is set to load truncated images")
    try:
        # Pillow warns of metadata, or of the size, which is checked here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream, formats=formats) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _too_large(what, f"has {width:,} × {height:,} pixels")
                # In Pillow's memory, as RGB or gray, and as an array.
                refuse_larger(what, 3 * 4 * width * height, "make it smaller, or remove it")
                yield image
    except Image.DecompressionBombError as error:
        raise _too_large(what, "has many more pixels than that") from error
    except MemoryError as error:
        raise _too_large(what, "does not fit into memory") from error
    except _BAD_IMAGE as error:
        names = " or ".join(formats)
        raise InputRefused(
            f"{what} is not a readable {names} image: {shortened(str(error))}",
            hint="write it again, or remove it",
        ) from error


def _too_large(what: str, why: str) -> InputRefused:
    return InputRefused(
        f"{what} {why}; the most is {MOST_PIXELS:,} pixels", hint="make it smaller, or remove it"
    )


def rgb_or_gray(image: Image) -> Image:
    """The image without a palette, CMYK, YCbCr or single bits."""
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.convert(_CONVERTED[image.mode]) if image.mode in _CONVERTED else image


def _with_channels(image: Image, channels: int | None, what: str) -> Image:
    image = rgb_or_gray(image)
    if image.mode not in _MODES.values():
        raise InputRefused(
            f"{what} is an image of mode {image.mode}; it must be 8-bit gray or RGB",
            hint="convert it before it is written: image.convert('RGB')",
        )
    return image if channels is None else image.convert(_MODES[channels])
