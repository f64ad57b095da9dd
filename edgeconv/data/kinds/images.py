"""The kind `images`: a directory of JPEG, PNG and BMP files, told apart by their content.

`edgeconv.data.kinds.folders` says where the labels come from. Pixels are as they are stored:
uint8 (height, width, channels) with 1 channel for gray, 2 for gray and alpha, 3 for RGB and 4
for RGB and alpha, and uint16 (height, width, 1) for 16-bit gray. A palette, CMYK, YCbCr or black
and white is converted to RGB, RGBA or gray. The orientation in the metadata is not applied, nor is
it by TensorFlow's decoders.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, Any

from edgeconv.data.arrays import Arrays, opened
from edgeconv.data.kinds import folders
from edgeconv.types.errors import InputRefused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from PIL import Image

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
    from edgeconv.data.decoding import opened_image

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


def _pixels(path: Path, image: Image.Image) -> np.ndarray[Any, Any]:
    import numpy as np

    from edgeconv.data.decoding import rgb_or_gray

    image = rgb_or_gray(image)
    if image.mode not in _AS_STORED:
        raise InputRefused(
            f"{path} has pixels of Pillow's mode {image.mode!r}", hint="save it as RGB or gray"
        )
    pixels = np.asarray(image, np.uint16 if image.mode == "I;16" else np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels
