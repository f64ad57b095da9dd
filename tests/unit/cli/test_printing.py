"""What reaches the file descriptors of stdout and stderr, whatever names, values and tools say."""

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_tflite import float_model, packed

from edgeconv.cli import run
from edgeconv.cli.printing import (
    echo,
    echo_error,
    echo_failures,
    echo_page,
    echo_text,
    escaped_output,
    progress,
)
from edgeconv.reporting.pages import Labeled, to_text
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Cell, Column, Row, Table
from edgeconv.system.processes.escaping import harmless_line, plain, shell_line
from edgeconv.types import Failure
from edgeconv.types.errors import ToolFailed

OBEYED = (
    *("\x1b[31m", "\x1b]8;;http://e\x07l\x1b]8;;\x07", "\x1b]0;title\x07", "\x9b2J", "\x1b[?1049h"),
    *("\n::set-output name=x::y", "\n  ::error::x", "\n::add-mask::a", "\n##[group]g", "\n::"),
    *("##vso[task.x]", "\n##teamcity[message text='x']", "\nsection_start:1:x\r\x1b[0K", "\r"),
    *("\u2066", "\u202e", "\u200b", "\u0085", "\u2028", "\ufeff", "\ud800", "\udcff", "\0", "\t"),
    *("\U000e0041", "::", ":", "##", "[", "[bold]x[/]", "{0}", "%0A", "é", "日本"),
)
HOSTILE = "".join(OBEYED)
texts = st.lists(st.one_of(st.sampled_from(OBEYED), st.text(max_size=3)), max_size=8).map("".join)
OWN_COLORS = re.compile(r"\x1b\[[0-9;]*m")
CURSOR = re.compile(r"\r|\x1b\[(?:\?25[lh]|2K|1A)")


def printed(action: Callable[[], object], *, on_terminal: bool = False) -> str:
    """What an action writes to stdout and stderr, as the one who reads the other end gets it."""
    reader, writer = pty.openpty() if on_terminal else os.pipe()
    parts: list[bytes] = []
    thread = threading.Thread(target=lambda: parts.extend(_all_of(reader)))
    thread.start()
    out = os.fdopen(writer, "w", encoding="utf-8", errors="strict")
    err = os.fdopen(os.dup(writer), "w", encoding="utf-8", errors="strict")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            action()
    finally:
        out.close()
        err.close()
        thread.join()
        os.close(reader)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _all_of(reader: int) -> Iterator[bytes]:
    # So Linux says that nobody has the other end of a terminal any more.
    with contextlib.suppress(OSError):
        while part := os.read(reader, 1 << 16):
            yield part


def assert_harmless(shown: str) -> None:
    steering = {c for c in shown if c != "\n" and unicodedata.category(c) in CATEGORIES}
    assert steering == set(), shown
    assert [line for line in shown.split("\n") if line.lstrip().startswith("::")] == []
    assert re.search(r"##\w*\[", shown) is None, shown


CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(texts, st.booleans())
def test_no_line_steers_a_terminal_or_a_ci_system(text, on_terminal):
    with_guard = lambda: _guarded(lambda: echo(text), lambda: echo_text(text))  # noqa: E731
    assert_harmless(printed(with_guard, on_terminal=on_terminal))


def _guarded(*actions: Callable[[], object]) -> None:
    with escaped_output():
        for action in actions:
            action()


@given(st.lists(texts, max_size=6))
def test_nor_does_a_line_that_is_written_in_parts(parts):
    def write() -> None:
        for part in parts:
            sys.stdout.write(part)

    assert_harmless(printed(lambda: _guarded(write)))


@given(texts)
def test_escaped_text_stays_as_it_is_and_json_keeps_its_meaning(text):
    assert plain(plain(text)) == plain(text)
    assert harmless_line(harmless_line(text)) == harmless_line(text)
    # Both halves of a pair are one character in JSON, however they are written.
    assume(not re.search("[\ud800-\udbff][\udc00-\udfff]", text))
    document = json.dumps({"name": text}, ensure_ascii=False)
    shown = printed(lambda: _guarded(lambda: echo_text(document)))
    assert json.loads(shown) == {"name": text}
    assert_harmless(shown)


@given(texts)
def test_tables_have_no_escapes_but_their_own_colors(text):
    shown = printed(lambda: _guarded(lambda: echo_page(_page(Text(text, "red")))), on_terminal=True)
    assert "\x1b[2m" in shown
    assert_harmless(OWN_COLORS.sub("", shown))
    assert "\x1b" not in _page(Text(text, "red"), color=False)


def _text(text: str) -> Text:
    return Text(text, "red")


def _page(text: Text, *, color: bool = True) -> str:
    columns = (Column(text.plain, str, wraps=True), Column("b", str, beneath=True))
    row = Row((Cell(text.plain, style="red"), Cell("y", style="red")), (text,))
    return to_text(
        [text, Table(columns, (row,)), Labeled([(text.plain, text.plain)])], width=60, color=color
    )


def test_messages_logs_and_tracebacks_are_escaped_whoever_prints_them():
    def act() -> None:
        echo_error(ToolFailed(HOSTILE, hint=HOSTILE))
        logging.lastResort.handle(logging.LogRecord("x", 40, "f", 1, HOSTILE, (), None))
        sys.__excepthook__(ValueError, ValueError(HOSTILE), None)
        print(HOSTILE, file=sys.stderr)

    for on_terminal in (False, True):
        shown = printed(lambda: _guarded(act), on_terminal=on_terminal)
        assert_harmless(shown)
        assert shown.count("title") == 5


def test_a_warning_and_a_fault_of_edgeconv_are_escaped():
    code = (
        "import warnings, sys; from edgeconv import cli\n"
        "def run(args):\n"
        "    with cli.escaped_output(): warnings.warn(args[0])\n"
        "    raise ValueError(args[0])\n"
        "cli.run = run; cli.main([sys.argv[1]])"
    )
    text = HOSTILE.replace("\0", "").replace("\ud800", "")
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, check=False)
    assert done.returncode == 4
    assert_harmless(done.stderr.decode())
    assert done.stderr.decode().count("]0;title") == 2


def test_a_name_with_newlines_cannot_pass_for_a_message_of_edgeconv():
    error = ToolFailed("x.tflite\nerror: y\n  next: curl evil", hint="see\n  next: curl evil")
    assert printed(lambda: _guarded(lambda: echo_error(error))).split("\n") == [
        "error: x.tflite",
        "  | error: y",
        "  | next: curl evil",
        r"  next: see\n  next: curl evil",
        "",
    ]


def test_a_line_of_ten_million_characters_is_cut_on_stderr_and_in_tables():
    text = "x" * 10_000_000
    shown = printed(lambda: _guarded(lambda: echo_error(ToolFailed(text)), lambda: echo(text)))
    assert len(shown) == len(text) + 1 + len(f"{'x' * 4000}… (9,996,007 more characters)\n")
    table = Table((Column("a", str),), (Row((Cell(text),)),))
    page = to_text([_text(text), table], width=None, color=False)
    assert len(page) < 10_000
    assert page.splitlines()[0].endswith("… (9,996,000 more characters)")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_terminal_cannot_encode_is_spelled_out(tmp_path, encoding):
    out = (tmp_path / "out").open("w", encoding=encoding)
    with out, contextlib.redirect_stdout(out):
        _guarded(lambda: echo("é ─ 日"))
    assert (tmp_path / "out").read_text(encoding=encoding).endswith("\\u2500 \\u65e5\n")


def test_progress_on_a_terminal_shows_names_and_obeys_none(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)

    def act() -> None:
        with progress(quiet=False) as tell:
            tell(HOSTILE)
            threading.Event().wait(0.3)

    shown = printed(lambda: _guarded(act), on_terminal=True)
    assert r"\u001b]0;title\u0007" in shown.replace("\n", "")
    assert_harmless(OWN_COLORS.sub("", CURSOR.sub("", shown)))


NAMES = [
    "a\n::set-output name=x::y\x1b[2J\u202e.tflite",
    "b\udcff ##vso[task.x] ::error::\x9b.tflite",
]


@pytest.fixture(scope="module")
def hostile_files(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("hostile\n::error::x\x1b[1m")
    text = HOSTILE.replace("\ud800", "").replace("\udcff", "")
    model = float_model(signature=(text, [text], [text]), names=(text, text))
    model.description = text
    model.operatorCodes[0].customCode = text
    files = [folder / name for name in NAMES]
    for file in files:
        file.write_bytes(packed(model))
    (folder / "edgeconv.toml").write_text(
        f"[convert]\nmodel = {json.dumps(text)}\nto = [{json.dumps(text)}]\n", encoding="utf-8"
    )
    (folder / "report.json").write_text(json.dumps({"title": text}), encoding="utf-8")
    return files


def commands(first: Path, second: Path) -> list[list[str]]:
    one, two, folder = str(first), str(second), first.parent
    return [
        *([["inspect", one], ["inspect", two, "--json"], ["inspect", f"{one}x"]]),
        *(
            [
                ["scan", *form, one, two, f"{two}x"]
                for form in ([], ["--json"], ["--format", "sarif"])
            ]
        ),
        *([["compare", one, two], ["compare", one, two, "--json"], ["compare", one, f"{one}x"]]),
        ["convert", one, "--to", HOSTILE],
        ["convert", one, "--signature", HOSTILE, "--to", "int8", "--calibration", HOSTILE],
        ["convert", "--config", str(folder / "edgeconv.toml")],
        ["config", "show", "--config", str(folder / "edgeconv.toml")],
        ["convert", "--help", "--config", str(folder / "edgeconv.toml")],
        ["report", str(folder / "report.json")],
        ["visualize", one, "--report", str(folder / "report.json")],
        ["bench", one, "--runtime", HOSTILE],
        ["embed", one, "--target", HOSTILE, "-o", HOSTILE.replace("\0", "")],
        *([HOSTILE], [f"--{HOSTILE}"], ["inspect", f"--{HOSTILE}"], ["cache", "prune", HOSTILE]),
    ]


@pytest.mark.parametrize("number", range(len(commands(*[__import__("pathlib").Path("x")] * 2))))
@pytest.mark.parametrize("on_terminal", [False, True])
def test_no_command_prints_what_is_obeyed(hostile_files, monkeypatch, number, on_terminal):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.chdir(hostile_files[0].parent)
    codes: list[int] = []
    arguments = commands(*hostile_files)[number]
    shown = printed(lambda: codes.append(run(arguments)), on_terminal=on_terminal)
    assert codes[0] in (0, 1, 2, 3)
    assert "Traceback" not in shown
    assert shown
    assert_harmless(OWN_COLORS.sub("", CURSOR.sub("", shown)))


def test_a_file_whose_name_is_not_utf_8_is_shown_in_json_and_not_converted(hostile_files, tmp_path):
    file = str(hostile_files[1])
    shown = json.loads(printed(lambda: run(["inspect", "--json", file])))
    assert shown["model"]["path"] == file.replace("\udcff", "\\udcff")
    codes: list[int] = []
    words = ["report", str(tmp_path / "none\udcff.json")]
    assert "\\udcff" in printed(lambda: codes.append(run(words)))
    assert codes == [3]


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_a_command_that_is_shown_is_what_a_shell_runs(words):
    words = [word.replace("\0", "").encode("utf-8", "ignore").decode() for word in words]
    line = shell_line(words)
    assert all(c.isprintable() for c in line)
    _assert_run(line, [word.encode() for word in words])


@pytest.mark.parametrize("word", ["b\udcff.tflite", "it's\n\\x", "$(x)\x1b", "\u202e`a`"])
def test_names_that_are_not_shown_are_exact_in_a_command(word):
    _assert_run(shell_line([word, "é"]), [os.fsencode(word), "é".encode()])


def _assert_run(line: str, words: list[bytes]) -> None:
    script = f"printf '%s\\0' {line}"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True)
    assert done.stdout.split(b"\0")[:-1] == words


test_a_command_that_is_shown_is_what_a_shell_runs = settings(max_examples=30, deadline=None)(
    test_a_command_that_is_shown_is_what_a_shell_runs
)


def test_a_reason_that_recipes_share_is_printed_once(capsys):
    def failure(recipe: str, message: str) -> Failure:
        return Failure(recipe=recipe, error="SuspectCalibration", message=message, hint="look")

    echo_failures(
        [
            failure("int8", "int8: the samples are wrong"),
            failure("int16x8", "int16x8: the samples are wrong"),
            failure("float16", "there is no engine"),
        ]
    )
    assert capsys.readouterr().err.splitlines() == [
        "error: int8, int16x8: the samples are wrong",
        "  next: look",
        "error: there is no engine",
        "  next: look",
    ]
