import errno
import hashlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest
import store_tasks
from hypothesis import given
from hypothesis import strategies as st
from wording import fails

import edgeconv
from edgeconv import __version__
from edgeconv.system.store import (
    Cache,
    cache_directory,
    code_hash,
    hash_of,
    locked,
    publish_all,
    publish_bytes,
    read_noun,
    sha256_file,
    sha256_tree,
    tool_versions,
    writable_directory,
)
from edgeconv.system.store.tools import installed_version
from edgeconv.types import OperatorCount
from edgeconv.types.errors import InputRefused, OutputRefused

OLD, NEW = b"the old content", b"the new content"


def other_process(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, store_tasks.__file__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def target(tmp_path) -> Path:
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "model.tflite"
    file.write_bytes(OLD)
    return file


@pytest.fixture(params=["bytes", "file"])
def publish(request, tmp_path) -> Callable[[bytes, Path], None]:
    """`publish_bytes`, and `publish_all` from a file elsewhere."""

    def from_file(content: bytes, target: Path) -> None:
        (tmp_path / "source").write_bytes(content)
        publish_all({target: tmp_path / "source"})

    return publish_bytes if request.param == "bytes" else from_file


def assert_only(target: Path, content: bytes) -> None:
    assert target.read_bytes() == content
    assert list(target.parent.iterdir()) == [target]


# Publishing


def test_publishing_replaces_the_target_and_leaves_nothing_else(publish, target):
    publish(NEW, target)
    assert_only(target, NEW)


def test_publishing_makes_a_target_that_was_not_there(publish, target):
    target.unlink()
    publish(NEW, target)
    assert_only(target, NEW)


def test_publishing_an_empty_file_works(publish, target):
    publish(b"", target)
    assert_only(target, b"")


def test_two_files_are_published_together_or_the_disk_was_too_full_for_either(tiny_disk):
    """The second does not fit, so the first is not put in place either."""
    first, second = tiny_disk / "model.tflite", tiny_disk / "model.json"
    for target in (first, second):
        target.write_bytes(OLD)
    with fails(OutputRefused):
        publish_all({first: NEW, second: b"x" * 200_000})
    assert {p: p.read_bytes() for p in tiny_disk.iterdir()} == {first: OLD, second: OLD}
    publish_all({first: NEW, second: b"{}"})
    assert {p: p.read_bytes() for p in tiny_disk.iterdir()} == {first: NEW, second: b"{}"}


def test_files_take_their_places_in_the_order_given(tmp_path, monkeypatch):
    """The last one tells that the others are there."""
    targets = [tmp_path / name for name in ("z", "a", "m")]
    order: list[Path] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append(b), replace(a, b)))
    publish_all(dict.fromkeys(targets, NEW))
    assert order == targets


def test_a_reader_that_has_the_old_file_open_keeps_it(publish, target):
    with target.open("rb") as reader:
        publish(NEW, target)
        assert reader.read() == OLD


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_a_published_file_is_as_readable_as_the_umask_says(mask, publish, target):
    before = os.umask(mask)
    try:
        publish(NEW, target)
    finally:
        assert os.umask(before) == mask
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask


def failing(call: Callable[..., Any], number: int, on_call: int) -> Callable[..., Any]:
    """`call`, but its `on_call`th call fails with this error number once it is done."""
    calls = itertools.count(1)

    def maybe(*arguments: Any, **options: Any) -> Any:
        done = call(*arguments, **options)
        if next(calls) == on_call:
            raise OSError(number, os.strerror(number))
        return done

    return maybe


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("name", ["fsync", "fchmod"])
def test_a_fault_before_the_rename_leaves_the_old_content(
    name, number, publish, target, monkeypatch
):
    monkeypatch.setattr(os, name, failing(getattr(os, name), number, 1))
    with fails(OutputRefused) as caught:
        publish(NEW, target)
    monkeypatch.undo()
    assert caught.value.exit_code == 3
    assert ("space" in caught.value.hint) == (number == errno.ENOSPC)
    assert_only(target, OLD)


def test_a_rename_that_fails_leaves_the_old_content(publish, target, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "replace", refuse)
    with fails(OutputRefused):
        publish(NEW, target)
    assert_only(target, OLD)


def test_a_directory_that_cannot_be_synced_is_told_and_leaves_the_whole_new_content(
    publish, target, monkeypatch
):
    monkeypatch.setattr(os, "fsync", failing(os.fsync, errno.EIO, 2))
    with fails(OutputRefused):
        publish(NEW, target)
    assert_only(target, NEW)


def test_a_full_disk_leaves_the_old_content(publish, tiny_disk):
    target = tiny_disk / "model.tflite"
    target.write_bytes(OLD)
    with fails(OutputRefused):
        publish(b"x" * 200_000, target)
    assert_only(target, OLD)
    publish(NEW, target)
    assert_only(target, NEW)


def test_a_full_cache_leaves_no_entry_and_no_part_of_one(tiny_disk, tmp_path):
    big = tmp_path / "big"
    big.mkdir()
    (big / "file").write_bytes(b"x" * 200_000)
    with fails(OutputRefused):
        Cache(tiny_disk).keep("stage", "key", {"tree": big})
    assert list((tiny_disk / "stage").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_refused(publish, read_only):
    with fails(OutputRefused):
        publish(NEW, read_only / "model.tflite")
    assert_only(read_only / "model.tflite", b"old")
    with fails(OutputRefused):
        writable_directory(read_only)
    with pytest.raises(OutputRefused):
        Cache(read_only / "cache").keep("stage", "key", {})
    with fails(OutputRefused), locked(read_only / "lock"):
        pass


@pytest.mark.parametrize("place", ["below/a/file", "n" * 300, "/proc/edgeconv"])
def test_a_place_where_nothing_can_be_is_refused(place, publish, tmp_path):
    (tmp_path / "below").write_text("a regular file")
    directory = tmp_path / place
    for attempt in (
        lambda: writable_directory(directory),
        lambda: publish(NEW, directory / "model.tflite"),
        lambda: Cache(directory).keep("stage", "key", {}),
    ):
        with pytest.raises(OutputRefused):
            attempt()
    assert (tmp_path / "below").read_text() == "a regular file"


def test_a_target_that_is_a_directory_is_refused_and_kept(publish, tmp_path):
    (tmp_path / "out" / "model.tflite" / "inside").mkdir(parents=True)
    with fails(OutputRefused):
        publish(NEW, tmp_path / "out" / "model.tflite")
    assert [p.name for p in (tmp_path / "out").rglob("*")] == ["model.tflite", "inside"]


def test_a_publisher_killed_at_any_moment_leaves_the_whole_old_or_the_whole_new(tmp_path):
    target = tmp_path / "model.tflite"
    chance = random.Random(7)
    seen = set()
    for _ in range(50):
        with other_process("publish_for_ever", target) as process:
            process.stdout.readline()
            time.sleep(chance.uniform(0, 0.01))
            process.kill()
            process.stdout.read()
        content = target.read_bytes()
        assert content in store_tasks.CONTENTS, f"torn: {len(content)} bytes"
        seen.add(content)
    assert len(seen) == 2, "the publishers were always killed at the same point"


def test_a_writable_directory_says_what_it_had_to_make(tmp_path):
    assert writable_directory(tmp_path / "a" / "b" / "c") == tmp_path / "a"
    assert writable_directory(tmp_path / "a" / "b" / "d") == tmp_path / "a" / "b" / "d"
    assert writable_directory(tmp_path / "a" / "b") is None
    assert list((tmp_path / "a" / "b" / "c").iterdir()) == []


# Nouns


def test_a_noun_is_read_back_as_it_was_published(tmp_path):
    noun = OperatorCount(name="ADD", version=2, count=3)
    publish_bytes(msgspec.json.encode(noun), tmp_path / "noun.json")
    assert read_noun(tmp_path / "noun.json", OperatorCount, what="count") == noun


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"name": "ADD", "version": "2", "count": 3}',
        b'{"name": "ADD", "version": 2, "count": 3, "x": 1}',
        b'{"name": "\xff"}',
        b'{"name": ' + b"[" * 100_000,
        b"\x00\x01",
    ],
)
def test_a_file_that_is_no_such_noun_is_refused_with_the_reason(content, tmp_path):
    file = tmp_path / "noun.json"
    file.write_bytes(content)
    with fails(InputRefused):
        read_noun(file, OperatorCount, what="count")


def test_a_noun_that_is_not_there_or_is_a_directory_is_refused(tmp_path):
    with fails(InputRefused):
        read_noun(tmp_path / "gone.json", OperatorCount, what="the count")
    with fails(InputRefused):
        read_noun(tmp_path, OperatorCount, what="the count")


# The cache


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    tree = tmp_path / "source" / "tree"
    tree.mkdir(parents=True)
    (tree / "inner").write_bytes(b"inner")
    (tmp_path / "source" / "a").write_bytes(b"a")
    return {"a": tmp_path / "source" / "a", "b": tree}


def test_an_entry_that_was_kept_is_found_with_its_files_and_directories(tmp_path, files):
    cache = Cache(tmp_path / "cache")
    assert cache.find("stage", "key") is None
    cache.keep("stage", "key", files)
    entry = cache.find("stage", "key")
    assert sorted(p.name for p in entry.iterdir()) == ["a", "b"]
    assert (entry / "a").read_bytes() == b"a"
    assert (entry / "b" / "inner").read_bytes() == b"inner"
    assert cache.find("stage", "other") is None
    assert cache.find("other", "key") is None


def test_an_entry_that_is_there_is_never_changed(tmp_path, files):
    cache = Cache(tmp_path / "cache")
    cache.keep("stage", "key", files)
    files["a"].write_bytes(b"changed")
    cache.keep("stage", "key", files)
    entry = cache.find("stage", "key")
    assert entry is not None
    assert (entry / "a").read_bytes() == b"a"


def test_an_entry_whose_file_is_missing_is_not_made(tmp_path, files):
    files["a"].unlink()
    cache = Cache(tmp_path / "cache")
    with fails(OutputRefused):
        cache.keep("stage", "key", files)
    assert cache.find("stage", "key") is None
    assert list((tmp_path / "cache" / "stage").iterdir()) == []


@pytest.mark.parametrize("damage", ["change", "truncate", "remove", "add"])
def test_an_entry_that_was_damaged_is_not_found_and_can_be_made_anew(damage, tmp_path, files):
    cache = Cache(tmp_path / "cache")
    cache.keep("stage", "key", files)
    entry = cache.find("stage", "key")
    assert entry is not None
    if damage == "remove":
        (entry / "b" / "inner").unlink()
    elif damage == "add":
        (entry / "more").touch()
    else:
        (entry / "a").write_bytes(b"z" if damage == "change" else b"")
    assert cache.find("stage", "key") is None
    cache.keep("stage", "key", files)
    assert cache.find("stage", "key") == entry
    assert (entry / "a").read_bytes() == b"a"
    assert [p.name for p in (tmp_path / "cache" / "stage").iterdir()] == ["key"]


def test_no_cache_keeps_nothing(files):
    cache = Cache(None)
    cache.keep("stage", "key", files)
    assert cache.find("stage", "key") is None


def test_eight_processes_that_race_for_an_entry_leave_one_that_is_whole(tmp_path):
    racers = [other_process("keep", tmp_path, number) for number in range(8)]
    time.sleep(0.3)
    (tmp_path / "go").touch()
    expected = {"a": 5 * len(store_tasks.CONTENTS[0]), "tree/b": 5 * len(store_tasks.CONTENTS[1])}
    while any(racer.poll() is None for racer in racers):
        entry = Cache(tmp_path / "cache").find("s", "k")
        if entry is not None:
            sizes = {name: (entry / name).stat().st_size for name in expected}
            assert sizes == expected, "the entry appeared in parts"
    for racer in racers:
        racer.communicate()
    assert [racer.returncode for racer in racers] == [0] * 8
    assert [p.name for p in (tmp_path / "cache" / "s").iterdir()] == ["k"]


def test_the_cache_directory_is_the_one_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECONV_CACHE_DIR", "relative")
    assert cache_directory() == tmp_path / "relative"
    monkeypatch.setenv("EDGECONV_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory().name == "edgeconv"


# Locks


def test_processes_take_turns_at_a_lock(tmp_path):
    log = tmp_path / "log"
    processes = [other_process("hold", tmp_path / "lock", log, number) for number in range(3)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    lines = log.read_text().splitlines()
    assert len(lines) == 3 * 20 * 2
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert (entered.split()[0], left.split()[0]) == ("in", "out")
        assert entered.split()[1] == left.split()[1], "two held the lock at once"


def test_who_must_wait_is_told_once_and_gets_the_lock_when_its_holder_is_killed(tmp_path):
    told: list[str] = []
    with other_process("hold_for_ever", tmp_path / "lock") as holder:
        assert holder.stdout.readline() == "held\n"

        def release() -> None:
            told.append("waiting")
            holder.kill()

        with locked(tmp_path / "lock", on_wait=release):
            assert told == ["waiting"]


def test_who_waits_for_a_lock_that_is_taken_away_holds_a_new_one_against_others(tmp_path):
    lock = tmp_path / "made-for-nothing" / "lock"
    lock.parent.mkdir()
    told: list[str] = []
    with locked(lock):
        waiting = other_process("hold_for_ever", lock)
        assert waiting.stdout.readline() == "waiting\n"
        # At once: between the two steps of removing it the other may make the file anew.
        lock.parent.rename(tmp_path / "gone")
    with waiting:
        assert waiting.stdout.readline() == "held\n"

        def release() -> None:
            told.append("waiting")
            waiting.kill()

        with locked(lock, on_wait=release):
            assert told == ["waiting"]


def test_a_free_lock_is_taken_at_once_and_is_free_again_after_an_error(tmp_path):
    told: list[str] = []
    for _ in range(2):
        with (
            pytest.raises(ZeroDivisionError),
            locked(tmp_path / "lock", on_wait=lambda: told.append("waiting")),
        ):
            _ = 1 / 0
    assert told == []


def test_a_lock_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with fails(OutputRefused), locked(tmp_path / "file" / "sub" / "lock"):
        pass


# Hashes


def test_the_hash_of_a_file_is_its_sha256(tmp_path):
    content = random.Random(1).randbytes(2_500_000)
    (tmp_path / "file").write_bytes(content)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()


trees = st.dictionaries(
    st.sampled_from(["a", "b", "ab", "d/a", "d/b", "d/e/a", "z\n"]), st.binary(max_size=4)
)


@given(one=trees, other=trees)
def test_trees_have_one_hash_exactly_if_their_names_and_contents_are_the_same(
    one, other, tmp_path_factory
):
    def hash_tree(tree: dict[str, bytes]) -> str:
        root = tmp_path_factory.mktemp("tree")
        for name, content in tree.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        return sha256_tree(root)

    assert (hash_tree(one) == hash_tree(other)) == (one == other)


def test_a_tree_with_a_name_that_is_no_utf8_has_a_hash(tmp_path):
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).write_bytes(b"x")
    assert len(sha256_tree(tmp_path)) == 64


def test_what_a_link_in_a_tree_points_to_counts_and_a_loop_ends(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"1")
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "tree" / "loop").symlink_to(tmp_path / "tree")
    before = sha256_tree(tmp_path / "tree")
    (tmp_path / "elsewhere" / "file").write_bytes(b"2")
    assert sha256_tree(tmp_path / "tree") != before


def test_a_link_that_leads_out_of_a_strangers_tree_is_not_read(tmp_path):
    """It could lead to all files of a machine, or to a device without an end."""
    (tmp_path / "tree").mkdir()
    link = tmp_path / "tree" / "link"
    link.symlink_to("/")
    hashes = {sha256_tree(tmp_path / "tree", follows_out=False)}
    for target in ("/dev/zero", "/dev/null"):
        link.unlink()
        link.symlink_to(target)
        hashes.add(sha256_tree(tmp_path / "tree", follows_out=False))
    assert len(hashes) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def in_another_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_another_order(value[key]) for key in reversed(value)}
    return [in_another_order(item) for item in value] if isinstance(value, list) else value


@given(value=json_values)
def test_the_order_of_keys_does_not_change_a_hash(value):
    assert hash_of(in_another_order(value)) == hash_of(value)


@given(one=json_values, other=json_values)
def test_other_values_have_another_hash(one, other):
    # True equals 1 in Python, and is something else in JSON.
    assert (hash_of(one) == hash_of(other)) == (repr_of(one) == repr_of(other))


def repr_of(value: Any) -> Any:
    if isinstance(value, dict):
        return ("dict", sorted((key, repr_of(item)) for key, item in value.items()))
    return ("list", [repr_of(i) for i in value]) if isinstance(value, list) else repr(value)


def test_how_values_are_grouped_counts():
    assert len({hash_of("a", "b"), hash_of("ab"), hash_of(["a", "b"]), hash_of("b", "a")}) == 4


def test_a_noun_hashes_by_its_fields_and_the_same_in_another_process():
    noun = OperatorCount(name="ADD", version=1, count=2)
    assert hash_of(noun) == hash_of(OperatorCount(name="ADD", version=1, count=2))
    assert hash_of(noun) != hash_of(OperatorCount(name="ADD", version=1, count=3))
    code = (
        "from edgeconv.types import OperatorCount as C; from edgeconv.system.store import hash_of\n"
        "print(hash_of(C(name='ADD', version=1, count=2), {'b': 1, 'a': 2}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert said.strip() == hash_of(noun, {"a": 2, "b": 1})


def test_the_tools_versions_are_those_that_are_installed():
    versions = tool_versions()
    assert versions["edgeconv"] == __version__
    assert versions["numpy"] == metadata.version("numpy")
    assert "tensorflow" in versions
    installed = {d.metadata["Name"]: d.version for d in metadata.distributions()}
    assert {name: installed_version(name) for name in installed} == installed
    assert installed_version("none-such") is None


def test_the_hash_of_the_code_is_that_of_its_files_wherever_they_are(tmp_path):
    package = Path(edgeconv.__file__).parent
    copy = shutil.copytree(package, tmp_path / "edgeconv", ignore=shutil.ignore_patterns("*.pyc"))

    def hash_there() -> str:
        command = "from edgeconv.system.store import code_hash as h; print(h())"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.check_output(
            [sys.executable, "-c", command], text=True, env=environment, cwd=tmp_path
        ).strip()

    assert hash_there() == code_hash()
    with (copy / "tf" / "convert.py").open("a") as file:
        file.write("#")
    assert hash_there() != code_hash()


def test_a_cache_that_cannot_be_written_is_found_out_before_the_work(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with fails(OutputRefused):
        Cache(tmp_path / "file" / "cache").refuse_unwritable()
    Cache(tmp_path / "new" / "cache").refuse_unwritable()
    Cache(None).refuse_unwritable()


def test_a_pipe_is_written_into_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        publish_bytes(b"x", pipe)
        assert os.read(reader, 9) == b"x"
    finally:
        os.close(reader)
    with fails(OutputRefused):
        publish_all({pipe: b"x"})
    assert pipe.is_fifo()
