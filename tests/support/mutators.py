"""Changes of an input that keep its form, so that they reach what is behind the first check.

Each takes bytes, a random generator and `change`, the engine's own mutation of bytes, which knows
what the code compares with.
"""

import io
import json
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

Change = Callable[[bytes], bytes]
Mutator = Callable[[bytes, Random, Change], bytes]

_NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**47, 2**63, -(2**63), 10**40, 1e308, -0.5)
_VALUES: tuple[Any, ...] = (
    *_NUMBERS,
    None,
    True,
    "",
    "\0",
    "é\u202e",
    "../..",
    [],
    {},
    [[]],
    "x" * 300,
)
_MOST_VARINT_BYTES = 10
_DEEPEST = 6


def mutate_json(data: bytes, random: Random, change: Change) -> bytes:
    """Another JSON document: a value replaced, moved, nested, left out or written strangely."""
    if random.random() < 0.2:
        return change(data)
    try:
        document = json.loads(data)
        for _ in range(random.choice((1, 1, 2, 5))):
            document = _changed(document, random, change)
        text = json.dumps(document)
    except (ValueError, RecursionError):
        # No JSON, or nested by an earlier change deeper than this module goes.
        return change(data)
    if random.random() < 0.05:
        text = text.replace("1", random.choice(("NaN", "1e999", "1" * 5000, "-")), 1)
    if random.random() < 0.02:
        depth = random.choice((50, 500, 3000))
        text = "[" * depth + text + "]" * depth
    return text.encode("utf-8", "surrogatepass")


def _changed(document: Any, random: Random, change: Change) -> Any:
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        node = waiting.pop()
        inside = (
            node.items()
            if isinstance(node, dict)
            else enumerate(node)
            if isinstance(node, list)
            else ()
        )
        for key, value in inside:
            places.append((node, key))
            waiting.append(value)
    if not places:
        return _value(random)
    node, key = random.choice(places)
    kind = random.randrange(7)
    if kind == 0:
        node[key] = _value(random)
    elif kind == 1:
        other, at = random.choice(places)
        # A copy: a document must not be inside itself.
        node[key] = json.loads(json.dumps(other[at]))
    elif kind == 2:
        del node[key]
    elif kind == 3 and isinstance(node, list):
        node.extend(json.loads(json.dumps(node[key])) for _ in range(random.choice((1, 3, 30))))
    elif kind == 3 and isinstance(node, dict):
        node[_text_of(change(_raw(key)))] = node.pop(key)
    elif kind == 4:
        node[key] = [node[key]] if random.random() < 0.5 else {"config": node[key]}
    elif isinstance(node[key], str):
        node[key] = _text_of(change(_raw(node[key])))
    elif isinstance(node[key], int | float):
        node[key] = random.choice((*_NUMBERS, random.randrange(300), -node[key]))
    return document


def _value(random: Random) -> Any:
    """A copy: a list that stands in two places could come to be in itself."""
    return json.loads(json.dumps(random.choice(_VALUES)))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def mutate_lines(data: bytes, random: Random, change: Change) -> bytes:
    """Another text of lines, such as TOML: a line moved or left out, or a value in it replaced."""
    if random.random() < 0.3:
        return change(data)
    lines = data.split(b"\n")
    index = random.randrange(len(lines))
    action = random.randrange(4)
    if action == 0:
        del lines[index]
    elif action == 1:
        lines.insert(random.randrange(len(lines) + 1), lines[index])
    else:
        before, sign, _ = lines[index].partition(b"=")
        value = json.dumps(random.choice(_VALUES[:-2])).encode()
        lines[index] = before + sign + b" " + random.choice((value, b"[" + value + b"]", b"inf"))
    return b"\n".join(lines)


def mutate_message(data: bytes, random: Random, change: Change) -> bytes:
    """Another protocol buffer: a field changed, repeated, moved or left out, at any depth."""
    if random.random() < 0.15:
        return change(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        data = _message(data, random, change, 0)
    return data


def _message(data: bytes, random: Random, change: Change, depth: int) -> bytes:
    """One field changed. The lengths of all messages around it stay right."""
    parts = fields_of(data)
    if not parts:
        return change(data)
    index = random.randrange(len(parts))
    number, kind, value = parts[index]
    if kind == 2 and isinstance(value, bytes) and depth < _DEEPEST and random.random() < 0.75:
        inner = _message(value, random, change, depth + 1) if fields_of(value) else change(value)
        parts[index] = (number, kind, inner)
        return message_of(parts)
    action = random.randrange(6)
    if action == 0:
        del parts[index]
    elif action == 1:
        parts[index:index] = [parts[index]] * random.choice((1, 2, 20))
    elif action == 2:
        parts[index] = (random.randrange(1, 12), kind, value)
    elif action == 3:
        parts[index], parts[0] = parts[0], parts[index]
    elif kind == 0:
        parts[index] = (number, kind, random.choice((0, 1, 7, 20, 2**31, 2**63, 2**64 - 1)))
    elif isinstance(value, bytes):
        parts[index] = (number, kind, random.choice((b"", change(value), value * 3)))
    return message_of(parts)


def fields_of(data: bytes) -> list[tuple[int, int, int | bytes]]:
    """The fields of a message: number, wire type and value; [] for what is not a message."""
    found: list[tuple[int, int, int | bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            found.append((number, kind, value))
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _varint(data, at)
        if size < 0 or not number or at + size > len(data):
            return []
        found.append((number, kind, data[at : at + size]))
        at += size
    return found if at == len(data) else []


def message_of(parts: list[tuple[int, int, int | bytes]]) -> bytes:
    """The bytes of fields."""
    written = bytearray()
    for number, kind, value in parts:
        written += _as_varint(number << 3 | kind)
        if isinstance(value, int):
            written += _as_varint(value)
        else:
            written += (_as_varint(len(value)) if kind == 2 else b"") + value
    return bytes(written)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MOST_VARINT_BYTES):
        if at + index >= len(data):
            break
        value |= (data[at + index] & 127) << (7 * index)
        if data[at + index] < 128:
            return value, at + index + 1
    return 0, len(data) + 1


def _as_varint(value: int) -> bytes:
    written = bytearray()
    value &= 2**64 - 1
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def mutate_tflite(data: bytes, random: Random, change: Change) -> bytes:
    """Another flatbuffer: bytes and offsets changed, or an object of the schema, packed again."""
    if random.random() < 0.35:
        return change(data)
    if random.random() < 0.4:
        return _with_number(data, random)
    from ai_edge_litert.schema_py_generated import ModelT
    from tiny_tflite import packed

    from edgeconv.model.tflite.structure import structure

    try:
        if structure(data).problems:
            return change(data)
        model = ModelT.InitFromPackedBuf(data, 0)
        for _ in range(random.choice((1, 1, 2, 4))):
            _change_object(model, random, change)
        return bytes(packed(model))
    except Exception:  # noqa: BLE001 (the schema's code raises anything on what is broken)
        return change(data)


def _with_number(data: bytes, random: Random) -> bytes:
    """A number or offset of four bytes replaced, which keeps the rest where it is."""
    if len(data) < 8:
        return data
    at = random.randrange(len(data) // 4) * 4
    near = int.from_bytes(data[at : at + 4], "little") + random.choice((-8, -4, -1, 1, 4, 8))
    value = random.choice(
        (0, 1, 4, 2**31 - 1, 2**31, 2**32 - 1, len(data), near, random.randrange(64))
    )
    return data[:at] + (value % 2**32).to_bytes(4, "little") + data[at + 4 :]


def _change_object(model: Any, random: Random, change: Change) -> None:
    places: list[tuple[Any, str]] = []
    waiting = [model]
    while waiting:
        node = waiting.pop()
        for name, value in vars(node).items():
            places.append((node, name))
            inside = value if isinstance(value, list) else [value]
            waiting += [each for each in inside if hasattr(each, "Pack")]
    node, name = random.choice(places)
    value = getattr(node, name)
    if isinstance(value, list) and value:
        kind = random.randrange(4)
        if kind == 0:
            value.pop(random.randrange(len(value)))
        elif kind == 1:
            value.extend([random.choice(value)] * random.choice((1, 5, 40)))
        elif kind == 2:
            random.shuffle(value)
        else:
            setattr(node, name, None)
    elif isinstance(value, np.ndarray) and value.size:
        new = value.copy().ravel()
        new[random.randrange(new.size)] = random.choice((0, 1, -1, 100)) % 256
        setattr(node, name, np.resize(new, random.choice((new.size, 0, 1, 40))))
    elif isinstance(value, bytes | str):
        raw = value.encode() if isinstance(value, str) else value
        setattr(node, name, change(raw))
    elif isinstance(value, bool):
        setattr(node, name, not value)
    elif isinstance(value, int):
        setattr(node, name, random.choice((0, 1, -1, 2, 7, 32, 127, 2**31 - 1, -(2**31))))
    elif isinstance(value, float):
        setattr(node, name, random.choice((0.0, float("nan"), float("inf"), -1.0, 1e-40)))
    elif value is None:
        # What another object of the kind has there: anything else could be a circle.
        others = [each for each, from_name in places if from_name == name]
        same = [each for each in others if type(each) is type(node)]
        setattr(node, name, getattr(random.choice(same), name))


def mutate_zip(data: bytes, random: Random, change: Change) -> bytes:
    """Another archive: the JSON in a member changed, or its name, or bytes of the whole."""
    if random.random() < 0.4:
        return change(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # noqa: BLE001 (zipfile raises anything on what is broken)
        return change(data)
    if members:
        index = random.randrange(len(members))
        name, content = members[index]
        if random.random() < 0.8:
            content = mutate_json(content, random, change)
        else:
            name = _text_of(change(_raw(name))).split("\0")[0] or "x"
        members[index : index + random.choice((0, 1, 1, 1))] = [(name, content)]
    packed = io.BytesIO()
    with zipfile.ZipFile(
        packed, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as archive:
        for name, content in dict(members).items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()
