"""Models in an interpreter of this process, which must be a child: a model can abort it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter


def opened(
    model: bytes, *, threads: int = 1, every_tensor: bool = False, delegates: bool = True
) -> Interpreter:
    """LiteRT's interpreter of a .tflite; `runner.LoadedModel` runs one of its signatures.

    `every_tensor`: what each operator gives can be read after an invoke. Without `delegates` the
    size of every tensor is known once they are allocated. Raises `ValueError` or `RuntimeError`
    for a model that it does not take.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with warnings.catch_warnings():
        # It warns that keeping all tensors is for debugging.
        warnings.simplefilter("ignore")
        return Interpreter(
            model_content=model,
            num_threads=threads,
            experimental_op_resolver_type=kind,
            experimental_preserve_all_tensors=every_tensor,
            # A tensor between two operators that a delegate has fused is never made.
            experimental_disable_delegate_node_fusion=every_tensor,
        )
