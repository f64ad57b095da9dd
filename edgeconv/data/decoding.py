"""Encoded images, in files or in records, to pixels."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.memory import refuse_larger
from edgeconv.types.errors import InputRefused
from edgeconv.types.words import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.Image import Image

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
