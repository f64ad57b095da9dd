"""TFRecord: the framing, Examples by a declared spec, and files that lie or are damaged."""

import gzip
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_records import encoded, example, framed, write_records
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT
from sources import identity, load_samples, open_samples, split_taken
from wording import fails

from edgeconv.data import examples
from edgeconv.data.kinds import tfrecord
from edgeconv.data.records import open_records
from edgeconv.types import TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

PIXELS = np.arange(4 * 6 * 5 * 3, dtype=np.uint8).reshape(4, 6, 5, 3)
SPEC = """
[features.x]
dtype = "float32"
shape = [2]
[features.label]
dtype = "int64"
"""


@pytest.fixture
def spec(tmp_path):
    def write(text: str, name: str = "spec.toml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def rows(count: int) -> list[bytes]:
    return [example(x=np.float32([i, i / 4]), label=np.int64(i % 3)) for i in range(count)]


def read(place: str, spec: str, wanted: frozenset[str] | None = None, **options: str) -> Any:
    return tfrecord.read(place, {"spec": spec, **options}, wanted)


def test_lists_of_numbers_are_stacked_by_the_name_of_the_feature(tmp_path, spec):
    place = write_records(tmp_path / "a.tfrecord", *rows(4))
    arrays = read(place, spec(SPEC), labels="label")
    assert list(arrays.by_name) == ["x"]
    assert arrays.by_name["x"].tolist() == [[0, 0], [1, 0.25], [2, 0.5], [3, 0.75]]
    assert arrays.by_name["x"].dtype == np.float32
    assert arrays.labels.tolist() == [0, 1, 2, 0]


def test_the_labels_may_be_wanted_as_an_input_too(tmp_path, spec):
    place = write_records(tmp_path / "a.tfrecord", *rows(4))
    arrays = read(place, spec(SPEC), frozenset({"label"}), labels="label")
    assert arrays.by_name["label"].tolist() == arrays.labels.tolist() == [0, 1, 2, 0]


def test_features_that_are_not_declared_are_left_alone(tmp_path, spec):
    record = example(x=np.float32([1, 2]), label=np.int64(-7), other=b"\xff")
    arrays = read(write_records(tmp_path / "a", record), spec(SPEC))
    assert arrays.by_name["label"].tolist() == [-7]


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_encoded_images_are_decoded_one_by_one(kind, tmp_path, spec):
    data = [
        example(image=encoded(pixels, kind), label=np.int64(i)) for i, pixels in enumerate(PIXELS)
    ]
    place = write_records(tmp_path / "a.tfrecord", *data)
    text = f'[features.image]\nencoding = "{kind.lower()}"\n[features.label]\ndtype = "int64"\n'
    arrays = read(place, spec(text), labels="label")
    assert len(arrays.by_name["image"]) == 4
    got = arrays.by_name["image"][2]
    assert got.dtype == np.uint8
    assert got.shape == (6, 5, 3)
    if kind == "PNG":
        np.testing.assert_array_equal(got, PIXELS[2])


@pytest.mark.parametrize(
    ("pixels", "channels", "shape"),
    [
        (np.full((2, 3), 7, np.uint8), None, (2, 3, 1)),
        (np.full((2, 3), 7, np.uint8), 3, (2, 3, 3)),
        (np.full((2, 3, 3), 7, np.uint8), 1, (2, 3, 1)),
        (np.full((2, 3, 4), 7, np.uint8), None, (2, 3, 4)),
        (np.full((2, 3), True), None, (2, 3, 1)),
    ],
)
def test_channels_are_as_stored_or_as_declared(pixels, channels, shape, tmp_path, spec):
    place = write_records(tmp_path / "a", example(i=encoded(pixels)))
    more = "" if channels is None else f"channels = {channels}\n"
    got = read(place, spec(f'[features.i]\nencoding = "png"\n{more}')).by_name["i"][0]
    assert got.shape == shape
    assert got.flat[0] == (255 if pixels.dtype == bool else 7)


def test_only_the_chosen_samples_are_decoded(tmp_path, spec):
    data = [example(image=encoded(pixels)) for pixels in PIXELS]
    data[1] = example(image=b"no image")
    place = write_records(tmp_path / "a.tfrecord", *data)
    source = f"{place}?spec={spec(_IMAGE)}"
    opened = open_samples(source, (TensorSpec(name="image", shape=(-1, 6, 5, 3), dtype="uint8"),))
    np.testing.assert_array_equal(opened.take(np.array([3, 0])).arrays["image"], PIXELS[[3, 0]])
    with fails(InputRefused):
        opened.take(np.array([1]))


_IMAGE = '[features.image]\nencoding = "png"\n'


def test_raw_bytes_become_an_array(tmp_path, spec):
    values = np.arange(12, dtype="<i2").reshape(2, 2, 3)
    place = write_records(tmp_path / "a", *(example(x=value.tobytes()) for value in values))
    text = '[features.x]\nencoding = "raw"\ndtype = "int16"\nshape = [2, 3]\n'
    got = read(place, spec(text)).by_name["x"]
    np.testing.assert_array_equal(got, values)
    assert got.dtype == np.int16


def test_lists_of_variable_length_are_items(tmp_path, spec):
    place = write_records(
        tmp_path / "a", *(example(x=np.zeros(2 * n, np.float32), y=np.arange(n)) for n in range(3))
    )
    text = '[features.x]\ndtype = "float32"\nvariable = true\nshape = [2]\n'
    got = read(place, spec(text + '[features.y]\ndtype = "int32"\nvariable = true\n')).by_name
    assert [got["x"][i].shape for i in range(3)] == [(0, 2), (1, 2), (2, 2)]
    assert got["y"][2].tolist() == [0, 1]
    assert got["y"][2].dtype == np.int32


def test_what_is_large_is_read_on_demand(tmp_path, spec, monkeypatch):
    monkeypatch.setattr(examples, "_STACKED_BYTES", 31)
    place = write_records(tmp_path / "a.tfrecord", *rows(4))
    arrays = read(place, spec(SPEC), labels="label")
    assert not isinstance(arrays.by_name["x"], np.ndarray)
    assert arrays.by_name["x"][3].tolist() == [3, 0.75]
    assert arrays.labels.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("dtype", "bad"), [("uint8", 256), ("int8", -129), ("bool", 2)])
def test_integers_may_be_declared_narrower_where_they_fit(dtype, bad, tmp_path, spec):
    text = spec(f'[features.x]\ndtype = "{dtype}"\nshape = [2]\n')
    good = write_records(tmp_path / "a", example(x=np.array([0, 1])))
    assert read(good, text).by_name["x"].dtype == dtype
    place = write_records(tmp_path / "b", example(x=np.array([0, bad])))
    with fails(InputRefused):
        read(place, text)


def test_a_glob_is_read_in_the_order_of_names_and_gzip_like_the_rest(tmp_path, spec):
    all_rows = rows(5)
    write_records(tmp_path / "a.tfrecord-00000-of-00002", *all_rows[:2])
    packed = gzip.compress(b"".join(map(framed, all_rows[2:])))
    (tmp_path / "a.tfrecord-00001-of-00002").write_bytes(packed)
    source = f"{tmp_path}/a.tfrecord-*?spec={spec(SPEC)}&labels=label"
    samples = load_samples(source, (TensorSpec(name="x", shape=(-1, 2), dtype="float32"),))
    assert samples.arrays["x"][:, 0].tolist() == [0, 1, 2, 3, 4]
    chosen, _ = split_taken(samples, 3, batch=1)
    assert sorted(chosen.labels.tolist()) == [0, 1, 2]


def test_a_record_whose_length_looks_like_gzip_is_a_record(tmp_path):
    data = bytes(0x8B1F)
    place = Path(write_records(tmp_path / "a", data))
    assert place.read_bytes()[:2] == b"\x1f\x8b"
    assert open_records([place])[0] == data


def test_identity_covers_the_files_and_the_spec(tmp_path, spec):
    place = write_records(tmp_path / "a.tfrecord", *rows(2))
    source = f"{place}?spec={spec(SPEC)}"
    before = identity(source)
    assert identity(source) == before
    spec(SPEC + "\n# changed")
    changed = identity(source)
    assert changed != before
    write_records(tmp_path / "a.tfrecord", *rows(3))
    assert identity(source) not in (before, changed)


def test_the_guides_spec_is_understood(tmp_path, spec):
    guide = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(\[features\..*?)```", guide, re.DOTALL)
    record = example(
        image=encoded(PIXELS[0], "JPEG"),
        pixels=bytes(784),
        label=np.int64(3),
        samples=np.zeros(80, np.float32),
    )
    arrays = read(write_records(tmp_path / "a", record), spec(text), labels="label")
    shapes = {name: column[0].shape for name, column in arrays.by_name.items()}
    assert shapes == {"image": (6, 5, 3), "pixels": (28, 28, 1), "samples": (2, 40)}
    assert arrays.labels.tolist() == [3]


@pytest.mark.parametrize(
    "text",
    [
        '[features.x]\ndtpe = "float32"\n',
        '[feature.x]\ndtype = "float32"\n',
        "[features]\n",
        "[features.x]\n",
        '[features.x]\ndtype = "float23"\n',
        '[features.x]\ndtype = "float16"\n',
        '[features.x]\nencoding = "jpg"\n',
        '[features.x]\nencoding = "raw"\n',
        '[features.x]\nencoding = "png"\nshape = [2, 2, 3]\n',
        '[features.x]\nencoding = "png"\nchannels = 2\n',
        '[features.x]\nencoding = "png"\nvariable = true\n',
        '[features.x]\ndtype = "int64"\nchannels = 3\n',
        '[features.x]\ndtype = "int64"\nshape = [-1]\n',
        '[features.x]\ndtype = "int64"\nshape = [0]\n',
        '[features.x]\ndtype = "int64"\nshape = [1000000, 1000000]\n',
        '[features.x]\ndtype = "int64"\nshape = 3\n',
    ],
)
def test_a_wrong_spec_is_a_usage_error(text, tmp_path, spec):
    with fails(UsageError):
        read(write_records(tmp_path / "a", *rows(1)), spec(text))


def test_a_spec_is_needed_and_must_be_toml(tmp_path, spec):
    place = write_records(tmp_path / "a.tfrecord", *rows(1))
    for asked in (identity, lambda source: open_samples(source, ())):
        with fails(UsageError):
            asked(place)
    with fails(InputRefused):
        read(place, str(tmp_path / "gone.toml"))
    with fails(InputRefused):
        read(place, spec("[features"))
    (tmp_path / "spec.toml").write_bytes(b"\xff")
    with fails(InputRefused):
        read(place, str(tmp_path / "spec.toml"))


def test_names_that_are_not_in_the_spec_get_a_suggestion(tmp_path, spec):
    place = write_records(tmp_path / "a", *rows(1))
    with fails(UsageError):
        read(place, spec(SPEC), labels="labels")
    with fails(UsageError):
        read(place, spec(SPEC), frozenset({"image"}))


_ONE_FLOAT = '[features.x]\ndtype = "float32"\n'
_RAW = '[features.x]\nencoding = "raw"\ndtype = "int16"\nshape = [2]\n'


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (example(y=b""), _ONE_FLOAT),
        (b"", _ONE_FLOAT),
        (example(x=np.float32([1, 2])), _ONE_FLOAT),
        (example(x=np.float32([])), _ONE_FLOAT),
        (example(x=np.int64(1)), _ONE_FLOAT),
        (example(x=b"1"), _ONE_FLOAT),
        (example(x=np.float32(1)), _RAW),
        (example(x=[b"abcd", b"abcd"]), _RAW),
        (example(x=b"abc"), _RAW),
        (example(x=b"ab"), _RAW),
        (b"\xff\xff", _ONE_FLOAT),
    ],
)
def test_a_record_that_is_not_as_declared_is_named(record, text, tmp_path, spec):
    fitting = {_ONE_FLOAT: example(x=np.float32(0)), _RAW: example(x=b"abcd")}
    place = write_records(tmp_path / "a", fitting[text], record)
    with fails(InputRefused):
        read(place, spec(text))


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"nothing", "png"),
        (encoded(PIXELS[0])[:50], "png"),
        (encoded(PIXELS[0], "JPEG")[:300], "jpeg"),
        (encoded(PIXELS[0], "JPEG"), "png"),
        (encoded(PIXELS[0], "BMP"), "png"),
        (encoded(np.full((2, 2), 9, np.uint16)), "png"),
    ],
)
def test_an_image_that_cannot_be_decoded_is_named(data, encoding, tmp_path, spec):
    place = write_records(tmp_path / "a", example(x=data))
    column = read(place, spec(f'[features.x]\nencoding = "{encoding}"\n')).by_name["x"]
    with fails(InputRefused):
        column[0]


def test_damage_is_found_and_its_record_named(tmp_path, spec):
    frames = [framed(row) for row in rows(3)]
    path = tmp_path / "a.tfrecord"
    content = bytearray(b"".join(frames))
    content[len(frames[0]) + 12] ^= 1
    path.write_bytes(content)
    with fails(InputRefused):
        read(str(path), spec(SPEC))
    content = bytearray(b"".join(frames))
    content[len(frames[0])] ^= 1
    path.write_bytes(content)
    with fails(InputRefused):
        read(str(path), spec(SPEC))


def test_every_truncation_is_refused_or_ends_at_a_record(tmp_path, spec):
    frames = [framed(row) for row in rows(2)]
    path, text = tmp_path / "a.tfrecord", spec(SPEC)
    whole = b"".join(frames)
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        if length == len(frames[0]):
            assert len(open_records([path])) == 1
            continue
        with pytest.raises(InputRefused, match=r"is not a TFRecord file|is cut short"):
            read(str(path), text)


@pytest.mark.parametrize("length", [2**60, 2**64 - 1, 2**63, 2**32])
def test_a_length_that_lies_is_refused_without_allocating(length, tmp_path, spec):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed(b"abc") + framed(b"abc", length))
    with fails(InputRefused):
        read(str(path), spec(SPEC))


ELSE = [b"a,b\n1,2\n" * 9, b"\x89PNG\r\n\x1a\n" * 9, b"x", bytes(99), zlib.compress(framed(b"x"))]


@pytest.mark.parametrize("content", ELSE)
def test_a_file_of_something_else_is_refused(content, tmp_path, spec):
    (tmp_path / "a").write_bytes(content)
    with fails(InputRefused):
        read(str(tmp_path / "a"), spec(SPEC))


def test_damaged_empty_and_dense_gzip_are_refused(tmp_path, spec, monkeypatch):
    path, text = tmp_path / "a", spec(SPEC)
    packed = gzip.compress(b"".join(map(framed, rows(9))))
    for content in (packed[:-9], packed[:20], packed[:-8] + bytes(8), packed + b"rest"):
        path.write_bytes(content)
        with fails(InputRefused):
            read(str(path), text)
    path.write_bytes(gzip.compress(b""))
    with fails(InputRefused):
        read(str(path), text)
    monkeypatch.setattr("edgeconv.data.arrays._RATIO_MATTERS_BYTES", 1 << 20)
    path.write_bytes(gzip.compress(framed(bytes(4 << 20))))
    with fails(InputRefused):
        read(str(path), text)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=5), min_size=1, max_size=3),
    st.booleans(),
    st.data(),
)
def test_records_come_back_as_they_were_written_whole_or_in_part(
    tmp_path_factory, files, packed, data
):
    folder = tmp_path_factory.mktemp("records")
    for index, content in enumerate(files):
        path = folder / str(index)
        write_records(path, *content)
        if packed:
            path.write_bytes(gzip.compress(path.read_bytes()))
    read_back = open_records([folder / str(index) for index in range(len(files))])
    written = [record for content in files for record in content]
    assert [read_back[index] for index in range(len(read_back))] == written
    first = data.draw(st.integers(0, len(written) - 1))
    count = data.draw(st.integers(1, len(written) - first))
    part = read_back.part(first, count)
    assert [part[index] for index in range(len(part))] == written[first : first + count]
