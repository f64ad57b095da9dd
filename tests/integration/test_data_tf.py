"""Records and data sets that TensorFlow itself wrote, against what it reads from them.

Run as a program, this file writes them, and what TensorFlow reads, to a directory.
"""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeconv.data.kinds import tfds as tfds_kind
from edgeconv.data.kinds import tfrecord
from edgeconv.types import TensorSpec

COUNT = 12
SPEC = """
[features.jpeg]
encoding = "jpeg"
channels = 3
[features.png]
encoding = "png"
[features.raw]
encoding = "raw"
dtype = "int16"
shape = [2, 3]
[features.floats]
dtype = "float32"
shape = [3]
[features.ints]
dtype = "int64"
shape = [2]
[features.some]
dtype = "float32"
variable = true
[features."inner/label"]
dtype = "int64"
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    # Not where this file is the program.
    from forking import output_of

    pytest.importorskip("tensorflow_datasets", reason="tensorflow-datasets is not installed")
    root = tmp_path_factory.mktemp("written")
    output_of(__file__, root)
    (root / "spec.toml").write_text(SPEC, encoding="utf-8")
    return root


def expected(root: Path, name: str) -> Any:
    return pickle.loads((root / name).read_bytes())


def compare(column: Any, rows: list[Any], tolerance: float = 0) -> None:
    assert len(column) == len(rows)
    for index, row in enumerate(rows):
        got = column[index]
        assert (got.shape, got.dtype) == (row.shape, row.dtype)
        worst = np.abs(got.astype(np.float64) - row.astype(np.float64)).max() if row.size else 0
        assert worst <= tolerance


@pytest.mark.parametrize("name", ["plain.tfrecord", "packed.tfrecord", "part-*.tfrecord"])
def test_what_tensorflow_writes_is_read_as_it_reads_it(name, written):
    options = {"spec": str(written / "spec.toml"), "labels": "inner/label"}
    arrays = tfrecord.read(str(written / name), options, None)
    rows = expected(written, "examples.pickle")
    assert set(arrays.by_name) == {"jpeg", "png", "raw", "floats", "ints", "some"}
    for feature, column in arrays.by_name.items():
        compare(column, [row[feature] for row in rows])
    assert arrays.labels.tolist() == [int(row["inner/label"]) for row in rows]


@pytest.mark.parametrize("split", ["train", "test", "train[:10]", "train[25%:75%]", "test[-3:]"])
def test_a_data_set_of_tensorflow_datasets_is_read_as_it_reads_it(split, written):
    options = {"dir": str(written / "tfds"), "split": split}
    arrays = tfds_kind.read("my_data", options, None)
    rows = expected(written, "data_sets.pickle")[split]
    assert arrays.labels.tolist() == [int(row["label"]) for row in rows]
    assert arrays.class_names == ("cat", "dog", "emu")
    assert set(arrays.by_name) == {
        *("image", "gray", "inner/x", "inner/id", "double", "bytes", "truth", "some", "packed"),
        *("stored", "box", "audio", "mask"),
    }
    for feature, column in arrays.by_name.items():
        # The fast inverse transform of JPEG, TensorFlow's default, is off by a few levels.
        compare(column, [row[feature] for row in rows], 8 if feature == "gray" else 0)


def test_a_model_is_given_a_data_set(written):
    spec = TensorSpec(name="in", shape=(-1, 8, 8, 3), dtype="uint8")
    # Not where this file is the program.
    from sources import load_samples

    samples = load_samples(f"{written}/tfds/my_data/1.0.0?split=test&in=image", (spec,))
    rows = expected(written, "data_sets.pickle")["test"]
    np.testing.assert_array_equal(samples.arrays["in"], [row["image"] for row in rows])


def main(root: Path) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(0)
    rows = [serialized(tf, rng, index) for index in range(COUNT)]
    write(tf, root / "plain.tfrecord", rows)
    write(tf, root / "packed.tfrecord", rows, "GZIP")
    write(tf, root / "part-0.tfrecord", rows[:5])
    write(tf, root / "part-1.tfrecord", rows[5:], "GZIP")
    examples = [parsed(tf, row) for row in rows]
    (root / "examples.pickle").write_bytes(pickle.dumps(examples))
    data_sets = written_by_tfds(root, rng)
    (root / "data_sets.pickle").write_bytes(pickle.dumps(data_sets))


def serialized(tf: Any, rng: np.random.Generator, index: int) -> bytes:
    def of_bytes(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def of_floats(value: Any) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))

    def of_ints(value: Any) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    photo = np.kron(rng.integers(0, 255, (4 + index % 2, 5, 3), np.uint8), np.ones((8, 8, 1)))
    pixels = rng.integers(0, 255, (6, 5, [1, 3, 4][index % 3]), np.uint8)
    features = {
        "jpeg": of_bytes(tf.io.encode_jpeg(photo.astype(np.uint8)).numpy()),
        "png": of_bytes(tf.io.encode_png(pixels).numpy()),
        "raw": of_bytes(rng.integers(-999, 999, (2, 3), np.int16).astype("<i2").tobytes()),
        "floats": of_floats(rng.standard_normal(3)),
        "ints": of_ints(rng.integers(-(2**63), 2**63, 2)),
        "some": of_floats(rng.standard_normal(index % 4)),
        "inner/label": of_ints([index % 5]),
        "unused": of_bytes(b"\xff"),
    }
    message = tf.train.Example(features=tf.train.Features(feature=features))
    serialized: bytes = message.SerializeToString()
    return serialized


def write(tf: Any, path: Path, rows: list[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), tf.io.TFRecordOptions(compression)) as writer:
        for row in rows:
            writer.write(row)


def parsed(tf: Any, row: bytes) -> dict[str, Any]:
    spec = {
        **{name: tf.io.FixedLenFeature([], tf.string) for name in ("jpeg", "png", "raw")},
        "floats": tf.io.FixedLenFeature([3], tf.float32),
        "ints": tf.io.FixedLenFeature([2], tf.int64),
        "some": tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True),
        "inner/label": tf.io.FixedLenFeature([], tf.int64),
    }
    values = tf.io.parse_single_example(row, spec)
    values["jpeg"] = tf.io.decode_jpeg(values["jpeg"], channels=3, dct_method="INTEGER_ACCURATE")
    values["png"] = tf.io.decode_png(values["png"])
    values["raw"] = tf.reshape(tf.io.decode_raw(values["raw"], tf.int16), (2, 3))
    return {name: value.numpy() for name, value in values.items()}


def written_by_tfds(root: Path, rng: np.random.Generator) -> dict[str, Any]:
    import tensorflow_datasets as tfds
    from etils import epath

    types = tfds.features
    features = {
        "image": types.Image(shape=(8, 8, 3)),
        "gray": types.Image(shape=(None, None, 1), encoding_format="jpeg"),
        "label": types.ClassLabel(names=["cat", "dog", "emu"]),
        "inner": {
            "x": types.Tensor(shape=(2, 3), dtype=np.float32),
            "id": types.Scalar(dtype=np.int32),
        },
        "double": types.Tensor(shape=(2,), dtype=np.float64),
        "bytes": types.Tensor(shape=(4,), dtype=np.uint8),
        "truth": types.Scalar(dtype=np.bool_),
        "some": types.Tensor(shape=(None, 2), dtype=np.float32),
        "packed": types.Tensor(shape=(3,), dtype=np.float32, encoding="zlib"),
        "stored": types.Tensor(shape=(None, 3), dtype=np.int16, encoding="bytes"),
        "box": types.BBoxFeature(),
        "audio": types.Audio(shape=(None,)),
        "mask": types.LabeledImage(labels=3, shape=(4, 4, 1)),
        "text": types.Text(),
        "sequence": types.Sequence(np.int32),
    }

    def row(index: int) -> dict[str, Any]:
        return {
            "image": rng.integers(0, 255, (8, 8, 3), np.uint8),
            "gray": np.kron(
                rng.integers(0, 255, (2 + index % 2, 3), np.uint8), np.ones((8, 8))
            ).astype(np.uint8)[..., None],
            "label": index % 3,
            "inner": {"x": rng.random((2, 3), np.float32), "id": -index},
            "double": rng.random(2),
            "bytes": rng.integers(0, 255, 4, np.uint8),
            "truth": index % 2 == 0,
            "some": rng.random((index % 4, 2), np.float32),
            "packed": rng.random(3, np.float32),
            "stored": rng.integers(-99, 99, (index % 3, 3), np.int16),
            "box": types.BBox(0.0, 0.25, 0.5, 1.0),
            "audio": rng.integers(-9999, 9999, 5 + index),
            "mask": rng.integers(0, 3, (4, 4, 1), np.uint8),
            "text": f"text {index}",
            "sequence": [1] * (index % 3),
        }

    class MyData(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        # Else it looks for its own source where a package would be.
        pkg_dir_path = epath.Path(root)

        def _info(self) -> Any:
            return self.dataset_info_from_configs(features=types.FeaturesDict(features))

        def _split_generators(self, _manager: Any) -> Any:
            return {"train": self._generate_examples(40), "test": self._generate_examples(8)}

        def _generate_examples(self, count: int) -> Any:
            for index in range(count):
                yield index, row(index)

    builder = MyData(data_dir=str(root / "tfds"))
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=3))
    in_order = tfds.ReadConfig(interleave_cycle_length=1)
    found = {}
    for split in ("train", "test", "train[:10]", "train[25%:75%]", "test[-3:]"):
        rows = tfds.as_numpy(builder.as_dataset(split=split, read_config=in_order))
        found[split] = [flattened(one) for one in rows]
    return found


def flattened(row: dict[str, Any], outer: str = "") -> dict[str, Any]:
    flat = {}
    for name, value in row.items():
        if isinstance(value, dict):
            flat.update(flattened(value, f"{outer}{name}/"))
        elif isinstance(value, (np.ndarray, np.generic)):
            flat[outer + name] = value
    return flat


if __name__ == "__main__":
    main(Path(sys.argv[1]))
