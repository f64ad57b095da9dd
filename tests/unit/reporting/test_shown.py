"""Results as a person sees them who evaluates them in a terminal or a notebook."""

import inspect
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from report_example import report as example_report

import edgeconv
from edgeconv.reporting.pages import PAGES, Labeled, text_of
from edgeconv.reporting.shown import to_html
from edgeconv.reporting.styled import Text
from edgeconv.reporting.tables import Column, table
from edgeconv.requests.table import VERBS, named
from edgeconv.types import Built, Conversion, Embedded, EmbeddedFile, Failure, Finding, Verdict


class Balanced(HTMLParser):
    """Counts rows; every tag that is opened must be closed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag != "br":
            self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def rows_of(html: str) -> int:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return parser.rows


def test_a_report_shows_itself_as_the_table_of_the_command():
    report = example_report()
    assert repr(report) == text_of(report)
    html = report._repr_html_()
    assert rows_of(html) >= 1 + len(report.artifacts)
    assert "<table><thead><tr><th>model</th>" in html


def test_what_is_advised_are_arguments_as_python_has_them():
    failure = Failure(recipe="int8", error="ToolFailed", message="m", hint="use --io output=int8")
    command = Failure(recipe="qat", error="ToolFailed", message="m", hint="edgeconv convert --to x")
    conversion = Conversion(
        directory="out", artifacts=(), failures=(failure, command), notes=("--min-snr-db 9 helps",)
    )
    for text in (repr(conversion), conversion._repr_html_().replace("&#x27;", "'")):
        assert "use io='output=int8'" in text
        assert "min_snr_db=9 helps" in text
        assert "edgeconv convert --to x" in text
    assert "use --io output=int8" in text_of(conversion)


def test_what_comes_from_a_model_is_no_markup_of_the_page():
    failure = Failure(recipe="int8", error="ToolFailed", message="<script>alert(1)</script>")
    conversion = Conversion(directory="out/<b>", artifacts=(), failures=(failure,))
    html = conversion._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "<b>" not in html
    assert rows_of(html) == 3
    assert "1 failed" in repr(conversion)


def test_a_verdict_shows_its_findings():
    finding = Finding(
        model="int8", limit="max-size-ratio", allowed=0.3, actual=0.5, outcome="failed"
    )
    verdict = Verdict(findings=(finding,))
    assert "FAIL" in repr(verdict)
    assert "max-size-ratio" in verdict._repr_html_()


def test_a_table_becomes_rows_and_their_details_one_that_is_as_wide():
    columns: tuple[Column[int], ...] = (Column("a", str), Column("b", lambda n: str(n + 1)))
    grid = table(columns, (1, 3), lambda n: ("one", Text("two")) if n == 1 else ())
    html = to_html([Text("title"), grid, Labeled([("name", "value")]), ""])
    assert rows_of(html) == 5
    assert '<td colspan="2">one<br>two</td>' in html
    assert re.sub("<[^>]+>", " ", html).split() == [
        *("title", "a", "b", "1", "2", "one", "two", "3", "4", "name", "value", "&nbsp;")
    ]


@pytest.mark.parametrize("verb", edgeconv.__all__)
def test_what_a_verb_gives_has_a_page(verb):
    if verb in ("load", "qat"):
        return
    given = str(inspect.signature(named(VERBS[verb].function)).return_annotation)
    assert PAGES.keys() & {*re.findall(r"\w+", given)}


def test_an_embedding_shows_its_files_and_a_build_where_they_are():
    files = (EmbeddedFile(path="net.c", sha256="0" * 64), EmbeddedFile(path="n.h", sha256="1" * 64))
    fields: dict[str, Any] = {"target": "c", "name": "net", "symbol": "net", "files": files}
    embedded = Embedded(key="k", model_sha256="2" * 64, notes=("arena: 9",), **fields)
    assert repr(embedded).splitlines() == [
        *("net for c: 2 files", "  net.c", "  n.h", "note: arena: 9")
    ]
    built = Built(
        name="m", is_new=False, directory="/out", embedded=embedded, inputs=(), outputs=()
    )
    assert repr(built) == "up to date: m for c in /out: 2 files"


@pytest.mark.parametrize("name", PAGES)
def test_every_result_of_a_verb_shows_itself(name):
    kind = getattr(edgeconv.types, name)
    assert kind.__repr__.__qualname__ == "Result.__repr__"
    assert hasattr(kind, "_repr_html_")


def test_the_verbs_are_what_completion_offers():
    assert {"convert", "bench", "check", "tune", "train", "__version__"} <= set(dir(edgeconv))
