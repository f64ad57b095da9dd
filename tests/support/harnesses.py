"""One harness for each parser of foreign bytes that runs in the user's own process.

A harness gives a parser bytes as they come from a model, a project or a data set, and reads on as
the commands do. Only an `EdgeconvError` may come out. What runs in a child process only is not
here: HDF5, data sets, and everything of TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import mutators

from edgeconv.types.errors import EdgeconvError

if TYPE_CHECKING:
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


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


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


# .tflite


def _tflite_seeds() -> list[bytes]:
    import embed_updates
    import foreign_seeds
    from tiny_tflite import float_model, int8_model, packed, packed_with_weights_outside

    return [
        packed(float_model()),
        packed(float_model(signature=("serving_default", ["a"], ["b"]))),
        packed(int8_model()),
        packed_with_weights_outside(float_model()),
        embed_updates.model(),
        *foreign_seeds.tflite_files(),
    ]


def _tflite(_: Path) -> Target:
    from edgeconv.model.tflite import oldest_runtime, summarize
    from edgeconv.model.tflite.arena import arena_bytes
    from edgeconv.model.tflite.layers import float_layers
    from edgeconv.model.tflite.metadata import graph_names
    from edgeconv.model.tflite.operators import likely_recipe
    from edgeconv.model.tflite.summary import (
        activation_bounds,
        largest_scales,
        layers_of_graphs,
        output_steps,
        tensor_specs,
        vocabularies,
    )

    readers: tuple[Callable[[bytes], object], ...] = (
        lambda data: oldest_runtime(data, "m"),
        lambda data: likely_recipe(data, where="m"),
        lambda data: vocabularies(data, where="m"),
        lambda data: tensor_specs(data, where="m"),
        lambda data: layers_of_graphs(data, where="m"),
        lambda data: output_steps(data, "serving_default"),
        activation_bounds,
        largest_scales,
        graph_names,
        arena_bytes,
        float_layers,
    )

    def run(data: bytes) -> None:
        summarize(data, where="m")
        _each(*(partial(reader, data) for reader in readers))

    return run


def _tflite_scan(directory: Path) -> Target:
    from edgeconv.model.source.scanning.nodes import Findings
    from edgeconv.model.source.scanning.refusing import scan_tflite

    path = directory / "m.tflite"

    def run(data: bytes) -> None:
        # No command comes here with an empty file.
        path.write_bytes(data or b"\0")
        findings = Findings()
        scan_tflite(path, findings)
        findings.all()

    return run


# SavedModels


def _saved_model_seeds() -> list[bytes]:
    import foreign_seeds

    return foreign_seeds.saved_models()


def _saved_model(directory: Path) -> Target:
    from edgeconv.model.source.saved_model import read_saved_model, serving_copy

    def run(data: bytes) -> None:
        (directory / "saved_model.pb").write_bytes(data)
        content = read_saved_model(directory)
        for tags in content.tag_sets:
            if tags:
                read_saved_model(directory, tags)
        if content.tag_sets and content.tag_sets != (("serve",),):
            _emptied(directory / "copy")
            serving_copy(directory, content.tag_sets[0], directory / "copy")

    return run


def _emptied(directory: Path) -> None:
    if directory.exists():
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def _saved_model_scan(directory: Path) -> Target:
    from edgeconv.model.source.scanning.nodes import Findings
    from edgeconv.model.source.scanning.refusing import scan_saved_model

    def run(data: bytes) -> None:
        (directory / "saved_model.pb").write_bytes(data)
        findings = Findings()
        scan_saved_model(directory, findings, frozenset(), reads_layers=False)
        findings.all()

    return run


def _keras_metadata_seeds() -> list[bytes]:
    from tiny_saved_model import block, number

    layer = {"class_name": "Dense", "config": {"name": "d", "units": 3}, "shared_object_id": 1}
    node = number(2, 1) + block(3, "root.layer-0") + block(4, "_tf_keras_layer")
    return [block(1, node + block(5, json.dumps(layer)) + block(6, number(1, 1)))]


def _keras_metadata(directory: Path) -> Target:
    from edgeconv.model.source.scanning.nodes import Findings
    from edgeconv.model.source.scanning.refusing import scan_keras_metadata

    path = directory / "keras_metadata.pb"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        findings = Findings()
        scan_keras_metadata(path, findings, frozenset(), is_read=True)
        findings.all()

    return run


# Keras


def _keras_config_seeds() -> list[bytes]:
    import foreign_seeds

    return [json.dumps(config).encode() for config in foreign_seeds.keras_configs()]


def _keras_config(_: Path) -> Target:
    from edgeconv.model.source.keras_files import content_of, decoded
    from edgeconv.model.source.scanning.keras_files import scan_config
    from edgeconv.model.source.scanning.nodes import Findings

    def run(data: bytes) -> None:
        config = decoded(Path("m.keras"), "config.json", data)
        findings = Findings()
        scan_config(config, findings, frozenset({"mine"}), where="config.json")
        findings.all()
        content_of(config, "2.15.0", 12, is_zip=True)
        content_of(config, b"3.1", None, is_zip=False)

    return run


def _keras_archive_seeds() -> list[bytes]:
    import foreign_seeds

    found = []
    for config in foreign_seeds.keras_configs()[:3]:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("metadata.json", '{"keras_version": "3.15.0"}')
            archive.writestr("config.json", json.dumps(config))
            archive.writestr("model.weights.h5", b"\x89HDF\r\n\x1a\n")
        found.append(packed.getvalue())
    return found


def _keras_archive(directory: Path) -> Target:
    from edgeconv.model.source.keras_files import KerasReadJob, read_archive_here

    path = directory / "m.keras"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        read_archive_here(KerasReadJob(path=str(path)))

    return run


# Files of a project


def _noun_types() -> dict[str, Any]:
    from edgeconv import types as nouns
    from edgeconv.data.samples import SamplesFile
    from edgeconv.embedding.embedding import WriteJournal

    names = [
        "Artifact",
        "Embedded",
        "LastCheck",
        "Report",
        "Stamp",
        "TrainingRecord",
        "Tuning",
        "TuningTrial",
    ]
    return {name: getattr(nouns, name) for name in names} | {
        "SamplesFile": SamplesFile,
        "WriteJournal": WriteJournal,
    }


def _noun_seeds() -> list[bytes]:
    import msgspec

    return [msgspec.json.encode(example_of(kind)) for kind in _noun_types().values()]


def _nouns(directory: Path) -> Target:
    from edgeconv.system.store import read_noun

    path = directory / "m.json"
    types = _noun_types()

    def run(data: bytes) -> None:
        path.write_bytes(data)
        _each(*(partial(read_noun, path, kind, what=name) for name, kind in types.items()))

    return run


def _manifest_seeds() -> list[bytes]:
    import msgspec

    from edgeconv.types import Artifact

    sha256 = hashlib.sha256(_tflite_seeds()[0]).hexdigest()
    made = msgspec.structs.replace(example_of(Artifact), file="m.tflite", sha256=sha256)
    return [msgspec.json.encode(made), b"{}", b'{"name": "m"}']


def _manifest(directory: Path) -> Target:
    from edgeconv.embedding.plan import find_published
    from edgeconv.reporting.files import require_passed

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


def _report(directory: Path) -> Target:
    from edgeconv.reporting.files import read_report

    path = directory / "report.json"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        read_report(path)

    return run


def _report_seeds() -> list[bytes]:
    import msgspec

    from edgeconv.types import Report

    return [msgspec.json.encode(example_of(Report)), b'{"format": 1}']


def _lock_seeds() -> list[bytes]:
    import tempfile

    from edgeconv.requests.config import lock
    from edgeconv.types import Accuracy, Lock, LockedModel, LockedStage

    right = "110" * 6 + "11"
    classes = tuple(index % 4 for index in range(20))
    accuracy = Accuracy(metric="top1", value=0.7, samples=20, correct=right, predicted=classes)
    stages = tuple(
        LockedStage(name=name, role="artifact", sha256="0" * 64, size_bytes=9, accuracy=accuracy)
        for name in ("a", "b")
    )
    model = LockedModel(
        name="m",
        inputs={"source": "0" * 64},
        test_sha256="0" * 64,
        test_samples=20,
        stages=stages,
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "edgeconv.lock"
        lock.write(Lock(models={"m": model}), path)
        return [path.read_bytes(), b"format = 1\n", b"format = 2\n"]


def _lock(directory: Path) -> Target:
    from edgeconv.requests.config import lock
    from edgeconv.requests.config.lock import accepted_hashes

    path = directory / "edgeconv.lock"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        with contextlib.suppress(EdgeconvError):
            accepted_hashes(path, "m")
        _each(
            lambda: lock.read(path),
            # As whoever computes the checksum anew can write it.
            lambda: _signed(path, data) and lock.read(path),
        )

    return run


def _signed(path: Path, data: bytes) -> bool:
    """Write the tables of a lock with the checksums that they should have."""
    from edgeconv.requests.config.lock import as_text

    with contextlib.suppress(ValueError, RecursionError):
        found = tomllib.loads(data.decode()).get("model")
        if isinstance(found, dict):
            tables = {name: _checked(name, table) for name, table in found.items()}
            path.write_text(f"format = 1\n{as_text({'model': tables})}", encoding="utf-8")
            return True
    return False


def _checked(name: str, table: Any) -> Any:
    from edgeconv.requests.config.lock import CHECKSUM, checksum

    if not isinstance(table, dict):
        return table
    facts = {key: value for key, value in table.items() if key != CHECKSUM}
    return {CHECKSUM: checksum(name, facts), **facts}


def _config_seeds() -> list[bytes]:
    texts = (
        '[model.mnist]\nsource = "models/mnist"\nslices = "s.txt"\n[model.mnist.budget]\n'
        'max-slice-drop = 0.1\n[model.mnist.convert]\nto = ["int8", "float16"]\n'
        'test = "npz:x.npz?labels=y"\n',
        "[convert]\nto = 'int8,dynamic'\n[budget]\nmax-size-ratio = 0.5\n"
        "max-accuracy-drop = { limit = 0.01, severity = 'warn' }\n[budget.recipe.int8]\n"
        'allowed-operators = ["CONV_2D"]\noldest-runtime = "2.14.0"\n',
        '[tool.edgeconv.budget]\nmin-accuracy = 0.9\n[tool.edgeconv.model."a.b"]\nsource="x"\n',
        "a.b.c = 1979-05-27T07:32:00Z\n'' = '''\n'''\n[[x]]\ny = { z = [1, 0x1f, inf] }\n",
    )
    return [text.encode() for text in texts]


def _config(directory: Path) -> Target:
    from edgeconv.requests.config.tables import read_config
    from edgeconv.requests.texts import KEYED_SOURCE, STEPS

    paths = (directory / "edgeconv.toml", directory / "pyproject.toml")

    def run(data: bytes) -> None:
        for path in paths:
            path.write_bytes(data)
        _each(*(partial(read, path) for path in paths))

    def read(path: Path) -> None:
        config = read_config(path)
        for model in config.models.values():
            test = model.tables.get("convert", {}).get("test")
            if isinstance(test, str):
                for kind in (KEYED_SOURCE, STEPS):
                    kind.within(kind.parse(test), directory)

    return run


def _text_seeds() -> list[bytes]:
    texts = (
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
    return [text.encode() for text in texts]


def _text(directory: Path) -> Target:
    from edgeconv.data.location import identity, parse_source, runs_code
    from edgeconv.data.preprocessing import parse_preprocessing
    from edgeconv.requests.texts import source_within

    def run(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        _each(partial(parse_preprocessing, text))
        source = parse_source(text)
        assert parse_source(str(source)) == source
        _each(partial(runs_code, source), partial(identity, source))
        source_within(source, directory)

    return run


def _toml_seeds() -> list[bytes]:
    return [
        b"[preprocess]\nscale = 0.5\nresize = [3, 4]\n[preprocess.input.a]\nmean = [1, 2.5]\n",
        b'[preprocess]\nscale = "1/255"\nlayout = "nchw"\ndtype = "uint8"\n',
    ]


def _preprocessing(directory: Path) -> Target:
    from edgeconv.data.preprocessing import describe, parse_preprocessing

    path = directory / "steps.toml"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        steps = parse_preprocessing(str(path))
        # What is said of them is read again.
        assert parse_preprocessing(describe(steps)) == steps

    return run


def _lines(directory: Path) -> Target:
    from edgeconv.embedding.plan import read_labels
    from edgeconv.system.store.files import refuse_pointer

    path = directory / "labels.txt"

    def run(data: bytes) -> None:
        path.write_bytes(data)
        refuse_pointer(path)
        read_labels(path)

    return run


def _npy_seeds() -> list[bytes]:
    import numpy as np

    found = []
    for array in (np.zeros((2, 3), "f4"), np.array([b"ab\xff", b"c\xff"]), np.arange(4)):
        packed = io.BytesIO()
        np.save(packed, array)
        found.append(packed.getvalue())
    return found


def _npy(directory: Path) -> Target:
    from edgeconv.data.arrays import StoredRows, read_array
    from edgeconv.data.samples import read_samples

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
        Harness("tflite", _tflite_seeds, _tflite, mutators.mutate_tflite),
        Harness("tflite-scan", _tflite_seeds, _tflite_scan, mutators.mutate_tflite),
        Harness("saved-model", _saved_model_seeds, _saved_model, mutators.mutate_message),
        Harness("saved-model-scan", _saved_model_seeds, _saved_model_scan, mutators.mutate_message),
        Harness("keras-metadata", _keras_metadata_seeds, _keras_metadata, mutators.mutate_message),
        Harness("keras-config", _keras_config_seeds, _keras_config, mutators.mutate_json),
        Harness("keras-archive", _keras_archive_seeds, _keras_archive, mutators.mutate_zip),
        Harness("nouns", _noun_seeds, _nouns, mutators.mutate_json, 16384),
        Harness("manifest", _manifest_seeds, _manifest, mutators.mutate_json),
        Harness("report", _report_seeds, _report, mutators.mutate_json, 16384),
        Harness("lock", _lock_seeds, _lock, mutators.mutate_lines),
        Harness("configuration", _config_seeds, _config, mutators.mutate_lines),
        Harness("source-text", _text_seeds, _text, longest_bytes=300),
        Harness("preprocessing", _toml_seeds, _preprocessing, mutators.mutate_lines),
        Harness("labels", _text_seeds, _lines, longest_bytes=300),
        Harness("npy", _npy_seeds, _npy, longest_bytes=600),
    )
}
