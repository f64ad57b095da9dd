"""One conversion on machines of many kinds: what is published, and who is blamed for what is not.

Each row starts the command as a shell does. A row whose machine lacks something must not blame the
model: it is a good one everywhere.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import captured
from embed_models import SIGNED
from keras_files import called, functional, given, layer, write_keras
from places import SUPPORT
from tiny_tflite import float_model, packed

from edgeconv.types.errors import WORKER_ERRORS

SHAPE = (None, 4)
COMMAND = shlex.join([sys.executable, str(SUPPORT / "said_kind.py")])
KIND = "kind: "
CONVERT = "convert {model} --to float32 -o out --no-cache -q"
PUBLISHED = ["net.float32.json", "net.float32.tflite"]


@dataclass(frozen=True)
class Machine:
    """What a shell does before the command `$EDGECONV`, and how that ends.

    `kind` is the type of the error, "" for none; `of_keras` that with a Keras file, if it is
    another. In `namespace`, root mounts what it likes.
    """

    name: str
    before: str = ""
    run: str = "$EDGECONV"
    kind: str = ""
    of_keras: str = ""
    namespace: str = ""

    def kind_of(self, model: str) -> str:
        return self.of_keras or self.kind if model.endswith(".keras") else self.kind


MOUNTS, ALONE = "unshare -m", "unshare -mpf"
TINY = "mount -t tmpfs -o size={size} none {place}"
MACHINES = (
    Machine("plain"),
    Machine("closed streams", run="$EDGECONV <&- >&- 2>&-"),
    Machine("closed output", run="$EDGECONV >&-"),
    # The converter of TensorFlow aborts there.
    Machine("no proc", "mount -t tmpfs none /proc", namespace=MOUNTS, of_keras="WorkerCrashed"),
    Machine("proc of processes only", "mount -t proc -o subset=pid none /proc", namespace=ALONE),
    Machine("own processes", "mount -t proc none /proc", namespace=ALONE),
    Machine("no large files", "ulimit -f 0", kind="OutputRefused"),
    Machine("small files", "ulimit -f 1", kind="OutputRefused"),
    Machine("files of 8 KiB", "ulimit -f 16", of_keras="OutputRefused"),
    Machine("large files", "ulimit -f 1000000"),
    Machine("no home", "unset HOME"),
    Machine("a home that is not there", "export HOME=/nowhere"),
    Machine("a home that is read-only", "export HOME=/proc"),
    Machine("no place for notes", "export XDG_STATE_HOME=/proc XDG_CONFIG_HOME=/proc"),
    Machine("temporary files nowhere", "export TMPDIR=/nowhere"),
    Machine("temporary files here", "mkdir tmp; export TMPDIR=tmp"),
    Machine("temporary files with spaces", "mkdir 'a b'; export TMPDIR=\"$PWD/a b\""),
    Machine("temporary files behind a link", "mkdir t; ln -s t l; export TMPDIR=$PWD/l"),
    Machine(
        "temporary files read-only",
        f"mkdir t; {TINY.format(size='64k', place='t')}; mount -o remount,ro t; "
        "export TMPDIR=$PWD/t",
        namespace=MOUNTS,
    ),
    Machine(
        "little room for temporary files",
        f"mkdir t; {TINY.format(size='32k', place='t')}; export TMPDIR=$PWD/t",
        kind="OutputRefused",
        namespace=MOUNTS,
    ),
    Machine(
        "no room for results",
        f"mkdir out; {TINY.format(size='4k', place='out')}; echo x > out/.x",
        kind="OutputRefused",
        namespace=MOUNTS,
    ),
    Machine(
        "results read-only",
        f"mkdir out; {TINY.format(size='64k', place='out')}; mount -o remount,ro out",
        kind="OutputRefused",
        namespace=MOUNTS,
    ),
    Machine(
        "results on another disk",
        f"mkdir out; {TINY.format(size='1m', place='out')}",
        namespace=MOUNTS,
    ),
    Machine("results behind a link", "mkdir elsewhere; ln -s elsewhere out"),
    Machine("a file in the way", "echo x > out", kind="OutputRefused"),
    Machine("a model behind a link", "mv $MODEL m; ln -s m $MODEL"),
    Machine("a model with two names", "ln $MODEL other"),
    Machine(
        "a model on another disk",
        f"mv $MODEL m; mkdir d; {TINY.format(size='1m', place='d')}; mv m d; ln -s d/m $MODEL",
        namespace=MOUNTS,
    ),
    Machine("root of a namespace", namespace="unshare -r"),
    Machine("nobody in a namespace", namespace="unshare -U"),
    Machine("another user", namespace="setpriv --reuid=65534 --regid=65534 --clear-groups"),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """A .tflite and a Keras file with one layer."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "net.tflite").write_bytes(packed(float_model(signature=SIGNED)))
    given_x = given("x", SHAPE) | {"inbound_nodes": []}
    dense = called(layer("Dense", "dense", units=3), "x", SHAPE)
    config = functional([given_x, dense], [["x", 0, 0]], [["dense", 0, 0]])
    for each in config["config"]["layers"]:
        each |= {"module": "keras.layers", "registered_name": None}
    config |= {"module": "keras.src.models.functional", "registered_name": "Functional"}
    config["config"]["name"] = "net"
    weights = {"layers/dense/vars/0": (4, 3), "layers/dense/vars/1": (3,)}
    write_keras(folder / "net.keras", config, weights)
    return folder


def start(machine: Machine, model: Path) -> tuple[int, list[str], list[str]]:
    """The exit code, the types of the errors, and the published files, on the machine."""
    run = machine.run.replace("$EDGECONV", f"{COMMAND} {CONVERT.format(model=model.name)}")
    script = f"set -e\n{machine.before}\nset +e\n{run}\ncode=$?\nls out/ >listing\nexit $code"
    done = captured(
        [*machine.namespace.split(), "sh", "-c", script],
        cwd=model.parent,
        env={**os.environ, "MODEL": model.name, "HOME": str(model.parent)},
    )
    print(done.stderr)
    assert "Traceback" not in done.stderr
    kinds = [line for line in done.stderr.splitlines() if line.startswith(KIND)]
    listing = model.with_name("listing").read_text(encoding="utf-8").split()
    return done.returncode, [line.removeprefix(KIND) for line in kinds], listing


def rows() -> Iterator[object]:
    for machine in MACHINES:
        for model in ("net.tflite", "net.keras"):
            marks = [pytest.mark.root] if "-m" in machine.namespace else []
            if model == "net.keras" or not machine.kind:
                marks.append(pytest.mark.slow)
            yield pytest.param(machine, model, marks=marks, id=f"{machine.name}: {model}")


@pytest.mark.parametrize(("machine", "model"), [*rows()])
def test_a_good_model_is_published_or_the_machine_is_blamed(machine, model, models, tmp_path):
    # Another user may be let into no directory of this Python.
    probe = [*machine.namespace.split(), "sh", "-c", f"{shlex.quote(sys.executable)} -c ''"]
    if shutil.which(probe[0]) is None or subprocess.run(probe, check=False).returncode:
        pytest.skip(f"{machine.namespace} is not allowed here")
    tmp_path.chmod(0o777)
    shutil.copy(models / model, tmp_path / model)
    kind = machine.kind_of(model)
    code = WORKER_ERRORS[kind].exit_code if kind else 0
    published = [] if kind else PUBLISHED
    assert start(machine, tmp_path / model) == (code, [kind] if kind else [], published)
