"""Small files that would take gigabytes, or for ever: refused by what they say of themselves."""

import io
import resource
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_records import example, write_records
from PIL import Image
from processor_time import at_most
from sources import identity, open_samples
from wording import fails

from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused

X = TensorSpec(name="x", shape=(-1, 4), dtype="float32")
ANY = TensorSpec(name="x", shape=(-1, -1, -1, -1), dtype="uint8")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _room(monkeypatch):
    monkeypatch.setattr("edgeconv.data.arrays._limit_bytes", 64 * MIB)


def npy(shape: str, descr: str = "<f4", content: bytes = b"") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def npz_of_zeros(place: Path, size: int, method: int = zipfile.ZIP_DEFLATED) -> str:
    """An archive of one array (size, 4) of zeros."""
    path = place / "a.npz"
    with zipfile.ZipFile(path, "w", method) as archive, archive.open("x.npy", "w") as member:
        member.write(npy(f"({size}, 4)"))
        for _ in range(size * 16 // MIB):
            member.write(bytes(MIB))
    return str(path)


def png(width: int, height: int) -> bytes:
    """A gray image of zeros, packed a thousand times."""

    def chunk(name: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + crc

    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(width + 1)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_zeros_of_gigabytes_in_an_npz_are_refused_by_the_memory_limit(tmp_path):
    source = npz_of_zeros(tmp_path, 8 * MIB)
    assert Path(source).stat().st_size < MIB
    with fails(InputRefused):
        open_samples(source, (X,))


def test_zeros_are_refused_by_their_ratio_where_no_limit_is_set(tmp_path, monkeypatch):
    monkeypatch.setattr("edgeconv.data.arrays._limit_bytes", 0)
    monkeypatch.setattr("edgeconv.data.arrays._RATIO_MATTERS_BYTES", MIB)
    with fails(InputRefused):
        open_samples(npz_of_zeros(tmp_path, 8 * MIB), (X,))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_unpack_gigabytes_in_one_step_are_refused(tmp_path, method):
    with fails(InputRefused):
        open_samples(npz_of_zeros(tmp_path, MIB, method), (X,))


@pytest.mark.parametrize(
    ("shape", "descr", "content"),
    [
        ("(9223372036854775807, 4)", "<f4", b""),
        ("(4294967296, 4294967296, 4294967296)", "<f4", bytes(16)),
        ("(-1, 4)", "<f4", bytes(16)),
        ("(-1, -4)", "<f4", bytes(16)),
        ("(1000000000000000000, 0)", "<f4", b""),
        ("(1000000000000,)", "<U0", b""),
        ("(1000000000000,)", "|S0", b""),
        ("(2,)", "|O", b"\x80\x04N."),
        ("(2,)", "<f4', (1000000000,", b""),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_npy_headers_that_lie_are_refused(shape, descr, content, tmp_path, monkeypatch, *, at_once):
    if not at_once:
        monkeypatch.setattr("edgeconv.data.kinds.npy._AT_ONCE_BYTES", 0)
    (tmp_path / "a.npy").write_bytes(npy(shape, descr, content))
    with fails(InputRefused):
        open_samples(str(tmp_path / "a.npy"), (X,))


def test_a_large_npy_is_read_in_parts_whatever_the_limit(tmp_path):
    """A GiB on the disk and nothing of it in memory: no bound of what is decoded holds it."""
    path = tmp_path / "large.npy"
    path.write_bytes(npy(f"({1 << 26}, 4)"))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + (1 << 30))
    opened = open_samples(str(path), (X,))
    assert opened.count == 1 << 26
    assert opened.take(np.array([opened.count - 1])).arrays["x"].tolist() == [[0.0] * 4]


def test_many_short_strings_are_refused_before_they_are_objects(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(MIB, "S1"))
    words = TensorSpec(name="x", shape=(-1,), dtype="string")
    with fails(InputRefused):
        open_samples(str(tmp_path / "a.npy"), (words,))


def csv_of_columns(count: int) -> bytes:
    return b",".join(b"%d" % i for i in range(count)) + b"\n" + b"0," * (count - 1) + b"0\n"


@pytest.mark.parametrize(
    "content",
    [
        lambda: csv_of_columns(1_500_000),
        lambda: csv_of_columns(20_000),
        lambda: b"a\n" + b"0\n" * (3 * MIB),
        lambda: b"a,b\n" + b"1" * (40 * MIB),
        lambda: b"a,b\n1," + b'"' + b"1\n" * (10 * MIB) + b'"\n',
        lambda: b"a,b\n1," + b'"' + b"1\n" * MIB,
    ],
    ids=["columns", "width", "rows", "line", "quoted", "unclosed"],
)
def test_tables_as_text_are_bounded(content, tmp_path):
    (tmp_path / "a.csv").write_bytes(content())
    with fails(InputRefused):
        open_samples(str(tmp_path / "a.csv"), (X,))


def test_a_wide_table_is_read_in_time_that_grows_with_it(tmp_path):
    """Looking each name up among all of them took hours for a million."""
    (tmp_path / "a.csv").write_bytes(csv_of_columns(500_000))
    last = TensorSpec(name="x", shape=(-1, 2), dtype="float32")
    opened = open_samples(f"{tmp_path / 'a.csv'}?features=499998:499999", (last,))
    assert opened.count == 1


@pytest.mark.parametrize(
    "table",
    [
        lambda: {"x": np.zeros(6 * MIB)},
        lambda: {"x": pa.array(["y" * MIB] * 80)},
        lambda: {"x": pa.array([["y" * MIB] * 2] * 80)},
        lambda: {"x": pa.array([bytes(MIB)] * 20)},
        lambda: {"x": pa.array([bytes(MIB)] * 20, pa.binary(MIB))},
        lambda: {"x": pa.array([None] * 6 * MIB)},
        lambda: {f"x{i}": [0] for i in range(20_000)},
        lambda: {"x": pa.array([nested(30)])},
    ],
    ids=["zeros", "strings", "lists of strings", "bytes", "fixed", "nulls", "columns", "nested"],
)
def test_parquet_is_bounded(table, tmp_path):
    pq.write_table(pa.table(table()), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 16 * MIB
    with at_most(seconds=20), fails(InputRefused):
        open_samples(str(tmp_path / "a.parquet"), (X,))


def test_the_files_of_a_directory_are_bounded_together(tmp_path):
    for number in range(4):
        pq.write_table(pa.table({"x": np.zeros(MIB)}), tmp_path / f"{number}.parquet")
    spec = TensorSpec(name="x", shape=(-1, 1), dtype="float32")
    assert open_samples(str(tmp_path / "1.parquet"), (spec,)).count == MIB
    with pytest.raises(InputRefused, match=r"would take 100,\d{3},\d{3} bytes"):
        open_samples(str(tmp_path), (spec,))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_equal_strings_in_lists_are_read_as_they_were_written(tmp_path):
    pq.write_table(pa.table({"x": [["a", "b"], ["b", "a"]]}), tmp_path / "a.parquet")
    words = TensorSpec(name="x", shape=(-1, 2), dtype="string")
    opened = open_samples(str(tmp_path / "a.parquet"), (words,))
    stored = opened.take(np.arange(2)).arrays["x"]
    assert stored.tolist() == [[b"a\x01", b"b\x01"], [b"b\x01", b"a\x01"]]


def images(place: Path, *contents: bytes) -> str:
    (place / "images").mkdir()
    for number, content in enumerate(contents):
        (place / "images" / f"{number}.png").write_bytes(content)
    return str(place / "images")


@pytest.mark.parametrize("width", [9000, 4000])
def test_an_image_is_refused_by_its_header(width, tmp_path):
    opened = open_samples(images(tmp_path, png(width, width)), (ANY,))
    with fails(InputRefused):
        opened.take(np.arange(1))


def test_many_images_together_are_bounded_as_well(tmp_path):
    opened = open_samples(images(tmp_path, *[png(2000, 2000)] * 9), (ANY,))
    assert opened.take(np.arange(4)).arrays["x"].shape == (4, 2000, 2000, 1)
    with fails(InputRefused):
        opened.take(np.arange(9))


def test_a_text_of_a_png_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path):
    whole = png(4, 4)
    text = b"Comment\0\0" + zlib.compress(bytes(256 * MIB))
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text
    chunk += struct.pack(">I", zlib.crc32(b"zTXt" + text))
    opened = open_samples(images(tmp_path, whole[:33] + chunk + whole[33:]), (ANY,))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with fails(InputRefused):
        opened.take(np.arange(1))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def wav(**changes: int) -> bytes:
    said = {"whole": 36 + 8, "length": 8, "channels": 1, "block": 2, "bits": 16, **changes}
    head = struct.pack("<HHIIHH", 1, said["channels"], 8000, 16000, said["block"], said["bits"])
    body = b"WAVEfmt " + struct.pack("<I", 16) + head
    body += b"data" + struct.pack("<I", said["length"]) + bytes(8)
    return b"RIFF" + struct.pack("<I", said["whole"]) + body


@pytest.mark.parametrize(
    "content",
    [
        wav(length=0xFFFFFFF0),
        wav(whole=0xFFFFFFFF, length=0xFFFFFFF0),
        wav(channels=65535, block=65535 * 2 % 65536),
        wav(block=0),
        wav(bits=0),
        b"RIFF" + struct.pack("<I", 4 + 16000 * 8) + b"WAVE" + b"abcd\0\0\0\0" * 16000,
    ],
)
def test_wav_headers_that_lie_are_refused(content, tmp_path):
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "a.wav").write_bytes(content)
    with fails(InputRefused):
        open_samples(f"wavs:{tmp_path / 'clips'}", (X,))


def test_a_clip_that_does_not_fit_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "clips").mkdir()
    with (tmp_path / "clips" / "a.wav").open("wb") as file:
        file.write(wav(whole=36 + 100 * MIB, length=100 * MIB)[:44])
        file.truncate(44 + 100 * MIB)
    clip = TensorSpec(name="x", shape=(-1, -1), dtype="int16")
    opened = open_samples(f"wavs:{tmp_path / 'clips'}", (clip,))
    with fails(InputRefused):
        opened.take(np.arange(1))


def spec(place: Path, text: str) -> str:
    (place / "spec.toml").write_text(text, encoding="utf-8")
    return str(place / "spec.toml")


def test_records_are_bounded_one_by_one(tmp_path):
    path = write_records(tmp_path / "a.tfrecord", example(x=bytes(80 * MIB)))
    text = spec(tmp_path, '[features.x]\nencoding = "raw"\ndtype = "uint8"\nvariable = true\n')
    rows = TensorSpec(name="x", shape=(-1, -1), dtype="uint8")
    opened = open_samples(f"{path}?spec={text}", (rows,))
    with fails(InputRefused):
        opened.take(np.arange(1))


def test_labels_of_a_declared_shape_are_bounded_together(tmp_path):
    path = write_records(tmp_path / "a.tfrecord", *[example()] * 100)
    text = spec(
        tmp_path,
        '[features.x]\ndtype = "float32"\nshape = [4]\n'
        '[features.y]\ndtype = "int64"\nshape = [1000000]\n',
    )
    with fails(InputRefused):
        open_samples(f"{path}?spec={text}&labels=y", (X,))


def test_a_deflated_tensor_is_unpacked_no_further_than_it_is_declared(tmp_path):
    from edgeconv.data.examples import Feature, _inflated

    packed = zlib.compress(bytes(256 * MIB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    feature = Feature(encoding="zlib", dtype="uint8", shape=(4,))
    assert len(_inflated("x", packed, feature)) == 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_the_number_of_files_of_a_data_set_is_bounded(tmp_path):
    for lengths in ("1," * 100_000 + "1", "1" + "0" * 400):
        info = f'{{"name": "n", "splits": [{{"name": "test", "shardLengths": [{lengths}]}}]}}'
        (tmp_path / "dataset_info.json").write_text(info, encoding="ascii")
        with fails(InputRefused):
            identity(f"tfds:{tmp_path}")


def test_bytes_that_are_no_image_never_reach_another_decoder(tmp_path):
    pages = [Image.new("L", (4, 4), shade) for shade in range(3)]
    for kind in ("GIF", "TIFF"):
        file = io.BytesIO()
        pages[0].save(file, kind, save_all=True, append_images=pages[1:])
        folder = tmp_path / kind
        folder.mkdir()
        with fails(InputRefused):
            open_samples(images(folder, file.getvalue()), (ANY,))
