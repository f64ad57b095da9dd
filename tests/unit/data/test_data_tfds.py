"""Data sets of TensorFlow Datasets on disk, written here as that library writes them."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_records import encoded, example, write_records
from sources import identity, load_samples, open_samples
from wording import fails

from edgeconv.data.kinds import tfds
from edgeconv.data.location import located, parse_source
from edgeconv.types import TensorSpec
from edgeconv.types.errors import EdgeconvError, InputRefused, UsageError

COUNT = 7
PIXELS = np.arange(COUNT * 4 * 4 * 3, dtype=np.uint8).reshape(COUNT, 4, 4, 3)


def tensor(dtype: str, *shape: int, encoding: str = "none") -> dict[str, Any]:
    dimensions = {"dimensions": [str(size) for size in shape]} if shape else {}
    return {"tensor": {"dtype": dtype, "shape": dimensions, "encoding": encoding}}


FEATURES: dict[str, Any] = {
    "image": {"image": {"dtype": "uint8", "shape": {"dimensions": ["4", "4", "3"]}}},
    "label": {"classLabel": {"numClasses": "3"}},
    "inner": {
        "featuresDict": {"features": {"x": tensor("float64", 2), "sizes": tensor("int32", -1)}}
    },
    "packed": tensor("int16", 3, encoding="zlib"),
    "text": {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}},
    "depth": {"image": {"dtype": "uint16", "shape": {"dimensions": ["4", "4", "1"]}}},
}


def row(index: int) -> bytes:
    values = {
        "image": encoded(PIXELS[index]),
        "label": np.int64(index % 3),
        "inner/x": np.float32([index, -index]),
        "inner/sizes": np.arange(index),
        "packed": zlib.compress(np.int16([index, 2, 3]).astype("<i2").tobytes()),
        "text": b"some text",
    }
    return example(**values)


def prepare(root: Path, *, version: str = "1.0.0", config: str = "", **changes: Any) -> Path:
    """A data set "flowers": 4 + 3 records in two files of "train", and none of "test"."""
    directory = root.joinpath("flowers", *([config] if config else []), version)
    directory.mkdir(parents=True)
    info = {
        "name": "flowers",
        "version": version,
        "fileFormat": "tfrecord",
        "splits": [
            {"name": "train", "shardLengths": ["4", "3"], "numBytes": "9"},
            {"name": "test", "shardLengths": ["2"]},
        ],
        **changes,
    }
    (directory / "dataset_info.json").write_text(json.dumps(info))
    (directory / "features.json").write_text(json.dumps({"featuresDict": {"features": FEATURES}}))
    (directory / "label.labels.txt").write_text("rose\ntulip\nlily\n")
    rows = [row(index) for index in range(COUNT)]
    write_records(directory / "flowers-train.tfrecord-00000-of-00002", *rows[:4])
    write_records(directory / "flowers-train.tfrecord-00001-of-00002", *rows[4:])
    write_records(directory / "flowers-test.tfrecord-00000-of-00001", *rows[:2])
    return directory


def read(place: Any, wanted: frozenset[str] | None = None, **options: Any) -> Any:
    return tfds.read(str(place), {name: str(value) for name, value in options.items()}, wanted)


def test_the_features_are_read_by_their_types(tmp_path):
    prepare(tmp_path)
    arrays = read("flowers", dir=tmp_path, split="train")
    assert list(arrays.by_name) == ["image", "inner/x", "inner/sizes", "packed"]
    np.testing.assert_array_equal(
        [arrays.by_name["image"][index] for index in range(COUNT)], PIXELS
    )
    assert arrays.by_name["inner/x"].tolist() == [[i, -i] for i in range(COUNT)]
    assert arrays.by_name["inner/x"].dtype == np.float64
    assert arrays.by_name["inner/sizes"][3].tolist() == [0, 1, 2]
    assert arrays.by_name["inner/sizes"][3].dtype == np.int32
    assert arrays.by_name["packed"].tolist() == [[i, 2, 3] for i in range(COUNT)]


def test_the_only_class_label_has_the_labels_and_their_names(tmp_path):
    prepare(tmp_path)
    arrays = read("flowers", dir=tmp_path, split="train")
    assert arrays.labels.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert arrays.class_names == ("rose", "tulip", "lily")


def test_a_model_gets_the_feature_that_is_called_like_its_input(tmp_path):
    prepare(tmp_path)
    spec = TensorSpec(name="image", shape=(-1, 4, 4, 3), dtype="uint8")
    samples = load_samples(f"tfds:flowers?image=image&dir={tmp_path}&split=test", (spec,))
    np.testing.assert_array_equal(samples.arrays["image"], PIXELS[:2])
    opened = open_samples(f"tfds:flowers?image=image&dir={tmp_path}&split=test", (spec,))
    assert opened.class_names == ("rose", "tulip", "lily")


def test_it_is_found_by_name_version_and_directory(tmp_path, monkeypatch):
    old = prepare(tmp_path, version="2.0.0")
    new = prepare(tmp_path, version="10.0.0")
    (new / "label.labels.txt").write_text("a\nb\nc\n")
    old_names, new_names = ("rose", "tulip", "lily"), ("a", "b", "c")
    where = {"dir": tmp_path, "split": "test"}
    assert read("flowers", **where).class_names == new_names
    assert read("flowers:2.0.0", **where).class_names == old_names
    assert read(old, split="test").class_names == old_names
    assert located(parse_source(f"{old}?split=test")).kind == "tfds"
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert read("flowers", split="test").class_names == new_names
    monkeypatch.delenv("TFDS_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.joinpath("tensorflow_datasets").symlink_to(tmp_path)
    assert read("flowers", split="test").class_names == new_names
    with fails(UsageError):
        read("flowers:3.0.0", split="test")


def test_one_configuration_is_taken_and_several_are_named(tmp_path):
    prepare(tmp_path, config="small", configName="small")
    assert read("flowers", dir=tmp_path, split="test").labels.tolist() == [0, 1]
    prepare(tmp_path, config="large", configName="large")
    with fails(UsageError):
        read("flowers", dir=tmp_path, split="test")
    assert read("flowers/large:1.0.0", dir=tmp_path, split="test").labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("train", range(7)),
        ("train[:3]", range(3)),
        ("train[3:]", range(3, 7)),
        ("train[2:5]", range(2, 5)),
        ("train[-2:]", range(5, 7)),
        ("train[:-2]", range(5)),
        ("train[:50%]", range(4)),
        ("train[50%:]", range(4, 7)),
        ("train[-10%:]", range(6, 7)),
        ("train[14.3%:100%]", range(1, 7)),
    ],
)
def test_a_split_may_be_sliced(part, expected, tmp_path):
    prepare(tmp_path)
    arrays = read("flowers", dir=tmp_path, split=part)
    assert arrays.by_name["inner/x"][:, 0].tolist() == list(expected)
    assert len(arrays.by_name["image"]) == len(expected)
    np.testing.assert_array_equal(arrays.by_name["image"][0], PIXELS[expected[0]])


@pytest.mark.parametrize(
    "part",
    [
        None,
        "trian",
        "train+test",
        "train[0]",
        "train[:2shard]",
        "train[:1.5]",
        "train[3:3]",
        "train[5:2]",
        "train[:8]",
        "train[-9:]",
        "train[:200%]",
    ],
)
def test_a_split_that_does_not_exist_is_a_usage_error(part, tmp_path):
    prepare(tmp_path)
    options = {"dir": str(tmp_path), **({"split": part} if part else {})}
    for ask in (
        lambda: tfds.read("flowers", options, None),
        lambda: tfds.identity("flowers", options),
    ):
        with fails(UsageError):
            ask()


def test_features_that_are_not_read_are_refused_only_when_they_are_asked_for(tmp_path):
    prepare(tmp_path)
    with fails(InputRefused):
        read("flowers", frozenset({"text"}), dir=tmp_path, split="test")
    with fails(InputRefused):
        read("flowers", dir=tmp_path, split="test", labels="depth")
    with fails(UsageError):
        read("flowers", frozenset({"innerx"}), dir=tmp_path, split="test")
    with fails(UsageError):
        read("flowers", dir=tmp_path, split="test", labels="labels")


def test_a_name_that_is_not_on_disk_is_refused_and_nothing_is_downloaded(tmp_path):
    prepare(tmp_path)
    with fails(InputRefused):
        read("mnist", dir=tmp_path, split="test")
    with fails(InputRefused):
        read("mnist", dir=tmp_path / "gone", split="test")
    with fails(UsageError):
        read("../flowers", dir=tmp_path, split="test")
    (tmp_path / "empty").mkdir()
    with fails(InputRefused):
        read("empty", dir=tmp_path, split="test")


@pytest.mark.parametrize(
    "changes",
    [
        {"fileFormat": "array_record"},
        {"splits": []},
        {"splits": [{"name": "test", "shardLengths": ["3"]}]},
        {"splits": [{"name": "test", "shardLengths": ["2", "2"]}]},
        {"splits": [{"name": "test", "shardLengths": ["-2"]}]},
        {"splits": [{"name": "test", "shardLengths": "x"}]},
        {"splits": [{"name": "test", "shardLengths": ["2"], "filepathTemplate": "../x"}]},
        {"name": 3},
    ],
)
def test_a_description_that_is_wrong_is_refused(changes, tmp_path):
    prepare(tmp_path, **changes)
    with fails(InputRefused):
        read("flowers", dir=tmp_path, split="test")


def test_a_file_template_of_its_own_is_followed(tmp_path):
    split = {"name": "test", "shardLengths": [2], "filepathTemplate": "{SPLIT}/{NUM_SHARDS}.{X}"}
    directory = prepare(tmp_path, splits=[split])
    (directory / "test").mkdir()
    shard = directory / "flowers-test.tfrecord-00000-of-00001"
    shard.rename(directory / "test" / "00001.{X}")
    assert read("flowers", dir=tmp_path).labels.tolist() == [0, 1]


def test_a_split_without_records_is_refused_and_a_shard_without_them_needs_no_file(tmp_path):
    splits = [
        {"name": "test", "shardLengths": ["0"]},
        {"name": "train", "shardLengths": ["2", "0"]},
    ]
    directory = prepare(tmp_path, splits=splits)
    with fails(UsageError):
        read("flowers", dir=tmp_path, split="test")
    write_records(directory / "flowers-train.tfrecord-00000-of-00002", row(0), row(1))
    (directory / "flowers-train.tfrecord-00001-of-00002").unlink()
    assert read("flowers", dir=tmp_path, split="train").labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[1]",
        '{"featuresDict": ' * 100_000,
        '{"featuresDict": {"features": {"x": {"tensor": {"shape": 3}}}}}',
    ],
)
def test_features_that_cannot_be_read_are_refused(content, tmp_path):
    directory = prepare(tmp_path)
    (directory / "features.json").write_text(content)
    with fails(InputRefused):
        read("flowers", dir=tmp_path, split="test")


@pytest.mark.parametrize(
    "declared",
    [
        tensor("complex64"),
        tensor("int32", -1, -1),
        tensor("int32", 2, encoding="lzma"),
        {"audio": {"dtype": "int64", "fileFormat": "wav"}},
        {"sequence": {}, "pythonClassName": "a.Sequence"},
        {},
    ],
)
def test_the_reason_why_a_feature_is_not_read_is_told(declared, tmp_path):
    directory = prepare(tmp_path)
    content = {"featuresDict": {"features": {"x": declared, "label": FEATURES["label"]}}}
    (directory / "features.json").write_text(json.dumps(content))
    with fails(InputRefused):
        read("flowers", frozenset({"x"}), dir=tmp_path, split="test")
    assert read("flowers", dir=tmp_path, split="test").by_name == {}


def test_class_names_are_left_out_where_they_are_not_all_there(tmp_path):
    directory = prepare(tmp_path)
    (directory / "label.labels.txt").write_text("rose\n")
    assert read("flowers", dir=tmp_path, split="test").class_names == ()
    (directory / "label.labels.txt").unlink()
    assert read("flowers", dir=tmp_path, split="test").class_names == ()


def test_the_identity_is_of_the_split_that_is_used(tmp_path):
    directory = prepare(tmp_path)
    train, test = (f"tfds:flowers?dir={tmp_path}&split={name}" for name in ("train", "test"))
    before = identity(train), identity(test)
    write_records(directory / "flowers-test.tfrecord-00000-of-00001", row(1), row(2))
    after = identity(train), identity(test)
    assert after[0] == before[0]
    assert after[1] != before[1]
    (directory / "label.labels.txt").write_text("a\nb\nc\n")
    assert identity(train) != before[0]


def test_damage_anywhere_gives_arrays_or_a_clear_error(tmp_path):
    directory = prepare(tmp_path)
    rng = np.random.default_rng(0)
    names = ["dataset_info.json", "features.json", "flowers-test.tfrecord-00000-of-00001"]
    refused = 0
    for _ in range(150):
        path = directory / names[rng.integers(3)]
        whole = path.read_bytes()
        damaged = bytearray(whole)
        for position in rng.integers(0, len(whole), 3):
            damaged[position] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            arrays = read("flowers", frozenset({"image"}), dir=tmp_path, split="test")
            assert [arrays.by_name["image"][i].ndim for i in range(2)] == [3, 3]
        except EdgeconvError:
            refused += 1
        path.write_bytes(whole)
    assert refused > 100
