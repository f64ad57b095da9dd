"""Models in an interpreter of this process, which must be a child: a model can abort it."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from edgeconv.runtimes.runner import Batch, LoadedModel, to_tensors
from edgeconv.types.errors import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ai_edge_litert.interpreter import Interpreter


@contextlib.contextmanager
def runtime_errors() -> Iterator[None]:
    """Turn what the runtime raises in the block, in which only it is called, into `ToolFailed`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ToolFailed(f"the runtime does not run the model: {reason[:400]}") from error


def open_interpreter(
    model: bytes, *, threads: int = 1, every_tensor: bool = False, delegates: bool = True
) -> Interpreter:
    """LiteRT's interpreter of a .tflite; `InProcessModel` runs one of its signatures.

    With `every_tensor`, each operator's outputs can be read after an invoke. Without `delegates`,
    every tensor's size is known once they are allocated. Raises `ToolFailed` for a model that it
    does not take.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with runtime_errors(), warnings.catch_warnings():
        # It warns that keeping all tensors is for debugging.
        warnings.simplefilter("ignore")
        return Interpreter(
            model_content=model,
            num_threads=threads,
            experimental_op_resolver_type=kind,
            experimental_preserve_all_tensors=every_tensor,
            # A tensor between two operators that a delegate has fused would not exist.
            experimental_disable_delegate_node_fusion=every_tensor,
        )


class InProcessModel(LoadedModel):
    """A signature of a model in this process; what the runtime raises is `ToolFailed`."""

    def __init__(self, interpreter: Interpreter, signature: str | None = None) -> None:
        with runtime_errors():
            super().__init__(interpreter, signature)

    def invoke(self, batch: Batch) -> Batch:
        """The outputs by name, in their own dtypes. A state that the model keeps is kept."""
        tensors = to_tensors(batch, self.inputs)
        with runtime_errors():
            raw: Batch = self.runner(**tensors)
        return raw

    def settle(self, batch: Batch) -> Callable[[], None]:
        """Give the inputs the shape of `batch`, set them, and return the bare invoke, run once."""
        with runtime_errors():
            invoke = super().settle(batch)
            invoke()
        return invoke
