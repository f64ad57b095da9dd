"""`sweep --on`: what is refused before a cluster is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sweeps import SWEEP, write_models

import edgeconv
from edgeconv.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_times_are_not_measured_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text("timing = true\n" + SWEEP, encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: a cluster is shared: no times there"):
        edgeconv.sweep("sweep.toml", on="ray")


def test_a_device_is_not_for_the_nodes_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = 'runtimes = ["litert", "ssh:pi@host"]\n'
    (tmp_path / "sweep.toml").write_text(text + SWEEP, encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: ssh:pi@host: nodes of a cluster may use"):
        edgeconv.sweep("sweep.toml", on="ray", allow=("runtime=ssh:pi@host",))
