# ruff: noqa: ARG005
"""Models with loops, unrolled, and what TensorFlow says of both.

    python loop_zoo.py DIRECTORY

Runs in one process of its own, since it imports TensorFlow and Keras. Every model is saved,
unrolled by edgeconv, and run before and after on the same inputs; what came out is in
DIRECTORY/results.json, by name.
"""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

SERVING = "serving_default"
# All that is a loop, a branch or a call, or that only loops need.
LOOP_OPERATORS = ("While", "If", "Case", "PartitionedCall", "TensorList")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """`left` are the operators of a loop that are still there; `error` what was raised instead.

    `worst` is the largest error beside the largest value; `is_random` where it answers
    differently each time.
    """

    kind: str = ""
    error: str = ""
    left: tuple[str, ...] = ()
    worst: float = -1.0
    outputs: tuple[str, ...] = ()
    nodes: int = 0
    is_random: bool = False


class Case(NamedTuple):
    """A model in `directory`, the inputs to run it on, and the batch to fix."""

    directory: Path
    inputs: dict[str, np.ndarray]
    batch: int = 1
    shapes: dict[str, tuple[int, ...]] = {}  # noqa: RUF012


def main(root: Path) -> None:
    import keras
    import tensorflow as tf

    from edgeconv.tf import rewrite, shapes

    cases = {**keras_cases(root, keras), **module_cases(root, tf), **graph_cases(root, tf)}
    results = {}
    for name, case in cases.items():
        target = root / "unrolled" / name
        fixed = shapes.FixedShapes(batch=case.batch, by_input=case.shapes, only_open=True)
        try:
            rewrite.rewrite(
                str(case.directory), [SERVING], str(target), fixed=fixed, change="unrolled"
            )
        # Whatever it is, a test is to say so.
        except Exception as error:  # noqa: BLE001
            results[name] = Result(kind=type(error).__name__, error=str(error))
            continue
        results[name] = compared(tf, case, target)
    (root / "results.json").write_bytes(msgspec.json.encode(results))


def compared(tf: Any, case: Case, target: Path) -> Result:
    """The unrolled model in `target` beside the one it was made from."""
    before = tf.saved_model.load(str(case.directory)).signatures[SERVING]
    after = tf.saved_model.load(str(target)).signatures[SERVING]
    graph = after.graph.as_graph_def()
    # The signature is a call of the function that was traced.
    functions = graph.library.function
    nodes = [node for function in functions for node in function.node_def]
    found = {node.op for node in nodes} - {"StatefulPartitionedCall"}
    feeds = {name: tf.constant(value) for name, value in case.inputs.items()}
    expected, actual, again = before(**feeds), after(**feeds), after(**feeds)
    return Result(
        left=tuple(sorted(op for op in found if any(loop in op for loop in LOOP_OPERATORS))),
        worst=max(
            worst_relative(expected[name].numpy(), actual[name].numpy()) for name in expected
        ),
        outputs=tuple(sorted(actual)),
        nodes=len(nodes),
        is_random=any(np.any(actual[n].numpy() != again[n].numpy()) for n in actual),
    )


def worst_relative(want: np.ndarray, have: np.ndarray) -> float:
    """The largest error beside the largest value; a billion for another shape or type."""
    if want.shape != have.shape or want.dtype != have.dtype:
        return 1e9
    if want.dtype.kind != "f":
        return float(np.any(want != have))
    scale = float(np.max(np.abs(want), initial=1e-30))
    return float(np.max(np.abs(want - have), initial=0.0)) / scale


def keras_cases(root: Path, keras: Any) -> dict[str, Case]:
    """Recurrent layers of Keras 3; `steps` is (batch, 5, 8)."""
    layers = keras.layers
    keras.utils.set_random_seed(17)
    rng = np.random.default_rng(4)
    steps = rng.standard_normal((1, 5, 8), np.float32)
    padded = steps.copy()
    padded[:, 3:] = 0
    frames = rng.standard_normal((1, 4, 6, 6, 2), np.float32)
    made = {}

    def add(name: str, *stack: Any, values: np.ndarray = steps, batch: int = 1) -> None:
        shape = values.shape[1:]
        tensor = layers.Input(shape, name="steps")
        x = tensor
        for layer in stack:
            x = layer(x)
        keras.Model(tensor, x).export(str(root / name), verbose=False)
        made[name] = Case(root / name, {"steps": values}, batch)

    add("lstm", layers.LSTM(6))
    add("lstm_sequences", layers.LSTM(6, return_sequences=True))
    add("gru", layers.GRU(6))
    add("gru_before", layers.GRU(6, reset_after=False, return_sequences=True))
    add("simple_rnn", layers.SimpleRNN(6, return_sequences=True))
    add("backwards", layers.LSTM(6, go_backwards=True, return_sequences=True))
    add("bidirectional", layers.Bidirectional(layers.LSTM(5, return_sequences=True)))
    add("bidirectional_sum", layers.Bidirectional(layers.GRU(5), merge_mode="sum"))
    add("stacked", layers.LSTM(6, return_sequences=True), layers.GRU(5), layers.Dense(3))
    add("masked", layers.Masking(), layers.LSTM(6), values=padded)
    add("masked_sequences", layers.Masking(), layers.GRU(6, return_sequences=True), values=padded)
    add("batch_of_three", layers.LSTM(6), values=np.tile(steps, (3, 1, 1)) * 0.5, batch=3)
    add("conv_lstm", layers.ConvLSTM2D(3, 3, padding="same"), values=frames)
    add(
        "conv_lstm_sequences",
        layers.ConvLSTM2D(2, 3, strides=2, return_sequences=True),
        values=frames,
    )
    add("time_distributed", layers.TimeDistributed(layers.Dense(3)), layers.LSTM(4))
    dropped = layers.LSTM(6, dropout=0.5, recurrent_dropout=0.5)
    add("dropout", dropped)
    return made


def module_cases(root: Path, tf: Any) -> dict[str, Case]:
    """Loops and branches of TensorFlow itself; `x` is (batch, 4)."""
    from saved_functions import save

    rng = np.random.default_rng(5)
    w = tf.Variable(rng.standard_normal((4, 4)).astype(np.float32) * 0.4)
    x = rng.standard_normal((2, 4)).astype(np.float32)
    counted = tf.Variable(0.0)
    made = {}

    def add(
        name: str,
        call: Any,
        specs: Any = None,
        shapes: dict[str, tuple[int, ...]] | None = None,
        **inputs: np.ndarray,
    ) -> None:
        given = inputs or {"x": x}
        save(root / name, call, **(specs or {"x": [None, 4]}))
        made[name] = Case(root / name, given, len(next(iter(given.values()))), shapes or {})

    def turns(count: Any, body: Any, x: Any) -> Any:
        return tf.while_loop(lambda i, _: i < count, lambda i, y: (i + 1, body(i, y)), (0, x))[1]

    add("while", lambda x: {"y": turns(5, lambda _, y: tf.tanh(y @ w) + x, x)})
    add(
        "nested",
        lambda x: {"y": turns(3, lambda i, y: turns(i + 1, lambda _, z: tf.tanh(z @ w), y), x)},
    )
    add("no_turns", lambda x: {"y": turns(0, lambda _, y: y @ w, x) + 1.0})
    add("many_turns", lambda x: {"y": turns(300, lambda i, y: y * 0.99 + x, x)})
    add("too_many_turns", lambda x: {"y": turns(5000, lambda i, y: y * 0.99, x)})
    add(
        "turns_of_input",
        lambda x: {
            "y": turns(tf.cast(tf.abs(x[0, 0]) * 3, tf.int32), lambda i, y: tf.tanh(y @ w), x)
        },
    )
    add(
        "until_small",
        lambda x: {
            "y": tf.while_loop(
                lambda y: tf.reduce_sum(tf.abs(y)) > 0.5, lambda y: (tf.tanh(y @ w) * 0.5,), (x,)
            )[0]
        },
    )
    add(
        "maximum_iterations",
        lambda x: {
            "y": tf.while_loop(
                lambda i, _: True,
                lambda i, y: (i + 1, tf.tanh(y @ w)),
                (0, x),
                maximum_iterations=4,
            )[1]
        },
    )
    add(
        "turns_of_shape",
        lambda x: {"y": turns(tf.shape(x)[0], lambda i, y: y + tf.cast(i, tf.float32), x)},
    )
    add("cond_static", lambda x: {"y": tf.cond(tf.shape(x)[1] > 3, lambda: x @ w, lambda: x - 1.0)})
    add(
        "cond_in_loop",
        lambda x: {
            "y": turns(
                4, lambda i, y: tf.cond(i % 2 == 0, lambda: y @ w, lambda: tf.tanh(y) - x), x
            )
        },
    )
    add(
        "cond_of_input",
        lambda x: {
            "y": turns(
                2, lambda i, y: tf.cond(tf.reduce_sum(x) > 0, lambda: y @ w, lambda: tf.tanh(y)), x
            )
        },
    )
    add(
        "switch_case",
        lambda x: {
            "y": turns(
                3, lambda i, y: tf.switch_case(i, [lambda: y @ w, lambda: y + 1, lambda: -y]), x
            )
        },
    )
    for name, call in array_cases(tf, w).items():
        add(name, call)
    add("map_fn", lambda x: {"y": tf.map_fn(lambda row: tf.tanh(row) * 2.0, x @ w)})
    add("scan", lambda x: {"y": tf.scan(lambda a, row: tf.tanh(a + row), x, tf.zeros([4]))})
    add("foldl", lambda x: {"y": tf.foldl(lambda a, row: a * 0.5 + row, x @ w)})
    add("reverse", lambda x: {"y": turns(2, lambda _, y: tf.reverse(y, [-1]) @ w, x)})
    add("reverse_two_axes", lambda x: {"y": tf.reverse(x, [0, 1]) @ w})
    add("reverse_sequence", lambda x: {"y": tf.reverse_sequence(x, [3, 1], seq_axis=1) @ w})
    add("split_equal", lambda x: {f"y{i}": y for i, y in enumerate(tf.split(x @ w, 2, axis=-1))})
    add(
        "split_unequal",
        lambda x: {
            f"y{i}": y for i, y in enumerate(tf.split(turns(2, lambda _, y: y @ w, x), [1, 3], 1))
        },
    )
    add("split_rest", lambda x: {f"y{i}": y for i, y in enumerate(tf.split(x @ w, [1, -1, 2], 1))})
    add("split_first_axis", lambda x: {f"y{i}": y for i, y in enumerate(tf.split(x, 2))})
    add("random", lambda x: {"y": x @ w + 1e-3 * tf.random.normal([2, 4])})
    add("random_in_loop", lambda x: {"y": turns(2, lambda _, y: y + tf.random.normal([4]), x)})
    add("counting", lambda x: {"y": x @ w + counted.assign_add(1.0)})
    add("checked", lambda x: {"y": turns(2, lambda i, y: checked(tf, y) @ w, x)})
    add("identity", lambda x: {"same": x, "y": turns(2, lambda _, y: y @ w, x)})
    add("constant_output", lambda x: {"n": turns(5, lambda i, y: y + i, 1), "y": x @ w})
    add("two_names", lambda x: two_names(turns(2, lambda _, y: y @ w, x)))
    pair = {
        "zeta": rng.standard_normal((2, 3)).astype(np.float32),
        "alpha": rng.integers(0, 4, (2, 5)),
        "mid": np.array([[True, False, True], [False, False, True]]),
    }
    add(
        "kinds",
        lambda zeta, alpha, mid: {
            "b": turns(2, lambda i, y: tf.where(mid, y * 2.0, -y), zeta),
            "a": turns(3, lambda i, n: n * 2 + 1, alpha),
            "m": turns(1, lambda i, n: tf.logical_not(n), mid),
        },
        {"zeta": [None, 3], "alpha": ([None, 5], tf.int64), "mid": ([None, 3], tf.bool)},
        **pair,
    )
    add(
        "unused_input",
        lambda x, unused: {"y": turns(2, lambda _, y: y @ w, x)},
        {"x": [None, 4], "unused": [None, 2]},
        x=x,
        unused=x[:, :2],
    )
    add(
        "open_length",
        lambda x: {"y": tf.reverse(turns(2, lambda _, y: tf.tanh(y) + 1.0, x), [1])},
        {"x": [None, None]},
        shapes={"x": (2, -1)},
    )
    add(
        "open_split",
        lambda x: {"y": tf.split(turns(2, lambda _, y: tf.tanh(y) + 1.0, x), 2, axis=1)[0]},
        {"x": [None, None]},
        shapes={"x": (2, -1)},
    )
    add(
        "length_fixed",
        lambda x: {"y": tf.scan(lambda a, c: a + c, tf.transpose(x), tf.zeros([2]))},
        {"x": [None, None]},
        shapes={"x": (2, 4)},
    )
    add("table", lambda x: {"y": tf.gather(w, tf.cast(tf.abs(x[:, 0]) * 1.5, tf.int32)) + x})
    add("ragged", lambda x: {"y": tf.RaggedTensor.from_row_lengths(x[0], [1, 3]).to_tensor()})
    add("text_inside", lambda x: {"y": x @ w, "n": tf.strings.length(tf.constant(["abc"]))})
    add("large_constant", lambda x: {"y": turns(3, lambda i, y: y + big(tf, i), x)})
    return made


def two_names(y: Any) -> dict[str, Any]:
    return {"first": y, "second": y}


def big(tf: Any, i: Any) -> Any:
    """A sum over more numbers than are folded, which depends on the turn."""
    return tf.cast(tf.reduce_sum(tf.range(5000) * (i + 1)), tf.float32) * 1e-8


def checked(tf: Any, y: Any) -> Any:
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(y < 1e9), [y])]):
        return tf.identity(y)


def array_cases(tf: Any, w: Any) -> dict[str, Any]:
    """Arrays that loops write, and others."""

    def array(size: int, **options: Any) -> Any:
        return tf.TensorArray(tf.float32, size, element_shape=[2, 4], **options)

    def written(out: Any, turns: int, write: Any) -> Any:
        return tf.while_loop(lambda i, _: i < turns, lambda i, o: (i + 1, write(i, o)), (0, out))[1]

    def multiples(x: Any) -> Any:
        return written(array(3), 3, lambda i, o: o.write(i, x * tf.cast(i, tf.float32)))

    def arrays(x: Any) -> Any:
        def body(i: Any, y: Any, out: Any) -> Any:
            y = tf.tanh(y @ w)
            return i + 1, y, out.write(i, y)

        _, _, out = tf.while_loop(lambda i, *_: i < 3, body, (0, x, array(3)))
        return {"all": out.stack(), "last": out.read(2), "n": out.size()}

    def scattered(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 2, element_shape=[4]).scatter([1, 0], x)
        y = tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y + rows.read(i)), (0, x[0]))
        return {"y": y[1]}

    def split(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, 2, infer_shape=False).split(x, [1, 1])
        return {"y": rows.read(0) + rows.read(1)}

    def dynamic(x: Any) -> Any:
        out = array(0, dynamic_size=True)
        return {"y": written(out, 3, lambda i, o: o.write(i, tf.tanh(x @ w))).stack()}

    def empty(x: Any) -> Any:
        none = written(array(0), 0, lambda i, o: o.write(i, x))
        return {"none": none.stack(), "y": x @ w}

    return {
        "arrays": arrays,
        "array_concat": lambda x: {"y": multiples(x).concat() @ w},
        "array_gather": lambda x: {"y": multiples(x).gather([2, 0]) @ w},
        "array_scatter": scattered,
        "array_split": split,
        "array_dynamic": dynamic,
        "array_empty": empty,
        "array_unwritten": lambda x: {
            "y": written(array(3), 2, lambda i, o: o.write(i + 1, x @ w)).stack()
        },
    }


def graph_cases(root: Path, tf: Any) -> dict[str, Case]:
    """Models of TensorFlow 1; `x` is (batch, 5, 4), and its loops are made of single operators."""
    v1 = tf.compat.v1
    x = np.random.default_rng(6).standard_normal((1, 5, 4)).astype(np.float32)
    made = {}
    for name, modern in (("graph_loop", False), ("graph_while", True)):
        with tf.Graph().as_default(), v1.Session() as session:
            (v1.enable_control_flow_v2 if modern else v1.disable_control_flow_v2)()
            tensor = v1.placeholder(tf.float32, [None, 5, 4], name="x")
            weight = v1.get_variable("w", [4, 4], initializer=v1.random_normal_initializer(seed=2))
            y = tf.while_loop(
                lambda i, _: i < 5,
                lambda i, y, t=tensor, w=weight: (i + 1, tf.tanh(y @ w) + t[:, i]),
                (0, tensor[:, 0]),
            )[1]
            session.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(session, str(root / name), {"x": tensor}, {"y": y})
        v1.enable_control_flow_v2()
        made[name] = Case(root / name, {"x": x})
    return made


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main(Path(sys.argv[1]))
