"""One harness for each parser of foreign bytes that runs in the user's own process.

A harness gives a parser bytes as they come from a model, a project or a data set, and reads on as
the commands do. Only an `EdgeconvError` may come out. What runs in a child process only is not
here: HDF5, data sets, and everything of TensorFlow.
"""

import contextlib
import hashlib
import io
import json
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import embed_updates
import foreign_seeds
import msgspec
import mutators
import numpy as np
from tiny_saved_model import block, number
from tiny_tflite import float_model, int8_model, packed, packed_with_weights_outside

from edgeconv import types as nouns
from edgeconv.data.arrays import StoredRows, read_array
from edgeconv.data.location import identity, parse_source, runs_code
from edgeconv.data.preprocessing import describe, parse_preprocessing
from edgeconv.data.samples import SamplesFile, read_samples
from edgeconv.embedding.embedding import WriteJournal
from edgeconv.embedding.plan import find_published, read_labels
from edgeconv.model.source.keras_files import KerasReadJob, content_of, decoded, read_archive_here
from edgeconv.model.source.saved_model import read_saved_model, serving_copy
from edgeconv.model.source.scanning.keras_files import scan_config
from edgeconv.model.source.scanning.nodes import Findings
from edgeconv.model.source.scanning.refusing import (
    scan_keras_metadata,
    scan_saved_model,
    scan_tflite,
)
from edgeconv.model.tflite import oldest_runtime, summarize, summary
from edgeconv.model.tflite.arena import arena_bytes
from edgeconv.model.tflite.layers import float_layers
from edgeconv.model.tflite.metadata import graph_names
from edgeconv.model.tflite.operators import likely_recipe
from edgeconv.reporting.files import read_report, require_passed
from edgeconv.requests.config import lock
from edgeconv.requests.config.tables import read_config
from edgeconv.requests.texts import KEYED_SOURCE, STEPS, source_within
from edgeconv.system.store import read_noun
from edgeconv.system.store.files import refuse_pointer
from edgeconv.types import Accuracy, Artifact, Lock, LockedModel, LockedStage, Report
from edgeconv.types.errors import EdgeconvError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from collections.abc import Callable

Target = Callable[[bytes], None]


Noun = TypeVar("Noun")
_DEEPEST = 7


def example_of(kind: type[Noun]) -> Noun:
    """A value of this type. Lists and tables have one item, as deep as nouns are in one another."""
    return msgspec.convert(_value(msgspec.inspect.type_info(kind), 0), kind)


def _value(kind: Any, depth: int) -> Any:
    inspect = msgspec.inspect
    if isinstance(kind, inspect.StructType):
        fields = (f for f in kind.fields if f.required or depth < _DEEPEST)
        tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
        return tag | {field.encode_name: _value(field.type, depth + 1) for field in fields}
    if isinstance(kind, inspect.UnionType):
        # None stands among them where a value may be missing.
        return _value(
            max(kind.types, key=lambda each: not isinstance(each, inspect.NoneType)), depth
        )
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.TupleType):
        return [_value(each, depth + 1) for each in kind.item_types]
    if isinstance(kind, inspect.DictType):
        return {_value(kind.key_type, depth): _value(kind.value_type, depth + 1)}
    if hasattr(kind, "item_type"):
        return [_value(kind.item_type, depth + 1)]
    plain = {
        inspect.BoolType: True,
        inspect.IntType: 3,
        inspect.FloatType: 0.5,
        inspect.StrType: "a",
    }
    return plain.get(type(kind))


class Harness(NamedTuple):
    """A parser: what it is given to begin with, and a function that opens it in a directory."""

    name: str
    seeds: Callable[[], list[bytes]]
    open: Callable[[Path], Target]
    mutate: mutators.Mutator | None = None
    longest_bytes: int = 4096


def _each(*reads: Callable[[], object]) -> None:
    """Call all of them. Raises the last error where none could read."""
    errors: list[EdgeconvError] = []
    for read in reads:
        try:
            read()
        except EdgeconvError as error:
            errors.append(error)
    if len(errors) == len(reads):
        raise errors[-1]


def _file(name: str, *reads: Callable[[Path], object]) -> Callable[[Path], Target]:
    """A target for each directory: it writes its bytes to a file, and reads that in each way."""

    def opened(directory: Path) -> Target:
        path = directory / name

        def run(data: bytes) -> None:
            path.write_bytes(data)
            _each(*(partial(read, path) for read in reads))

        return run

    return opened


def _scanned(path: Path, scan: Callable[..., object], *arguments: Any, **options: Any) -> None:
    findings = Findings()
    scan(path, findings, *arguments, **options)
    findings.all()


def _encoded(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


# .tflite


def _tflite_seeds() -> list[bytes]:
    return [
        packed(float_model()),
        packed(float_model(signature=("serving_default", ["a"], ["b"]))),
        packed(int8_model()),
        packed_with_weights_outside(float_model()),
        embed_updates.model(),
        *foreign_seeds.tflite_files(),
    ]


_TFLITE_READERS: tuple[Callable[[bytes], object], ...] = (
    lambda data: oldest_runtime(data, "m"),
    lambda data: likely_recipe(data, where="m"),
    lambda data: summary.vocabularies(data, where="m"),
    lambda data: summary.tensor_specs(data, where="m"),
    lambda data: summary.layers_of_graphs(data, where="m"),
    lambda data: summary.output_steps(data, "serving_default"),
    summary.activation_bounds,
    summary.largest_scales,
    graph_names,
    arena_bytes,
    float_layers,
)


def _tflite(data: bytes) -> None:
    summarize(data, where="m")
    _each(*(partial(reader, data) for reader in _TFLITE_READERS))


def _tflite_scan(path: Path) -> None:
    if path.stat().st_size:  # No command comes here with an empty file.
        _scanned(path, scan_tflite)


# SavedModels


def _saved_model(path: Path) -> None:
    directory = path.parent
    content = read_saved_model(directory)
    for tags in content.tag_sets:
        if tags:
            read_saved_model(directory, tags)
    if content.tag_sets and content.tag_sets != (("serve",),):
        with tempfile.TemporaryDirectory(dir=directory) as copy:
            serving_copy(directory, content.tag_sets[0], Path(copy, "copy"))


def _saved_model_scan(path: Path) -> None:
    _scanned(path.parent, scan_saved_model, frozenset(), reads_layers=False)


def _keras_metadata_seeds() -> list[bytes]:
    layer = {"class_name": "Dense", "config": {"name": "d", "units": 3}, "shared_object_id": 1}
    node = number(2, 1) + block(3, "root.layer-0") + block(4, "_tf_keras_layer")
    return [block(1, node + block(5, json.dumps(layer)) + block(6, number(1, 1)))]


def _keras_metadata(path: Path) -> None:
    _scanned(path, scan_keras_metadata, frozenset(), is_read=True)


# Keras


def _keras_config_seeds() -> list[bytes]:
    return [json.dumps(config).encode() for config in foreign_seeds.keras_configs()]


def _keras_config(data: bytes) -> None:
    config = decoded(Path("m.keras"), "config.json", data)
    findings = Findings()
    scan_config(config, findings, frozenset({"mine"}), where="config.json")
    findings.all()
    content_of(config, "2.15.0", 12, is_zip=True)
    content_of(config, b"3.1", None, is_zip=False)


def _keras_archive_seeds() -> list[bytes]:
    found = []
    for config in foreign_seeds.keras_configs()[:3]:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("metadata.json", '{"keras_version": "3.15.0"}')
            archive.writestr("config.json", json.dumps(config))
            archive.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n")
        found.append(packed.getvalue())
    return found


def _keras_archive(path: Path) -> None:
    read_archive_here(KerasReadJob(path=str(path)))


# Files of a project

_NOUNS: tuple[Any, ...] = (
    *(Artifact, nouns.Embedded, nouns.LastCheck, Report, nouns.Stamp, nouns.TrainingRecord),
    *(nouns.Tuning, nouns.TuningTrial, SamplesFile, WriteJournal),
)


def _noun_seeds() -> list[bytes]:
    return [msgspec.json.encode(example_of(kind)) for kind in _NOUNS]


_nouns = _file("m.json", *(partial(read_noun, kind=kind, what=kind.__name__) for kind in _NOUNS))


def _manifest_seeds() -> list[bytes]:
    sha256 = hashlib.sha256(_tflite_seeds()[0]).hexdigest()
    made = msgspec.structs.replace(example_of(Artifact), file="m.tflite", sha256=sha256)
    return [msgspec.json.encode(made), b"{}", b'{"name": "m"}']


def _manifest(directory: Path) -> Target:
    model = directory / "m.tflite"
    model.write_bytes(_tflite_seeds()[0])
    sha256 = hashlib.sha256(_tflite_seeds()[0]).hexdigest()

    def run(data: bytes) -> None:
        for name in ("m.json", "m.verdict.json"):
            (directory / name).write_bytes(data)
        _each(
            lambda: find_published(model),
            lambda: find_published(model.with_suffix(".json")),
            lambda: require_passed(model, sha256, is_required=True),
        )

    return run


def _report_seeds() -> list[bytes]:
    return [msgspec.json.encode(example_of(Report)), b'{"format": 1}']


def _lock_seeds() -> list[bytes]:
    right = "110" * 6 + "11"
    classes = tuple(index % 4 for index in range(20))
    accuracy = Accuracy(metric="top1", value=0.7, samples=20, correct=right, predicted=classes)
    stages = tuple(
        LockedStage(name=name, role="artifact", sha256="0" * 64, size_bytes=9, accuracy=accuracy)
        for name in ("a", "b")
    )
    model = LockedModel(
        name="m", inputs={"source": "0" * 64}, test_sha256="0" * 64, test_samples=20, stages=stages
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "edgeconv.lock"
        lock.write(Lock(models={"m": model}), path)
        return [path.read_bytes(), b"format = 1\n", b"format = 2\n"]


def _lock(path: Path) -> None:
    with contextlib.suppress(EdgeconvError):
        lock.accepted_hashes(path, "m")
    # The second as whoever computes the checksum anew can write it.
    _each(lambda: lock.read(path), lambda: _signed(path) and lock.read(path))


def _signed(path: Path) -> bool:
    """Write the tables of a lock with the checksums that they should have."""
    with contextlib.suppress(ValueError, RecursionError):
        found = tomllib.loads(path.read_bytes().decode()).get("model")
        if isinstance(found, dict):
            tables = {name: _checked(name, table) for name, table in found.items()}
            path.write_text(f"format = 1\n{lock.as_text({'model': tables})}", encoding="utf-8")
            return True
    return False


def _checked(name: str, table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    facts = {key: value for key, value in table.items() if key != lock.CHECKSUM}
    return {lock.CHECKSUM: lock.checksum(name, facts), **facts}


_config_seeds = _encoded(
    '[model.mnist]\nsource = "models/mnist"\nslices = "s.txt"\n[model.mnist.budget]\n'
    'max-slice-drop = 0.1\n[model.mnist.convert]\nto = ["int8", "float16"]\n'
    'test = "npz:x.npz?labels=y"\n',
    "[convert]\nto = 'int8,dynamic'\n[budget]\nmax-size-ratio = 0.5\n"
    "max-accuracy-drop = { limit = 0.01, severity = 'warn' }\n[budget.recipe.int8]\n"
    'allowed-operators = ["CONV_2D"]\noldest-runtime = "2.14.0"\n',
    '[tool.edgeconv.budget]\nmin-accuracy = 0.9\n[tool.edgeconv.model."a.b"]\nsource="x"\n',
    "a.b.c = 1979-05-27T07:32:00Z\n'' = '''\n'''\n[[x]]\ny = { z = [1, 0x1f, inf] }\n",
)


def _config(path: Path) -> None:
    other = path.with_name("pyproject.toml")
    other.write_bytes(path.read_bytes())
    _each(partial(_config_of, path), partial(_config_of, other))


def _config_of(path: Path) -> None:
    for model in read_config(path).models.values():
        test = model.tables.get("convert", {}).get("test")
        if isinstance(test, str):
            for kind in (KEYED_SOURCE, STEPS):
                kind.within(kind.parse(test), path.parent)


_text_seeds = _encoded(
    "npz:x.npz?labels=y&count=3",
    "images:folder?classes=c.txt&size=3",
    "module.sub:function",
    "./a:b.npz",
    "tfds:mnist/1?split=test[:10%]",
    "resize=224x224&scale=1/255&mean=0.5,0.5,0.5",
    "image.scale=1/255&dtype=uint8",
    "none",
    "wavs:s?rate=16000",
)


def _text(directory: Path) -> Target:
    def run(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        _each(partial(parse_preprocessing, text))
        source = parse_source(text)
        assert parse_source(str(source)) == source
        _each(partial(runs_code, source), partial(identity, source))
        source_within(source, directory)

    return run


_toml_seeds = _encoded(
    "[preprocess]\nscale = 0.5\nresize = [3, 4]\n[preprocess.input.a]\nmean = [1, 2.5]\n",
    '[preprocess]\nscale = "1/255"\nlayout = "nchw"\ndtype = "uint8"\n',
)


def _preprocessing(path: Path) -> None:
    steps = parse_preprocessing(str(path))
    # What is said of them is read again.
    assert parse_preprocessing(describe(steps)) == steps


def _labels(path: Path) -> None:
    refuse_pointer(path)
    read_labels(path)


def _npy_seeds() -> list[bytes]:
    found = []
    for array in (np.zeros((2, 3), "f4"), np.array([b"ab\xff", b"c\xff"]), np.arange(4)):
        packed = io.BytesIO()
        np.save(packed, array)
        found.append(packed.getvalue())
    return found


def _npy(directory: Path) -> Target:
    (directory / "samples.json").write_text(
        json.dumps({"names": ["x"], "count": 2, "source": "s"}), encoding="utf-8"
    )

    def run(data: bytes) -> None:
        for name in ("0.npy", "labels.npy"):
            (directory / name).write_bytes(data)
        with contextlib.suppress(EdgeconvError):
            read_samples(directory)
        with contextlib.suppress(EdgeconvError):
            StoredRows(directory / "0.npy")[0]
        read_array(io.BytesIO(data), len(data), "x")

    return run


HARNESSES = {
    harness.name: harness
    for harness in (
        Harness("tflite", _tflite_seeds, lambda _: _tflite, mutators.mutate_tflite),
        Harness(
            "tflite-scan", _tflite_seeds, _file("m.tflite", _tflite_scan), mutators.mutate_tflite
        ),
        Harness(
            "saved-model",
            foreign_seeds.saved_models,
            _file("saved_model.pb", _saved_model),
            mutators.mutate_message,
        ),
        Harness(
            "saved-model-scan",
            foreign_seeds.saved_models,
            _file("saved_model.pb", _saved_model_scan),
            mutators.mutate_message,
        ),
        Harness(
            "keras-metadata",
            _keras_metadata_seeds,
            _file("keras_metadata.pb", _keras_metadata),
            mutators.mutate_message,
        ),
        Harness("keras-config", _keras_config_seeds, lambda _: _keras_config, mutators.mutate_json),
        Harness(
            "keras-archive",
            _keras_archive_seeds,
            _file("m.keras", _keras_archive),
            mutators.mutate_zip,
        ),
        Harness("nouns", _noun_seeds, _nouns, mutators.mutate_json, 16384),
        Harness("manifest", _manifest_seeds, _manifest, mutators.mutate_json),
        Harness(
            "report", _report_seeds, _file("report.json", read_report), mutators.mutate_json, 16384
        ),
        Harness("lock", _lock_seeds, _file("edgeconv.lock", _lock), mutators.mutate_lines),
        Harness(
            "configuration", _config_seeds, _file("edgeconv.toml", _config), mutators.mutate_lines
        ),
        Harness("source-text", _text_seeds, _text, longest_bytes=300),
        Harness(
            "preprocessing", _toml_seeds, _file("steps.toml", _preprocessing), mutators.mutate_lines
        ),
        Harness("labels", _text_seeds, _file("labels.txt", _labels), longest_bytes=300),
        Harness("npy", _npy_seeds, _npy, longest_bytes=600),
    )
}
