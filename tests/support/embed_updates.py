"""Models that come as updates of an embedded one, and what generated code has to say of them."""

from __future__ import annotations

import json
import random
import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from tiny_tflite import BIASES, WEIGHTS, Graph, packed

if TYPE_CHECKING:
    from pathlib import Path

SIGNED = ("serving_default", ["x"], ["y"])
# The zero point of the input.
POINTS = {"int8": -3, "uint8": 3}
DAMAGED = "the file is damaged: what it points to is not in it"
NO_MODEL = "the file is not a .tflite model"


def model(
    dtype: str = "int8",
    *,
    weights: Any = WEIGHTS,
    x: Any = 0.5,
    y: Any = (64.0, 5),
    width: int = 4,
    is_open: bool = False,
    signature: Any = SIGNED,
) -> bytes:
    """y = W x + b with ends of a type, each with a scale and a zero point; None for floats."""
    graph = Graph()
    ends = []
    x = (x, POINTS[dtype]) if isinstance(x, float) else x
    for name, shape, scale in (("x", (1, width), x), ("y", (1, 3), y)):
        facts = {"scale": scale[0], "zero_point": scale[1]} if scale else {}
        kind = dtype if scale else "float32"
        ends.append(graph.tensor(name, shape, kind, dynamic=is_open and name == "x", **facts))
    middle = 128 if dtype == "uint8" else 0
    full = (np.resize(weights, (3, width)).astype(int) + middle).astype(dtype)
    w = graph.tensor("w", (3, width), dtype, data=full, scale=1.0, zero_point=middle)
    b = graph.tensor("b", (3,), "int32", data=BIASES * 2, scale=0.5)
    graph.operator("FULLY_CONNECTED", [ends[0], w, b], [ends[1]], version=4)
    return packed(graph.model([ends[0]], [ends[1]], signature=signature))


def cases(dtype: str = "int8") -> dict[str, tuple[bytes, list[str]]]:
    """By name, a file that came for `model(dtype)`, and what is different in it."""
    other = "uint8" if dtype == "int8" else "int8"
    scale = "input x: scale 0.5 in the app, 0.25 in the file"
    return {
        "the same": (model(dtype), []),
        "other weights": (model(dtype, weights=WEIGHTS + 1), []),
        "scale": (model(dtype, x=0.25), [scale]),
        "zero point": (
            model(dtype, y=(64.0, 7)),
            ["output y: zero point 5 in the app, 7 in the file"],
        ),
        "several": (
            model(dtype, x=(0.25, 4), y=(0.00390625, 5)),
            [
                scale,
                f"input x: zero point {POINTS[dtype]} in the app, 4 in the file",
                "output y: scale 64 in the app, 0.00390625 in the file",
            ],
        ),
        "type": (
            model(other, x=(0.5, POINTS[dtype])),
            [
                f"{end}: type {dtype} in the app, {other} in the file"
                for end in ("input x", "output y")
            ],
        ),
        "floats": (
            model(dtype, x=None),
            [
                f"input x: type {dtype} in the app, float32 in the file",
                "input x: scale 0.5 in the app, none in the file",
            ],
        ),
        "shape": (model(dtype, width=8), ["input x: shape [1, 4] in the app, [1, 8] in the file"]),
        "open batch": (
            model(dtype, is_open=True),
            ["input x: shape [1, 4] in the app, [-1, 4] in the file"],
        ),
        "name": (
            model(dtype, signature=("serving_default", ["pixels"], ["y"])),
            ["input x is not in the file", "input pixels is in the file, not in the app"],
        ),
        "key": (
            model(dtype, signature=("other", ["x"], ["y"])),
            ["signature serving_default is not in the file"],
        ),
        "no signature": (
            model(dtype, signature=None),
            ["signature serving_default is not in the file"],
        ),
        "nothing": (b"", [NO_MODEL]),
        "a page": (b"<!doctype html><title>404</title>", [NO_MODEL]),
        "an identifier": (
            b"\0\0\0\0TFL3",
            ["signature serving_default is not in the file"],
        ),
        "half": (model(dtype)[: len(model(dtype)) // 2], [DAMAGED]),
        "noise": (b"\x08\0\0\0TFL3" + random.Random(1).randbytes(500), [DAMAGED]),
    }


def broken(dtype: str = "int8", count: int = 400) -> list[bytes]:
    """Files of which nobody may crash: cut off anywhere, and with bytes that are others."""
    whole = model(dtype)
    chance = random.Random(7)
    files = [whole[:size] for size in range(0, len(whole), 7)]
    for _ in range(count):
        content = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(content))
            content[place : place + 4] = chance.choice(
                [chance.randbytes(4), b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"]
            )[: len(content) - place]
        files.append(bytes(content))
    return files


def stream(files: list[bytes]) -> bytes:
    """The files in one, each after its length."""
    return b"".join(struct.pack("<I", len(content)) + content for content in files)


def plain(sentences: list[str]) -> list[str]:
    """Sentences whose numbers are written the same way, whatever the language."""
    number = re.compile(r"-?\d+\.\d+(?:[eE]-?\d+)?")
    return [number.sub(lambda found: f"{float(found.group()):g}", one) for one in sentences]


def verdict(sentences: list[str]) -> str:
    """What a broken file is taken for, whatever the sentences say of names that are broken too."""
    if not sentences:
        return "taken"
    return next((one for one in sentences if one in (DAMAGED, NO_MODEL)), "refused")


def python_says(out: Path, files: list[bytes]) -> list[list[str]]:
    """What the package `net` in `out` says of each file, in a process of its own."""
    program = (
        "import json, sys\nsys.path.insert(0, sys.argv[1])\nimport net, struct\n"
        "data, at, said = sys.stdin.buffer.read(), 0, []\n"
        "while at < len(data):\n"
        "    size = struct.unpack_from('<I', data, at)[0]\n"
        "    said.append(net.differences(data[at + 4 : at + 4 + size]))\n"
        "    at += 4 + size\n"
        "print(json.dumps(said))\n"
    )
    command = [sys.executable, "-c", program, str(out)]
    done = subprocess.run(command, input=stream(files), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    found: list[list[str]] = json.loads(done.stdout)
    return found
