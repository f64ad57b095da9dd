"""LiteRT behind the stub of the Interpreter in tests/kotlin_stubs: one model, run after run.

Each run comes as a signature's key (empty: inputs and outputs by index), the inputs with their
names, and the names of the outputs that are wanted; texts and bytes after their length.
"""

import struct
import sys

import numpy as np
from ai_edge_litert.interpreter import Interpreter

STDIN, STDOUT = sys.stdin.buffer, sys.stdout.buffer


def number() -> int | None:
    raw = STDIN.read(4)
    return struct.unpack(">i", raw)[0] if raw else None


def chunk() -> bytes:
    return STDIN.read(number())


def invoked(interpreter: Interpreter, key: str, inputs: dict[str, bytes]) -> dict[str, np.ndarray]:
    if key:
        runner = interpreter.get_signature_runner(key)
        details = runner.get_input_details()
        return runner(**{name: array(inputs[name], details[name]) for name in inputs})
    interpreter.allocate_tensors()
    for index, detail in enumerate(interpreter.get_input_details()):
        interpreter.set_tensor(detail["index"], array(inputs[str(index)], detail))
    interpreter.invoke()
    details = interpreter.get_output_details()
    return {str(i): interpreter.get_tensor(d["index"]) for i, d in enumerate(details)}


def array(raw: bytes, detail: dict) -> np.ndarray:
    return np.frombuffer(raw, detail["dtype"]).reshape(detail["shape"])


def main() -> None:
    interpreter = Interpreter(model_path=sys.argv[1])
    while (length := number()) is not None:
        key = STDIN.read(length).decode()
        inputs = {chunk().decode(): chunk() for _ in range(number())}
        wanted = [chunk().decode() for _ in range(number())]
        outputs = invoked(interpreter, key, inputs)
        for name in wanted:
            raw = outputs[name].tobytes()
            STDOUT.write(struct.pack(">i", len(raw)) + raw)
        STDOUT.flush()


if __name__ == "__main__":
    main()
