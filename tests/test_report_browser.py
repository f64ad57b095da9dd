from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import report_example as example

from edgeconv.report.html import render_html

if TYPE_CHECKING:
    from pathlib import Path

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
# The page itself runs no script, so a frame of the wanted width is measured from outside.
WRAPPER = """<!doctype html><meta charset="utf-8"><body>
<iframe id="frame" src="report.html" style="width:{width}px;height:900px;border:0"></iframe>
<script>
onload = () => {{
  const page = document.getElementById("frame").contentDocument;
  const names = [...page.querySelectorAll("svg text")].filter(t => {{
    const box = t.getBBox(), area = t.ownerSVGElement.viewBox.baseVal;
    return box.x < -1 || box.x + box.width > area.width + 1 || box.y + box.height > area.height + 1;
  }}).map(t => t.textContent);
  const root = page.documentElement;
  const said = [root.scrollWidth, root.clientWidth, page.querySelectorAll("svg").length,
    getComputedStyle(page.body).fontFamily.includes("system-ui"), names.join("|")];
  document.body.dataset.measured = said.join(";");
}};
</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
def test_the_page_fits_its_window_and_the_browser_has_nothing_to_complain(
    tmp_path: Path, width: int
) -> None:
    (tmp_path / "report.html").write_text(render_html(example.report()), encoding="utf-8")
    (tmp_path / "wrapper.html").write_text(WRAPPER.format(width=width), encoding="utf-8")
    dom, log = dumped(tmp_path / "wrapper.html", tmp_path)
    found = re.search('data-measured="([^"]*)"', dom)
    assert found, log
    scroll_width, client_width, pictures, styled, cut = found[1].split(";")
    assert int(client_width) in range(width - 20, width + 1)
    assert int(scroll_width) <= int(client_width)
    assert (pictures, styled, cut) == ("6", "true", "")
    assert "CONSOLE" not in log


def test_the_security_policy_of_the_page_lets_no_script_run(tmp_path: Path) -> None:
    html = render_html(example.report()).replace(
        "</main>", "</main><script>document.body.dataset.ran = 'yes'</script>"
    )
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    dom, log = dumped(tmp_path / "report.html", tmp_path)
    assert "The models side by side" in dom
    assert 'data-ran="yes"' not in dom
    # This is also how we know that the log would show a complaint.
    assert "CONSOLE" in log


def dumped(page: Path, scratch: Path) -> tuple[str, str]:
    """What the page became in the browser, and the browser's log."""
    assert BROWSER is not None
    profile = f"--user-data-dir={scratch / 'profile'}"
    done = subprocess.run(
        [BROWSER, *FLAGS, profile, "--window-size=1400,1000", "--dump-dom", page.as_uri()],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr
