"""Wheel and sdist: what is in them, and that they work where no checkout is near."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from places import ROOT

GENERATED = ("edgeconv.egg-info/", "PKG-INFO", "setup.cfg")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, of what git has."""
    source = tmp_path_factory.mktemp("source")
    names = _git("ls-files", "-z").split("\0")
    for name in filter(None, names):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "build", "--no-isolation", cwd=source)
    (sdist,) = (source / "dist").glob("*.tar.gz")
    (wheel,) = (source / "dist").glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`edgeconv` of an environment that has the wheel and what the lock has, and nothing else.

    What the lock has is linked from the environment of the tests, which pip has installed.
    """
    environment = tmp_path_factory.mktemp("installed")
    _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    (site,) = environment.glob("lib/python*/site-packages")
    for pin in _pins("requirements.lock"):
        requirement = Requirement(pin)
        if requirement.marker is None or requirement.marker.evaluate():
            distribution = importlib.metadata.distribution(requirement.name)
            assert distribution.version in requirement.specifier, pin
            _link(distribution, site)
    pip = (sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"))
    _run(*pip, "install", "--quiet", "--no-deps", str(packages[1]))
    _run(*pip, "check")
    return environment / "bin" / "edgeconv"


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


def _link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Put the files of a package, without its programs, into another environment as they are."""
    for file in distribution.files or ():
        if ".." not in file.parts:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            found = Path(str(distribution.locate_file(file)))
            try:
                (site / file).hardlink_to(found)
            except OSError:
                shutil.copy2(found, site / file)


def test_what_the_lock_installs_is_what_that_of_the_tests_does() -> None:
    def unmarked(lock: str) -> dict[str, set[str]]:
        return {pin.partition(" ;")[0]: hashes for pin, hashes in _pins(lock).items()}

    own, tests = unmarked("requirements.lock"), unmarked("requirements-dev.lock")
    assert own
    assert all(own.values())
    assert own.items() <= tests.items()


def test_the_packages_pass_the_checks_of_the_index(packages: tuple[Path, Path]) -> None:
    sdist, wheel = packages
    _run(sys.executable, "-m", "twine", "check", "--strict", str(sdist), str(wheel))
    _run(sys.executable, "-m", "validate_pyproject", str(ROOT / "pyproject.toml"))


def test_the_wheel_has_every_file_of_the_package_and_none_of_tests_or_benchmarks(
    packages: tuple[Path, Path],
) -> None:
    with zipfile.ZipFile(packages[1]) as archive:
        contents = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = _git("ls-files", "edgeconv", "models").splitlines()
    # A schema is compiled beforehand.
    expected = {
        name.replace("models/", "edgeconv/models/", 1) if name.startswith("models/") else name
        for name in tracked
        if not name.endswith(".proto")
    }
    assert contents == expected


def test_the_sdist_has_what_the_wheel_is_built_from_and_no_tests(
    packages: tuple[Path, Path],
) -> None:
    with tarfile.open(packages[0]) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    tops = {name.partition("/")[0] for name in names if not name.startswith(GENERATED)}
    assert tops == {"LICENSE", "README.md", "edgeconv", "models", "pyproject.toml"}


def test_an_installed_wheel_demonstrates_converts_checks_and_embeds(
    installed: Path, tmp_path: Path
) -> None:
    demo = _edgeconv(installed, tmp_path, "demo")
    assert "PASS 9 limits hold." in demo
    (tmp_path / "edgeconv.toml").write_text(
        '[model.digits]\nsource = "edgeconv-demo/digits_cnn/1.keras"\n'
        '[convert]\nto = ["float32", "int8"]\ncalibration = "edgeconv-demo/train.npz"\n'
        '[bench]\ndata = "edgeconv-demo/test.npz"\n[budget]\nmax-accuracy-drop = 0.03\n'
    )
    _edgeconv(installed, tmp_path, "convert", "edgeconv-demo/digits_cnn/1.keras", "--out", "files")
    files = {path.name for path in (tmp_path / "files").glob("*.tflite")}
    assert files == {"digits_cnn.float32.tflite", "digits_cnn.int8.tflite"}
    assert "PASS" in _edgeconv(installed, tmp_path, "check", "--update")
    for target in ("c", "python", "android"):
        out = ("--target", target, "--out", f"app-{target}")
        _edgeconv(installed, tmp_path, "embed", "files/digits_cnn.int8.tflite", *out)
        assert any((tmp_path / f"app-{target}").rglob("*.tflite" if target != "c" else "*.c"))


def _edgeconv(program: Path, directory: Path, *arguments: str) -> str:
    """What a command prints; nothing of this checkout is in its environment."""
    environment = {
        "PATH": f"{program.parent}:/usr/bin:/bin",
        "HOME": str(directory),
        "EDGECONV_CACHE_DIR": str(directory / "cache"),
    }
    return _run(str(program), *arguments, cwd=directory, environment=environment)


def _git(*arguments: str) -> str:
    return _run("git", *arguments, cwd=ROOT)


def _run(*command: str, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environment if environment is not None else {**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
