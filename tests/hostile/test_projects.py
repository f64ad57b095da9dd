"""The project of a stranger: nothing that its files name is run, written or read outside of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hostile_projects import BENCH, HOSTILE
from strangers import Place, Watch, place, watch

from edgeconv.cli import run

__all__ = ["place", "watch"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_project_names_nothing_outside_of_itself(
    name: str, place: Place, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, command, links = HOSTILE[name]
    place.config(text)
    for link in filter(None, links.split()):
        place.link(*link.split(">"))
    before = place.outside()
    watch.seen.clear()
    code, seen = run(command), list(watch.seen)
    said = capsys.readouterr().err
    assert (code, seen) == (2, []), said
    assert place.outside() == before
    assert not place.ran.exists()
    # What is wrong, where, and what to type or write to have it all the same.
    assert re.search(r"edgeconv\.toml(, line |:)\d", said)
    assert "project" in said or "which a configuration alone may not do" in said
    assert "--allow" in said or ("~" in text and "write a path" in said)


def test_the_table_of_pyproject_is_no_other(place: Place, watch: Watch) -> None:
    Path("pyproject.toml").write_text('[tool.edgeconv.bench]\nruntime = "web:./evil.sh"\n')
    watch.seen.clear()
    assert (run(BENCH), watch.seen) == (2, [])
    assert not place.ran.exists()
