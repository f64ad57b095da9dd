"""The scenes that faults are put into: a command in a project, and what was there before."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from build_project import calibrate, write_offline_project
from commands import captured
from tune_models import samples, two_layers

CHECKED = """\
[model.net]
source = "model.tflite"
[convert]
to = ["float32", "int8"]
calibration = "calibration.npz"
[bench]
data = "test.npz?labels=labels"
rounds = 1
warmup = 1
warmup-seconds = 0.01
repeats = 2
seconds = 0.01
[budget]
max-accuracy-drop = 0.2
"""


def edgeconv(root: Path, *words: str, code: int = 0) -> None:
    done = captured(
        [sys.executable, "-m", "edgeconv", *words],
        cwd=root / "project",
        env=environment(root),
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr


def environment(root: Path) -> dict[str, str]:
    places = {
        "EDGECONV_CACHE_DIR": str(root / "cache"),
        "TMPDIR": str(root / "tmp"),
        "XDG_STATE_HOME": str(root / "state"),
    }
    return {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1"}


def small_project(root: Path) -> None:
    """It needs no environment, the making of which is killed in test_environments.py."""
    write_offline_project(root / "project")


def project_with_older_files(*words: str) -> Callable[[Path], None]:
    """What was made of other samples is there already."""

    def prepare(root: Path) -> None:
        small_project(root)
        edgeconv(root, *words)
        calibrate(root / "project" / "cal.npz", 2)

    return prepare


def checked_project(root: Path) -> None:
    project = root / "project"
    project.mkdir()
    model = two_layers(project / "model.tflite")
    samples(project / "test.npz", model, 60)
    samples(project / "calibration.npz", model, 24, labels=False, seed=3)
    (project / "edgeconv.toml").write_text(CHECKED, encoding="utf-8")


def accepted_project(root: Path) -> None:
    checked_project(root)
    edgeconv(root, "check", "--update")
    # A looser budget is another question, and fewer test samples are another answer.
    config = (root / "project" / "edgeconv.toml").read_text().replace("0.2", "0.9")
    (root / "project" / "edgeconv.toml").write_text(config)
    samples(root / "project" / "test.npz", root / "project" / "model.tflite", 50)


def old_cache(root: Path) -> None:
    """Three entries that nobody used for long."""
    small_project(root)
    edgeconv(root, "convert", "net.tflite", "--to", "float32,float16,int8", *CALIBRATED)
    for content in (root / "cache").glob("*/*/content"):
        os.utime(content, (1, 1))


def damaged_cache(root: Path) -> None:
    old_cache(root)
    (next((root / "cache").glob("artifact/*")) / "content" / "model.tflite").write_bytes(b"torn")


CALIBRATED = ("--calibration", "cal.npz")
CONVERT = ("convert", "net.tflite", "--to", "float32,int8", *CALIBRATED)
EMBED = (
    *("embed", "net.tflites/net.int8.tflite", "--target", "c", "-o", "app"),
    *("--option", "golden=litert"),
)


TUNE = ("tune", "model.tflite", "--max-drop", "0.9", "--samples", "40")


EXPORT = """\
import tf_keras
tf_keras.utils.set_random_seed(1)
x = tf_keras.layers.Input((4,), name="x")
tf_keras.Model(x, tf_keras.layers.Dense(3, name="y")(x)).export("saved")
"""


def exported_project(root: Path) -> None:
    small_project(root)
    command = [sys.executable, "-c", EXPORT]
    subprocess.run(command, cwd=root / "project", capture_output=True, check=True)


def embedded_project(root: Path) -> None:
    project_with_older_files(*CONVERT)(root)
    edgeconv(root, *EMBED)
    edgeconv(root, *CONVERT)


def published_project(root: Path) -> None:
    small_project(root)
    edgeconv(root, *CONVERT)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command in a project; `again` is run after a kill, where it is not the command itself.

    `tells` are files that say what a run did, which is less after one that was killed.
    """

    prepare: Callable[[Path], None]
    command: tuple[str, ...]
    places: tuple[str, ...] = ("project", "cache", "state")
    again: tuple[str, ...] = ()
    tells: tuple[str, ...] = ()


SCENES = {
    "convert": Scene(prepare=small_project, command=CONVERT),
    "convert, older files": Scene(prepare=project_with_older_files(*CONVERT), command=CONVERT),
    "convert, files on the way": Scene(prepare=small_project, command=CONVERT, places=("tmp",)),
    "convert, with TensorFlow": Scene(
        prepare=exported_project, command=("convert", "saved", *CONVERT[2:])
    ),
    "build": Scene(prepare=small_project, command=("build", "--depfile", "net.d")),
    "build, older files": Scene(
        prepare=project_with_older_files("build", "--depfile", "net.d"),
        command=("build", "--depfile", "net.d"),
    ),
    "build, files on the way": Scene(prepare=small_project, command=("build",), places=("tmp",)),
    "check --update": Scene(prepare=checked_project, command=("check", "--update")),
    "check --update, older lock": Scene(
        prepare=accepted_project,
        command=("check", "--update", "--output", "junit=junit.xml"),
        tells=("junit.xml",),
    ),
    "check, files on the way": Scene(
        prepare=checked_project, command=("check", "--update"), places=("tmp",)
    ),
    "embed": Scene(prepare=embedded_project, command=EMBED),
    "cache prune": Scene(prepare=old_cache, command=("cache", "prune", "--max-size", "0")),
    "damaged entry": Scene(
        prepare=damaged_cache,
        command=("convert", "net.tflite", "--to", "float32,float16,int8", *CALIBRATED, "-o", "b"),
    ),
    "init": Scene(
        prepare=small_project,
        command=("init", "net.tflite", "-o", "new.toml"),
        again=("config", "show", "--config", "new.toml"),
    ),
    "bench": Scene(
        prepare=published_project,
        command=("bench", "net.tflites", "--data", "npz:cal.npz", "-o", "report"),
    ),
    "tune": Scene(prepare=checked_project, command=(*TUNE, "--data", "npz:test.npz?labels=labels")),
}
