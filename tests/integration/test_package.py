"""What is in the wheel and in the sdist; tests/journeys install the wheel and use it."""

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from installed import build_packages, output_of, packages_in
from once import made_once
from places import ROOT

GENERATED = ("edgeconv.egg-info/", "PKG-INFO", "setup.cfg")


@pytest.fixture(scope="module")
def packages(shared) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    return packages_in(made_once(shared / "packages", build_packages))


def _pins(lock: str) -> dict[str, set[str]]:
    """The hashes of each requirement in a lock."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        words = line.removesuffix("\\").strip()
        if words.startswith("--hash="):
            pins[[*pins][-1]].add(words)
        elif not words.startswith("#"):
            pins[words] = set()
    return pins


def test_what_the_lock_installs_is_what_that_of_the_tests_does():
    def unmarked(lock: str) -> dict[str, set[str]]:
        return {pin.partition(" ;")[0]: hashes for pin, hashes in _pins(lock).items()}

    own, tests = unmarked("requirements.lock"), unmarked("requirements-dev.lock")
    assert own
    assert all(own.values())
    assert own.items() <= tests.items()


def test_the_packages_pass_the_checks_of_the_index(packages):
    sdist, wheel = packages
    output_of(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
    output_of(sys.executable, "-m", "validate_pyproject", str(ROOT / "pyproject.toml"))


def test_the_wheel_has_every_file_of_the_package_and_none_of_tests_or_benchmarks(packages):
    with zipfile.ZipFile(packages[1]) as archive:
        contents = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = output_of("git", "ls-files", "edgeconv", "models", cwd=ROOT).splitlines()
    # A schema is compiled beforehand.
    expected = {
        name.replace("models/", "edgeconv/models/", 1) if name.startswith("models/") else name
        for name in tracked
        if not name.endswith(".proto")
    }
    assert contents == expected


def test_the_sdist_has_what_the_wheel_is_built_from_and_no_tests(packages):
    with tarfile.open(packages[0]) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    tops = {name.partition("/")[0] for name in names if not name.startswith(GENERATED)}
    assert tops == {"LICENSE", "README.md", "edgeconv", "models", "pyproject.toml"}
