"""One file in versions of LiteRT that pip installs, for real, and one that it cannot install."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from started import starts
from tiny_tflite import int8_model, packed

from edgeconv import bench, check
from edgeconv.types import Measuring, RuntimeVersions, Timing

if TYPE_CHECKING:
    import pytest

    from edgeconv.types import Checked, Finding

CONFIG = """\
[model.int8]
source = "int8.tflite"
[check]
runtimes = "litert>=2.2,!=97.0.0"
[budget]
max-size-bytes = 1e6
"""


def test_each_version_of_the_index_has_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "int8.tflite"
    model.write_bytes(packed(int8_model(signature=("serving_default", ["x"], ["y"]))))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "ai_edge_litert-97.0.0-py3-none-any.whl").write_bytes(b"no wheel")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path / "cache"))
    report = bench(
        [model],
        measuring=Measuring(
            rounds=1,
            timing=Timing(warmup=1, warmup_seconds=0, repeats=3),
            versions=RuntimeVersions(name="litert", specifier=">=2.2"),
        ),
    )
    *older, newest, missing = report.matrix
    assert older[0].runtime == "litert==2.2.0"
    assert [row.state for row in (*older, newest)] == ["right"] * (len(older) + 1)
    assert newest.is_reference
    assert (missing.runtime, missing.state) == ("litert==97.0.0", "not installable")
    assert "installing litert==97.0.0" in missing.detail
    # The usual measurement is next to it.
    assert [row.error for row in report.measurements] == [""]
    check_the_same(tmp_path, monkeypatch)


def check_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate on the same file, whose answers are kept; then on one that crashes everywhere."""
    monkeypatch.chdir(tmp_path)
    config = Path("edgeconv.toml")
    config.write_text(CONFIG)
    sound = of_versions(check())
    assert (sound.outcome, sound.line) == ("passed", 4)
    assert sound.model == "int8"
    with starts() as started:
        again = check()
    assert again.checks[0].reused
    assert not started
    config.write_text(CONFIG.replace("!=97.0.0", "!=96.0.0"))
    absent = of_versions(check())
    assert (absent.outcome, absent.ok) == ("missing", False)
    assert "not installed: litert==97.0.0" in absent.reason


def of_versions(checked: Checked) -> Finding:
    (only,) = [f for each in checked.checks for f in each.verdict.findings if f.limit == "runtimes"]
    return only
