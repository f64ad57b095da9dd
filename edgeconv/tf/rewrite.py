"""A SavedModel's signatures written again: with shapes fixed, or with loops unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from edgeconv.errors import InputRefused
from edgeconv.tf.frozen import as_function, fix_list_batch, freeze
from edgeconv.tf.lazy import tf
from edgeconv.tf.unroll import unroll
from edgeconv.types.words import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edgeconv.tf.frozen import Frozen
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
    """Save the signatures `keys` again in `target`, their inputs shaped by `fixed`.

    `change`: "traced" keeps the functions and calls them with those shapes; "inlined" is one graph
    without calls, whose tensor lists know the batch; "unrolled" is that without loops.
    `in_float32` (not with "traced") computes all floats in float32.
    Raises `InputRefused` for a model that does not load, a shape that does not fit it, or a loop
    that cannot be unrolled.
    """
    loaded = load_saved_model(directory)
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

    The converter does not take reference variables, the default of TF1. Raises `InputRefused` for
    a model that does not load.
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
        outputs = {info.name for entry in signatures.values() for info in entry.outputs.values()}
        names = sorted({name.split(":")[0] for name in outputs})
        frozen = convert_to_constants.convert_variables_to_constants_from_session_graph(
            session, graph.as_graph_def(), names
        )
    with ops.Graph().as_default() as graph, Session(graph=graph) as session:
        importer.import_graph_def(frozen, name="")
        builder = builder_impl.SavedModelBuilder(target)
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()


def load_saved_model(directory: str) -> Any:
    """The object that TensorFlow loads. Raises `InputRefused` where it does not load."""
    # What the loader raises for a damaged SavedModel, or one of another version.
    failures = (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError)
    try:
        return tf.saved_model.load(directory)
    except (*failures, tf.errors.OpError) as error:
        raise _does_not_load(directory, error) from error


def last_line(error: Exception) -> str:
    """The last line of an error's message, where TensorFlow's traces have the reason."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return first_line(lines[-1] if lines else error)


def _does_not_load(directory: str, error: Exception) -> InputRefused:
    return InputRefused(
        f"{directory} does not load in TensorFlow: {last_line(error)}",
        hint="export it again with the version of TensorFlow that is installed here",
    )


def _sizes(name: str, spec: Any) -> list[int | None]:
    if spec.shape.rank is None:
        raise InputRefused(
            f"input {name!r} leaves its number of dimensions open",
            hint="export the model with an input_signature that gives its shape",
        )
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
        _widen(frozen)
    call = unroll(frozen) if change == "unrolled" else as_function(frozen)
    if not in_float32:
        return call

    def cast(value: Any) -> Any:
        return tf.cast(value, tf.float32) if value.dtype.is_floating else value

    return lambda **inputs: call(**{name: cast(value) for name, value in inputs.items()})


def _widen(frozen: Frozen) -> None:
    """Make every float of the graph and its functions float32, constants included.

    TFLite's kernels know no other floats. A model that was trained in mixed precision casts to
    float16 before each layer and back after it; its variables are float32.
    """
    from tensorflow.python.framework import tensor_util

    single = tf.float32.as_datatype_enum
    others = {t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float64)}
    functions = frozen.graph_def.library.function
    graphs = (frozen.graph_def.node, *(function.node_def for function in functions))
    for node in (node for nodes in graphs for node in nodes):
        if node.op == "Const" and node.attr["dtype"].type in others:
            value = tensor_util.MakeNdarray(node.attr["value"].tensor).astype(np.float32)
            node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(value))
        for attribute in node.attr.values():
            if attribute.type in others:
                attribute.type = single
            for index, kind in enumerate(attribute.list.type):
                if kind in others:
                    attribute.list.type[index] = single
    for function in functions:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = single if argument.type in others else argument.type
