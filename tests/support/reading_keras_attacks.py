"""Keras files that two readers read differently: objects in objects, files of two kinds."""

import json
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import keras_attacks as keras
from attacks import Aim, Attempt
from reading_attacks import Row

# Nested configurations of Keras.


def _model(*attacks: keras.Config) -> keras.Config:
    """A model in a model, in the module that has its class."""
    config = keras.functional(*attacks)
    config["config"] = {**config["config"], "name": "inner"}
    module = {"module": "keras.src.engine.functional", "registered_name": "Functional"}
    return {**config, **module, "name": "inner"}


def _compiled(aim: Aim) -> keras.Config:
    """A harmless model that was compiled with a model that runs a program."""
    loss = _model(keras.calling("os", "system", str(aim.program)))
    return {**_model(), "compile_config": {"optimizer": "sgd", "loss": loss}}


def _dense(**settings: Any) -> keras.Config:
    return keras.layer("Dense", {"units": 3, **settings}, [["x", 0, 0, {}]])


def _constant(value: Any) -> keras.Config:
    named = {"module": "keras.initializers", "registered_name": None}
    return {"class_name": "Constant", "config": {"value": value}, **named}


def _words(**settings: Any) -> keras.Config:
    given = {"standardize": None, "split": None, "ngrams": None, "output_mode": "int"}
    return keras.layer("TextVectorization", {**given, **settings}, [["x", 0, 0, {}]])


def _embedding(**settings: Any) -> keras.Config:
    return keras.layer(
        "Embedding", {"input_dim": 2, "output_dim": 2, **settings}, [["x", 0, 0, {}]]
    )


# Those that are idle: tf_keras takes only the class and the settings of what is there.
NESTED: dict[str, tuple[Callable[[keras.Config], keras.Config], bool]] = {
    "value of an initializer": (lambda m: _dense(kernel_initializer=_constant(m)), False),
    "standardization of texts": (lambda m: _words(standardize=m), False),
    "split of texts": (lambda m: _words(split=m), False),
    "number of words": (lambda m: _embedding(input_dim=m), False),
    "size of an embedding": (lambda m: _embedding(output_dim=m), False),
    "layer": (lambda m: {**m, "inbound_nodes": [[["x", 0, 0, {}]]]}, True),
    "wrapped layer": (
        lambda m: keras.layer("TimeDistributed", {"layer": m}, [["x", 0, 0, {}]]), True
    ),
    "cell": (lambda m: keras.layer("RNN", {"cell": m}, [["x", 0, 0, {}]]), True),
    "activation": (lambda m: _dense(activation=m), True),
}  # fmt: skip


def _nested(path: Path, aim: Aim, *, place: str, suffix: str) -> Path:
    config = keras.functional(NESTED[place][0](_compiled(aim)))
    file = path.with_name(path.name + suffix)
    if suffix == ".h5":
        return keras.hdf5(file, {**config, "module": "keras", "registered_name": None})
    return keras.archive(file, config, version="2.15.0")


# Functions of wrappers of cells, which are bytecode.


def _wrapped_cell(path: Path, aim: Aim, *, wrapper: str, key: str, suffix: str) -> Path:
    cell = {"class_name": "SimpleRNNCell", "config": {"name": "c", "units": 2}}
    arguments = ("x", "y") if wrapper == "ResidualWrapper" else ("x",)
    settings = {"cell": cell, key: keras.dumped(aim, *arguments)}
    settings |= {f"{key}_type": "lambda", f"{key}_module": None}
    if wrapper == "DropoutWrapper":
        settings |= {"state_keep_prob": 0.5, "output_keep_prob": 1.0, "input_keep_prob": 1.0}
        settings |= {"variational_recurrent": False, "seed": 1}
    folded = keras.layer("Reshape", {"name": "folded", "target_shape": [2, 2]}, [["x", 0, 0, {}]])
    wrapped = {"class_name": wrapper, "config": settings}
    attack = keras.layer("RNN", {"cell": wrapped}, [["folded", 0, 0, {}]])
    config = keras.functional({**folded, "name": "folded"}, attack)
    file = path.with_name(path.name + suffix)
    if suffix == ".h5":
        return keras.hdf5(file, config)
    return keras.archive(file, config, version="2.15.0")


# Columns of features, which name files.


def _columns(path: Path, aim: Aim, *, suffix: str) -> Path:
    words = {"class_name": "VocabularyFileCategoricalColumn", "config": {
        "key": "w", "vocabulary_file": str(aim.canary), "vocabulary_size": 2,
        "num_oov_buckets": 0, "default_value": -1, "dtype": "string", "file_format": None,
    }}  # fmt: skip
    column = {"class_name": "IndicatorColumn", "config": {"categorical_column": words}}
    text_input = {
        "class_name": "InputLayer", "name": "w", "inbound_nodes": [],
        "config": {"batch_input_shape": [None, 1], "dtype": "string", "name": "w"},
    }  # fmt: skip
    settings = {"feature_columns": [column], "partitioner": None}
    attack = keras.layer("DenseFeatures", settings)
    attack["inbound_nodes"] = [{"w": ["w", 0, 0, {}]}]
    config = keras.functional(text_input, attack)
    config["config"]["input_layers"].append(["w", 0, 0])
    file = path.with_name(path.name + suffix)
    if suffix == ".h5":
        return keras.hdf5(file, config)
    return keras.archive(file, config, version="2.15.0")


# Files of two kinds.


def _harmless_archive(path: Path) -> bytes:
    packed = keras.archive(path.with_name("packed"), keras.functional(), version="2.15.0")
    content = packed.read_bytes()
    packed.unlink()
    return content


def _calling(aim: Aim) -> keras.Config:
    return keras.functional(keras.calling("os", "system", str(aim.program)))


def _archive_and_hdf5(path: Path, aim: Aim, *, suffix: str, at: int) -> Path:
    """HDF5 behind a user block that begins as an archive does, and an archive behind it."""
    packed = _harmless_archive(path)
    file = keras.hdf5(path.with_name(path.name + suffix), keras.functional(keras.bytecode(aim)))
    hidden = path.with_name("hidden")
    with h5py.File(hidden, "w", userblock_size=at) as to, h5py.File(file) as source:
        to.attrs.update(source.attrs)
        for name in source:
            source.copy(name, to)
    content = bytearray(hidden.read_bytes())
    hidden.unlink()
    content[:8] = packed[:8]
    file.write_bytes(bytes(content) + packed)
    return file


def _hdf5_and_archive(path: Path, aim: Aim, *, suffix: str) -> Path:
    """An archive behind an HDF5 file."""
    file = keras.hdf5(path.with_name(path.name + suffix), keras.functional())
    other = keras.archive(path.with_name("other"), _calling(aim), version="2.15.0")
    file.write_bytes(file.read_bytes() + other.read_bytes())
    other.unlink()
    return file


def _two_archives(path: Path, aim: Aim) -> Path:
    """One behind the other."""
    other = keras.archive(path.with_name("other"), _calling(aim), version="2.15.0")
    file = path.with_name(path.name + ".keras")
    file.write_bytes(other.read_bytes() + _harmless_archive(path))
    other.unlink()
    return file


def _with_member(path: Path, aim: Aim, *, name: str) -> Path:
    """A harmless archive, with a hostile one or its configuration in it."""
    other = keras.archive(path.with_name("other"), _calling(aim), version="2.15.0")
    content = other.read_bytes()
    if name.lower().endswith(".json"):
        with zipfile.ZipFile(other) as held:
            content = held.read("config.json")
    other.unlink()
    file = path.with_name(path.name + ".keras")
    keras.archive(file, keras.functional(), version="2.15.0")
    with zipfile.ZipFile(file, "a") as held:
        held.writestr(name, content)
    return file


def _renamed(path: Path, aim: Aim, *, times: int) -> Path:
    """A second config.json: by the name before its content, and by that in the archive's list."""
    file = _with_member(path, aim, name="zonfig.json")
    file.write_bytes(file.read_bytes().replace(b"zonfig.json", b"config.json", times))
    return file


def _comment(path: Path, aim: Aim) -> Path:
    """An archive that ends in a comment with another one."""
    other = keras.archive(path.with_name("other"), _calling(aim), version="2.15.0")
    file = path.with_name(path.name + ".keras")
    keras.archive(file, keras.functional(), version="2.15.0")
    with zipfile.ZipFile(file, "a") as held:
        held.comment = other.read_bytes()[:60000]
    other.unlink()
    return file


def _key_twice(path: Path, aim: Aim, *, suffix: str) -> Path:
    """A key of the configuration twice, of which Python takes the last."""
    attack = keras.bytecode(aim)
    if suffix == ".keras":
        attack = keras.calling("os", "system", str(aim.program))
    harmless, hostile = (
        json.dumps(keras.functional(*each)["config"]["layers"]) for each in ((), (attack,))
    )
    config = keras.functional()
    both = json.dumps({**config, "module": "keras.src.engine.functional"})
    both = both.replace(f'"layers": {harmless}', f'"layers": {harmless}, "layers": {hostile}')
    file = path.with_name(path.name + suffix)
    if suffix == ".h5":
        keras.hdf5(file, config)
        with h5py.File(file, "a") as held:
            held.attrs["model_config"] = both
        return file
    return keras.archive(file, config, version="2.15.0", members={"config.json": both.encode()})


def _keras() -> Iterator[Row]:
    for suffix in (".keras", ".h5"):
        for place, (_, is_idle) in NESTED.items():
            name = f"{suffix[1:]} compiled in {place}"
            write = partial(_nested, place=place, suffix=suffix)
            yield Row(
                name,
                "start",
                write,
                _SETTINGS_ONLY if is_idle or suffix == ".h5" else "",
                is_refused=False,
            )
        yield Row(f"{suffix[1:]} column of words", "read", partial(_columns, suffix=suffix))
        attempts: Attempt = "write" if suffix == ".h5" else "start"
        yield Row(f"{suffix[1:]} key twice", attempts, partial(_key_twice, suffix=suffix))
        for wrapper, key in (("ResidualWrapper", "residual_fn"), ("DropoutWrapper", "dropout_fn")):
            write = partial(_wrapped_cell, wrapper=wrapper, key=key, suffix=suffix)
            why = "tf_keras refuses it by itself" if suffix == ".keras" else ""
            yield Row(f"{suffix[1:]} bytecode of a {wrapper}", "write", write, why)
    for suffix, at in _BOTH:
        write = partial(_archive_and_hdf5, suffix=suffix, at=at)
        why = "both read the archive" if suffix == ".keras" else ""
        yield Row(f"{suffix[1:]} and HDF5 at {at}", "write", write, why)
    for suffix in (".h5", ".H5", ".HDF5"):
        write = partial(_hdf5_and_archive, suffix=suffix)
        yield Row(f"{suffix[1:]} and archive", "start", write, "both read the HDF5")
    yield Row("archive behind an archive", "start", _two_archives, _ONE_READER, is_refused=False)
    for name in ("inner.keras", "CONFIG.JSON"):
        write = partial(_with_member, name=name)
        yield Row(f"archive with {name}", "start", write, _ONE_READER, is_refused=False)
    yield Row("archive with config.json twice", "start", partial(_renamed, times=2))
    write = partial(_renamed, times=1)
    yield Row("archive with another local name", "start", write, _ONE_READER)
    yield Row("archive in a comment", "start", _comment)


_BOTH = (
    *((".KERAS", at) for at in (512, 1024, 2048, 8192, 65536)),
    *((".keras", 512), (".Keras", 512), (".kERAS", 4096)),
)
_SETTINGS_ONLY = "tf_keras takes only the class and the settings there"
_ONE_READER = "Keras reads archives with Python's own module, as the scan does"

READINGS = tuple(_keras())
