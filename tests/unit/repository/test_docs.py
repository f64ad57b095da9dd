"""Every command that the documents show is one that edgeconv takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from places import ROOT

from edgeconv.cli import cli

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(document: Path) -> list[str]:
    """The edgeconv command lines in the code blocks of a document, without their comments."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", document.read_text("utf-8"), re.DOTALL | re.M)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = (re.match(r"(?:\$ )?edgeconv ([a-z]+ .*)", line) for line in lines)
    return [match[1] for match in found if match]


EVERY = [(document.name, line) for document in DOCUMENTS for line in commands(document)]


@pytest.mark.parametrize(("document", "line"), EVERY)
def test_a_command_in_the_documents_is_understood(
    document: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edgeconv.toml").touch()
    name, *arguments = shlex.split(line, comments=True)
    command = cli.get_command(cli.make_context("edgeconv", ["--version"]), name)
    assert command is not None, name
    command.make_context(name, arguments, help_option_names=["-h", "--help"])


def test_the_documents_show_commands() -> None:
    assert {name for name, _ in EVERY} >= {"README.md", "models.md", "data.md", "doctor.md"}
