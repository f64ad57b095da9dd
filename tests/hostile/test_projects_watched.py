"""The projects of strangers as a user runs them, in processes of their own, under strace."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hostile_projects import BENCH, HOSTILE
from strangers import Place, place, watch
from watch import Seen, can_watch, watched

from edgeconv.cli import run

_SOME = tuple(HOSTILE)[::15]
_TIMEOUT_S = 120.0


@pytest.mark.parametrize("names", [_SOME, pytest.param(tuple(HOSTILE), marks=pytest.mark.slow)])
def test_no_project_starts_connects_or_touches_anything_outside_of_itself(names, tmp_path):
    if not can_watch():
        pytest.skip("strace is not here, or may not trace")
    done = {name: _done(name, tmp_path / str(number)) for number, name in enumerate(names)}
    assert {name: code for name, (code, _) in done.items() if code != 2} == {}
    assert {name: seen for name, (_, seen) in done.items() if seen} == {}


@pytest.mark.slow
def test_the_watch_sees_what_a_project_may_do_when_its_user_allows_it(tmp_path):
    """Else the test above would hold for the wrong reason."""
    if not can_watch():
        pytest.skip("strace is not here, or may not trace")
    ssh = ["--allow", "runtime=ssh:x?config=ssh_config", "--allow-code", "--data", "x.npz"]
    home = ["--allow", "directory=../../../home"]
    for name, typed, kind in (
        ("ssh with a configuration", ssh, "start"),
        ("samples above", home, "read"),
        ("a report above", home, "write"),
    ):
        _, seen = _done(name, tmp_path / name.replace(" ", "-"), typed)
        assert kind in {each.kind for each in seen}, (name, seen)


def _done(name: str, root: Path, typed: Sequence[str] = ()) -> tuple[int, list[Seen]]:
    """The exit code of a project's command, and what it did outside of its checkout."""
    place = Place(root / "home")
    for folder in ("tmp", "settings", "state", "cache"):
        (root / folder).mkdir()
    text, command, *links = HOSTILE[name]
    place.config(text)
    for link in links:
        place.link(*link.split(">"))
    code, seen = watched(
        [sys.executable, "-m", "edgeconv", *command, *typed],
        root / "log.txt",
        cwd=place.checkout,
        environment=_environment(root),
        timeout_s=_TIMEOUT_S,
    )
    return code, [each for each in seen if _is_outside(each, root, place)]


def _environment(root: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")}
    own = {
        "HOME": root / "home",
        "TMPDIR": root / "tmp",
        "EDGECONV_CACHE_DIR": root / "cache",
        "XDG_CONFIG_HOME": root / "settings",
        "XDG_STATE_HOME": root / "state",
    }
    return {
        **kept,
        **{key: str(value) for key, value in own.items()},
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _is_outside(seen: Seen, root: Path, place: Place) -> bool:
    if seen.kind == "connect":
        return True
    if seen.kind == "start":
        # Python itself, and the shell that ties a child to it.
        program = Path(seen.what.split(" ")[0]).name
        return not (program.startswith("python") or "read -r _ && exec" in seen.what)
    what = f"{seen.what}/"
    if seen.kind == "read":
        return what.startswith(f"{place.home}/") and not what.startswith(f"{place.checkout}/")
    own = tuple(f"{root}/{name}/" for name in ("tmp", "settings", "state", "cache"))
    return not what.startswith((f"{place.checkout}/", *own))


# The project of a stranger: nothing that its files name is run, written or read outside of it.

__all__ = ["place", "watch"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_project_names_nothing_outside_of_itself(name, place, watch, capsys):
    text, command, *links = HOSTILE[name]
    place.config(text)
    for link in links:
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


def test_the_table_of_pyproject_is_no_other(place, watch):
    Path("pyproject.toml").write_text('[tool.edgeconv.bench]\nruntime = "web:./evil.sh"\n')
    watch.seen.clear()
    assert (run(BENCH), watch.seen) == (2, [])
    assert not place.ran.exists()
