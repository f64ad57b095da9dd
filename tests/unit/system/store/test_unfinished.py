import fcntl
import os
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest
from wording import fails

from edgeconv.system.store import (
    publish_bytes,
    publish_new,
    remove_directory,
    scratch_directory,
    sweep_unfinished,
)
from edgeconv.system.store import unfinished as module
from edgeconv.system.store.unfinished import unfinished_directory, unfinished_file
from edgeconv.types.errors import OutputRefused

LEFT = ".edgeconv-new-killed_1"


def test_what_a_killed_run_left_goes_with_the_next_publication(tmp_path):
    (tmp_path / LEFT).write_bytes(b"half of a fi")
    (tmp_path / f"{LEFT[:-1]}2").mkdir()
    (tmp_path / f"{LEFT[:-1]}2" / "inside").write_bytes(b"")
    publish_bytes(b"whole", tmp_path / "another.json")
    assert [path.name for path in tmp_path.iterdir()] == ["another.json"]


def test_what_another_run_is_writing_stays(tmp_path):
    with unfinished_file(tmp_path) as (path, file), unfinished_directory(tmp_path) as directory:
        file.write(b"a part")
        publish_bytes(b"whole", tmp_path / "another.json")
        assert path.is_file()
        assert directory.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["another.json"]


@pytest.mark.parametrize("name", [".edgeconv-new-features2", ".edgeconv-new-", ".new-features"])
def test_a_file_of_somebody_with_nearly_such_a_name_stays(name, tmp_path):
    (tmp_path / name).write_bytes(b"theirs")
    sweep_unfinished(tmp_path)
    assert (tmp_path / name).read_bytes() == b"theirs"


def test_a_link_or_pipe_of_such_a_name_is_not_followed_nor_waited_for(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "file").write_bytes(b"")
    (tmp_path / LEFT).symlink_to(tmp_path / "theirs")
    os.mkfifo(tmp_path / f"{LEFT[:-1]}2")
    sweep_unfinished(tmp_path)
    assert (tmp_path / "theirs" / "file").is_file()


@pytest.mark.parametrize("make", [unfinished_file, unfinished_directory])
def test_what_is_swept_before_it_is_locked_is_made_again(make, tmp_path, monkeypatch):
    """A sweep can come between the two calls that make it and lock it."""
    swept = []
    flock = fcntl.flock

    def sweep_first(handle, operation):
        if not swept:
            (found,) = tmp_path.iterdir()
            found.rmdir() if found.is_dir() else found.unlink()
            swept.append(found)
        flock(handle, operation)

    monkeypatch.setattr(module.fcntl, "flock", sweep_first)
    with make(tmp_path):
        (found,) = tmp_path.iterdir()
        assert found != swept[0]
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_publishes_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", refuse)
    (tmp_path / LEFT).write_bytes(b"whose is it?")
    publish_bytes(b"whole", tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == [LEFT, "file"]


def test_of_several_that_remove_a_directory_one_does_and_it_is_gone(tmp_path):
    for _ in range(20):
        place = tmp_path / "entry"
        for name in map(str, range(50)):
            (place / name).mkdir(parents=True)
        outcomes: list[str] = []

        def remove(place: Path = place, outcomes: list[str] = outcomes) -> None:
            try:
                remove_directory(place)
                outcomes.append("removed")
            except FileNotFoundError:
                outcomes.append("gone")

        threads = [threading.Thread(target=remove) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["gone"] * 3 + ["removed"]
        assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_never_put_in_the_place_of_another(tmp_path):
    publish_new(b"first", tmp_path / "edgeconv.toml")
    with fails(OutputRefused):
        publish_new(b"second", tmp_path / "edgeconv.toml")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"first"]


def interrupt_at_line(number: int, use) -> bool:
    """Interrupt `use` before the line of this number of the store; False where it has fewer."""
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if Path(frame.f_code.co_filename).parent.name != "store":
            return None
        lines += event == "line"
        if event == "line" and lines == number:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        use()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


# An interrupted run ends, and leaves what it had open to the system.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["file", "directory", "scratch"])
def test_an_interrupt_at_any_moment_leaves_nothing(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def use():
        if kind == "file":
            with unfinished_file(tmp_path) as (_, file):
                file.write(b"a part")
        else:
            make = (
                scratch_directory if kind == "scratch" else partial(unfinished_directory, tmp_path)
            )
            with make() as directory:
                (directory / "file").write_bytes(b"a part")

    number = 1
    while interrupt_at_line(number, use):
        assert list(tmp_path.iterdir()) == [], number
        number += 1
    assert number > 15
