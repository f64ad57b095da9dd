"""The site builds without a warning, with a reference made from the code."""

import re
import sys
from html import unescape
from pathlib import Path

import pytest
from commands import captured
from documents import DOCS
from places import ROOT

import edgeconv
from edgeconv import types
from edgeconv.requests.request import leaves_of
from edgeconv.requests.table import VERBS

pytest.importorskip("mkdocs", reason="needs the extra docs: pip install 'edgeconv[docs]'")
pytest.importorskip("material", reason="needs the extra docs: pip install 'edgeconv[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    ended = captured(command, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


def text_of(page: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_every_page_and_every_part_of_the_checkout_is_there(site):
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix("") / "index.html").is_file(), page
    for name in ("contributing", "changelog"):
        assert (site / name / "index.html").is_file(), name
    assert "Your own SavedModel to a verified file" in text_of(site / "index.html")
    assert (site / "images/report.png").is_file()
    assert not (site / "hooks").exists()


def test_the_reference_has_every_option_of_every_verb(site):
    for name, entry in VERBS.items():
        text = text_of(site / "reference" / name / "index.html")
        for leaf in leaves_of(entry.kind):
            assert leaf.option.is_argument or f"--{leaf.key}" in text, (name, leaf.key)


def test_the_reference_has_every_table_function_and_value(site):
    tables = text_of(site / "reference/edgeconv-toml/index.html")
    for name in ("model.NAME", "budget", "convert", "bench", "check", "embed"):
        assert f"[{name}]" in tables
    assert "max-accuracy-drop" in tables
    python = text_of(site / "reference/python/index.html")
    assert all(f"edgeconv.{name}(" in python for name in edgeconv.__all__)
    values = text_of(site / "reference/values/index.html")
    assert all(name in values for name in ("Artifact", "Report") if hasattr(types, name))


def test_no_page_asks_another_host_for_anything(site):
    for page in site.rglob("*.html"):
        markup = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="https?://[^"]*"', markup), (
            page
        )
