"""`--on`: which clusters are taken, and what is missing without the extra."""

from __future__ import annotations

import sys

import pytest
from loaded_modules import loaded_by

from edgeconv.errors import UsageError
from edgeconv.processes.cluster import RayCluster, parse_address


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
    with pytest.raises(UsageError, match="a cluster needs Ray") as caught:
        RayCluster("local")
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
        RayCluster(address)


def test_what_a_worker_imports_is_not_heavy() -> None:
    assert not loaded_by("import edgeconv.processes.cluster") & {"tensorflow", "ai_edge_litert"}
