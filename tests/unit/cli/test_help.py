"""The pages of --help: what they show, and that they fit a screen."""

import os
import shlex

import pytest
from places import TESTS

from edgeconv.cli import command_named, run
from edgeconv.requests.request import Leaf, leaves_of
from edgeconv.requests.table import VERBS

COMMANDS = ("convert", "train", "bench", "tune", "check", "embed")
# A screen.
MOST_LINES = 47
MOST_COLUMNS = 100


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Without a configuration, and as wide as a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")


def page(capsys: pytest.CaptureFixture[str], command: str, option: str) -> str:
    assert run([command, option]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "--help-all"])
def test_a_page_of_help_looks_as_it_did(command, option, capsys):
    """Set EDGECONV_WRITE_GOLDEN=1 to write it anew, and read the difference."""
    golden = TESTS / "golden" / f"{command}{option[1:]}.txt"
    text = page(capsys, command, option)
    if os.environ.get("EDGECONV_WRITE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_common_case_fits_a_screen(command, capsys):
    lines = page(capsys, command, "--help").splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= MOST_COLUMNS
    assert lines.count("Examples:") == 1
    assert any("--help-all" in line for line in lines)


@pytest.mark.parametrize("command", [*COMMANDS, "sweep"])
def test_the_brief_help_names_options_that_there_are(command):
    brief = command_named(command).brief
    options = {param.opts[-1].removeprefix("--") for param in command_named(command).params}
    assert set(brief) <= options
    assert len(brief) == len(set(brief))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_whole_page_has_every_option_in_its_group(command, capsys):
    text = page(capsys, command, "--help-all")
    leaves = [*leaves_of(VERBS[command].kind), *leaves_of(VERBS[command].printing)]
    options = [leaf for leaf in leaves if not leaf.option.is_argument]
    assert options
    for leaf in options:
        assert leaf.option.group, leaf.key
        assert f"  {leaf.shown}" in section(text, leaf) or f", {leaf.shown}" in section(text, leaf)


def section(text: str, leaf: Leaf) -> str:
    """The group of an option on the page."""
    return text.partition(f"\n{leaf.option.group}:\n")[2].partition("\n\n")[0]


def test_every_option_of_every_verb_says_what_it_is():
    leaves = [
        leaf
        for entry in VERBS.values()
        for leaf in (*leaves_of(entry.kind), *leaves_of(entry.printing))
    ]
    assert [leaf.key for leaf in leaves if not (leaf.option.is_argument or leaf.option.help)] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_are_understood(command):
    examples = command_named(command)._examples
    assert len(examples) == 3
    for example in examples:
        program, name, *words = shlex.split(example)
        assert (program, name) == ("edgeconv", command)
        assert command_named(command).make_context(command, words).obj.request is not None


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("convert", "missing argument MODEL", "`edgeconv convert --help`"),
        ("convert m.keras", "missing option --to", "float32, float16, dynamic, "),
        ("convert m --tow int8", "unknown option --tow", "did you mean --to"),
        ("convert m --to", "option '--to' requires an argument", "`edgeconv convert --help`"),
        ("bench m --rounds x", "--rounds: 'x' is not a valid integer", "`edgeconv bench --help`"),
        ("bench m --rounds 0", "--rounds: 0 is not in the range", "`edgeconv bench --help`"),
        ("check --method t", "--method: 't' is not one of", "`edgeconv check --help`"),
        ("bench", "missing argument MODELS", "`edgeconv bench --help`"),
        ("--colour", "unknown option --colour", "`edgeconv --help`"),
        ("scan", "missing argument PATH", "`edgeconv scan --help`"),
        ("cache prune --max-size x", "--max-size: 'x' is not a size", "`edgeconv cache prune"),
        ("tuen", "unknown command 'tuen'", "did you mean 'tune'?"),
    ],
)
def test_an_error_of_usage_has_the_form_of_every_error(line, message, hint, capsys):
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, second = said.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert second.startswith(f"  next: {hint}")
