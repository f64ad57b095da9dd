"""What journeys share: an installation, and the machine of a user who has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import Machine, build_packages, install, packages_in
from once import made_once, shared_directory
from start_kinds import JOURNEYS


@pytest.fixture(scope="session")
def installation(tmp_path_factory) -> Path:
    """An environment with the wheel of this checkout, and what requirements.lock has."""
    shared = shared_directory(tmp_path_factory)

    def make(place: Path) -> None:
        _, wheel = packages_in(made_once(shared / "packages", build_packages))
        install(wheel, place)

    return made_once(shared / "installation", make)


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """The home directory of the user of all journeys, in which the cache is."""
    return made_once(shared_directory(tmp_path_factory) / "home", lambda _: None)


@pytest.fixture(scope="module")
def machine(installation, home, tmp_path_factory) -> Machine:
    return Machine(installation, home, tmp_path_factory.mktemp("starts") / "starts.txt")


@pytest.fixture(autouse=True)
def _starts_what_it_stands_for(request, machine) -> Iterator[None]:
    """A kind of child that tests fork is started by the journey that start_kinds.py names."""
    yield
    here = f"{request.path.name}::{request.node.name}"
    missing = {kind for kind, journey in JOURNEYS.items() if journey == here} - machine.started()
    assert not missing
