"""What the integration tests share: conversions made once, and models run by LiteRT alone."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from edgeconv import convert
from edgeconv.requests.recipes import make_recipes
from edgeconv.types import Artifact, Conversion, Recipe

COUNT = 40


def images() -> np.ndarray:
    """Noisy grey squares, (40, 8, 8, 1) in 0..1."""
    rng = np.random.default_rng(1)
    level = rng.uniform(0, 1, (COUNT, 1, 1, 1))
    return np.clip(level + 0.2 * rng.standard_normal((COUNT, 8, 8, 1)), 0, 1).astype(np.float32)


class Made:
    """A conversion and where it is."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.directory = Path(conversion.directory)

    def __getitem__(self, recipe: str) -> Artifact:
        return next(a for a in self.conversion.artifacts if a.recipe.name == recipe)

    def file(self, recipe: str) -> Path:
        return self.directory / self[recipe].file


class Workshop:
    """Converts models of the zoo; the same conversion is made once, and the cache has it then."""

    def __init__(self, zoo: Path, root: Path) -> None:
        self._zoo, self._root = zoo, root
        self._made: dict[str, Made] = {}

    def convert(
        self,
        model: str,
        to: str = "all",
        *,
        calibration: str | None = "images.npz",
        batch: int | None = None,
        signature: str | None = None,
        fuse_lstm: bool = False,
        **options: Any,
    ) -> Made:
        """`options` are those of `make_recipes`."""
        key = repr((model, to, calibration, batch, signature, fuse_lstm, sorted(options.items())))
        if key not in self._made:
            recipes: list[Recipe] = list(make_recipes(to.split(","), **options))
            out = self._root / f"out-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
            with pytest.MonkeyPatch.context() as patch, FileLock(f"{out}.lock"):
                patch.setenv("EDGECONV_CACHE_DIR", str(self._root / "cache"))
                self._made[key] = Made(
                    convert(
                        self._zoo / model,
                        out=out,
                        to=recipes,
                        calibration=str(self._zoo / calibration) if calibration else None,
                        batch=batch,
                        signature=signature,
                        fuse_lstm=fuse_lstm,
                    )
                )
        return self._made[key]


def declared_release(file: Path) -> str:
    """What a file's metadata says of the runtime that it needs; "" for nothing."""
    model = schema(file)
    said = [each for each in model.metadata or () if each.name == b"min_runtime_version"]
    return "".join(bytes(model.buffers[e.buffer].data).rstrip(b"\0").decode() for e in said)


class Lite:
    """A .tflite in LiteRT's interpreter, without anything of edgeconv."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(model_path=str(path))
        self.runner = self.interpreter.get_signature_runner()
        self.inputs: dict[str, Any] = self.runner.get_input_details()
        self.outputs: dict[str, Any] = self.runner.get_output_details()

    def run(self, **arrays: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs over all samples, one sample an invoke, integers made float."""
        answers: dict[str, list[np.ndarray]] = {name: [] for name in self.outputs}
        for index in range(len(next(iter(arrays.values())))):
            feed = {n: to_type(a[index : index + 1], self.inputs[n]) for n, a in arrays.items()}
            for name, value in self.runner(**feed).items():
                answers[name].append(to_float(value, self.outputs[name]))
        return {name: np.concatenate(parts) for name, parts in answers.items()}


def invoked(path: Path, samples: np.ndarray, *, reset: bool = False) -> np.ndarray:
    """The output of a model of one input and one output, without a signature's runner.

    That would clear the state at each call; an app in C, Java or Swift has none.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    (given,), (answer,) = interpreter.get_input_details(), interpreter.get_output_details()
    answers = []
    for sample in samples:
        interpreter.set_tensor(given["index"], sample[None])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(answer["index"]))
        if reset:
            interpreter.reset_all_variables()
    return np.concatenate(answers)


def to_type(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    if not scale:
        return values
    limits = np.iinfo(details["dtype"])
    levels = np.rint(values / scale) + zero_point
    return np.clip(levels, limits.min, limits.max).astype(details["dtype"])


def to_float(values: np.ndarray, details: dict[str, Any]) -> np.ndarray:
    scale, zero_point = details["quantization"]
    return (values.astype(np.float64) - zero_point) * scale if scale else values.copy()


def only(outputs: dict[str, np.ndarray]) -> np.ndarray:
    (values,) = outputs.values()
    return values


def schema(path: Path) -> Any:
    from ai_edge_litert.schema_py_generated import ModelT

    return ModelT.InitFromPackedBuf(path.read_bytes(), 0)


def operators(path: Path) -> Counter[tuple[str, int]]:
    """How often each operator occurs at each version, by LiteRT's own schema."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    names = {code: name for name, code in vars(BuiltinOperator).items() if name[0] != "_"}
    model = schema(path)
    codes = [model.operatorCodes[o.opcodeIndex] for g in model.subgraphs for o in g.operators]
    return Counter((names[max(c.builtinCode, c.deprecatedBuiltinCode)], c.version) for c in codes)


def weight_elements(path: Path) -> Counter[str]:
    """How many elements of constant weights are stored as int8 and as float32."""
    model = schema(path)
    counts: Counter[str] = Counter()
    for tensor in model.subgraphs[0].tensors:
        data = model.buffers[tensor.buffer].data
        if data is not None and len(data) and tensor.type in (0, 9):
            counts["int8" if tensor.type == 9 else "float32"] += int(np.prod(tensor.shape))
    return counts
