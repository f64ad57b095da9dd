"""`edgeconv build` under Make, Ninja and CMake themselves, which decide when it runs."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_project import OFFLINE_CONFIG as CONFIG
from build_project import calibrate
from build_project import write_offline_project as write_project
from commands import captured


@pytest.fixture
def project(tmp_path, cache, monkeypatch) -> Path:
    """A project, and the directory that commands are called in."""
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(cache))
    directory = write_project(tmp_path / "project")
    monkeypatch.chdir(directory)
    return directory


def write(text: str) -> None:
    Path("edgeconv.toml").write_text(text, encoding="utf-8")


# Ninja before 1.12 reads no quotes in depfiles.
HOSTILE = "a b $x #y [é]\u202e"


def hostile(project: Path) -> None:
    """The project with names that a shell, Make or TOML would read otherwise."""
    folder = project / HOSTILE
    folder.mkdir()
    (project / "net.tflite").rename(folder / "net.tflite")
    (project / "cal.npz").rename(folder / "cal.npz")
    write(
        CONFIG.replace('"net.tflite"', f'"{HOSTILE}/net.tflite"')
        .replace('"cal.npz"', f'"{HOSTILE}/cal.npz"')
        .replace('"app/model"', f'"{HOSTILE}/app"')
    )


def made_by_make(project: Path) -> list[str]:
    command = shlex.join([sys.executable, "-m", "edgeconv", "build"])
    (project / "Makefile").write_text(
        f"model.stamp:\n\t@{command} --depfile model.d --depfile-target $@ --verbose 2>&1\n"
        "\t@touch $@\n-include model.d\n"
    )
    return ["make", "--no-print-directory", "model.stamp"]


def made_by_ninja(project: Path) -> list[str]:
    command = shlex.join([sys.executable, "-m", "edgeconv", "build"])
    (project / "build.ninja").write_text(
        f"rule model\n  command = {command} --depfile $out.d --depfile-target $out --verbose"
        " && touch $out\n  depfile = $out.d\n  deps = gcc\nbuild model.stamp: model\n"
    )
    return ["ninja"]


def made_by_cmake(project: Path) -> list[str]:
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES NONE)\n"
        "add_custom_command(OUTPUT model.stamp DEPFILE model.d\n"
        f"  COMMAND {sys.executable} -m edgeconv build --verbose\n"
        "    --config ${CMAKE_CURRENT_SOURCE_DIR}/edgeconv.toml\n"
        "    --depfile model.d --depfile-target model.stamp\n"
        "  COMMAND ${CMAKE_COMMAND} -E touch model.stamp)\n"
        "add_custom_target(models ALL DEPENDS model.stamp)\n"
    )
    subprocess.run(["cmake", "-S", ".", "-B", "out"], check=True, capture_output=True)
    return ["cmake", "--build", "out"]


MADE_BY = {"make": made_by_make, "ninja": made_by_ninja, "cmake": made_by_cmake}


@pytest.mark.parametrize(
    "tool", ["ninja", *(pytest.param(tool, marks=pytest.mark.slow) for tool in ("make", "cmake"))]
)
def test_make_and_ninja_build_again_when_an_input_changed_and_only_then(project, tool):
    if not shutil.which(tool):
        pytest.skip(f"needs {tool}")
    hostile(project)
    command = MADE_BY[tool](project)
    folder = project / HOSTILE

    def was_built() -> bool:
        time.sleep(0.02)  # A tick of the clock that files have.
        done = captured(command)
        time.sleep(0.02)
        assert done.returncode == 0, done.stdout + done.stderr
        return "building net" in done.stdout + done.stderr

    assert was_built()
    assert not was_built()
    calibrate(folder / "cal.npz", 2)
    assert was_built()
    assert not was_built()
    os.utime(folder / "net.tflite")
    assert was_built()
    os.utime(project / "edgeconv.toml")
    assert was_built()
    assert not was_built()
    # One that has gone is no error of theirs.
    write((project / "edgeconv.toml").read_text().replace("cal.npz", "other.npz"))
    (folder / "cal.npz").rename(folder / "other.npz")
    assert was_built()
    # CMake's makefiles remember what was named once, and run what looks for it.
    assert was_built() == (tool == "cmake")
