"""A project that was converted, checked, measured, accepted and embedded, for tests of `verify`."""

from __future__ import annotations

import os
from pathlib import Path

from build_project import CONFIG, write_project

from edgeconv.cli import run

MODEL = Path("net.tflites/net.int8.tflite")
REPORT = Path("reports/report.json")
RECORD = Path("app/model/edgeconv-embedded.json")
# What says nothing of a model, or is no file of edgeconv's.
NO_EVIDENCE = {".edgeconv.lock", "edgeconv.toml", "cal.npz"}
_CONFIG = f'{CONFIG}[budget]\nmax-size-bytes = 100_000\n[bench]\nout = "reports"\n'


def make_project(directory: Path) -> Path:
    """The project, whose paths are relative to `directory`, which becomes the current one."""
    write_project(directory, _CONFIG)
    os.chdir(directory)
    for arguments in (["check", "-q"], ["check", "--update", "-q"], ["build", "-q"]):
        assert run(arguments) == 0
    for target in ("python", "android", "web"):
        options = ["--target", target, "-o", f"app/{target}", "--symbol", "net"]
        if target != "web":
            assert run(["embed", str(MODEL), *options, "-q"]) == 0
    return directory


def evidence_files(directory: Path) -> list[Path]:
    """All files that `verify` has to know every byte of."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in files if path.name not in NO_EVIDENCE)
