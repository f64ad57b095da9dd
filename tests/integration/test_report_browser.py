import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
import report_example as example

from edgeconv.reporting.html import render_html

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    # The page is measured from beside it, which a browser forbids two files.
    "--allow-file-access-from-files",
]
# A frame of the wanted width is measured, and used, from outside.
WRAPPER = """<!doctype html><meta charset="utf-8"><body>
<iframe id="frame" src="report.html" style="width:{width}px;height:900px;border:0"></iframe>
<script>
onload = () => {{
  const page = document.getElementById("frame").contentDocument;
  const names = [...page.querySelectorAll("figure svg text")].filter(t => {{
    const box = t.getBoundingClientRect(), area = t.ownerSVGElement.getBoundingClientRect();
    return box.width && (box.left < area.left - 1 || box.right > area.right + 1 ||
      box.top < area.top - 1 || box.bottom > area.bottom + 1);
  }}).map(t => t.textContent);
  const root = page.documentElement;
  const scrolling = [...page.querySelectorAll("body *")].filter(e =>
    e.scrollWidth > e.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(e).overflowX)
  ).filter(e => !e.matches(".scroll")).map(e => e.tagName + "." + e.className);
  const said = [root.scrollWidth, root.clientWidth,
    page.querySelectorAll("svg:not([aria-hidden])").length,
    getComputedStyle(page.body).fontFamily.includes("system-ui"), names.join("|"),
    scrolling.join("|")];
  const loaded = page.defaultView.performance.getEntriesByType("resource").length;
  const marks = [...page.querySelectorAll("svg [data-tip]")].map(mark => {{
    mark.dispatchEvent(new Event("pointerenter"));
    const tip = page.querySelector(".tip"), box = tip.getBoundingClientRect();
    const style = getComputedStyle(mark);
    return [mark.dataset.tip, tip.hidden ? "" : tip.textContent,
      box.left >= 0 && box.right <= root.clientWidth, style.fill, style.stroke,
      parseFloat(getComputedStyle(mark.ownerSVGElement.querySelector("text")).fontSize) *
        mark.ownerSVGElement.getBoundingClientRect().width /
        mark.ownerSVGElement.viewBox.baseVal.width];
  }});
  document.body.dataset.drawn = JSON.stringify({{ loaded, marks,
    text: getComputedStyle(page.querySelector("figure svg text")).fill }});
  page.querySelector(".tip").hidden = true;
  document.body.dataset.measured = said.join(";");
  const table = page.querySelector(".models table");
  const order = () => [...table.tBodies[0].rows].map(r => r.cells[0].firstChild.textContent.trim());
  const heading = [...table.tHead.rows[0].cells].find(c => c.textContent.startsWith("{column}"));
  const button = heading.querySelector("button");
  button.click();
  const up = [heading.getAttribute("aria-sort"), ...order()];
  button.click();
  const down = [heading.getAttribute("aria-sort"), ...order()];
  const tip = page.querySelector(".tip");
  const point = page.querySelector("svg [data-row]");
  const was = tip.hidden;
  point.dispatchEvent(new Event("focus"));
  const shown = [was, tip.hidden, tip.textContent, point.getAttribute("tabindex"),
    page.querySelector(`tr[data-row="${{point.dataset.row}}"]`).classList.contains("linked")];
  page.defaultView.dispatchEvent(new KeyboardEvent("keydown", {{ key: "Escape" }}));
  document.body.dataset.used = JSON.stringify({{ up, down, shown, escaped: tip.hidden }});
}};
</script>"""

# As Chromium numbers what a page may prefer.
SCHEMES = {"dark": 0, "light": 1}
# A mark of each chart, with what the tables of the page say of it.
EVERY_CHART = [
    "int8: 46.9 kB, 97.22 %",
    "int8: 30.5 µs, 97.22 %",
    "int16x8: 3.06 pp [1.10, 5.60]",
    "int8: 27.3 dB",
    "int8: median 30.5 µs",
    "int8: first invoke 89.4 µs",
    "5: digits_cnn/dense/Relu (FULLY_CONNECTED), 7.0 dB",
    "epoch 3: validation 0.9722",
]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_fits_its_window_and_the_browser_has_nothing_to_complain(tmp_path, width):
    (tmp_path / "report.html").write_text(render_html(example.report()), encoding="utf-8")
    dom, log = framed(tmp_path, width)
    found = re.search('data-measured="([^"]*)"', dom)
    assert found, log
    scroll_width, client_width, pictures, styled, cut, scrolling = found[1].split(";")
    assert int(client_width) in range(width - 20, width + 1)
    assert int(scroll_width) <= int(client_width)
    assert (pictures, styled, cut, scrolling) == ("10", "true", "", "")
    assert "CONSOLE" not in log


@pytest.mark.parametrize(
    ("column", "smallest", "largest", "absent"),
    [
        ("Size", "dynamic", "digits_cnn", 0),
        # Of a model that did not run, and of the one that was not judged, nothing is known.
        ("p50", "int8", "digits_cnn", 1),
        ("Drop", "qat", "int16x8", 3),
        ("Model", "digits_cnn", "weight-only-int8", 0),
    ],
)
def test_a_column_sorts_both_ways_and_what_was_not_measured_stays_last(
    column, smallest, largest, absent, tmp_path
):
    (tmp_path / "report.html").write_text(render_html(example.report()), encoding="utf-8")
    used = used_page(tmp_path, column)
    (up, *rising), (down, *falling) = used["up"], used["down"]
    assert (up, down) == ("ascending", "descending")
    there = len(rising) - absent
    assert rising[0].endswith(smallest)
    assert rising[there - 1].endswith(largest)
    assert falling[0].endswith(largest)
    assert falling[there - 1].endswith(smallest)
    assert rising[there:] == falling[there:]


def test_a_point_says_what_it_is_to_the_keyboard_and_marks_its_row(tmp_path):
    (tmp_path / "report.html").write_text(render_html(example.report()), encoding="utf-8")
    used = used_page(tmp_path, "Size")
    was_hidden, is_hidden, text, tabindex, is_linked = used["shown"]
    assert (was_hidden, is_hidden, tabindex, is_linked) == (True, False, "0", True)
    assert re.fullmatch(r"[\w]+: [\d.]+ kB, [\d.]+ %", text)
    assert used["escaped"] is True


@pytest.mark.parametrize(
    ("scheme", "accent", "muted"),
    [("light", (13, 101, 128), (87, 98, 115)), ("dark", (99, 197, 222), (155, 167, 182))],
)
def test_every_mark_says_what_it_is_and_has_the_colors_of_the_scheme(
    scheme, accent, muted, tmp_path
):
    (tmp_path / "report.html").write_text(render_html(example.report()), encoding="utf-8")
    dom, log = framed(
        tmp_path, 390, flags=[f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    )
    found = re.search('data-drawn="([^"]*)"', dom)
    assert found, log
    drawn = json.loads(unescape(found[1]))
    assert drawn["loaded"] == 0
    assert drawn["text"] == f"rgb{muted}"
    marks = drawn["marks"]
    tips = [tip for tip, *_ in marks]
    for shown in EVERY_CHART:
        assert shown in tips
    assert all(tip == said and inside for tip, said, inside, *_ in marks)
    assert all(pixels > 10 for *_, pixels in marks)
    assert f"rgb{accent}" in {color for *_, fill, stroke, _ in marks for color in (fill, stroke)}
    assert "CONSOLE" not in log


def test_reports_side_by_side_fit_too(tmp_path):
    page = render_html(example.report(), msgspec.structs.replace(example.report(), title="two"))
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    dom, log = framed(tmp_path, 390)
    found = re.search('data-measured="([^"]*)"', dom)
    assert found, log
    scroll_width, client_width, *_, scrolling = found[1].split(";")
    assert int(scroll_width) <= int(client_width)
    assert scrolling == ""
    assert "CONSOLE" not in log


def test_the_security_policy_of_the_page_lets_no_other_script_run(tmp_path):
    html = render_html(example.report()).replace(
        "</main>", "</main><script>document.body.dataset.ran = 'yes'</script>"
    )
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    dom, log = dumped(tmp_path / "report.html", tmp_path)
    assert "All models" in dom
    assert 'data-ran="yes"' not in dom
    # This is also how we know that the log would show a complaint.
    assert "CONSOLE" in log


def framed(
    folder: Path, width: int, column: str = "Size", flags: Sequence[str] = ()
) -> tuple[str, str]:
    """What the page in `folder` became in a frame so wide, and the browser's log."""
    wrapper = WRAPPER.format(width=width, column=column)
    (folder / "wrapper.html").write_text(wrapper, encoding="utf-8")
    return dumped(folder / "wrapper.html", folder, flags)


def used_page(folder: Path, column: str) -> Any:
    """What came of sorting by a column, and of a point that got the focus."""
    dom, log = framed(folder, 1280, column)
    found = re.search('data-used="([^"]*)"', dom)
    assert found, log
    assert "CONSOLE" not in log
    return json.loads(unescape(found[1]))


def dumped(page: Path, scratch: Path, flags: Sequence[str] = ()) -> tuple[str, str]:
    """What the page became in the browser, and the browser's log."""
    assert BROWSER is not None
    profile = f"--user-data-dir={scratch / 'profile'}"
    done = subprocess.run(
        [BROWSER, *FLAGS, *flags, profile, "--window-size=1400,1000", "--dump-dom", page.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr
