"""Hostile models with the scan switched off, watched: the sandbox alone stops them.

The scan is switched off in a process of the test (without_walls.py); edgeconv has no switch for it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from commands import COMMANDS, WITHOUT_SANDBOX_OPTION
from corpus import CASES, Case, place_aim
from golden_files import assert_golden
from places import TESTS
from readme import counted, table
from test_corpus import is_refused
from watch import Seen
from watching import Job, World

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from watching import Outcome


README = TESTS / "hostile" / "README.md"
# The two commands that between them load and run all that there is: one has TensorFlow's converter
# read the model, the other its Python loader, and calls the signature.
_BOTH = ("convert", "doctor")
# One of each way that a model reaches something.
_EACH_WAY = (
    *(
        "operator-ReadFile",
        "operator-ImmutableConst",
        "operator-CacheDataset",
        "operator-RpcClient",
    ),
    *("place-WriteFile_initializer", "place-WriteFile_restore", "place-ReadFile_destructor"),
    *("keras-2_Lambda-os.system", "keras-2_Lambda-os.remove", "TFOpLambda_h5-io.gfile.copy"),
    *("vocabulary_h5-StringLookup", "HDF5_h5-external_storage", "files-asset_above_the_model"),
)
_UNDER_EACH_COMMAND = (
    *("place-WriteFile_restore", "operator-ReadFile"),
    *("TFOpLambda_h5-io.write_file", "TFOpLambda_keras-keras.utils.get_file"),
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def run(
    world: World,
    names: tuple[str, ...] | None,
    command: str,
    *,
    sandbox: str,
    forked: bool = True,
    scan: str = "off",
) -> tuple[list[Outcome], list[Seen]]:
    words = COMMANDS[command]
    cases = [each for each in CASES if names is None or each.id in names]
    assert names is None or len(cases) == len(names)
    # Bombs touch nothing, and what they take is for test_corpus.py.
    # Some wait for a server that never answers.
    words = (*words, "--timeout-s", "10") if forked else words
    jobs = [Job(each, words) for each in cases if each.family != "bomb"]
    sandbox = "" if command in WITHOUT_SANDBOX_OPTION else sandbox
    return world.run(jobs, scan=scan, sandbox=sandbox, forked=forked, name=command)


def test_nothing_gets_out_of_the_sandbox_when_the_scan_is_off(world: World) -> None:
    for command in _BOTH:
        outcomes, others = run(world, _EACH_WAY, command, sandbox="required")
        assert {each.case.id: each.done for each in outcomes if each.done} == {}
        assert others == []
        assert all(each.code in (0, 1, 3, 4) for each in outcomes)


def test_the_watch_sees_what_the_same_models_do_without_walls(world: World) -> None:
    """Else the test above would hold for the wrong reason."""
    done = [each for c in _BOTH for each in run(world, _EACH_WAY, c, sandbox="off")[0]]
    assert {each.case.id for each in done if each.works} == set(_EACH_WAY)


def test_children_that_are_started_as_always_are_held_likewise(world: World) -> None:
    """Without the fork: this is what users run."""
    outcomes, others = run(
        world, _UNDER_EACH_COMMAND[:1], "convert", sandbox="required", forked=False
    )
    assert [each.done for each in outcomes] == [()]
    assert others == []


@pytest.mark.parametrize("names", [_EACH_WAY, pytest.param(None, marks=pytest.mark.slow)])
def test_nothing_gets_past_the_scan_where_there_is_no_sandbox(
    names: tuple[str, ...] | None, world: World
) -> None:
    outcomes, others = run(world, names, "convert", scan="on", sandbox="off", forked=False)
    assert {each.case.id: each.done for each in outcomes if each.done} == {}
    assert others == []
    assert {each.code for each in outcomes} == {3}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_one_out(command: str, world: World) -> None:
    outcomes, others = run(world, _UNDER_EACH_COMMAND, command, sandbox="required", forked=False)
    assert {each.case.id: each.done for each in outcomes if each.done} == {}
    assert others == []


class Corpus(NamedTuple):
    """What all models did, by their ids: without walls, and in the sandbox alone."""

    works: frozenset[str]
    escapes: dict[str, tuple[Seen, ...]]
    others: list[Seen]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The whole corpus under two commands; it takes minutes."""
    works, escapes, unclaimed = set[str](), dict[str, tuple[Seen, ...]](), list[Seen]()
    for sandbox in ("off", "required"):
        world = World(tmp_path_factory.mktemp(sandbox))
        for command in _BOTH:
            outcomes, others = run(world, None, command, sandbox=sandbox)
            if sandbox == "off":
                works |= {each.case.id for each in outcomes if each.works}
            else:
                escapes |= {each.case.id: each.done for each in outcomes if each.done}
                unclaimed += others
        world.close()
    return Corpus(frozenset(works), escapes, unclaimed)


@pytest.mark.slow
def test_nothing_of_the_whole_corpus_gets_out(whole: Corpus) -> None:
    assert whole.escapes == {}
    assert whole.others == []


@pytest.mark.slow
def test_every_attack_of_the_corpus_works_where_nothing_stands_in_its_way(whole: Corpus) -> None:
    """But for those that are marked with why TensorFlow or Keras does not do it."""
    assert {c.id for c in CASES if (c.id in whole.works) == bool(c.idle)} == set()


@pytest.mark.slow
def test_the_page_of_this_folder_is_what_was_seen(whole: Corpus, tmp_path: Path) -> None:
    refused = {case.id for case in CASES if is_refused(written(case, tmp_path / case.id), tmp_path)}
    page = table(CASES, frozenset(refused), whole.works, frozenset(whole.escapes))
    assert_golden(str(README), page)


def written(case: Case, place: Path) -> Path:
    listening: list[socket.socket] = []
    model = case.write(place / "model", place_aim(place, case, listening))
    for server in listening:
        server.close()
    return model


def test_the_page_of_this_folder_is_of_this_corpus() -> None:
    assert counted(README.read_text()) == Counter(case.family for case in CASES)
