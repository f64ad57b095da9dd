"""saved_model.pb files, written field by field as protobuf has them on the wire."""

from pathlib import Path

FLOAT, STRING = 1, 7


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(shape: tuple[int, ...] | None, dtype: int = FLOAT) -> bytes:
    dims = b"".join(block(2, number(1, size)) for size in shape or ())
    return (
        block(1, "x:0") + number(2, dtype) + block(3, dims if shape is not None else number(3, 1))
    )


def entry(field: int, key: str, value: bytes) -> bytes:
    return block(field, block(1, key) + block(2, value))


def signature(inputs: dict[str, bytes], outputs: dict[str, bytes]) -> bytes:
    ends = [entry(1, name, info) for name, info in inputs.items()]
    ends += [entry(2, name, info) for name, info in outputs.items()]
    return b"".join(ends) + block(3, "tensorflow/serving/predict")


def meta_graph(
    signatures: dict[str, bytes],
    *,
    tags: tuple[str, ...] = ("serve",),
    operators: tuple[str, ...] = (),
    function_operators: tuple[str, ...] = (),
) -> bytes:
    info = b"".join(block(4, tag) for tag in tags) + block(5, "2.21.0")
    nodes = b"".join(block(1, named(n, op)) for n, op in enumerate(operators))
    function = b"".join(block(3, named(n, op)) for n, op in enumerate(function_operators))
    graph = nodes + block(2, block(1, block(1, block(1, "function")) + function))
    signed = b"".join(entry(5, key, value) for key, value in signatures.items())
    return block(1, info) + block(2, graph) + signed


def named(number: int, op: str) -> bytes:
    return block(1, f"n{number}") + block(2, op)


def write_saved_model(directory: Path, *meta_graphs: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    graphs = b"".join(block(2, graph) for graph in meta_graphs)
    (directory / "saved_model.pb").write_bytes(number(1, 1) + graphs)
    return directory


PLAIN = signature({"x": tensor((-1, 28, 28))}, {"y": tensor((-1, 10))})


def write_plain(directory: Path) -> Path:
    return write_saved_model(directory, meta_graph({"serving_default": PLAIN}))
