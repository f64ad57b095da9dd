"""Encoded images, as they stand in records, to pixels."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeconv.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image

MOST_PIXELS = 1 << 26
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
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
    data: bytes, formats: Sequence[str], channels: int | None, what: str
) -> np.ndarray[Any, Any]:
    """The pixels (height, width, channels), uint8.

    `formats` are those that Pillow may take it for. `channels` of None are as many as the
    image has, 1 to 4. Raises `InputRefused` with `what` named for anything else.
    """
    from PIL import Image, ImageFile

    if ImageFile.LOAD_TRUNCATED_IMAGES:
        # A program that edgeconv is part of may have set it; half a picture is no sample.
        raise InputRefused(f"{what} is not read while Pillow is set to load truncated images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=formats) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise InputRefused(
                        f"{what} has {width:,} × {height:,} pixels; the most is {MOST_PIXELS:,}"
                    )
                pixels = np.array(_with_channels(image, channels, what))
    except (*_BAD_IMAGE, Image.DecompressionBombError) as error:
        names = " or ".join(formats)
        raise InputRefused(
            f"{what} is no readable {names} image: {str(error)[:200]}",
            hint="write it again, or leave the record out",
        ) from error
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _with_channels(image: Image, channels: int | None, what: str) -> Image:
    if image.mode == "1":
        image = image.convert("L")
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    if image.mode not in _MODES.values():
        raise InputRefused(
            f"{what} is an image of mode {image.mode}; 8 bits of grey or RGB are taken",
            hint="convert it before it is written: image.convert('RGB')",
        )
    return image if channels is None else image.convert(_MODES[channels])
