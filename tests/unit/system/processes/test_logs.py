import itertools
import unicodedata
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgeconv.system.processes.failures import NewLines, shown, tail, worth_showing


def append(file: Path, data: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(data)


def test_new_lines_are_read_once_each_and_a_line_in_the_making_waits(tmp_path):
    file = tmp_path / "log"
    new = NewLines(file)
    assert new.read() == []
    append(file, b"one\ntw")
    assert new.read() == ["one"]
    assert new.read() == []
    append(file, b"o\n\nthree\n")
    assert new.read() == ["two", "", "three"]
    assert new.read() == []


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    cuts=st.lists(st.integers(0, 160), max_size=6),
)
def test_lines_come_out_the_same_however_they_were_written(tmp_path_factory, text, cuts):
    file = tmp_path_factory.mktemp("lines") / "log"
    data = f"{text}\n".encode()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    new, read = NewLines(file), []
    for start, stop in itertools.pairwise(bounds):
        append(file, data[start:stop])
        read += new.read()
    assert read == f"{text}\n".split("\n")[:-1]


def test_bytes_that_are_no_text_are_read_as_such(tmp_path):
    append(tmp_path / "log", b"a\xff\xfe\n")
    assert NewLines(tmp_path / "log").read() == ["a\N{REPLACEMENT CHARACTER}" * 1 + "\ufffd"]


def test_of_what_comes_too_fast_the_last_lines_are_read(tmp_path):
    file = tmp_path / "log"
    new = NewLines(file, most=3)
    append(file, b"".join(b"%d\n" % number for number in range(100_000)))
    assert new.read() == ["99997", "99998", "99999"]
    append(file, b"next\n")
    assert new.read() == ["next"]


def test_an_endless_line_takes_no_memory_and_its_end_is_read(tmp_path):
    file = tmp_path / "log"
    new = NewLines(file, most=3)
    for _ in range(5):
        append(file, b"x" * 1_000_000)
        assert new.read() == []
        assert len(new._begun) <= 1024
    append(file, b" the end\nnext\n")
    line, following = new.read()
    assert len(line) < 2000
    assert line.endswith("x the end")
    assert following == "next"


def test_nothing_that_a_terminal_obeys_is_shown():
    assert (
        shown("\x1b[31mred\x07 \x9b \u202e \x00 ok")
        == r"\u001b[31mred\u0007 \u009b \u202e \u0000 ok"
    )


@given(st.text())
def test_what_is_shown_can_be_printed_and_is_short(text):
    line = shown(text)
    assert len(line) <= 240 * len(r"\ud800\udc00")
    assert all(
        character.isprintable() or unicodedata.category(character) == "Zs" for character in line
    )


def test_of_a_progress_bar_that_is_written_over_the_last_is_shown():
    assert shown("1/9 [>.]\r2/9 [=>]\r\b\b9/9 [==] done\r") == "9/9 [==] done"
    assert shown("\r\b \r") == ""


def test_an_ordinary_line_is_shown_as_it_is():
    line = "  indented\tÜmläut € ━━ 12/12 \N{SNAKE}"
    assert shown(line) == line.expandtabs()


def test_chatter_and_empty_lines_are_not_worth_showing():
    lines = [
        "I0000 00:00:1795272844.624456   22734 port.cc:153] oneDNN custom operations are on.",
        "WARNING: All log messages before absl::InitializeLog() is called",
        "To enable the following instructions: AVX2",
        "/job:worker/replica:0/task:1",
        "",
        "  ",
        "epoch 1",
    ]
    assert [*worth_showing(lines)] == ["epoch 1"]


def test_the_tail_is_the_last_lines_indented(tmp_path):
    append(tmp_path / "log", b"".join(b"line %d\n" % number for number in range(100)))
    lines = tail(tmp_path / "log").split("\n")
    assert lines == [f"  | line {number}" for number in range(88, 100)]
