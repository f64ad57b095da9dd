"""The command, the environment and the policy of a confined child."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeconv.system.processes.sandbox.profiles import PROFILES
from edgeconv.system.processes.sandbox.walls import Wall, is_required, wall, warn_once
from edgeconv.types.errors import SandboxMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from edgeconv.system.processes.sandbox.profiles import Access, Profile, Rules

_ENTER = Path(__file__).with_name("enter.py")
_POLICY, _AGAIN, _FAILURE = "sandbox.json", "sandbox-inside.json", "sandbox-failure.txt"
_MOST_FAILURE_BYTES = 1000
# The package, and the models next to it in a checkout.
_PACKAGE = Path(__file__).parents[3]
_OURS = (_PACKAGE, _PACKAGE.parent / "models")
_GPUS_AND_TPUS = ("nvidia*", "nvidia-caps", "dri", "kfd", "accel*", "vfio", "dxg")
_ABOUT_DEVICES = ("/sys", "/proc/driver", "/proc/devices", "/etc/OpenCL", "/etc/vulkan")
# For XLA, which runs the assembler of CUDA, where there is such a GPU.
_CUDA_PROGRAMS = ("usr", "lib", "lib64", "opt/cuda*", sys.prefix[1:])
# Where libraries keep downloads, by the variable that sets it.
_KEPT = {
    "XDG_CACHE_HOME": ".cache",
    "KERAS_HOME": ".keras",
    "TFDS_DATA_DIR": "tensorflow_datasets",
    "TFHUB_CACHE_DIR": ".tfhub",
    "HF_HOME": ".cache/huggingface",
}
_FILE_BYTES = 2**36
# For all processes of the user; not for root.
_TASKS = 2**15


class StartCommand(NamedTuple):
    """How to start a child: `failure` is the file for the reason why it could not be confined."""

    command: tuple[str, ...]
    environment: dict[str, str]
    failure: Path
    is_wrapped: bool = False

    def own_code(self, code: int) -> int:
        """The child's exit code, from that of its wrapper: negative for a signal."""
        return 128 - code if self.is_wrapped and code > 128 else code

    def raise_or_warn(self) -> None:
        """Of an unconfined child: raise `SandboxMissing`, or warn where that is allowed."""
        try:
            with self.failure.open("rb") as file:
                reason = file.read(_MOST_FAILURE_BYTES).decode("utf-8", "replace")
        except OSError:
            return
        what = f"{self.command[0]} could not be confined: {reason}"
        if is_required():
            raise SandboxMissing(what, hint="use another Python, or --sandbox auto")
        warn_once(what)


def environment_of(profile: Profile) -> dict[str, str]:
    """The variables of this process's environment that a profile passes."""
    passes = PROFILES[profile].passes
    return {name: value for name, value in os.environ.items() if passes(name)}


def start_command(
    command: Sequence[str], *, cwd: Path, access: Access, environment: Mapping[str, str]
) -> StartCommand:
    """How to start `command` in `cwd`, its scratch directory. Raises `SandboxMissing`.

    It begins with the path of a Python, except for the profile "programs". `environment` is added
    to the variables that the profile passes.
    """
    rules, scratch = PROFILES[access.profile], cwd.absolute()
    variables = environment_of(access.profile)
    # A browser has its own sandbox except as root, and cannot set it up inside this one.
    is_confined = rules.confined and not (access.profile == "browser" and os.geteuid())
    if is_confined:
        variables["TMPDIR"] = str(scratch)
        # Libraries look for it in the table of users where it is not set.
        variables["HOME"] = str(Path.home() if rules.home else scratch)
    variables.update(environment)
    failure = scratch / _FAILURE
    if not is_confined:
        return StartCommand(tuple(command), variables, failure)
    barrier, (python, *arguments) = wall(), command
    policy = _policy(access, rules, barrier, scratch, arguments)
    (scratch / _POLICY).write_text(json.dumps(policy), encoding="utf-8")
    words = (python, str(_ENTER), str(scratch / _POLICY), *arguments)
    return StartCommand(words, variables, failure, is_wrapped=barrier.kind == "bubblewrap")


def _policy(
    access: Access, rules: Rules, barrier: Wall, scratch: Path, arguments: Sequence[str]
) -> dict[str, Any]:
    """The policy for enter.py.

    `wall` is "landlock", "bubblewrap" or "none". `reads`, `writes`, `devices` and `runs` are
    paths, with all that is below them; `runs` are the programs that may be started.
    """
    for directory in access.writes:
        if not directory.exists():
            directory.mkdir(parents=True)
    script = [Path(each) for each in arguments[:1] if each.endswith(".py")]
    reads, writes = [*_OURS, *script, *access.reads], [scratch, *access.writes]
    devices = _existing("/dev", _GPUS_AND_TPUS) if rules.devices else []
    if rules.devices:
        reads += [*map(Path, _ABOUT_DEVICES), _kept_by("KERAS_HOME")]
    runs = _existing("/", _CUDA_PROGRAMS) if any("nvidia" in each for each in devices) else []
    if any("nvidia" in each for each in devices):
        # For NCCL, with several GPUs.
        writes.append(Path("/dev/shm"))
    runs += _texts(access.runs)
    if rules.processes:
        reads, runs = [*reads, Path("/")], ["/"]
    if rules.reads_all:
        writes += [*map(_kept_by, _KEPT), Path("/dev")]
    return {
        "wall": barrier.kind,
        "filters": barrier.filters and barrier.kind != "none",
        "required": is_required(),
        "bubblewrap": barrier.program,
        "reads": _texts(reads),
        "writes": _texts(writes),
        "devices": devices,
        "runs": runs,
        "network": rules.network,
        "processes": rules.processes,
        "file_bytes": _FILE_BYTES,
        "tasks": _TASKS if rules.processes else None,
        "again": str(scratch / _AGAIN),
        "failure": str(scratch / _FAILURE),
    }


def _existing(root: str, patterns: Sequence[str]) -> list[str]:
    return [str(path) for each in patterns for path in Path(root).glob(each)]


def _kept_by(variable: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / _KEPT[variable])


def _texts(paths: Iterable[Path]) -> list[str]:
    return [str(path.absolute()) for path in dict.fromkeys(paths)]
