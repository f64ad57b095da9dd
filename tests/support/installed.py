"""edgeconv as its users have it: the wheel, in an environment made from requirements.lock.

`Machine` is a user's machine. Its programs start as they do there: in processes of their own, with
the default sandbox, far from this checkout.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from commands import captured
from places import ROOT, SUPPORT
from start_kinds import kind_of
from zoo import kept, key_of

# Notes in a file what each Python of the environment starts. It changes nothing else.
_NOTES = SUPPORT / "noted_starts.py"
_NOTES_IN = "EDGECONV_TESTS_NOTE_STARTS"
# Of the tests, or of whoever runs them, and not of a user.
_NOT_A_USER_S = ("EDGECONV_", "PYTHON", "PYTEST_", "COV_", "VIRTUAL_ENV", "XDG_", "TF_", "KERAS_")


def build_packages(root: Path) -> None:
    """Put the sdist, and the wheel that is built from it, of what git has into root/dist."""
    for name in filter(None, _git("ls-files", "-z").split("\0")):
        if (ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((ROOT / name).read_bytes())
    output_of(sys.executable, "-m", "build", "--no-isolation", cwd=root)


def packages_in(root: Path) -> tuple[Path, Path]:
    """The sdist and the wheel that `build_packages` made."""
    (sdist,) = (root / "dist").glob("*.tar.gz")
    (wheel,) = (root / "dist").glob("*.whl")
    return sdist, wheel


def locked_key() -> str:
    """A hash of what `install` installs beside the wheel."""
    return key_of((ROOT / "requirements.lock").read_bytes(), sys.version, sys.base_prefix)


def install(wheel: Path, environment: Path) -> None:
    """Make the environment as the README does, but for the wheel in the place of the checkout.

    What the lock has is installed once, and kept from one run to the next.
    """
    locked = kept("locked", locked_key(), _install_locked)
    shutil.copytree(locked, environment, symlinks=True, copy_function=_link, dirs_exist_ok=True)
    for program in (environment / "bin").iterdir():
        content = program.read_bytes()
        if content.startswith(b"#!"):
            program.unlink()
            program.write_bytes(re.sub(rb"\A.*", f"#!{environment}/bin/python".encode(), content))
            program.chmod(0o755)
    pip = (str(environment / "bin" / "pip"), "--quiet")
    output_of(*pip, "install", "--no-deps", str(wheel))
    output_of(*pip, "check")
    (site,) = environment.glob("lib/python*/site-packages")
    shutil.copy(_NOTES, site)
    (site / f"{_NOTES.stem}.pth").write_text(f"import {_NOTES.stem}\n", encoding="utf-8")


def _install_locked(environment: Path) -> None:
    output_of(sys.executable, "-m", "venv", str(environment))
    lock = ("--no-deps", "--require-hashes", "-r", str(ROOT / "requirements.lock"))
    output_of(str(environment / "bin" / "pip"), "install", "--quiet", *lock)


def _link(source: str, target: str) -> None:
    """The same file in another directory, or a copy in another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Machine:
    """An installation, a home directory, and what was started."""

    def __init__(self, installation: Path, home: Path, notes: Path) -> None:
        self.programs = installation / "bin"
        self.home = home
        self._notes = notes
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_A_USER_S)}
        self.variables = {
            **kept,
            "PATH": os.pathsep.join([str(self.programs), kept["PATH"]]),
            "HOME": str(home),
            "NO_COLOR": "1",
            # Runtimes are installed from what this machine has fetched before.
            "UV_CACHE_DIR": output_of(sys.executable, "-m", "uv", "cache", "dir").strip(),
            _NOTES_IN: str(notes),
        }

    def runs(self, cwd: Path, *command: object, code: int = 0) -> str:
        """What a command prints to both of its outputs; it has to end with that exit code."""
        ended = subprocess.run(
            [*map(str, command)],
            cwd=cwd,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == code, f"{command} ended with {ended.returncode}\n{ended.stdout}"
        return ended.stdout

    def shell(self, cwd: Path, text: str) -> str:
        """What lines of bash print; the first that fails ends them, and the test."""
        return self.runs(cwd, "bash", "-euo", "pipefail", "-c", text)

    def edgeconv(self, cwd: Path, *words: object, code: int = 0) -> str:
        """What `edgeconv WORD...` prints; see `runs`."""
        return self.runs(cwd, self.programs / "edgeconv", *words, code=code)

    def python(self, cwd: Path, *words: object) -> str:
        """What `python WORD...` prints; see `runs`."""
        return self.runs(cwd, self.programs / "python", *words)

    def started(self) -> set[str]:
        """The kinds of children of edgeconv that were started."""
        return {kind for command in self._commands() if (kind := kind_of(command)) is not None}

    def _commands(self) -> Iterator[list[str]]:
        if self._notes.exists():
            for line in self._notes.read_text(encoding="utf-8").splitlines():
                yield line.split("\0")


def output_of(*command: str, cwd: Path | None = None) -> str:
    """What a command prints, which has to end well."""
    ended = captured(command, cwd=cwd)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def _git(*arguments: str) -> str:
    return output_of("git", *arguments, cwd=ROOT)
