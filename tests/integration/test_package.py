"""Wheel and sdist: what is in them, and that they work where no checkout is near."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
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
    """`edgeconv` of an environment that has the wheel and what the lock has, and nothing else."""
    environment = tmp_path_factory.mktemp("installed")
    _run(sys.executable, "-m", "venv", str(environment))
    pip = (str(environment / "bin" / "pip"), "install", "--quiet")
    _run(*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    _run(*pip, "--no-deps", str(packages[1]))
    _run(str(environment / "bin" / "pip"), "check")
    return environment / "bin" / "edgeconv"


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
