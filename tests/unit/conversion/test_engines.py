"""Which engine's file is taken, by real files on real samples; TFLiteConverter's is prepared."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from refine_models import float_network, parts, quantised_network, samples

from edgeconv.conversion import climb
from edgeconv.conversion.candidate import Candidate, VerifiedCandidate
from edgeconv.conversion.output_checks import errors_by_sample
from edgeconv.model.tflite import summarize
from edgeconv.model.tflite.layers import FloatsLeft
from edgeconv.runtimes.in_process import InProcessModel, open_interpreter
from edgeconv.types import PostTraining, Recipe, Verification
from edgeconv.types.errors import EdgeconvError, ToolFailed

KEY = "serving_default"
IMAGES = samples(64, seed=3)
RECIPE = Recipe(name="int8", methods=("auto",))


def outputs(data: bytes) -> dict[str, dict[str, np.ndarray]]:
    model = InProcessModel(open_interpreter(data, threads=1), KEY)
    return {KEY: {"y": np.concatenate([model.run({"x": image[None]})["y"] for image in IMAGES])}}


EXPECTED = outputs(float_network())


class Graph:
    """A session of the small network."""

    def __init__(self, products: int = 10**6) -> None:
        self.products = products
        record = SimpleNamespace(samples=200)
        self.prepared = SimpleNamespace(
            saved_model="model",
            parts=[SimpleNamespace(split=SimpleNamespace(states={}, record=record))],
            rung=SimpleNamespace(text="as it is"),
        )


def verified(
    file: Path, data: bytes, *, engine: Any = "litert", closeness: Any = "far", recipe: Any = RECIPE
) -> VerifiedCandidate:
    file.write_bytes(data)
    record = PostTraining(calibration_range="minmax", methods=(), closeness=closeness)
    summary = summarize(data, where="it")
    candidate = Candidate(recipe=recipe, file=file, engine=engine, post_training=record)
    return VerifiedCandidate(
        candidate=candidate,
        summary=summary,
        signatures=summary.signatures,
        verification=Verification(
            reference="", samples=64, synthetic=False, runtime="", outputs=(), warnings=()
        ),
        errors=errors_by_sample(candidate, outputs(data), EXPECTED),
    )


def coarse() -> bytes:
    """The network in int8, with a tenth of noise on each kernel."""
    rng = np.random.default_rng(1)
    noisy = [
        part._replace(kernel=(part.kernel * rng.normal(1, 0.1, part.kernel.shape)).astype("f4"))
        for part in parts()
    ]
    return quantised_network("int8", noisy)


@pytest.fixture
def compare(tmp_path, monkeypatch):
    def compared(first: bytes, other: bytes | EdgeconvError, session: Any = None) -> Any:
        if isinstance(other, bytes):
            other = verified(tmp_path / "other.tflite", other, engine="tflite")
        monkeypatch.setattr(climb, "convert_with_tflite", lambda *_: other)
        return climb.closer_engine(session or Graph(), verified(tmp_path / "first.tflite", first))

    return compared


def test_the_closer_file_is_taken_and_the_ladder_says_by_how_much(compare):
    taken = compare(coarse(), quantised_network("int8"))
    assert taken.candidate.engine == "tflite"
    (step,) = taken.candidate.ladder
    assert step.attempt == "as it is, quantized with litert-quantizer"
    assert step.failed.endswith("dB closer to the float32 model on 64 held-back samples")


@pytest.mark.parametrize("other", [coarse(), quantised_network("int8")], ids=["worse", "equal"])
def test_a_file_that_is_not_closer_is_not_taken_and_a_note_says_so(compare, other):
    kept = compare(quantised_network("int8"), other)
    assert kept.candidate.engine == "litert"
    assert kept.candidate.ladder == ()
    (note,) = kept.candidate.details
    assert note.startswith("TFLiteConverter's file is not closer to the float32 model: ")


def test_a_failure_of_the_other_engine_costs_nothing(compare):
    kept = compare(coarse(), ToolFailed("it crashed"))
    assert kept.candidate.engine == "litert"
    assert kept.candidate.details == ("TFLiteConverter was tried too: it crashed",)


def test_what_would_take_minutes_is_not_tried(compare):
    kept = compare(coarse(), quantised_network("int8"), Graph(products=10**9))
    assert kept.candidate.engine == "litert"
    assert kept.candidate.details == (
        "TFLiteConverter was not tried: it would calibrate for about 100 s",
    )


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"closeness": "close"}, False),
        ({"closeness": "borderline"}, False),
        ({"engine": "tflite"}, False),
        ({"recipe": Recipe(name="int8")}, False),
        ({"recipe": Recipe(name="int8", methods=("auto",), engine="litert")}, False),
        ({"recipe": Recipe(name="int8x4", methods=("auto",))}, False),
        ({"recipe": Recipe(name="int16x8", methods=("auto",))}, True),
    ],
)
def test_only_what_is_far_off_and_the_other_engine_has_is_compared(tmp_path, changes, may):
    first = verified(tmp_path / "first.tflite", quantised_network("int8"), **changes)
    assert climb.may_gain(first, Graph()) is may
    for grade, gains in (("poor", may), ("usable", False), ("close", False)):
        graded = replace(first, verification=replace(first.verification, grade=grade))
        assert climb.may_gain(graded, Graph()) is gains


def test_of_two_attempts_less_is_in_float_unless_only_that_one_is_poor(tmp_path):
    """A loop whose integers drift apart, all in integers, and the same unrolled."""
    first = verified(tmp_path / "first.tflite", quantised_network("int8"))

    def attempt(grade: Any, share: float) -> VerifiedCandidate:
        verification = replace(first.verification, grade=grade)
        return replace(first, verification=verification, floats=FloatsLeft((), share))

    for (grade, share), (other_grade, other_share), is_better in (
        (("close", 0.9), ("poor", 1.0), True),
        (("poor", 1.0), ("usable", 0.9), False),
        (("usable", 1.0), ("close", 0.9), True),
        (("poor", 1.0), ("poor", 0.9), True),
        (("close", 1.0), ("usable", 1.0), False),
    ):
        found, before = attempt(grade, share), attempt(other_grade, other_share)
        assert climb._is_better(found, before) is is_better


def test_tensorflow_is_not_started_for_a_tflite_that_has_a_file(tmp_path):
    session = Graph()
    session.prepared.saved_model = None
    first = verified(tmp_path / "first.tflite", quantised_network("int8"))
    assert not climb.may_gain(first, session)


@pytest.mark.parametrize(("first", "asked"), [(coarse(), [32, None]), (None, [32])])
def test_all_samples_calibrate_only_where_few_made_a_closer_file(
    tmp_path, monkeypatch, first, asked
):
    other, counts = verified(tmp_path / "o.tflite", quantised_network("int8"), engine="tflite"), []
    monkeypatch.setattr(
        climb, "convert_with_tflite", lambda _, __, most: counts.append(most) or other
    )
    climb.closer_engine(
        Graph(), verified(tmp_path / "f.tflite", first or quantised_network("int8"))
    )
    assert counts == asked


@pytest.mark.parametrize(("first", "asked"), [(coarse(), ["int8", "dynamic"]), (None, ["int8"])])
def test_int8_is_tried_first_and_the_others_where_it_gained(tmp_path, monkeypatch, first, asked):
    other, names = verified(tmp_path / "o.tflite", quantised_network("int8"), engine="tflite"), []
    monkeypatch.setattr(
        climb, "convert_with_tflite", lambda _, recipe, __: names.append(recipe.name) or other
    )
    good = {}
    for name in ("dynamic", "int8"):
        recipe = Recipe(name=name, methods=("auto",))
        file = tmp_path / f"{name}.tflite"
        examined = verified(file, first or quantised_network("int8"), recipe=recipe)
        good[recipe] = SimpleNamespace(session=Graph(), examined=examined)
    climb._take_closer_engines(SimpleNamespace(good=good))
    assert list(dict.fromkeys(names)) == asked
