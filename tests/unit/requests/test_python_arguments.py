"""Verbs in Python: the words of the command line, and what is in memory in place of files."""

import contextlib
import inspect
import math
import os
import tracemalloc
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest
from report_example import report as example_report
from tiny_tflite import BIASES, WEIGHTS, float_model, packed
from wording import fails

import edgeconv
from edgeconv.data.checks import LabelNeed
from edgeconv.data.source import open_samples
from edgeconv.requests.check import CheckRequest
from edgeconv.requests.convert import ConvertRequest
from edgeconv.requests.in_memory import InMemory
from edgeconv.requests.request import MissingOption, leaves_of
from edgeconv.requests.table import VERBS, called
from edgeconv.requests.training import TrainRequest
from edgeconv.requests.tune import TuneRequest
from edgeconv.types import (
    Conversion,
    Failure,
    GateStatistics,
    LayerRule,
    Opening,
    Qat,
    Recipe,
    TensorSpec,
    Training,
)
from edgeconv.types.errors import InputRefused, ToolFailed, UsageError

RNG = np.random.default_rng(5)
X = RNG.normal(size=(120, 4)).astype(np.float32)
Y = (X @ WEIGHTS.T.astype(np.float32) + BIASES).argmax(axis=1)
SPEC = (TensorSpec(name="x", shape=(-1, 4), dtype="float32"),)


class Taken(NamedTuple):
    """Samples as a model gets them."""

    arrays: dict[str, Any]
    labels: Any
    text: str


def taken(
    value: Any,
    inputs: tuple[TensorSpec, ...] = SPEC,
    *,
    needs: LabelNeed = "classes",
    outputs: tuple[str, ...] = (),
    **others: Any,
) -> Taken:
    """What `convert` would read of `calibration=value`."""
    with contextlib.ExitStack() as stack:
        memory = InMemory(stack)
        arguments = {"to": "int8", "calibration": value, **others}
        with memory.named(leaves_of(ConvertRequest)):
            request = called(ConvertRequest, ("m",), arguments, memory.filed)
            (source,) = request.calibration.values()
            use = edgeconv.data.LabelUse(needs=needs, outputs=outputs)
            opened = open_samples(source, inputs, labels=use)
            samples = opened.take(np.arange(opened.count))
            return Taken(dict(samples.arrays), opened.labels, opened.text)


def batches(count: int = 3) -> Iterator[tuple[Any, Any]]:
    for rows in np.array_split(np.arange(len(X)), count):
        yield X[rows], Y[rows]


class Sequence:
    """As keras.utils.Sequence is: batches by number, without an end of its own."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return X[number * 60 :][:60], Y[number * 60 :][:60]


class Tensor:
    """What gives an array, as a tensor does."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


# The arguments of a verb


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"demo", "visualize"}))
def test_a_signature_has_the_words_of_the_command_with_types_and_defaults(name):
    parameters = inspect.signature(getattr(edgeconv, name)).parameters
    for leaf in leaves_of(VERBS[name].kind):
        parameter = parameters[leaf.key.replace("-", "_")]
        assert isinstance(parameter.annotation, str)
        if not leaf.is_required and leaf.raw_default != () and not leaf.option.takes_rest:
            assert parameter.default == leaf.raw_default
    assert "directory" not in parameters
    assert {"any_code", "by_table"}.isdisjoint(parameters)


def test_a_signature_begins_with_what_must_be_given():
    parameters = list(inspect.signature(edgeconv.convert).parameters.values())
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert [each.name for each in parameters if each.kind is either] == ["model", "to"]
    by_name = {each.name: each for each in parameters}
    assert by_name["model"].annotation == "Model"
    assert by_name["calibration"].annotation == "Samples | Mapping[str, Samples] | None"
    assert (by_name["out"].annotation, by_name["out"].default) == (
        "str | PathLike[str] | None",
        None,
    )
    assert (by_name["qat_epochs"].annotation, by_name["qat_epochs"].default) == ("int", 5)
    trained = inspect.signature(edgeconv.qat).parameters
    assert [*trained][:2] == ["model", "training"]
    assert (trained["training"].default, trained["to"].default) == (inspect.Parameter.empty, "qat")


def test_completion_offers_verbs_and_values_only():
    offered = set(dir(edgeconv))
    assert {*edgeconv.__all__, "__version__", "EdgeconvError"} <= offered
    others = offered - {*edgeconv.__all__, "__version__", "EdgeconvError"}
    assert all(issubclass(getattr(edgeconv, name), msgspec.Struct) for name in others)
    assert not [name for name in others if name.endswith("Request")]


def test_arguments_are_typed_as_on_the_command_line():
    request = called(
        ConvertRequest,
        (Path("m.keras"), ["int8", Recipe(name="float16")]),
        {
            "out": Path("here"),
            "io": ["input=int8"],
            "shape": {"x": (1, 4)},
            "layer": ["CONV_2D=int8", LayerRule(pattern="a", precision="int4")],
            "samples": np.int64(7),
            "threads": 2,
            "memory_limit_mib": 3,
            "no_cache": True,
            "qat_epochs": 9,
            "tag": "serve,gpu",
            "opening": Opening(custom_objects=("mine",)),
            "allow_code": True,
        },
    )
    assert (request.model, request.directory) == ("m.keras", "here")
    assert request.to == ("int8", Recipe(name="float16"))
    assert (request.input_type, request.output_type) == ("int8", "float32")
    assert request.shapes == {"x": (1, 4)}
    assert [rule.precision for rule in request.layers] == ["int8", "int4"]
    assert (request.samples, request.execution.threads) == (7, 2)
    assert request.execution.allowance.memory_bytes == 3 << 20
    assert (request.execution.use_cache, request.execution.allow_code) == (False, True)
    assert request.qat.epochs == 9
    # A word beside the value that it belongs to.
    assert request.opening == Opening(custom_objects=("mine",), tags=("serve", "gpu"))


@pytest.mark.parametrize(
    ("positional", "arguments"),
    [
        (("m",), {}),
        (("m", "int8", "out"), {}),
        (("m", "int8"), {"to": "int8"}),
        (("m", "int8"), {"directory": "x"}),
        (("m", "int8"), {"calibrations": "x"}),
        (("m", "int8"), {"qat_epochs": "3"}),
        (("m", "int8"), {"qat_epochs": [3]}),
        (("m", "int8"), {"out": 3}),
        (("m", "int8"), {"layer": LayerRule}),
        (("m", "int8"), {"allow_code": "yes"}),
        (("m", 8), {}),
        (("m", [example_report()]), {}),
        ((3, "int8"), {}),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(positional, arguments):
    with contextlib.ExitStack() as stack, fails((UsageError, InputRefused)):
        called(ConvertRequest, positional, arguments, InMemory(stack).filed)


@pytest.mark.parametrize(
    ("kind", "arguments", "word"),
    [
        (ConvertRequest, {"batch": 0}, "batch"),
        (ConvertRequest, {"samples": 0}, "samples"),
        (ConvertRequest, {"qat": Qat(epochs=0)}, "qat_epochs"),
        (ConvertRequest, {"qat": Qat(learning_rate=math.nan)}, "qat_learning_rate"),
        (ConvertRequest, {"qat": Qat(validation_fraction=1.0)}, "qat_validation_fraction"),
        (ConvertRequest, {"qat": Qat(warmup_steps=-1)}, "qat_warmup_steps"),
        (TrainRequest, {"epochs": 0}, "epochs"),
        (TrainRequest, {"seed": 2**32}, "seed"),
        (TrainRequest, {"workers": -1}, "workers"),
        (TrainRequest, {"training": Training(module="m", patience=0)}, "patience"),
        (TrainRequest, {"training": Training(module="m", learning_rate=0.0)}, "learning_rate"),
        (TuneRequest, {"max_drop": -0.5}, "max_drop"),
        (TuneRequest, {"max_drop": 0.1, "time_limit_s": 0.0}, "time_limit_s"),
        (CheckRequest, {"statistics": GateStatistics(confidence=1.0)}, "confidence"),
    ],
)
def test_a_number_out_of_range_is_refused_alone_or_in_a_value(kind, arguments, word):
    needed = {ConvertRequest: ("m", "int8"), TuneRequest: ("m", "d.npz"), TrainRequest: ("m",)}
    positional = () if "training" in arguments else needed.get(kind, ())
    with pytest.raises(UsageError, match=rf"^{word} is (refused: .* in the range|not a number)"):
        called(kind, positional, arguments)


def test_of_many_arguments_only_the_closest_is_named():
    with fails(UsageError):
        called(ConvertRequest, ("m", "int8"), {"calibraton": "x.npz"})
    with fails(UsageError):
        called(ConvertRequest, ("m", "int8"), {"zzz": "x.npz"})


def test_a_missing_argument_says_what_to_pass():
    with fails(MissingOption):
        called(ConvertRequest, ("m",), {"calibration": "x.npz"})
    with fails(MissingOption):
        called(ConvertRequest, (), {"to": "int8"})
    with fails(MissingOption):
        called(TuneRequest, ("m",), {"max_drop": 0.1})


# Samples


@pytest.mark.parametrize(
    "value",
    [
        pytest.param((X, Y), id="arrays"),
        pytest.param(({"x": X}, Y), id="by input"),
        pytest.param((X.astype(np.float64), Y[:, None]), id="float64, labels in a column"),
        pytest.param((X.tolist(), Y.tolist()), id="lists"),
        pytest.param((Tensor(X), Tensor(Y)), id="tensors"),
        pytest.param([*batches()], id="a list of batches"),
        pytest.param([[x, y] for x, y in batches()], id="batches as lists"),
        pytest.param([({"x": x}, y) for x, y in batches()], id="batches by input"),
        pytest.param(([*X], Y), id="a list of samples"),
        pytest.param(batches(), id="a generator"),
        pytest.param(batches, id="a function that gives batches"),
        pytest.param(Sequence(), id="batches by number"),
        pytest.param([(x, y) for x, y in zip(X, Y, strict=True)], id="without batches"),
    ],
)
def test_samples_with_labels_are_taken_in_every_form(value):
    found = taken(value)
    assert found.arrays["x"].dtype == np.float32
    np.testing.assert_array_equal(found.arrays["x"], X)
    np.testing.assert_array_equal(found.labels, Y)
    assert found.text.startswith("calibration (")


@pytest.mark.parametrize(
    "value", [X, (X,), {"x": X}, [[X[:1]], [X[1:]]], iter([X]), {"": {"x": X}}]
)
def test_samples_without_labels_are_taken(value):
    found = taken(value)
    np.testing.assert_array_equal(found.arrays["x"], X)
    assert found.labels is None


def test_several_inputs_and_outputs_have_their_names():
    inputs = (
        TensorSpec(name="ids", shape=(-1, 3), dtype="int32"),
        TensorSpec(name="labels", shape=(-1,), dtype="float32"),
    )
    ids, other = RNG.integers(0, 9, (8, 3)), RNG.normal(size=8)
    found = taken(({"ids": ids, "labels": other}, np.arange(8)), inputs)
    assert found.arrays["ids"].dtype == np.int32
    np.testing.assert_array_equal(found.arrays["ids"], ids)
    np.testing.assert_array_equal(found.arrays["labels"], other.astype(np.float32))
    np.testing.assert_array_equal(found.labels, np.arange(8))
    boxes = RNG.normal(size=(120, 4))
    by_output = taken(({"x": X}, {"a": Y, "b": boxes}), needs="numbers", outputs=("a", "b"))
    np.testing.assert_array_equal(by_output.labels["b"], boxes)
    unnamed = taken((X, {"a": Y, "b": boxes}), needs="numbers", outputs=("a", "b"))
    np.testing.assert_array_equal(unnamed.arrays["x"], X)
    np.testing.assert_array_equal(unnamed.labels["b"], boxes)


@pytest.mark.parametrize("dtype", ["float32", "string"])
def test_an_input_of_one_value_a_sample_keeps_its_shape(dtype):
    values = X[:, :1] if dtype == "float32" else np.array([["good"], ["bad film"]])
    one = (TensorSpec(name="x", shape=(-1, 1), dtype=dtype),)
    for given in (values, {"x": values}, (values, Y[: len(values)])):
        assert taken(given, one).arrays["x"].shape == values.shape


@pytest.mark.parametrize("words", [np.array(["a", "bcd"]), np.array(["a", b"bcd"], object)])
def test_texts_are_taken_in_batches_too(words):
    inputs = (TensorSpec(name="word", shape=(-1,), dtype="string"),)
    for value in (words, [words[:1], words[1:]]):
        assert [bytes(each).rstrip(b"\1") for each in taken(value, inputs).arrays["word"]] == [
            b"a",
            b"bcd",
        ]


@pytest.mark.parametrize(
    "value",
    [
        5,
        None,
        X[:0],
        X[:, :3],
        X.astype(np.uint8),
        np.array([[1, None]], object),
        X.astype(complex),
        {"image": X, "more": X},
        {1: X},
        {},
        (X, Y, Y),
        (X, Y[:7]),
        {"x": X, "z": X[:3]},
        [],
        (batches(), Y),
        iter([]),
        [X, X[:, :2]],
        [{"x": X}, {"y": X}],
        [[1.0, 2.0], [3.0]],
        ({"a": X}, {"a": Y}),
        object(),
    ],
)
def test_what_are_no_samples_is_refused_by_the_name_of_the_argument(value):
    if value is None:
        assert called(ConvertRequest, ("m", "int8"), {"calibration": None}).calibration == {}
        return
    with fails(InputRefused):
        taken(value)


def test_integers_that_the_input_cannot_hold_are_refused():
    inputs = (TensorSpec(name="ids", shape=(-1, 1), dtype="int32"),)
    with fails(InputRefused):
        taken(np.array([[1 << 40]]), inputs)


def test_a_stream_is_read_as_far_as_it_is_used():
    drawn = []

    def endless() -> Iterator[Any]:
        while True:
            drawn.append(1)
            yield X[:30]

    found = taken(endless, samples=40)
    # 64 more verify.
    assert len(found.arrays["x"]) == 104
    assert len(drawn) == 4


class Endless:
    """As a tf.data.Dataset that repeats itself says that it does."""

    def cardinality(self) -> int:
        return -1

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


def test_an_endless_data_set_is_refused_before_it_is_read():
    with fails(InputRefused):
        taken(Endless())


def test_batches_are_never_all_in_memory():
    with contextlib.ExitStack() as stack:
        memory = InMemory(stack)
        tracemalloc.start()
        try:
            many = (np.full((1, 1 << 18), number, np.float32) for number in range(100))
            arguments = {"data": many, "max_drop": 0.1}
            request = called(TuneRequest, ("m",), arguments, memory.filed)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert Path(request.data.location).stat().st_size > 100 << 20
        assert peak < 16 << 20
    assert not Path(request.data.location).exists()


# Tables


def test_a_table_is_a_matrix_or_a_column_for_each_input():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd")).astype({"a": "float64"})
    frame["d"] = frame["d"] > 0
    names = pandas.Series(np.array(["no", "yes"])[Y % 2])
    found = taken((frame, names))
    np.testing.assert_array_equal(found.arrays["x"][:, :3], X[:, :3])
    np.testing.assert_array_equal(found.arrays["x"][:, 3], X[:, 3] > 0)
    np.testing.assert_array_equal(found.labels, Y % 2)
    inputs = tuple(TensorSpec(name=name, shape=(-1, 1), dtype="float32") for name in "abcd")
    by_column = taken(frame, inputs)
    np.testing.assert_array_equal(by_column.arrays["b"], X[:, 1:2])
    assert by_column.labels is None


def test_a_table_that_cannot_be_taken_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    for value in (
        frame.iloc[:0],
        frame[["a", "b"]],
        frame.where(frame["a"] > 0),
        (frame, Y[:3]),
        frame.set_axis(list("aabc"), axis=1),
        (frame.astype({"a": str}), {"y": Y}),
    ):
        with fails(InputRefused):
            taken(value)


# Calls and their results


@pytest.fixture(scope="module")
def conversion(tmp_path_factory) -> Conversion:
    place = tmp_path_factory.mktemp("verbs")
    (place / "net.tflite").write_bytes(
        packed(float_model(signature=("serving_default", ["x"], ["y"])))
    )
    return edgeconv.convert(
        place / "net.tflite", "int8,float16", out=place / "out", calibration=X[:60], no_cache=True
    )


def test_arrays_go_the_way_of_files_and_leave_none(conversion):
    assert [artifact.recipe.name for artifact in conversion.artifacts] == ["float16", "int8"]
    out = Path(conversion.directory)
    source = out.parent / "net.tflite"
    (record,) = conversion["int8"].calibration
    assert (record.source, record.samples) == ("calibration (ndarray)", 52)
    again = edgeconv.convert(source, ["int8"], out=out, calibration=X[:60].astype(np.float64))
    assert again.reused == ()
    once_more = edgeconv.convert(source, ["int8"], out=out, calibration=X[:60].astype(np.float64))
    assert once_more.reused == ("int8",)


def test_a_result_gives_its_files_and_interpreters(conversion):
    made = conversion["int8"]
    assert made.path.is_file()
    assert os.fspath(made) == str(made.path)
    assert os.fspath(conversion) == conversion.directory
    assert made.size_bytes == made.path.stat().st_size
    interpreter = made.interpreter()
    (given,) = interpreter.get_input_details()
    interpreter.set_tensor(given["index"], X[:1])
    interpreter.invoke()
    answer = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    expected = X[:1] @ WEIGHTS.T.astype(np.float32) + BIASES
    np.testing.assert_allclose(answer, expected, atol=1)
    assert list(conversion) == ["float16", "int8"]
    for unknown in ("int9", 0):
        with fails(UsageError):
            _ = conversion[unknown]
    failed = Failure(recipe="int8", error="InputRefused", message="too far", hint="more samples")
    refused = Conversion(directory="out", artifacts=(), failures=(failed,))
    with fails(ToolFailed):
        _ = refused["int8"]


def test_a_conversion_is_measured_on_arrays(conversion):
    quick: dict[str, Any] = {"rounds": 1, "repeats": 2, "seconds": 0.01, "warmup_seconds": 0.01}
    report = edgeconv.bench(conversion, data=(X, Y), **quick)
    assert (report.data.source, report.data.samples) == ("data (ndarray)", 120)
    accuracies = {row.recipe: row.accuracy.value for row in report.measurements if row.accuracy}
    assert accuracies["float16"] > 0.98
    assert edgeconv.bench(conversion["int8"], data=(X, Y), **quick).measurements[0].recipe == "int8"


def test_a_report_is_checked_against_limits_by_their_names():
    report = example_report()
    assert edgeconv.check(report, budget={"recipe": {"int8": {"max_size_bytes": 10**9}}}).ok
    small = {"limit": 1, "severity": "warn"}
    checked = edgeconv.check(
        report, budget={"max-size-bytes": small, "recipe": {"int8": {"max_size_bytes": 1}}}
    )
    assert not checked.ok
    severities = {found.recipe: found.severity for found in checked.checks[0].verdict.findings}
    assert severities["int8"] == "error"
    assert {*severities.values()} == {"error", "warn"}
    with fails(UsageError):
        edgeconv.check(report, budget={"max_size_byte": 1})


def test_a_file_is_embedded_but_not_converted_again_without_its_samples(conversion, tmp_path):
    embedded = edgeconv.embed(conversion["int8"], "python", tmp_path / "app")
    assert embedded.files
    with fails(InputRefused):
        edgeconv.embed(conversion["int8"], "c", tmp_path / "c", remake=True)


def test_an_error_names_the_argument_and_no_temporary_file(tmp_path):
    (tmp_path / "net.tflite").write_bytes(packed(float_model()))
    with fails(InputRefused) as error:
        edgeconv.doctor(tmp_path / "net.tflite", (X[:, :2], Y))
    assert "/tmp" not in str(error.value)


def test_a_report_is_a_table_of_pandas():
    pandas = pytest.importorskip("pandas")
    report = example_report()
    frame = report.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    rows = [*([report.baseline] if report.baseline else []), *report.measurements]
    assert set(frame["model"]) >= {row.name for row in rows}
    assert frame["size (bytes)"].dtype.kind in "if"


def test_without_pandas_there_is_no_table(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with fails(UsageError):
        example_report().to_pandas()


def test_a_result_shows_its_page_in_the_browser(monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or len(opened) > 1)
    with pytest.warns(UserWarning, match=r"no browser opened: the page is \S+\.html"):
        example_report().show()
    Conversion(directory="out", artifacts=()).show()
    pages = [Path(urlsplit(url).path) for url in opened]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    for page in pages:
        page.unlink()
    assert "<script" in texts[0]
    assert "in out" in texts[1]


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32])
def test_ids_are_the_same_numbers_for_an_input_of_floats(dtype):
    ids = np.array([[0, 1, 2, 1 << 24], [7, 7, 7, 7]], dtype)
    for value in (ids, {"x": ids}, [ids[:1], ids[1:]]):
        found = taken(value).arrays["x"]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found.astype(np.int64), ids)
    for number in ((1 << 24) + 1, (1 << 31) - 1):
        with fails(InputRefused):
            taken(ids + dtype(number))
    for pixels in (ids[1:].astype(np.uint8), ids[1:].astype(np.int16)):
        with fails(InputRefused):
            taken(pixels)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("--preprocess scale=1/255 does both", "preprocess='scale=1/255' does both"),
        ("add --preprocess 'a.scale=2&b.none'; or", "add preprocess='a.scale=2&b.none'; or"),
        ("give more with --calibration SOURCE", "give more with calibration=SOURCE"),
        ("--samples 8", "samples=8"),
        ("remove --calibration or --gone", "remove `calibration` or --gone"),
        ("edgeconv convert m --to int8", "edgeconv convert m --to int8"),
    ],
)
def test_advice_names_the_arguments_of_a_call_and_a_command_stays_one(hint, expected):
    with contextlib.ExitStack() as stack:
        memory = InMemory(stack)
        with pytest.raises(UsageError) as raised, memory.named(leaves_of(ConvertRequest)):
            raise UsageError("--to int8: no samples", hint=hint)
    # A message may quote what was given, as it was given.
    assert (raised.value.message, raised.value.hint) == ("--to int8: no samples", expected)
