"""Files of every kind with a few wrong bytes, or without their end."""

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from example_records import encoded, example, framed
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import wavfile

from edgeconv.data.arrays import Arrays
from edgeconv.data.kinds import csv_file, images, npy, npz, tfrecord, wavs
from edgeconv.types.errors import EdgeconvError

# A header that looks as if Python 2 wrote it; damaged headers can, too.
pytestmark = pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file:UserWarning")

ROWS = np.arange(8, dtype=np.float32).reshape(2, 4)
PHOTO = np.random.default_rng(4).integers(0, 256, (6, 5, 3), np.uint8)
TABLE = b"length,width,kind\n5.1,3.5,setosa\n7.0,3.2,versicolor\n6.3,3.3,virginica\n"
SPEC = """
[features.x]
dtype = "float32"
shape = [2]
[features.i]
encoding = "png"
[features.label]
dtype = "int64"
"""
RECORD = example(x=np.float32([1, 2]), label=np.int64(1), i=encoded(PHOTO))


def written(write: Callable[[io.BytesIO], Any]) -> bytes:
    write(stream := io.BytesIO())
    return stream.getvalue()


def extensible(wav: bytes) -> bytes:
    return wav[:20] + b"\xfe\xff" + wav[22:]


def with_right_header(png: bytes) -> bytes:
    """Most changes of a PNG else end at the checksum of its header."""
    return png[:29] + zlib.crc32(png[12:29]).to_bytes(4, "big") + png[33:]


def with_right_frames(records: bytes) -> bytes:
    return framed(records[: len(RECORD)]) + framed(records[len(RECORD) :])


def of_records(path: Path) -> Arrays:
    (path.parent / "spec.toml").write_text(SPEC)
    options = {"spec": str(path.parent / "spec.toml"), "labels": "label"}
    return tfrecord.read(str(path), options, None)


class Kind(NamedTuple):
    """A file, how it is read, and which numbers may come of it."""

    name: str
    whole: bytes
    read: Callable[[Path], Arrays]
    dtypes: str
    repaired: Callable[[bytes], bytes] = bytes


def of_folder(kind: Any, name: str, whole: bytes, dtypes: str, *repaired: Any) -> Kind:
    return Kind(name, whole, lambda path: kind.read(str(path.parent), {}, None), dtypes, *repaired)


def of_table(**options: str) -> Kind:
    return Kind("a.csv", TABLE, lambda path: csv_file.read(str(path), options, None), "if")


PNG, PALETTE = encoded(PHOTO), written(lambda f: Image.fromarray(PHOTO).quantize(4).save(f, "PNG"))
WAV = written(lambda f: wavfile.write(f, 8000, np.arange(-5, 6, dtype=np.int16)))
PACKED = written(lambda f: np.savez_compressed(f, image=ROWS))
KINDS = {
    "npy": Kind(
        "a.npy",
        written(lambda f: np.save(f, ROWS)),
        lambda path: npy.read(str(path), {}, None),
        "biufc",
    ),
    "npz": Kind("a.npz", PACKED, lambda path: npz.read(str(path), {}, None), "biufc"),
    "labels of a table": of_table(labels="kind"),
    "no header": of_table(header="no"),
    "columns": of_table(features="length:width"),
    "png": of_folder(images, "a.png", PNG, "u"),
    "png behind its header": of_folder(images, "a.png", PNG, "u", with_right_header),
    "palette": of_folder(images, "a.png", PALETTE, "u", with_right_header),
    "bmp": of_folder(images, "a.bmp", encoded(PHOTO, "BMP"), "u"),
    "jpeg": of_folder(images, "a.jpg", encoded(PHOTO, "JPEG"), "u"),
    "wav": of_folder(wavs, "a.wav", WAV, "if"),
    "extensible wav": of_folder(wavs, "a.wav", extensible(WAV), "if"),
    "frames of records": Kind("a", framed(RECORD) * 2, of_records, "uf"),
    "records": Kind("a", RECORD * 2, of_records, "uf", with_right_frames),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_a_damaged_file_gives_numbers_or_an_error_that_names_it(
    tmp_path_factory, kind, changes, cut
):
    damaged = bytearray(kind.whole)
    for position, value in changes:
        damaged[position % len(damaged)] = value
    path = tmp_path_factory.mktemp("damaged") / kind.name
    path.write_bytes(kind.repaired(bytes(damaged[: -cut if 0 < cut < 20 else None])))
    read, said = [], str(path)
    try:
        columns = kind.read(path).by_name.values()
        read = [column[index] for column in columns for index in range(len(column))]
    except EdgeconvError as error:
        said = error.message
    assert str(path) in said
    assert {each.dtype.kind for each in read} <= set(kind.dtypes)
