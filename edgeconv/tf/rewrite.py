"""A SavedModel's signatures written again: with shapes fixed, or with loops unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from edgeconv.errors import InputRefused
from edgeconv.tf.frozen import as_function, fix_list_batch, freeze
from edgeconv.tf.unroll import unrolled
from edgeconv.tf.widened import taking_float32, widen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.tf.shapes import FixedShapes

Change = Literal["traced", "inlined", "unrolled"]


def rewrite(
    directory: str,
    keys: Sequence[str],
    target: str,
    *,
    fixed: FixedShapes,
    change: Change,
    in_float32: bool = False,
) -> None:
    """Save the signatures `keys` again in `target`, their inputs as `fixed` says.

    `change`: "traced" is the same functions, called with those shapes; "inlined" is one graph
    without calls, whose tensor lists know the batch; "unrolled" is that without loops.
    `in_float32` (not with "traced") computes all floats in float32.
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
        call = _rewritten(signature, specs, change, in_float32=in_float32)
        functions[key] = tf.function(call, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, target, signatures=functions)


def freeze_variables(directory: str, keys: Sequence[str], target: str) -> None:
    """Save the signatures `keys` of a TF1 model again in `target`, its variables as constants.

    The converter takes no reference variables, which is what TF1 made by default. Raises
    `InputRefused` for a model that does not load.
    """
    # TensorFlow's own modules, since this also runs in a process without its __init__.
    from tensorflow.python.client.session import Session
    from tensorflow.python.framework import convert_to_constants, errors_impl, importer, ops
    from tensorflow.python.saved_model import builder_impl, loader_impl

    with ops.Graph().as_default() as graph, Session(graph=graph) as session:
        try:
            loaded = loader_impl.load(session, ["serve"], directory)
        except (OSError, ValueError, RuntimeError, errors_impl.OpError) as error:
            raise _does_not_load(directory, error) from error
        signatures = {key: loaded.signature_def[key] for key in keys}
        outputs = {info.name for one in signatures.values() for info in one.outputs.values()}
        names = sorted({name.split(":")[0] for name in outputs})
        frozen = convert_to_constants.convert_variables_to_constants_from_session_graph(
            session, graph.as_graph_def(), names
        )
    with ops.Graph().as_default() as graph, Session(graph=graph) as session:
        importer.import_graph_def(frozen, name="")
        builder = builder_impl.SavedModelBuilder(target)
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def _loaded(directory: str) -> Any:
    import tensorflow as tf

    failures = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
    try:
        return tf.saved_model.load(directory)
    except (*failures, tf.errors.OpError) as error:
        raise _does_not_load(directory, error) from error


def _does_not_load(directory: str, error: Exception) -> InputRefused:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return InputRefused(
        f"{directory} does not load in TensorFlow: {lines[-1][:300]}",
        hint="export it again with the version of TensorFlow that is installed here",
    )


def _sizes(name: str, spec: Any) -> list[int | None]:
    if spec.shape.rank is None:
        raise InputRefused(f"input {name!r} leaves its number of dimensions open")
    sizes: list[int | None] = spec.shape.as_list()
    return sizes


def _rewritten(
    signature: Any, specs: dict[str, Any], change: Change, *, in_float32: bool
) -> Callable[..., Any]:
    if change == "traced":
        return lambda **inputs: signature(**inputs)
    frozen = freeze(signature, specs)
    batch = next((spec.shape[0] for spec in specs.values() if spec.shape.rank), None)
    if batch is not None:
        fix_list_batch(frozen, batch)
    if in_float32:
        widen(frozen)
    call = unrolled(frozen) if change == "unrolled" else as_function(frozen)
    return taking_float32(call) if in_float32 else call
