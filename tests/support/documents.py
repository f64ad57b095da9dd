"""The pages of the documentation: their fenced blocks, their links, and how a page is run."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from places import ROOT

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))


class Block(NamedTuple):
    """A fenced block: its language, the further words of its first line, the file that it is."""

    language: str
    words: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        """Whether a reader runs it where the page says so: a shell block without a further word."""
        return self.language == "sh" and not self.words


def name_of(page: Path) -> str:
    """A page as people call it: docs/ci.md."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            language, _, words = token.info.partition(" ")
            title = re.search(r'title="([^"]+)"', words)
            yield Block(language, words, title[1] if title else "", token.content)


def run(page_blocks: Sequence[Block], folder: Path, shell: Callable[[str], str]) -> None:
    """Do what the blocks say, in `folder`: write the files that have a title, run the commands.

    `shell` runs commands there, and returns what they print. A `text` block is what the commands
    before it print, in its order; … stands for any text.
    """
    printed = ""
    for block in page_blocks:
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.is_run:
            printed = shell(block.text)
        elif block.language == "text":
            lines = (re.escape(line).replace("…", ".*") for line in block.text.splitlines())
            assert re.search(".*?".join(f"^{line}" for line in lines), printed, re.DOTALL | re.M), (
                f"{block.text}\nis not what was printed:\n{printed}"
            )
