"""Is a file what was asked for? Read from the file itself, by LiteRT's own schema.

edgeconv's reading of a file is not asked: it is what is in question.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgeconv.types import Artifact

# A full-integer file without any float operator has next to no float constants: some feed
# the QUANTIZE operator that makes integers of them.
_MOST_FLOAT_SHARE = 0.5
_SAID_TO_BE_FLOAT = ("nothing was quantized", "nothing became float16")


def float_weight_share(content: bytes) -> float:
    """The fraction of a model's constant numbers that are stored as float32.

    Constants of 32 bits or more that are no floats (biases, shapes, indices) do not count;
    0 where there are no others.
    """
    from ai_edge_litert.schema_py_generated import ModelT, TensorType

    narrow = {TensorType.INT4, TensorType.INT8, TensorType.UINT8, TensorType.INT16}
    kinds = {TensorType.FLOAT32, TensorType.FLOAT16, *narrow}
    model = ModelT.InitFromPackedBuf(content, 0)
    elements: Counter[int] = Counter()
    seen = set()
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            if tensor.type in kinds and tensor.buffer not in seen and _is_constant(model, tensor):
                seen.add(tensor.buffer)
                elements[tensor.type] += _elements(tensor)
    return elements[TensorType.FLOAT32] / elements.total() if elements else 0.0


def _is_constant(model: Any, tensor: Any) -> bool:
    buffer = model.buffers[tensor.buffer]
    # A quantiser can put large constants behind the flatbuffer proper, by offset.
    return bool(buffer.offset) or (buffer.data is not None and len(buffer.data) > 0)


def _elements(tensor: Any) -> int:
    count = 1
    for length in () if tensor.shape is None else tensor.shape:
        count *= int(length)
    return count


def silent_fallback(artifact: Artifact, allowed: Sequence[str], file: Path) -> str:
    """What makes the file something else than was asked for, unsaid; "" where nothing does."""
    recipe, share = artifact.recipe, float_weight_share(file.read_bytes())
    if recipe.full_integer:
        unsaid = sorted(set(artifact.float_operators) - set(allowed))
        if unsaid:
            return f"computes in float: {', '.join(unsaid)}"
        # With operators left in float by name their weights may be all there are.
        most = 0.999 if artifact.float_operators else _MOST_FLOAT_SHARE
        return f"{share:.0%} of the weights are float32" if share > most else ""
    told = (*artifact.notes, *artifact.verification.warnings)
    is_said = any(said in text for said in _SAID_TO_BE_FLOAT for text in told)
    if recipe.name == "float32" or share < 1 or is_said:
        return ""
    return f"every weight is float32, and the manifest does not say so: {recipe.name}"
