"""SavedModels written byte by byte, so that they can hold what no exporter writes.

The pieces are protocol buffers on the wire; the numbers are those of TensorFlow's .proto files.
"""

from pathlib import Path

from tiny_saved_model import block, entry, number, varint

CALL = "StatefulPartitionedCall"
STRING = 7


def text(value: str | bytes) -> bytes:
    """An attribute that is a string."""
    return block(2, value)


def kind(value: int) -> bytes:
    """An attribute that is a type."""
    return number(6, value)


def function_name(name: str) -> bytes:
    """An attribute that is a function."""
    return block(10, block(1, name))


def function_names(*names: str) -> bytes:
    """An attribute that is a list of functions."""
    return block(1, b"".join(block(9, block(1, name)) for name in names))


def strings(*values: str | bytes) -> bytes:
    """An attribute that is a tensor of strings."""
    return block(8, number(1, STRING) + b"".join(block(8, value) for value in values))


def node(name: str, op: str, *inputs: str, device: str = "", **attributes: bytes) -> bytes:
    attrs = b"".join(block(5, block(1, key) + block(2, v)) for key, v in attributes.items())
    taken = b"".join(block(3, each) for each in inputs)
    return block(1, name) + block(2, op) + taken + (block(4, device) if device else b"") + attrs


def constant(name: str, *values: str | bytes) -> bytes:
    return node(name, "Const", dtype=kind(STRING), value=strings(*values))


def call(name: str, function: str, *inputs: str) -> bytes:
    return node(name, CALL, *inputs, f=function_name(function))


def function(name: str, *nodes: bytes, arguments: tuple[str, ...] = ()) -> bytes:
    signature = block(1, name) + b"".join(block(2, block(1, each)) for each in arguments)
    return block(1, signature) + b"".join(block(3, each) for each in nodes)


def graph(*nodes: bytes, functions: tuple[bytes, ...] = ()) -> bytes:
    library = b"".join(block(1, each) for each in functions)
    return b"".join(block(1, each) for each in nodes) + block(2, library)


def runs(output: str) -> bytes:
    """A signature whose one output is this tensor."""
    return entry(5, "serving_default", block(2, block(1, "y") + block(2, block(1, output))))


def takes(tensor: str) -> bytes:
    """A signature whose one input is this tensor."""
    return entry(5, "takes", block(1, block(1, "x") + block(2, block(1, tensor))))


def initializer(output: str) -> bytes:
    """What TensorFlow 2 runs once the model is loaded."""
    key = "__saved_model_init_op"
    return entry(5, key, block(2, block(1, key) + block(2, block(1, output))))


def main_op(name: str, collection: str = "saved_model_main_op") -> bytes:
    """What TensorFlow 1 runs once the model is loaded."""
    return entry(4, collection, block(1, block(1, name)))


def saver(filename: str, save: str, restore: str) -> bytes:
    return block(3, block(1, filename) + block(2, save) + block(3, restore))


def asset(tensor: str, filename: str) -> bytes:
    return block(6, block(1, block(1, tensor)) + block(2, filename))


def objects(*nodes: bytes, functions: dict[str, tuple[int, ...]] | None = None) -> bytes:
    """The object graph: its nodes, and the functions that its loader makes callable."""
    callable_ = b""
    for name, bound in (functions or {}).items():
        packed = b"".join(varint(each) for each in bound)
        callable_ += entry(2, name, block(2, packed))
    return block(7, b"".join(block(1, each) for each in nodes) + callable_)


ASSET_OBJECT = block(5, number(1, 0))
PLAIN_OBJECT = block(4, b"")


def meta_graph(content: bytes, *rest: bytes) -> bytes:
    return block(1, block(4, "serve") + block(5, "2.21.0")) + block(2, content) + b"".join(rest)


def write(directory: Path, *meta_graphs: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    content = number(1, 1) + b"".join(block(2, each) for each in meta_graphs)
    (directory / "saved_model.pb").write_bytes(content)
    return directory


def write_asset(directory: Path, name: str, content: str = "a\nb\n") -> None:
    (directory / "assets").mkdir(parents=True, exist_ok=True)
    (directory / "assets" / name).write_text(content)
