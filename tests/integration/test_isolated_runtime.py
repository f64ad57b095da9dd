"""What is said of the oldest runtime, held against the runtime of older devices itself."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.schema_py_generated import BuiltinOperator
from edge_models import images
from started import starts
from tiny_tflite import Graph, float_model, int8_model, packed

from edgeconv.data import Samples, write_samples
from edgeconv.model.tflite import oldest_runtime, summarize
from edgeconv.model.tflite.compatibility import Release, parse_release, releases
from edgeconv.quantize.worker import GraphFile, QuantizeJob, QuantizePart, quantize
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.choice import parse_target_runtime
from edgeconv.runtimes.isolated import installed, isolated_target
from edgeconv.runtimes.local import RuntimePython, start_run
from edgeconv.statistics.outputs import output_errors
from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import PersistentChild
from edgeconv.types import Signature
from edgeconv.types.errors import ToolFailed

OLD: Release = (2, 14, 0)
# Kernels of two runtimes round differently; a wrong one is not even near.
MIN_SNR_DB = 25.0

# Loads every model of a directory, each in a process of its own, and says which have an
# operator that this runtime does not have.
LOAD_ALL = """
import json, os, sys
from tflite_runtime.interpreter import Interpreter
absent = []
for name in sorted(os.listdir(sys.argv[1])):
    theirs, ours = os.pipe()
    if os.fork() == 0:
        try:
            Interpreter(model_path=os.path.join(sys.argv[1], name))
        except (ValueError, RuntimeError) as error:
            os.write(ours, str(error).encode()[:200])
        os._exit(0)
    os.close(ours)
    said = os.read(theirs, 200).decode()
    os.close(theirs)
    os.wait()
    if "Didn't find op" in said or "builtin_code out of range" in said:
        absent.append(name)
print(json.dumps(absent))
"""


def test_the_environment_is_complete_and_is_found_again_without_a_process(
    old_runtime, old_cache, monkeypatch
):
    ready = installed(old_runtime)
    assert ready.runtime == "tflite_runtime 2.14.0"
    assert ready.packages["tflite-runtime"] == "2.14.0"
    assert ready.packages["numpy"].startswith("1.")
    assert 0 < ready.seconds < 600
    # The wreck that was there before was cleared away.
    directory = Path(old_runtime.python).parents[2]
    assert {path.name for path in directory.iterdir()} == {
        *("venv", "ready.json", "log.txt", ".in-use")
    }
    # Its files are those of uv's cache.
    (library,) = (directory / "venv" / "lib").glob("python*/site-packages/numpy/__init__.py")
    assert library.stat().st_nlink > 1
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(old_cache))
    with starts() as started:
        assert isolated_target(parse_target_runtime("tflite-runtime")) == old_runtime
    assert not started


def test_every_operator_version_is_there_or_not_as_the_table_says(tmp_path, old_runtime):
    """Every builtin operator, at each version up to two beyond the last known."""
    table = releases()
    known = {name: 0 for name in vars(BuiltinOperator) if name[0] != "_"}
    for name, version in table:
        known[name] = max(known[name], version)
    for name in ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"):
        del known[name]
    asked = {(name, v) for name, last in known.items() for v in range(1, last + 3)}
    models = tmp_path / "models"
    models.mkdir()
    for name, version in asked:
        graph = Graph()
        x, y = (graph.tensor(end, (1,), "float32") for end in "xy")
        graph.operator(name, [x], [y], version=version)
        (models / f"{name}.{version}").write_bytes(packed(graph.model([x], [y])))
    loaded = subprocess.run(
        [old_runtime.python, "-c", LOAD_ALL, models], check=True, capture_output=True, text=True
    )
    absent = {(n, int(v)) for n, v in (f.split(".") for f in json.loads(loaded.stdout))}
    assert len(asked) > 800
    assert asked - absent == {key for key, release in table.items() if release <= OLD}


def samples_for(signature: Signature, directory: Path) -> Path:
    rng = np.random.default_rng(7)
    arrays = {}
    for spec in signature.inputs:
        shape = (16, *spec.shape[1:])
        is_tokens = spec.dtype == "int32"
        arrays[spec.name] = (
            rng.integers(0, 20, shape, np.int32)
            if is_tokens
            else rng.uniform(0, 1, shape).astype(np.float32)
        )
    write_samples(Samples(arrays, None, "made here"), directory)
    return directory


def agrees(model: Path, target: RuntimePython, scratch: Path) -> bool:
    """Whether the model runs on `target`, and gives there what it gives in LiteRT here."""
    signature = summarize(model.read_bytes(), where=model.name).signatures[0]
    samples = samples_for(signature, scratch / f"{model.stem}-samples")
    outputs = []
    for runtime in (RuntimePython(), target):
        with start_run(
            model, samples, scratch=scratch, signature=signature.key or None, target=runtime
        ) as running:
            try:
                outputs.append(running.result().outputs)
            except ToolFailed:
                assert runtime is target, "LiteRT itself does not run it"
                return False
    return min(error.snr_db for error in output_errors(*outputs, {})) > MIN_SNR_DB


def is_refused(model: Path, target: RuntimePython, scratch: Path) -> bool:
    """Whether the runtime says that it lacks an operator, before it answers anything."""
    signature = summarize(model.read_bytes(), where=model.name).signatures[0]
    samples = samples_for(signature, scratch / f"{model.stem}-refused")
    with (
        start_run(model, samples, scratch=scratch, signature=signature.key, target=target) as run,
        pytest.raises(ToolFailed) as refused,
    ):
        run.result()
    return "Didn't find op for builtin opcode" in str(refused.value)


def quantized(zoo: Path, directory: Path, *, dense_per_tensor: bool) -> dict[str, Path]:
    """The zoo's CNN as litert-quantizer makes it, by recipe."""
    directory.mkdir()
    write_samples(Samples({"image": images()}, None, "made here"), directory / "samples")
    part = QuantizePart(signature="serving_default", samples=str(directory / "samples"), batch=1)
    recipes = make_recipes(["float16", "dynamic", "weight-only-int8", "int8", "int16x8"])
    graph = GraphFile(float_model=str(zoo / "by_hand" / "float32.tflite"), parts=(part,), threads=1)
    access = Access(reads=(Path(graph.float_model),), writes=(directory,))
    child = PersistentChild(label="quantizing", scratch=directory, access=access)
    files = {recipe.name: directory / f"{recipe.name}.tflite" for recipe in recipes}
    for recipe in recipes:
        job = QuantizeJob(
            graph=graph,
            recipe=recipe,
            file=str(files[recipe.name]),
            dense_per_tensor=dense_per_tensor,
        )
        child.start(quantize, job).result()
    child.close()
    return files


def release_of(model: Path) -> Release:
    found = oldest_runtime(model.read_bytes(), model.name)
    assert found.unknown == ()
    return parse_release(found.version)


def test_what_the_first_engine_makes_runs_there_as_it_is_said(zoo, tmp_path, old_runtime):
    usual = quantized(zoo, tmp_path / "usual", dense_per_tensor=False)
    said = {name: release_of(model) <= OLD for name, model in usual.items()}
    assert said == {
        "float16": True,
        # At version 1 it loads there, leaves the dense weights out, and answers nonsense.
        "dynamic": False,
        "weight-only-int8": True,
        "int8": True,
        "int16x8": True,
    }
    assert {name: agrees(m, old_runtime, tmp_path) for name, m in usual.items()} == said
    assert is_refused(usual["dynamic"], old_runtime, tmp_path)


def test_with_one_scale_in_dense_weights_all_of_it_runs_there(zoo, tmp_path, old_runtime):
    for model in quantized(zoo, tmp_path / "dense", dense_per_tensor=True).values():
        assert release_of(model) <= OLD
        assert agrees(model, old_runtime, tmp_path)


def test_what_tflite_converter_makes_runs_there_as_it_is_said(zoo, tmp_path, old_runtime):
    models = {m.stem: m for m in (zoo / "by_hand").glob("*.tflite")}
    del models["nan_weights"], models["select_tf"]
    said = {name: release_of(model) <= OLD for name, model in models.items()}
    assert said.pop("dynamic") is False
    assert all(said.values())
    assert len(said) == 4
    for name, expected in {**said, "dynamic": False}.items():
        assert agrees(models[name], old_runtime, tmp_path) == expected, name
    need = oldest_runtime(models["dynamic"].read_bytes(), "dynamic").operators
    assert [(n.operator, n.version, n.declared) for n in need] == [("FULLY_CONNECTED", 12, 12)]


def test_tiny_models_run_there_as_it_is_said(tmp_path, old_runtime):
    for make in (float_model, int8_model):
        model = tmp_path / f"{make.__name__}.tflite"
        model.write_bytes(packed(make(signature=("serving_default", ["x"], ["y"]))))
        assert release_of(model) <= OLD
        assert agrees(model, old_runtime, tmp_path)


def test_an_operator_of_tensorflow_itself_is_unknown_and_does_not_run_there(
    zoo, tmp_path, old_runtime
):
    model = zoo / "by_hand" / "select_tf.tflite"
    found = oldest_runtime(model.read_bytes(), model.name)
    assert [need.operator for need in found.unknown] == ["FlexMatrixInverse"]
    signature = summarize(model.read_bytes(), where=model.name).signatures[0]
    samples = samples_for(signature, tmp_path / "samples")
    with (
        start_run(
            model, samples, scratch=tmp_path, signature=signature.key, target=old_runtime
        ) as running,
        pytest.raises(ToolFailed, match="Flex"),
    ):
        running.result()
