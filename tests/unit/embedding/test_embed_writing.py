import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import msgspec
import pytest
from embed_models import tree
from embed_writes import write
from places import SUPPORT
from wording import fails

from edgeconv.embedding.embedding import JOURNAL
from edgeconv.embedding.plan import RECORD
from edgeconv.types import Embedded
from edgeconv.types.errors import InputRefused, OutputRefused

FILES: dict[str, bytes | Path] = {"a.c": b"one", "sub/b.h": b"two"}


def contents(directory: Path) -> dict[str, bytes]:
    found = tree(directory)
    found.pop(RECORD, None)
    return found


def test_files_and_their_record_are_written(tmp_path):
    source = tmp_path / "source.bin"
    source.write_bytes(b"three")
    write(tmp_path / "out", {**FILES, "c.bin": source})
    assert contents(tmp_path / "out") == {"a.c": b"one", "sub/b.h": b"two", "c.bin": b"three"}
    record = msgspec.json.decode((tmp_path / "out" / RECORD).read_bytes(), type=Embedded)
    assert [one.path for one in record.files] == ["a.c", "c.bin", "sub/b.h"]
    assert str(tmp_path) not in (tmp_path / "out" / RECORD).read_text()


def test_a_file_that_has_its_content_already_is_not_touched(tmp_path):
    write(tmp_path, FILES)
    before = {path: (tmp_path / path).stat().st_mtime_ns for path in FILES}
    write(tmp_path, {**FILES, "sub/b.h": b"new"}, key="other")
    assert (tmp_path / "a.c").stat().st_mtime_ns == before["a.c"]
    assert (tmp_path / "sub/b.h").read_bytes() == b"new"


def test_what_an_earlier_run_wrote_and_this_one_does_not_is_removed(tmp_path):
    write(tmp_path, FILES)
    (tmp_path / "mine.txt").write_text("keep")
    write(tmp_path, {"a.c": b"one"})
    assert contents(tmp_path) == {"a.c": b"one", "mine.txt": b"keep"}
    assert not (tmp_path / "sub").exists()


def test_what_somebody_else_wrote_in_the_place_of_such_a_file_stays(tmp_path):
    write(tmp_path, FILES)
    (tmp_path / "sub" / "b.h").write_bytes(b"mine")
    write(tmp_path, {"a.c": b"one"})
    assert contents(tmp_path) == {"a.c": b"one", "sub/b.h": b"mine"}
    with fails(OutputRefused):
        write(tmp_path, FILES)


def test_a_folder_with_something_foreign_in_it_stays(tmp_path):
    write(tmp_path, FILES)
    (tmp_path / "sub" / "mine.txt").write_text("keep")
    write(tmp_path, {"a.c": b"one"})
    assert contents(tmp_path) == {"a.c": b"one", "sub/mine.txt": b"keep"}


@pytest.mark.parametrize("content", [b"foreign", b"two"], ids=["other", "even the same"])
def test_a_foreign_file_is_named_and_nothing_is_written(tmp_path, content):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.h").write_bytes(content)
    with fails(OutputRefused):
        write(tmp_path, FILES)
    assert contents(tmp_path) == {"sub/b.h": content}
    assert not (tmp_path / RECORD).exists()


def test_a_link_and_a_file_where_a_folder_should_be_are_foreign(tmp_path):
    (tmp_path / "a.c").symlink_to(tmp_path / "nowhere")
    with fails(OutputRefused):
        write(tmp_path, FILES)
    (tmp_path / "a.c").unlink()
    (tmp_path / "sub").write_text("a file")
    with fails(OutputRefused):
        write(tmp_path, FILES)
    (tmp_path / "sub").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sub").symlink_to(tmp_path / "elsewhere")
    with fails(OutputRefused):
        write(tmp_path, FILES)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("path", ["../victim", "/etc/victim", "a/../../victim", "."])
def test_a_record_changed_by_hand_deletes_nothing_elsewhere(tmp_path, path):
    victim = tmp_path / "victim"
    victim.write_text("keep")
    out = tmp_path / "out"
    write(out, FILES)
    record = msgspec.json.decode((out / RECORD).read_bytes())
    record["files"].append({"path": path, "sha256": "0"})
    (out / RECORD).write_bytes(msgspec.json.encode(record))
    with fails(InputRefused):
        write(out, {"a.c": b"one"})
    assert victim.read_text() == "keep"


def test_a_record_that_is_none_is_said(tmp_path):
    (tmp_path / RECORD).write_text("{")
    with fails(InputRefused):
        write(tmp_path, FILES)


def test_a_changed_file_of_edgeconv_is_made_again(tmp_path):
    write(tmp_path, FILES)
    (tmp_path / "a.c").write_bytes(b"edited")
    write(tmp_path, FILES)
    assert contents(tmp_path) == FILES


def test_a_read_only_tree_is_refused(read_only):
    with fails(OutputRefused):
        write(read_only / "out", FILES)
    with fails(OutputRefused):
        write(read_only, FILES)


def test_a_full_disk_changes_nothing(tiny_disk):
    write(tiny_disk / "out", FILES)
    before = tree(tiny_disk / "out")
    with fails(OutputRefused):
        write(tiny_disk / "out", {"a.c": b"new", "big.c": bytes(200_000)})
    assert contents(tiny_disk / "out") == FILES
    write(tiny_disk / "out", FILES)
    assert tree(tiny_disk / "out") == before


KILLED = """
    import sys
    from pathlib import Path
    from embed_writes import write
    rounds = 0
    while True:
        rounds += 1
        files = {f"{n}/{n}.c": b"%d" % (rounds * n) * 20_000 for n in range(rounds % 3, 9)}
        write(Path(sys.argv[1]), files, key=str(rounds))
        print(rounds, flush=True)
"""


WRITER = """
    import sys
    from pathlib import Path
    from embed_writes import write
    for round in range(40):
        files = {f"{n}.c": sys.argv[2].encode() * 10_000 for n in range(8)}
        write(Path(sys.argv[1]), files, key=sys.argv[2])
"""


def test_runs_at_the_same_time_take_turns(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)]
    writers = [subprocess.Popen([*command, mark], cwd=SUPPORT) for mark in ("a", "b", "c")]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = contents(tmp_path)
    assert len(found) == 8
    assert len(set(found.values())) == 1
    record = msgspec.json.decode((tmp_path / RECORD).read_bytes(), type=Embedded)
    assert record.key.encode() * 10_000 == found["0.c"]


def test_a_run_killed_at_any_moment_leaves_what_the_next_one_repairs(tmp_path):
    wanted: dict[str, bytes | Path] = {"x.c": b"x", "3/3.c": b"y"}
    write(tmp_path / "clean", wanted)
    out = tmp_path / "out"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(out)]
    for delay_s in (0.0, 0.004, 0.009, 0.013, 0.02, 0.031):
        child = subprocess.Popen(
            command, cwd=SUPPORT, stdout=subprocess.PIPE, start_new_session=True
        )
        assert child.stdout
        child.stdout.readline()
        time.sleep(delay_s)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        write(out, wanted)
        assert tree(out) == tree(tmp_path / "clean")
        assert not (out / JOURNAL).exists()
