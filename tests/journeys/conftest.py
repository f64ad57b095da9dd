"""What journeys share: an installation, and the machine of a user who has it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import Machine, build_packages, install, packages_in
from once import made_once, shared_directory
from start_kinds import JOURNEYS


@pytest.fixture(scope="session")
def installation(tmp_path_factory) -> Path:
    """An environment with the wheel of this checkout, and what requirements.lock has.

    It is made for the run, or in the directory EDGECONV_TESTS_INSTALLATION, which keeps it.
    """
    shared = shared_directory(tmp_path_factory)
    kept = os.environ.get("EDGECONV_TESTS_INSTALLATION")
    place = Path(kept).absolute() if kept else shared / "installation"

    def make(_: Path) -> None:
        _, wheel = packages_in(made_once(shared / "packages", build_packages))
        install(wheel, place)

    made_once(shared / "installing", make)
    return place


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
