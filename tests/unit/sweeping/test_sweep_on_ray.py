"""`sweep --on`: which clusters are taken, and what is missing without the extra."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from loaded_modules import loaded_by
from sweeps import SWEEP, write_models

import edgeconv
from edgeconv.errors import UsageError
from edgeconv.sweeping.on_ray import RayExecutor, parse_address

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text", ["ray:x", "ray://", "ray://host", "http://h:1", "RAY", "ray://h:x"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a cluster"):
        parse_address(text)


def test_without_the_extra_there_is_one_error_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="--on ray needs Ray") as caught:
        RayExecutor("local", None)
    assert caught.value.hint == "pip install 'edgeconv[ray]'"


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("ray://10.0.0.1:10001", ""),
        ("ray://cluster.example:10001", "disabled"),
        # A cluster that is started here listens on every address.
        ("local", "disabled"),
    ],
)
def test_a_cluster_without_a_token_is_refused(
    address: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="edgeconv[ray] is not installed")
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    with pytest.raises(UsageError, match="runs the code of any client"):
        RayExecutor(address, None)


def test_times_are_not_measured_on_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text("timing = true\n" + SWEEP, encoding="utf-8")
    with pytest.raises(UsageError, match="line 1: a cluster is shared: no times there"):
        edgeconv.sweep("sweep.toml", on="ray")


def test_what_a_worker_imports_is_not_heavy() -> None:
    assert not loaded_by("import edgeconv.sweeping.on_ray") & {"tensorflow", "ai_edge_litert"}
