"""Generated code quantizes to the bit as edgeconv and LiteRT do, near ties included."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from embed_models import published
from embed_web_models import web
from tiny_tflite import Graph, packed

from edgeconv import embed
from edgeconv.runtimes.tensors import quantized
from edgeconv.types import TensorSpec

# Scales of which a division and a multiplication by the inverse round differently.
SCALES = (0.1, 0.007, 3.7, 1 / 255, 0.0235)
SPECS = [
    TensorSpec(
        name=f"t{i}", shape=(1, 4), dtype="uint8", scale=(float(np.float32(s)),), zero_point=(z,)
    )
    for i, (s, z) in enumerate(zip(SCALES, (0, 128, 3, 255, 100), strict=True))
]


def near_ties(scale: float) -> np.ndarray:
    """Float32 [samples]: halves between levels, with the five floats to each side of each."""
    halves = ((np.arange(-300, 300) + 0.5) * np.float32(scale)).astype(np.float32)
    return np.concatenate(
        [(halves.view(np.int32) + step).view(np.float32) for step in range(-5, 6)]
    )


VALUES = np.concatenate([near_ties(spec.scale[0]) for spec in SPECS])


def model() -> bytes:
    graph = Graph()
    ends = [
        graph.tensor(s.name, s.shape, s.dtype, scale=s.scale[0], zero_point=s.zero_point[0])
        for s in SPECS
    ]
    outs = [graph.tensor(f"o{i}", (1, 4), "float32") for i in range(len(SPECS))]
    for end, out in zip(ends, outs, strict=True):
        graph.operator("DEQUANTIZE", [end], [out])
    names = ([s.name for s in SPECS], [f"o{i}" for i in range(len(SPECS))])
    return packed(graph.model(ends, outs, signature=("serving_default", *names)))


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """Levels [specs, values]; a division gives others, so that the values tell the two apart."""
    levels = np.array([quantized(VALUES, spec) for spec in SPECS])
    divided = np.array(
        [np.clip(np.rint(VALUES / np.float32(s.scale[0])) + s.zero_point[0], 0, 255) for s in SPECS]
    )
    assert np.any(levels != divided)
    return levels


def test_code_in_c_rounds_as_litert_does(tmp_path, expected):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    embed(published(tmp_path / "m", model()), "c", tmp_path / "out", symbol="net")
    calls = "".join(f'printf("%d ", net_input_{s.name}_quantize(v));\n' for s in SPECS)
    code = tmp_path / "main.c"
    code.write_text(
        '#include "net.h"\n#include <stdio.h>\nint main(void) {\nfloat v;\n'
        f"while (fread(&v, sizeof v, 1, stdin) == 1) {{\n{calls}}}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "program"
    subprocess.run(
        [compiler, "-std=c11", "-O2", f"-I{tmp_path / 'out'}", code, "-o", program], check=True
    )
    done = subprocess.run(program, input=VALUES.tobytes(), capture_output=True, check=True)
    given = np.array(done.stdout.split(), np.int64).reshape(-1, len(SPECS)).T
    np.testing.assert_array_equal(given, expected)


def test_code_in_python_rounds_as_litert_does(tmp_path, expected):
    embed(published(tmp_path / "m", model()), "python", tmp_path / "out", symbol="net")
    np.save(tmp_path / "values.npy", VALUES)
    program = (
        "import net, numpy as np\n"
        f"values = np.load({str(tmp_path / 'values.npy')!r})\n"
        f"np.save({str(tmp_path / 'levels.npy')!r}, [t.quantize(values) for t in net.INPUTS])\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path / "out", check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "levels.npy"), expected)


def test_code_in_javascript_rounds_as_litert_does(tmp_path, expected):
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on PATH")
    directory, _ = web(tmp_path, model())
    values = json.dumps(VALUES.astype(np.float64).tolist())
    module = json.dumps(str(directory / "gesture.js"))
    names = json.dumps([spec.name for spec in SPECS])
    program = (
        f"import * as it from {module};\nconst values = {values};\n"
        f"const levels = {names}.map((name) => [...it.inputs[name].quantize(values)]);\n"
        "process.stdout.write(JSON.stringify(levels));"
    )
    file = tmp_path / "program.mjs"
    file.write_text(program)
    done = subprocess.run([node, file], capture_output=True, encoding="utf-8", check=True)
    np.testing.assert_array_equal(json.loads(done.stdout), expected)


@pytest.mark.parametrize(
    ("target", "code"), [("android", "value * (1f / SCALE)"), ("ios", "value * (1 / scale)")]
)
def test_code_for_apps_multiplies_by_the_inverse_of_the_scale(tmp_path, target, code):
    options = {"runtime": "LiteRT"} if target == "ios" else {}
    embed(
        published(tmp_path / "m", model()), target, tmp_path / "out", symbol="net", option=options
    )
    texts = [path.read_text() for path in Path(tmp_path / "out").rglob("*.[ks]*t*")]
    assert any(code in text for text in texts)
    assert not any("value / S" in text or "value / s" in text for text in texts)
