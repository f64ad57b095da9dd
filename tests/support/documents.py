"""The pages of the documentation: their fenced blocks, their links, and how a page is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forking import write_programs
from markdown_it import MarkdownIt
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
# Written by programs, from results.
GENERATED = (DOCS / "coverage.md", DOCS / "kernels.md")


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


def prose(page: Path) -> str:
    """A page without its fenced blocks and code spans."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    return re.sub(r"`[^`]*`", "", text)


def environment_of(cache: Path) -> dict[str, str]:
    """The environment of a reader who has activated the tests' environment.

    Its programs are forks where the children of the tests are; see forking.py.
    """
    programs = cache.parent / "bin"
    write_programs(programs)
    path = (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "EDGECONV_CACHE_DIR": str(cache),
        "NO_COLOR": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def run(page_blocks: Sequence[Block], folder: Path, cache: Path) -> None:
    """Do what the blocks say, in `folder`: write the files that have a title, run the commands.

    A `text` block is what the commands before it print, in its order; … stands for any text.
    """
    environment = environment_of(cache)
    printed = ""
    for block in page_blocks:
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.is_run:
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            printed = ended.stdout
            assert ended.returncode == 0, f"{block.text}\n{printed}"
        elif block.language == "text":
            lines = (re.escape(line).replace("…", ".*") for line in block.text.splitlines())
            assert re.search(".*?".join(f"^{line}" for line in lines), printed, re.DOTALL | re.M), (
                f"{block.text}\nis not what was printed:\n{printed}"
            )
