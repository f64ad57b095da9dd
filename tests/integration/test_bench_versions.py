"""One file in versions of LiteRT that pip installs, for real, and one that it cannot install."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tiny_tflite import int8_model, packed

from edgeconv import bench
from edgeconv.types import Measuring, RuntimeVersions, Timing

if TYPE_CHECKING:
    import pytest


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
