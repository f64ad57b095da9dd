"""A SavedModel's signatures written again: with shapes fixed, or with loops unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from edgeconv.errors import InputRefused
from edgeconv.tf.frozen import as_function, fix_list_batch, freeze
from edgeconv.tf.unroll import unrolled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.tf.shapes import FixedShapes

Change = Literal["traced", "inlined", "unrolled"]


def rewrite(
    directory: str, keys: Sequence[str], target: str, *, fixed: FixedShapes, change: Change
) -> None:
    """Save the signatures `keys` again in `target`, their inputs as `fixed` says.

    `change`: "traced" is the same functions, called with those shapes; "inlined" is one graph
    without calls, whose tensor lists know the batch; "unrolled" is that without loops.
    Raises `InputRefused` for a model that does not load, a shape it does not take, or a loop
    that cannot be unrolled.
    """
    import tensorflow as tf

    loaded = _loaded(directory)
    module = tf.Module()
    module.model = loaded  # keeps the variables that the signatures read
    functions = {}
    for key in keys:
        signature = loaded.signatures[key]
        specs = {
            name: tf.TensorSpec(fixed.of(name, _sizes(name, spec)), spec.dtype, name=name)
            for name, spec in signature.structured_input_signature[1].items()
        }
        call = _rewritten(signature, specs, change)
        functions[key] = tf.function(call, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, target, signatures=functions)


def _loaded(directory: str) -> Any:
    import tensorflow as tf

    failures = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
    try:
        return tf.saved_model.load(directory)
    except (*failures, tf.errors.OpError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputRefused(
            f"{directory} does not load in TensorFlow: {lines[-1][:300]}",
            hint="export it again with the version of TensorFlow that is installed here",
        ) from error


def _sizes(name: str, spec: Any) -> list[int | None]:
    if spec.shape.rank is None:
        raise InputRefused(f"input {name!r} leaves its number of dimensions open")
    sizes: list[int | None] = spec.shape.as_list()
    return sizes


def _rewritten(signature: Any, specs: dict[str, Any], change: Change) -> Callable[..., Any]:
    if change == "traced":
        return lambda **inputs: signature(**inputs)
    frozen = freeze(signature, specs)
    batch = next((spec.shape[0] for spec in specs.values() if spec.shape.rank), None)
    if batch is not None:
        fix_list_batch(frozen, batch)
    return unrolled(frozen) if change == "unrolled" else as_function(frozen)
