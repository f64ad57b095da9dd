"""Encoded images, in files of their own or in records, to pixels."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from edgeconv.data.memory import refuse_larger
from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.Image import Image

MOST_PIXELS = 1 << 26
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_STANDS_FOR = {"1": "L", "CMYK": "RGB", "YCbCr": "RGB"}
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTH_AT = 24
# What Pillow was seen to raise on damaged images.
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

    `formats` are those that Pillow may take it for. `channels` of None are as many as the
    image has, 1 to 4. Raises `InputRefused` with `what` named for anything else.
    """
    if data.startswith(_PNG) and data[_PNG_DEPTH_AT : _PNG_DEPTH_AT + 1] == b"\x10":
        raise InputRefused(
            f"{what} has 16 bits a channel, of which Pillow may read 8",
            hint="write 8 bits a channel, or the bytes of the array",
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
        # A program that edgeconv is part of may have set it; half a picture is no sample.
        raise InputRefused(f"{what} is not read while Pillow is set to load truncated images")
    try:
        # What Pillow warns of lies beside the pixels, or is a size, which is checked here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(stream, formats=formats) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _too_large(what, f"has {width:,} × {height:,} pixels")
                # In Pillow's memory, as what it stands for, and as an array.
                refuse_larger(what, 3 * 4 * width * height, "make it smaller, or leave it out")
                yield image
    except Image.DecompressionBombError as error:
        raise _too_large(what, "has many more pixels than that") from error
    except MemoryError as error:
        raise _too_large(what, "does not fit into memory") from error
    except _BAD_IMAGE as error:
        names = " or ".join(formats)
        raise InputRefused(
            f"{what} is no readable {names} image: {str(error)[:200]}",
            hint="write it again, or leave it out",
        ) from error


def _too_large(what: str, why: str) -> InputRefused:
    return InputRefused(
        f"{what} {why}; the most is {MOST_PIXELS:,} pixels", hint="make it smaller, or leave it out"
    )


def _with_channels(image: Image, channels: int | None, what: str) -> Image:
    if image.mode in _STANDS_FOR:
        image = image.convert(_STANDS_FOR[image.mode])
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode not in _MODES.values():
        raise InputRefused(
            f"{what} is an image of mode {image.mode}; 8 bits of grey or RGB are taken",
            hint="convert it before it is written: image.convert('RGB')",
        )
    return image if channels is None else image.convert(_MODES[channels])
