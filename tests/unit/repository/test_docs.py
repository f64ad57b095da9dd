"""The documentation: its commands, code, links, words and generated parts."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from documents import DOCS, PAGES, Block, blocks, name_of
from markdown_it import MarkdownIt
from places import ROOT

from edgeconv.cli import cli

sys.path.insert(0, str(ROOT))

from benchmarks import results_page

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

README = ROOT / "README.md"
EVERY = [(page, block) for page in PAGES for block in blocks(page)]
PARSERS = {
    "python": lambda text: compile(text, "block", "exec"),
    "toml": tomllib.loads,
    "json": json.loads,
    "yaml": yaml.safe_load,
}


def commands(block: Block) -> list[str]:
    """The edgeconv command lines of a block."""
    lines = block.text.replace("\\\n", " ").splitlines()
    calls = (re.match(r"(?:\$ )?edgeconv ([a-z-]+(?: .*)?)$", line) for line in lines)
    return [re.sub(r" (?:\|\||&&|>|\|) .*", "", call[1]) for call in calls if call]


COMMANDS = [(name_of(page), line) for page, block in EVERY for line in commands(block)]
CODE = [(name_of(page), block) for page, block in EVERY if block.language in PARSERS]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_in_the_documents_is_understood(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edgeconv.toml").touch()
    Path("tuned").mkdir()
    Path("tuned/digits.recipe.toml").write_text('convert.to = "int8"', encoding="utf-8")
    name, *arguments = shlex.split(line, comments=True)
    command = cli.get_command(cli.make_context("edgeconv", ["--version"]), name)
    assert command is not None, name
    command.make_context(name, arguments, help_option_names=["-h", "--help"])


def test_the_documents_show_commands():
    assert {page for page, _ in COMMANDS} >= {"README.md", "docs/models.md", "docs/tutorials/ci.md"}


@pytest.mark.parametrize(("page", "block"), CODE)
def test_code_in_the_documents_can_be_parsed(page, block):
    PARSERS[block.language](block.text)


# Links


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and GitHub make them."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    titles = (
        tokens[n + 1].content for n, token in enumerate(tokens) if token.type == "heading_open"
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "mailto:")):
            continue
        assert not target.startswith("http:"), target
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), target
        assert not anchor or anchor in slugs(linked), target


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert re.search(rf"\b{re.escape(page.relative_to(DOCS).as_posix())}\b", text), page


# Results


def test_the_results_are_those_of_the_json_files():
    """Write them anew with: python -m benchmarks.results_page"""
    text = README.read_text(encoding="utf-8")
    assert results_page.PAGE.read_text(encoding="utf-8") == results_page.results_page()
    assert text == results_page.with_table(text)
    (table,) = re.findall(r"<!-- results -->\n(.*?)\n<!-- /results -->", text, re.DOTALL)
    assert 1 <= len(table.splitlines()) - 2 <= 8
    for path in results_page.RESULTS.glob("*.json"):
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", results_page.recorded(path.stem)["date"]), path
        assert f"benchmarks.{path.stem}" in results_page.PAGE.read_text(encoding="utf-8")
