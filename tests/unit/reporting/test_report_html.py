import base64
import hashlib
import math
import re
from itertools import pairwise

import msgspec
import report_example as example
from golden_files import assert_golden
from report_pages import ReportPage

from edgeconv.reporting.html import render_html
from edgeconv.types import OutputError, TensorSpec


def test_the_page_looks_as_it_did():
    assert_golden("report.html", render_html(example.report()))


def test_every_tag_is_closed_and_every_id_is_there_once():
    page = ReportPage(render_html(example.report()))
    assert page.open == []
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [a["aria-labelledby"] or "" for _, a in page.tags if "aria-labelledby" in a]
    assert {name for names in named for name in names.split()} <= set(ids)


def test_the_page_loads_nothing_and_runs_only_its_own_script():
    html = render_html(example.report())
    page = ReportPage(html)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base"}
    assert page.count("script") == 1
    (script,) = re.findall("<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert not [a for _, attrs in page.tags for a in attrs if a in ("src", "style", "xlink:href")]
    ids = {attrs.get("id") for _, attrs in page.tags}
    links = [attrs["href"] or "" for _, attrs in page.tags if "href" in attrs]
    assert len(links) == 13
    assert all(link[0] == "#" and link[1:] in ids for link in links)
    assert "url(" not in html
    assert "@import" not in html
    policy = next(a["content"] for _, a in page.tags if "http-equiv" in a)
    assert policy is not None
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def test_the_page_can_be_used_without_seeing_it():
    page = ReportPage(render_html(example.report()))
    assert page.count("table") == page.count("caption") > 5
    pictures = [attrs for tag, attrs in page.tags if tag == "svg" and "aria-hidden" not in attrs]
    assert len(pictures) == page.count("desc") == 10
    assert all(attrs["role"] == "img" and attrs["aria-labelledby"] for attrs in pictures)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all("scope" in attrs for tag, attrs in page.tags if tag == "th")
    assert [page.count(tag) for tag in ("main", "header", "footer", "h1")] == [1, 1, 1, 1]


def test_a_report_of_almost_nothing_is_still_a_page():
    report = msgspec.structs.replace(
        example.report(),
        baseline=None,
        measurements=(),
        artifacts=(),
        training=None,
        verdict=None,
        data=None,
        notes=(),
    )
    page = ReportPage(render_html(report))
    assert page.open == []
    assert page.count("svg") == 0
    assert "No budget" in page.text
    assert "No budget was checked." in page.text


def test_the_highlights_leave_out_what_is_over_budget_and_what_did_not_run():
    highlights = render_html(example.report()).split('<dl class="highlights">')[1].split("</dl>")[0]
    assert "97.22 % to 97.78 %, equal within chance" in highlights
    assert re.findall("<dd>(digits[^<]*)</dd>", highlights) == [
        "digits_cnn-int8",
        "digits_cnn-int8",
    ]


def test_numbers_that_are_none_or_not_numbers_are_shown_as_such():
    error = OutputError(
        output="o",
        snr_db=math.nan,
        max_abs_error=math.inf,
        rms_error=1,
        rms_reference=0,
        cosine=math.nan,
    )
    artifact = example.artifact("int8")
    verification = msgspec.structs.replace(artifact.verification, outputs=(error,))
    artifact = msgspec.structs.replace(artifact, verification=verification)
    report = msgspec.structs.replace(example.report(), artifacts=(artifact,))
    row = next(line for line in render_html(report).splitlines() if ">o</td>" in line)
    cells = re.findall("<td[^>]*>([^<]*)</td>", row)
    reference = artifact.verification.reference
    assert cells[:8] == ["o", reference, "∞", "–", "–", "–", "NaN", "1.00"]


def test_a_tensor_of_many_channels_shows_a_few_and_how_many():
    many = TensorSpec(name="w", shape=(-1, 9), dtype="int8", scale=(0.5,) * 9, zero_point=(0,) * 9)
    unknown = TensorSpec(name="u", shape=(), dtype="float32", rank_known=False)
    artifact = example.artifact("int8")
    signature = msgspec.structs.replace(artifact.signature, inputs=(many,), outputs=(unknown,))
    artifact = msgspec.structs.replace(artifact, signatures=(signature,))
    html = render_html(msgspec.structs.replace(example.report(), artifacts=(artifact,)))
    assert "0.5, 0.5, 0.5, 0.5, … (9 channels)" in html
    assert "? × 9" in html
    assert ">any<" in html
