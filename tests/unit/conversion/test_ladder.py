"""Which attempt follows which, and how the command line says what belongs to which input."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_saved_model import FLOAT, meta_graph, signature, tensor, write_saved_model
from tiny_tflite import Graph, float_model, packed
from wording import fails, says

from edgeconv.conversion.ladder import (
    ModelFacts,
    Rung,
    combined_error,
    facts_of,
    first_rung,
    is_curable,
    next_rung,
)
from edgeconv.conversion.plan import REVISION, Plan, make_plan, resolve
from edgeconv.conversion.prepare import Part, PreparedModel, dynamic_notes
from edgeconv.conversion.run import Split
from edgeconv.data import Samples, parse_source, write_samples
from edgeconv.requests.convert import ConvertRequest, named_shapes
from edgeconv.requests.recipes import make_recipes
from edgeconv.requests.texts import KEYED_SOURCE, by_signature
from edgeconv.tf.shapes import FixedShapes
from edgeconv.types import Signature, TensorSpec
from edgeconv.types.errors import (
    BatchRefused,
    Cause,
    ConversionRefused,
    InputRefused,
    NotFinite,
    ToolFailed,
    UnsupportedOperators,
    UsageError,
    VerificationFailed,
    WorkerCrashed,
    WorkerKilled,
    WorkerOutOfMemory,
    WorkerTimedOut,
)

OPEN, WITHIN = (-1, 4), (-1, -1)


def start(plan: Plan) -> Rung:
    """The rung that is tried first."""
    return first_rung(plan.request.batch, plan.request.shapes)


@pytest.fixture
def plan(tmp_path):
    def make(**asked: object) -> Plan:
        ends = signature({"x": tensor(OPEN, FLOAT)}, {"y": tensor(OPEN, FLOAT)})
        model = write_saved_model(tmp_path / "model", meta_graph({"serving_default": ends}))
        return make_plan(
            ConvertRequest(
                model=str(model), directory=str(tmp_path / "out"), to=("float32",), **asked
            )
        )

    return make


@pytest.fixture
def prepared(tmp_path):
    def make(
        plan: Plan,
        operator: str,
        shape: tuple[int, ...] = OPEN,
        samples: tuple[int, ...] | None = None,
    ) -> PreparedModel:
        graph = Graph()
        x, y = graph.tensor("x", (1, 4), "float32"), graph.tensor("y", (1, 4), "float32")
        graph.operator(operator, [x], [y])
        file = tmp_path / "float.tflite"
        file.write_bytes(packed(graph.model([x], [y], signature=("serve", ["x"], ["y"]))))
        held_back = tmp_path / "held-back"
        write_samples(Samples({"x": np.zeros(samples or (2, 4), np.float32)}, None, ""), held_back)
        spec = TensorSpec(name="x", shape=shape, dtype="float32")
        part = Part(
            signature=Signature(key="serve", inputs=(spec,), outputs=()),
            split=Split(
                calibration=held_back if samples else None,
                held_back=held_back,
                held_back_count=2,
                sha256="0" * 64,
                record=None,
                batch=1,
            ),
        )
        return PreparedModel(
            rung=start(plan), float_model=file, parts=(part,), saved_model="model", reference=None
        )

    return make


FAILED = ModelFacts(converts=False)


def rungs(plan: Plan, known: PreparedModel | ModelFacts) -> list[str]:
    """All attempts, where each tells the same of the model."""
    rung, texts = start(plan), []
    while rung is not None:
        texts.append(rung.text)
        rung = next_rung(plan, rung, known if isinstance(known, ModelFacts) else facts_of(known))
    return texts


def test_a_model_that_gives_no_graph_is_fixed_and_then_unrolled(plan):
    assert rungs(plan(), FAILED) == [
        "as it is",
        "batch fixed to 1",
        "loops unrolled, batch fixed to 1",
    ]


def test_a_model_that_gives_no_graph_is_not_tried_on_a_rung_that_changes_nothing(plan):
    assert rungs(plan(), FAILED._replace(has_loops=False)) == ["as it is", "batch fixed to 1"]
    assert rungs(plan(), FAILED._replace(is_open=False, has_loops=False)) == ["as it is"]


@pytest.mark.parametrize(
    ("kind", "loader", "attempts"),
    [
        ("hdf5", "keras", ["as it is", "loaded with tf_keras"]),
        # Keras 3 could not read it, or would read something else.
        ("hdf5", "tf_keras", ["as it is"]),
        ("hdf5", "", ["as it is"]),
        ("keras", "tf_keras", ["as it is", "loaded with keras"]),
        ("keras", "keras", ["as it is"]),
        ("saved_model", "", ["as it is"]),
    ],
)
def test_a_keras_file_that_both_versions_read_is_tried_with_the_other(kind, loader, attempts, plan):
    one = plan()
    one = msgspec.structs.replace(one, model=msgspec.structs.replace(one.model, kind=kind))
    known = FAILED._replace(loader=loader, is_open=False, has_loops=False)
    assert rungs(one, known) == attempts


def test_the_keras_that_gave_a_graph_is_the_one_to_go_on_with(plan):
    one = plan()
    one = msgspec.structs.replace(one, model=msgspec.structs.replace(one.model, kind="hdf5"))
    other = next_rung(one, start(one), FAILED._replace(loader="keras"))
    assert other.other_keras
    fixed = next_rung(one, other, ModelFacts(converts=True))
    assert (fixed.text, fixed.other_keras) == ("loaded with tf_keras, batch fixed to 1", True)
    assert not next_rung(one, other, FAILED).other_keras


def refused(*operators: str, message: str = "", hint: str = "replace it") -> UnsupportedOperators:
    return UnsupportedOperators(
        message or f"no {', '.join(operators)}", hint=hint, cause=Cause(operators=operators)
    )


def test_attempts_that_all_failed_name_the_likeliest_cause_and_each_of_them():
    failures = [
        ("as it is", refused("TensorListReserve", "MatrixInverse")),
        ("batch fixed to 1", refused("MatrixInverse", message="no MatrixInverse\n  the log: x")),
        ("loops unrolled", ToolFailed("the converter was ended by SIGSEGV")),
    ]
    error = combined_error(failures)
    assert isinstance(error, UnsupportedOperators)
    assert str(error).splitlines() == [
        "no MatrixInverse",
        "  the log: x",
        "  tried as it is: no TensorListReserve, MatrixInverse",
        "  tried batch fixed to 1: the same",
        "  tried loops unrolled: the converter was ended by SIGSEGV",
        "  next: replace it",
    ]


def test_where_no_operator_is_refused_each_time_the_model_as_it_is_says_why():
    failures = [("as it is", refused("Conv2D")), ("batch fixed to 1", refused("While"))]
    assert combined_error(failures).message.startswith("no Conv2D\n  tried as it is: the same")


def in_float(*operators: str) -> VerificationFailed:
    names = ",".join(operators)
    return VerificationFailed(
        f"in float: {names}", hint="leave out --io", cause=Cause(operators=operators)
    )


def too_far(snr_db: float) -> VerificationFailed:
    return VerificationFailed(f"SNR {snr_db} dB", cause=Cause(snr_db=snr_db))


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        # The loop is unrolled, and one operator stands in the way.
        ([in_float("DEQUANTIZE", "NEG", "QUANTIZE", "RESHAPE", "WHILE"), in_float("NEG")], 1),
        ([in_float("NEG"), in_float("NEG", "RESHAPE")], 0),
        # What was compared with the float model is past all operators.
        ([in_float("WHILE"), too_far(3.0), in_float("NEG")], 1),
        ([VerificationFailed("a scale of 9e35"), in_float("NEG")], 1),
        ([refused("TensorListReserve"), ToolFailed("no"), in_float("NEG", "LOG")], 2),
        # The same operator: the hint is for the model whose dimensions are fixed.
        ([refused("Conv3D", hint="fix the batch"), refused("Conv3D")], 1),
        # A fixed batch removes the lists, and what is left is the cause.
        ([refused("TensorListReserve"), refused("StringLower")], 1),
        ([refused("TensorListReserve"), refused("TensorListReserve")], 0),
    ],
)
def test_the_headline_and_the_hint_are_those_of_the_attempt_that_came_farthest(errors, best):
    error = combined_error([(f"attempt {number}", each) for number, each in enumerate(errors)])
    assert error.headline == errors[best].headline
    assert error.hint == errors[best].hint


def test_one_attempt_speaks_for_itself():
    error = refused("Conv2D")
    assert combined_error([("as it is", error)]) is error


def test_a_graph_without_loops_or_open_sizes_is_tried_once(plan, prepared):
    one = plan()
    assert rungs(one, prepared(one, "RELU")) == ["as it is"]


@pytest.mark.parametrize("operator", ["WHILE", "IF", "CALL_ONCE", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_a_graph_with_a_loop_is_fixed_and_then_unrolled(operator, plan, prepared):
    one = plan()
    steps = ["as it is", "batch fixed to 1", "loops unrolled, batch fixed to 1"]
    assert rungs(one, prepared(one, operator)) == steps


def test_a_graph_with_a_loop_and_no_open_size_is_unrolled_at_once(plan, prepared):
    one = plan()
    steps = ["as it is", "loops unrolled, batch fixed to 1"]
    assert rungs(one, prepared(one, "WHILE", (1, 4))) == steps


def test_open_sizes_within_a_sample_become_those_of_the_samples(plan, prepared):
    one = plan()
    given_samples = prepared(one, "RELU", WITHIN, samples=(2, 7))
    rung = next_rung(one, start(one), facts_of(given_samples))
    assert rung.text == "shapes fixed to those of the samples: x [1, 7]"
    assert rung.fixed == FixedShapes(batch=1, by_input={"x": (1, 7)}, only_open=True)


def test_the_shapes_of_the_samples_stay_fixed_where_loops_are_unrolled(plan):
    """A tagger of sentences: with its length open again, its loops could not be unrolled."""
    one = plan()
    fixed = next_rung(one, start(one), FAILED._replace(shapes={"x": (1, 7)}))
    unrolled = next_rung(one, fixed, ModelFacts(converts=True, is_open=False, has_loops=True))
    assert unrolled.text == "loops unrolled, shapes fixed to those of the samples: x [1, 7]"
    assert unrolled.fixed == fixed.fixed


def test_made_up_samples_say_nothing_of_a_models_sizes(plan, prepared):
    one = plan()
    rung = next_rung(one, start(one), facts_of(prepared(one, "RELU", WITHIN)))
    assert rung.fixed.by_input == {}


def test_what_the_user_fixes_stays_fixed_so_on_every_rung(plan):
    one = plan(batch=3)
    assert rungs(one, FAILED) == ["batch fixed to 3", "loops unrolled, batch fixed to 3"]
    one = plan(shapes={"x": (2, 4)})
    first = start(one)
    assert first.text == "x fixed to [2, 4]"
    assert next_rung(one, first, FAILED).fixed.by_input == {"x": (2, 4)}


def test_a_batch_that_was_fixed_is_not_what_stopped_the_conversion():
    failures = [
        ("as it is", BatchRefused("the model takes one sample at a time")),
        ("batch fixed to 1", ConversionRefused("TensorFlow's converter does not take it")),
    ]
    error = combined_error(failures)
    assert isinstance(error, ConversionRefused)
    says(error)


def test_a_tflite_source_has_one_rung(tmp_path):
    file = tmp_path / "model.tflite"
    file.write_bytes(packed(float_model()))
    one = make_plan(
        ConvertRequest(model=str(file), directory=str(tmp_path / "out"), to=("float32",))
    )
    assert rungs(one, FAILED) == ["as it is"]


@pytest.mark.parametrize(
    "error",
    [
        ConversionRefused("TensorFlow's converter does not take this model"),
        VerificationFailed("int8: operators compute in float: WHILE"),
        WorkerCrashed("litert-quantizer was ended by SIGSEGV"),
        ToolFailed("litert-quantizer: no"),
        UnsupportedOperators("the model needs TensorListReserve"),
        UnsupportedOperators("the model has Conv2D in a form that TFLite does not have"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_change_of_the_model_may_cure(error):
    assert is_curable(error)


@pytest.mark.parametrize(
    "error",
    [
        WorkerTimedOut("TensorFlow's converter did not end within 1 s"),
        WorkerOutOfMemory("TensorFlow's converter used more than 30 MiB"),
        WorkerKilled("TensorFlow's converter was ended by SIGKILL"),
        NotFinite("float32: output 'y' has values that are not finite"),
        InputRefused("bad.npz: 1 NaN"),
        UsageError("unknown signature"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_change_of_the_model_cures(error):
    assert not is_curable(error)


def test_dimensions_that_stay_open_are_said_with_the_input(plan):
    specs = (
        TensorSpec(name="image", shape=(-1, -1, -1, 3), dtype="float32"),
        TensorSpec(name="row", shape=(-1, 8), dtype="float32"),
    )
    (note,) = dynamic_notes((Signature(key="serve", inputs=specs, outputs=()),))
    assert note.startswith("input 'image' keeps its dynamic shape [?, ?, ?, 3]")


# The plan


def test_a_batch_and_a_shape_that_contradict_each_other_are_refused(plan):
    with fails(UsageError):
        plan(batch=2, shapes={"x": (1, 4)})
    assert plan(batch=2, shapes={"x": (2, 4)}).request.batch == 2
    assert plan(batch=2, shapes={"x": (-1, 4)}).request.batch == 2


def test_the_shape_of_an_unknown_input_is_refused_with_the_likely_one(plan):
    with fails(UsageError):
        resolve(plan(shapes={"xx": (1, 4)}))


def test_samples_for_an_unknown_signature_are_refused(plan, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((9, 4), np.float32))
    with fails(UsageError):
        resolve(plan(calibration={"serving_defalt": parse_source(str(tmp_path / "x.npz"))}))


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": 2},
        {"shapes": {"x": (1, 4)}},
        {"signature": ("serving_default",)},
        {"select_ops": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_changes_the_float_graph_changes_its_key(changed, plan):
    assert plan(**changed).float_key != plan().float_key


def test_what_the_code_makes_otherwise_is_made_again(plan, monkeypatch):
    made = plan()
    (recipe,) = make_recipes(["float32"])
    float_key, artifact_key = made.float_key, made.key(recipe)
    monkeypatch.setattr("edgeconv.conversion.plan.REVISION", REVISION + 1)
    assert made.float_key != float_key
    assert made.key(recipe) != artifact_key


# The command line


def sources_of(texts, values):
    sources = by_signature([KEYED_SOURCE.parse(text) for text in texts], values)
    return {key: str(source) for key, source in sources.items()}


def test_a_source_without_a_key_is_for_every_signature():
    assert sources_of(("a.npz",), {("signature",): ()}) == {"": "a.npz"}
    assert sources_of(("a.npz",), {("signature",): ("encode", "decode")}) == {"": "a.npz"}


def test_a_key_before_the_equals_sign_names_a_signature_that_is_asked_for():
    texts = ("encode=a.npz", "decode=npz:b.npz?x=images", "rest.npz")
    assert sources_of(texts, {("signature",): ("encode", "decode")}) == {
        "encode": "a.npz",
        "decode": "npz:b.npz?x=images",
        "": "rest.npz",
    }
    assert sources_of(texts[:1], {("signature",): ("all",)}) == {"encode": "a.npz"}


@pytest.mark.parametrize(
    "path", ["x=1.npz", "runs/lr=0.1/a.npz", "npz:a.npz?x=images", "=a.npz", "a.npz?x=y"]
)
def test_an_equals_sign_in_a_path_is_part_of_it(path):
    assert sources_of((path,), {("signature",): ("encode", "decode")}) == {"": path}


def test_two_sources_for_one_signature_are_refused():
    with fails(UsageError):
        sources_of(("encode=a.npz", "encode=b.npz"), {("signature",): ("encode",)})
    with fails(UsageError):
        sources_of(("a.npz", "b.npz"), {("signature",): ("encode",)})


def test_a_shape_is_read_with_its_input_and_open_places():
    assert named_shapes(["image=1x224x?x3"]) == {"image": (1, 224, -1, 3)}
    assert named_shapes(["a=b=7"]) == {"a=b": (7,)}


@pytest.mark.parametrize(
    "text",
    ["1x4", "=1x4", "x=", "x=1x", "x=1x0", "x=1x-4", "x=1,4", "x=1x4.0", "x=1xx4", "x=1X4", "x=²"],
)
def test_what_is_no_shape_is_refused(text):
    with fails(UsageError):
        named_shapes([text])


@given(st.lists(st.none() | st.integers(1, 10**6), min_size=1, max_size=6))
def test_every_shape_that_is_written_is_read_back(sizes):
    text = "x".join("?" if size is None else str(size) for size in sizes)
    shape = tuple(-1 if size is None else size for size in sizes)
    assert named_shapes([f"in={text}"]) == {"in": shape}
