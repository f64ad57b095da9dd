"""How long the children of a conversion stay."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from two_dense import two_dense

from edgeconv.conversion import batches, verify
from edgeconv.conversion import session as sessions
from edgeconv.conversion.candidate import Candidate
from edgeconv.conversion.run import Run
from edgeconv.conversion.session import Session
from edgeconv.data import Samples, read_samples, write_samples
from edgeconv.model.tflite import multiplications
from edgeconv.requests.recipes import make_recipes
from edgeconv.runtimes.local import RuntimePython
from edgeconv.system.store import Cache
from edgeconv.types import Execution, Recipe, TensorSpec
from edgeconv.types.errors import BatchRefused, EdgeconvError, ToolFailed


def session_in(scratch: Path) -> Session:
    """A session whose graph nobody opens."""
    graph = scratch / "float32.tflite"
    graph.write_bytes(b"")
    run = Run(cast("Any", None), Cache(None, print), Execution(), scratch, print)
    return Session(
        run, cast("Any", SimpleNamespace(float_model=graph, calibration=(), engine=None))
    )


def test_a_child_of_a_session_that_was_closed_ends_with_the_run(tmp_path):
    session = session_in(tmp_path)
    with session.run:
        with session:
            first = session.child()
        assert not first.is_at_work
        second = session.child()
        assert second.is_at_work
        assert session.child() is second
    assert not second.is_at_work


@pytest.mark.parametrize(
    ("affordable", "batch", "rows"),
    [
        (64, 1, None),
        (0, 1, [0, 9, 18, 27, 36, 45, 54, 63]),
        (16, 4, [*range(4), *range(20, 24), *range(40, 44), *range(60, 64)]),
    ],
)
def test_slow_kernels_verify_on_as_many_samples_as_their_multiplications_allow(
    tmp_path, monkeypatch, affordable, batch, rows
):
    session = session_in(tmp_path)
    session.prepared.float_model.write_bytes(two_dense())
    each = multiplications(two_dense())
    assert each > 0
    monkeypatch.setattr(sessions, "_MOST_PRODUCTS", affordable * each)
    held_back = tmp_path / "held-back"
    write_samples(Samples({"x": np.arange(64.0)[:, None]}, None, ""), held_back)
    split = SimpleNamespace(held_back=held_back, held_back_count=64, batch=batch, states={})
    part: Any = SimpleNamespace(signature=SimpleNamespace(key="k"), split=split)
    cast("Any", session.prepared).parts = (part,)
    int8, wide = make_recipes(["int8", "int16x8"])
    assert session.samples_of(part, int8) == held_back
    chosen = read_samples(session.samples_of(part, wide)).arrays["x"][:, 0]
    outputs = {"k": {"y": np.arange(64)}}
    assert session.some_outputs(outputs, int8)["k"]["y"].tolist() == list(range(64))
    assert session.some_outputs(outputs, wide)["k"]["y"].tolist() == chosen.tolist()
    if rows is None:
        assert len(chosen) == 64
    else:
        assert chosen.tolist() == rows


def test_a_child_that_crashes_at_a_method_of_auto_gives_the_plain_file_and_the_rest_is_made(
    tmp_path, monkeypatch
):
    int8, wide = make_recipes(["int8", "int16x8"])
    (named,) = make_recipes(["dynamic"], methods=["rounding"])
    started: list[tuple[str, tuple[str, ...]]] = []

    def start(_: Any, recipe: Recipe, *__: Any, **___: Any) -> Any:
        started.append((recipe.name, recipe.methods))
        # The first child ends at int8; the one after it makes everything but named methods.
        is_finished = len(started) > 3 and recipe.methods != ("rounding",)
        return sessions._PendingFile(
            recipe, tmp_path, cast("Any", SimpleNamespace(is_finished=is_finished))
        )

    def candidate(_: Any, pending: Any) -> Candidate:
        if not pending.call.is_finished:
            raise ToolFailed("litert-quantizer crashed\nwith its log")
        return Candidate(recipe=pending.recipe, file=tmp_path, engine="litert", details=("one",))

    monkeypatch.setattr(sessions, "_start", start)
    monkeypatch.setattr(sessions, "_candidate", candidate)
    session: Any = SimpleNamespace(run=SimpleNamespace(on_progress=print))
    outcomes = dict(sessions.start_quantizing(session, [int8, wide, named]))
    assert started[3:] == [("int8", ()), ("int16x8", ("auto",)), ("dynamic", ("rounding",))]
    crashed = outcomes[int8]
    assert isinstance(crashed, Candidate)
    assert crashed.recipe == int8
    assert crashed.details == (
        "one",
        "no post-training methods were tried: litert-quantizer crashed",
    )
    assert isinstance(outcomes[wide], Candidate)
    assert isinstance(outcomes[named], ToolFailed)


def test_a_file_runs_while_the_next_is_made_and_nothing_waits_for_the_trained_model(
    tmp_path, monkeypatch
):
    recipes = make_recipes(["float16", "dynamic", "weight-only-int8"])
    events: list[str] = []

    class Running:
        outputs: dict[str, Any] = {}  # noqa: RUF012

        def close(self) -> None:
            pass

    class Verified:
        def with_warnings(self, _: object) -> object:
            return self

    def candidates() -> Iterator[tuple[Recipe, Candidate | EdgeconvError]]:
        for recipe in recipes:
            events.append(f"make {recipe.name}")
            yield recipe, Candidate(recipe=recipe, file=tmp_path / recipe.name, engine="litert")

    def starts(file: Path, *_: Any) -> list[Any]:
        return [lambda: events.append(f"run {file.name}") or Running()]

    graph = SimpleNamespace(signatures=())
    monkeypatch.setattr(verify, "verify_graph", lambda *_: graph)
    monkeypatch.setattr(verify, "verify_outputs", lambda *_, **__: Verified())
    session: Any = SimpleNamespace(
        prepared=SimpleNamespace(keys=("k",), parts=()),
        run=SimpleNamespace(on_progress=lambda line: events.append(line)),
        where=None,
        starts=starts,
        expected=SimpleNamespace(outputs={}),
        some_outputs=lambda outputs, _: outputs,
        collect=lambda running: next(running),
    )
    # There is no `reference`, and no `calibration` that needs it.
    outcomes = verify.compare_candidates(session, candidates())
    assert list(outcomes) == list(recipes)
    assert events == [
        *("make float16", "run float16", "make dynamic", "run dynamic", "verifying float16"),
        *("make weight-only-int8", "run weight-only-int8", "verifying dynamic"),
        "verifying weight-only-int8",
    ]


@pytest.mark.parametrize(
    ("recipe", "slow", "held_back", "ran"),
    [
        ("int8", 0, 8, [(2, 2), (7, 7)]),
        ("int16x8", 10**12, 8, [(2, 2), (7, 7)]),
        # Kernels that take long run two samples at once.
        ("int16x8", 0, 8, [(2, 2)]),
        # There are no seven that each ran alone.
        ("int8", 0, 5, [(2, 2), (7, 1), (7, 7)]),
    ],
)
def test_several_samples_at_once_are_compared_with_what_each_gave_alone(
    tmp_path, monkeypatch, recipe, slow, held_back, ran
):
    values = np.arange(20, dtype=np.float32)[:, None]
    session = session_in(tmp_path)
    session.prepared.float_model.write_bytes(two_dense())
    session.run = cast("Any", SimpleNamespace(scratch=tmp_path, execution=Execution()))
    session.where = RuntimePython()
    monkeypatch.setattr(sessions, "_MANY_PRODUCTS_SLOW", slow)
    stored = tmp_path / "held-back", tmp_path / "calibration"
    write_samples(Samples({"x": values[:held_back]}, None, ""), stored[0])
    write_samples(Samples({"x": values}, None, ""), stored[1])
    split = SimpleNamespace(
        held_back=stored[0],
        held_back_count=held_back,
        calibration=stored[1],
        batch=1,
        states={},
        stacked=(),
    )
    part: Any = SimpleNamespace(signature=SimpleNamespace(key="k"), split=split)
    cast("Any", session.prepared).parts = (part,)
    runs: list[tuple[int, int]] = []
    added = 0.0

    def start(_: Path, samples: Path, *, batch: int, **__: Any) -> Any:
        given = read_samples(samples).arrays["x"]
        runs.append((len(given), batch))
        outputs = {"y": given * 2 + added * (batch > 1)}
        return SimpleNamespace(result=lambda: SimpleNamespace(outputs=outputs))

    monkeypatch.setattr(batches, "start_run", start)
    (made,) = make_recipes([recipe])
    candidate = Candidate(recipe=made, file=session.prepared.float_model, engine="litert")
    signature: Any = SimpleNamespace(
        key="k", inputs=(TensorSpec(name="x", shape=(-1, 1), dtype="float32"),)
    )
    alone = {"k": {"y": values[:held_back] * 2}}
    batches.verify_batches(session, candidate, [signature], alone)
    assert runs == ran
    added = 1.0
    with pytest.raises(BatchRefused):
        batches.verify_batches(session, candidate, [signature], alone)
