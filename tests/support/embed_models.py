"""Published models for the tests of `embed`, made without a conversion."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tiny_tflite import BIASES, WEIGHTS, Graph, float_model, int8_model, packed

from edgeconv.embedding.plan import EmbedPlan, plan_embed
from edgeconv.model.tflite import summarize
from edgeconv.requests.embed import EmbedRequest
from edgeconv.requests.table import parsed
from edgeconv.types import Artifact, Recipe, Verification

# A name that would end a string, a comment, a line, or an element in one language or another.
HOSTILE = "in\"put'\\\n*/ ${x} \\(y) </script> ]] é\u202e\U0001f600"
SIGNED = ("serving_default", ["x"], ["y"])


def published(
    directory: Path, content: bytes, *, name: str = "tiny", recipe: str = "int8", **changes: Any
) -> Path:
    """A .tflite in `directory`, and the manifest that belongs to it."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"tiny.{recipe}.tflite"
    file.write_bytes(content)
    summary = summarize(content, where=str(file))
    artifact = Artifact(
        name=name,
        file=file.name,
        key="k",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        source_path=str(directory / "source.keras"),
        source_kind="keras",
        source_sha256="s",
        recipe=Recipe(name=recipe),
        engine="litert",
        signatures=summary.signatures,
        operators=summary.operators,
        quantized_weight_share=summary.quantized_weight_share,
        float16_weight_share=summary.float16_weight_share,
        float_operators=summary.float_operators,
        verification=Verification(
            reference="float", samples=1, synthetic=True, runtime="litert", outputs=()
        ),
    )
    artifact = msgspec.structs.replace(artifact, **changes)
    file.with_suffix(".json").write_bytes(msgspec.json.encode(artifact))
    return file


def int8_tiny(directory: Path, **changes: Any) -> Path:
    """y = W x + b in int8, with int8 ends."""
    return published(directory, packed(int8_model()), **changes)


def float_tiny(directory: Path, **changes: Any) -> Path:
    """The same in float32, with an open batch."""
    model = packed(float_model(signature=SIGNED))
    return published(directory, model, recipe="float32", **changes)


def hostile_tiny(directory: Path) -> Path:
    """Two inputs and two outputs with the worst of names, two of which make one identifier."""
    graph = Graph()
    first = graph.tensor("a", (1, 4), "float32")
    second = graph.tensor("b", (1, 4), "int8", scale=0.25, zero_point=3)
    w = graph.tensor("w", (3, 4), "float32", data=WEIGHTS.astype(np.float32))
    b = graph.tensor("c", (3,), "float32", data=BIASES.astype(np.float32))
    out = graph.computed("d", (1, 3), "FULLY_CONNECTED", [first, w, b])
    levels = graph.computed("e", (1, 4), "DEQUANTIZE", [second])
    signature = ("serving_default", [HOSTILE, "class"], ["a-b", "a b"])
    model = graph.model([first, second], [out, levels], signature=signature)
    return published(directory, packed(model), name=HOSTILE, recipe="float32")


def named_tiny(directory: Path, names: list[str]) -> Path:
    """Twice each of the inputs of these names, under the same name."""
    graph = Graph()
    inputs = [graph.tensor(f"x{i}", (1, 2), "float32") for i in range(len(names))]
    outputs = [graph.tensor(f"y{i}", (1, 2), "float32") for i in range(len(names))]
    for one, twice in zip(inputs, outputs, strict=True):
        graph.operator("ADD", [one, one], [twice])
    model = graph.model(inputs, outputs, signature=("serving_default", names, names))
    return published(directory, packed(model), recipe="float32")


def large_tiny(directory: Path, size: int) -> Path:
    """A float model with `size` bytes of weights that no compression or guess makes smaller."""
    graph = Graph()
    x = graph.tensor("x", (1, 4), "float32")
    rows = size // 16
    weights = np.random.default_rng(5).standard_normal((rows, 4), np.float32)
    w = graph.tensor("w", (rows, 4), "float32", data=weights)
    y = graph.computed("y", (1, rows), "FULLY_CONNECTED", [x, w, -1])
    model = graph.model([x], [y], signature=("serving_default", ["x"], ["y"]))
    return published(directory, packed(model), recipe="float32")


def tree(directory: Path) -> dict[str, bytes]:
    """All files below a directory but the lock, by path."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".edgeconv.lock"
    }


def planned(file: Path, target: str, directory: str | Path, **options: Any) -> EmbedPlan:
    """The plan of an `embed` with these options."""
    texts = {name: str(v) if isinstance(v, Path) else v for name, v in options.items()}
    request = EmbedRequest(artifact=str(file), target=target, directory=str(directory), **texts)
    return plan_embed(parsed(request))
