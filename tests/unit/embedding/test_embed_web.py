"""The target web, in node; tests/integration/test_embed_web_page.py has the browser."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embed_models import HOSTILE, float_tiny, hostile_tiny, int8_tiny, planned, tree
from embed_web_models import fixed_float_model, three_inputs_model, uint8_model, variable_model, web
from wording import fails

from edgeconv import embed
from edgeconv.embedding.embedding import make_embedding
from edgeconv.embedding.interface import Embedding
from edgeconv.embedding.plan import embedded_already
from edgeconv.embedding.targets.web import files
from edgeconv.runtimes.tensors import dequantized, quantized
from edgeconv.types import Embedded, Preprocessing, TensorSpec
from edgeconv.types.errors import InputRefused, UsageError

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no node on PATH")
SCALED = {"preprocessing": {"": Preprocessing(resize=(2, 2), scale=1 / 127.5, mean=(1.0,))}}


@pytest.fixture(scope="module")
def gesture(tmp_path_factory) -> tuple[Path, Embedded]:
    """A model that no test changes, and what was written."""
    return web(tmp_path_factory.mktemp("gesture"), uint8_model())


def evaluated(directory: Path, code: str, *, symbol: str = "gesture") -> Any:
    """What `code` returns in node; `it` is the module. LiteRT.js is not needed for it."""
    program = f"""
        import * as it from {json.dumps(str(directory / f"{symbol}.js"))};
        const answer = await (async () => {{ {code} }})();
        process.stdout.write(JSON.stringify(answer));
    """
    assert NODE is not None
    command = [NODE, "--input-type=module", "--eval", program]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_files_are_those_of_an_es_module_with_types_a_test_page_and_the_model(gesture):
    directory, embedded = gesture
    assert [one.path for one in embedded.files] == [
        "gesture.d.ts",
        "gesture.js",
        "gesture.tflite",
        "gesture_golden.bin",
        "gesture_self_test.d.ts",
        "gesture_self_test.html",
        "gesture_self_test.js",
        "package.json",
    ]
    assert (directory / "gesture.tflite").read_bytes() == uint8_model()
    assert "npm install" in embedded.notes[0]
    assert "gesture_self_test.html" in embedded.notes[0]


def test_equal_models_give_equal_files_wherever_they_are(tmp_path):
    first, _ = web(tmp_path / "here", uint8_model(), changes=SCALED)
    second, _ = web(tmp_path / "somewhere" / "else", uint8_model(), changes=SCALED)
    assert tree(first) == tree(second)
    for path, content in tree(first).items():
        assert str(tmp_path).encode() not in content, path


@needs_node
def test_the_module_says_what_the_manifest_says(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("fist\n", encoding="utf-8")
    directory, embedded = web(tmp_path, uint8_model(), changes=SCALED, labels=labels)
    said = evaluated(
        directory,
        "return { name: it.name, sha256: it.sha256, size: it.sizeBytes, labels: it.labels,"
        " url: it.modelUrl.pathname, image: it.inputs.image, scores: it.outputs.scores };",
    )
    assert said["sha256"] == embedded.model_sha256
    assert said["size"] == len(uint8_model())
    assert said["name"] == "tiny"
    assert said["labels"] == ["fist"]
    assert Path(said["url"]) == directory / "gesture.tflite"
    assert said["image"] == {
        "name": "image",
        "index": 0,
        "graphIndex": 0,
        "shape": [1, 2, 2, 1],
        "elements": 4,
        "bytes": 4,
        "dtype": "uint8",
        "scale": 0.5,
        "zeroPoint": 128,
        "lowest": 0,
        "highest": 255,
        "preprocessing": {"resize": [2, 2], "scale": 1 / 127.5, "mean": [1.0]},
        "preprocessingText": "resize=2x2&scale=1/127.5&mean=1",
    }
    assert said["scores"]["zeroPoint"] == 100
    assert "preprocessing" not in said["scores"]


@needs_node
def test_levels_are_those_that_edgeconv_itself_makes(gesture):
    directory, _ = gesture
    values = [*np.arange(-70, 70, 0.125), 1e30, -1e30, 1e-30]
    levels = [*range(256)]
    said = evaluated(
        directory,
        f"return [[...it.inputs.image.quantize({json.dumps(values)})],"
        f" [...it.inputs.image.dequantize(Uint8Array.from({levels}))],"
        " [...it.inputs.image.quantize([NaN, Infinity, -Infinity])]];",
    )
    spec = TensorSpec(name="image", shape=(1,), dtype="uint8", scale=(0.5,), zero_point=(128,))
    assert said[0] == quantized(np.array(values), spec).tolist()
    assert said[1] == dequantized(np.array(levels, np.uint8), spec).tolist()
    assert said[2] == [0, 255, 0]


@needs_node
def test_stored_values_are_normalised_by_channel_as_in_training(tmp_path):
    from edgeconv.data.preprocess import preprocess

    steps = Preprocessing(scale=1 / 255, mean=(0.5, 0.25), std=(0.125, 2.0))
    model = fixed_float_model(signature=("serving_default", ["x"], ["y"]))
    directory, _ = web(tmp_path, model, changes={"preprocessing": {"x": steps}})
    stored = np.array([[0, 255], [128, 7]], np.uint8)
    said = evaluated(directory, "return [...it.inputs.x.normalize([0, 255, 128, 7])];")
    expected = preprocess(stored, steps, "x")
    np.testing.assert_allclose(said, expected.ravel(), atol=1e-6)


@needs_node
def test_a_tensor_that_is_not_quantised_has_no_helpers_that_it_cannot_have(tmp_path):
    directory, _ = web(tmp_path, three_inputs_model())
    said = evaluated(
        directory,
        "return Object.entries({...it.inputs, ...it.outputs}).map(([id, t]) =>"
        " [id, t.graphIndex, t.array.name, typeof t.quantize, typeof t.dequantize]);",
    )
    plain = ["undefined", "undefined"]
    assert said == [
        ["second", 1, "Float32Array", *plain],
        ["count", 2, "Int32Array", *plain],
        ["first", 0, "Float32Array", *plain],
        ["twice", 1, "Int32Array", *plain],
        ["sum", 0, "Float32Array", *plain],
    ]


@needs_node
def test_hostile_names_stay_text(tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text(f"{HOSTILE.replace(chr(10), '')}\n", encoding="utf-8")
    content = uint8_model(HOSTILE, "__proto__", HOSTILE)
    directory, _ = web(tmp_path, content, changes={"name": HOSTILE}, labels=labels)
    said = evaluated(
        directory,
        "return [it.name, it.labels, Object.entries(it.inputs).map(([id, t]) => [id, t.name]),"
        " Object.entries(it.outputs).map(([id, t]) => [id, t.name])];",
    )
    assert said == [
        HOSTILE,
        [HOSTILE.replace("\n", "")],
        [["inPutXYScriptE", HOSTILE]],
        [["proto", "__proto__"]],
    ]
    assert json.loads((directory / "package.json").read_bytes())["description"].startswith(HOSTILE)
    for name in ("gesture_self_test.js", "gesture_self_test.html"):
        assert (directory / name).read_text("ascii").count("</script>") in (0, 2)


@pytest.mark.parametrize("make", [float_tiny, int8_tiny, hostile_tiny])
def test_what_litert_js_cannot_run_is_refused(tmp_path, make):
    model = make(tmp_path / "published")
    with fails(InputRefused):
        embed(model, "web", tmp_path / "web")
    assert not (tmp_path / "web").exists()


def test_variable_tensors_are_refused(tmp_path):
    with fails(InputRefused):
        web(tmp_path, variable_model())


@pytest.fixture(scope="module")
def embedding(gesture) -> Embedding:
    """What the target was given for it."""
    model = gesture[0].parent / "published" / "tiny.int8.tflite"
    return make_embedding(planned(model, "web", "unused", symbol="gesture"))


@pytest.mark.parametrize("address", ["/npm/", "../a/", "./", "https://host/npm/@1.2/", "/"])
def test_the_page_takes_litert_js_from_where_it_is_told(embedding, address):
    made = files(dataclasses.replace(embedding, options={"packages": address}))
    page = made["gesture_self_test.html"].decode("ascii")
    imports = json.loads(page.split('<script type="importmap">')[1].split("</script>")[0])
    assert imports["imports"]["@litertjs/core"] == f"{address}@litertjs/core/dist/index.js"


@pytest.mark.parametrize("address", ["", "node_modules/", "./npm", "javascript:x/", "/a b/", "/é/"])
def test_an_address_that_no_page_can_take_modules_from_is_refused(tmp_path, address):
    with fails(UsageError):
        web(tmp_path, uint8_model(), option={"packages": address})


def test_the_symbol_begins_the_files_and_names_the_package(tmp_path):
    directory, _ = web(tmp_path, uint8_model(), symbol="Gesture_2")
    package = json.loads((directory / "package.json").read_bytes())
    assert package["name"] == "gesture_2"
    assert package["peerDependencies"] == {"@litertjs/core": "^2.5.3"}
    for entry in package["exports"].values():
        for path in entry.values() if isinstance(entry, dict) else [entry]:
            assert (directory / path).is_file()


def test_nothing_is_done_where_all_is_there(gesture):
    directory, embedded = gesture
    model = directory.parent / "published" / "tiny.int8.tflite"
    request = planned(model, "web", directory, symbol="gesture")
    assert embedded_already(request) == embedded
