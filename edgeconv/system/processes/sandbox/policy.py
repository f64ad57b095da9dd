"""What each profile may do, as data, how this machine confines, and the command of a child.

docs/security.md describes the profiles.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from edgeconv.types.errors import SandboxMissing
from edgeconv.types.execution import SandboxMode

Profile = Literal["confined", "gpu", "training", "cluster", "code", "browser", "programs", "jobs"]


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What a child may touch: files and directories, with all that is below these.

    A child may always read the interpreter with its libraries, and read and write its scratch
    directory. What is in `writes` may be read too, and a missing directory there is created. `runs`
    are the programs that it may continue as.
    """

    profile: Profile = "confined"
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    runs: tuple[Path, ...] = ()

    def reading(self, *paths: Path | str) -> Access:
        """The same with more to read."""
        return msgspec.structs.replace(self, reads=(*self.reads, *map(Path, paths)))


# The variables that every child gets, by the beginning of their names: of Python, the loader,
# numerical libraries and edgeconv.
_COMPUTING = (
    *("PATH", "LANG", "LC_", "TZ", "USER", "LOGNAME", "PYTHON", "VIRTUAL_ENV", "EDGECONV_"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_"),
    *("TF_", "TFLITE_", "LITERT_", "KERAS_", "XLA_", "AUTOGRAPH_", "PROTOCOL_BUFFERS_"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "NUMEXPR_"),
    *("CUDA_", "CUDNN_", "NVIDIA_", "ROCM_", "HIP_", "HSA_", "VK_", "TPU_", "LIBTPU_"),
    *("SOURCE_DATE_EPOCH", "COVERAGE_"),
)
# What processes of a cluster need in addition, and access to TensorFlow's remote storage.
_TALKING = (
    *("GRPC_", "grpc_", "NO_PROXY", "no_proxy", "no_grpc_proxy", "NCCL_", "GLOO_", "UCX_"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG", "GCE_METADATA_"),
    *("GCS_", "CLOUD_TPU_", "COLAB_TPU_ADDR"),
)
# The settings of ssh, adb, npm, pip, uv and viewers of models.
_PROGRAMS = (
    *("HOME", "SHELL", "TERM", "TMPDIR", "XDG_", "SSH_", "KRB5", "GNUPGHOME", "ANDROID_", "ADB_"),
    *("PIP_", "UV_", "NPM_CONFIG_", "npm_config_", "NODE_", "SSL_CERT_", "REQUESTS_CA_BUNDLE"),
    *("CURL_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"),
    *("all_proxy", "NO_PROXY", "no_proxy", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"),
)
# Never passed, however they begin.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|_KEY(_|$)", re.IGNORECASE)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile may do in addition to computing.

    `confined`: by Landlock or bubblewrap, and a filter of system calls; otherwise only by its
    environment and limits. `network`: "internet" is TCP and UDP, "any" includes sockets within the
    machine. `processes`: it may start others, and programs. `devices`: GPUs and TPUs. `home`: HOME
    is the user's, not its scratch directory. `reads_all`: it reads all that the user may.
    `variables`: names of the environment, or how they begin; "" is all.
    """

    confined: bool = True
    network: Literal["none", "internet", "any"] = "none"
    processes: bool = False
    devices: bool = False
    home: bool = False
    reads_all: bool = False
    variables: tuple[str, ...] = _COMPUTING

    def passes(self, name: str) -> bool:
        """Whether the child gets this variable of the environment."""
        if "" in self.variables:
            return True
        is_named = name.startswith(self.variables)
        return is_named and (name in self.variables or not _SECRET.search(name))


PROFILES: dict[Profile, Rules] = {
    # Converts, quantizes and runs models, and reads data.
    "confined": Rules(),
    # Runs models on a GPU of this machine.
    "gpu": Rules(devices=True),
    # One process that trains on this machine.
    "training": Rules(devices=True, home=True),
    # One of several that train, or one that writes to remote storage.
    "cluster": Rules(
        devices=True, home=True, network="internet", variables=(*_COMPUTING, *_TALKING)
    ),
    # A function or a model module that the user allowed by name.
    "code": Rules(
        network="any", processes=True, devices=True, home=True, reads_all=True, variables=("",)
    ),
    # A browser that runs a model, and its server. It has no own sandbox as root.
    "browser": Rules(network="any", processes=True, variables=(*_COMPUTING, *_PROGRAMS)),
    # ssh, adb, npm, pip and uv, which read no model here, and the viewer that a user starts.
    "programs": Rules(confined=False, variables=(*_COMPUTING, *_PROGRAMS)),
    # edgeconv itself, which runs verbs; what these start is confined.
    "jobs": Rules(confined=False, variables=("",)),
}


WallKind = Literal["landlock", "bubblewrap", "none"]

_PROBE_TIMEOUT_S = 10.0
_HINT = (
    "run it on Linux 6.2 or later, in a container that allows Landlock and seccomp, or "
    "install bubblewrap; --sandbox auto continues without a sandbox"
)


class Wall(msgspec.Struct, frozen=True, kw_only=True):
    """What confines children. `reason`: why it is not something better."""

    kind: WallKind
    version: int = 0
    filters: bool = False
    program: str = ""
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether files, the network and system calls are all restricted."""
        return self.kind != "none" and self.filters

    def __str__(self) -> str:
        if self.kind == "none":
            return f"none: {self.reason}"
        name = f"Landlock {self.version}" if self.kind == "landlock" else "bubblewrap"
        return f"{name} and seccomp" if self.filters else f"{name}, without seccomp"


_mode: SandboxMode = "auto"
_warned: set[str] = set()


@contextlib.contextmanager
def using(mode: SandboxMode) -> Iterator[None]:
    """Set for the block, in all threads, whether children of this process must be confined.

    "auto" without a sandbox, and "off", warn once on the log `edgeconv`. Raises `SandboxMissing`
    for "required" without one.
    """
    global _mode
    before = _mode
    _mode = mode
    try:
        wall()
        yield
    finally:
        _mode = before


def sandbox_mode() -> SandboxMode:
    """Whether children of this process must be confined, as `using` set it."""
    return _mode


def is_required() -> bool:
    """Whether a child that cannot be confined must not run."""
    return _mode == "required"


def warn_once(text: str) -> None:
    """Warn the user, once for each text."""
    if text not in _warned:
        _warned.add(text)
        # Without a handler it goes to stderr.
        logging.getLogger("edgeconv").warning("%s", text)


def wall() -> Wall:
    """What confines the next child. Raises `SandboxMissing` if one is required."""
    if _mode == "off":
        warn_once("--sandbox off: models and data are read without a sandbox")
        return Wall(kind="none", reason="--sandbox off")
    best = available()
    if best.is_whole:
        return best
    if is_required():
        raise SandboxMissing(f"there is no complete sandbox here: {best.reason}", hint=_HINT)
    warn_once(f"no complete sandbox here ({best.reason}): only the scan protects from models")
    return best


@functools.cache
def available() -> Wall:
    """The best that this machine has, determined once."""
    if sys.platform != "linux":
        return Wall(kind="none", reason=f"{sys.platform} is not Linux")
    from edgeconv.system.processes.sandbox.enter import (
        LEAST_LANDLOCK,
        filters_calls,
        landlock_version,
    )

    version, filters = landlock_version(), filters_calls()
    no_filter = "" if filters else "the kernel does not filter system calls"
    if version >= LEAST_LANDLOCK:
        return Wall(kind="landlock", version=version, filters=filters, reason=no_filter)
    old = f"Landlock {version} is too old" if version else "the kernel has no Landlock"
    program = shutil.which("bwrap")
    if program is None:
        return Wall(kind="none", filters=filters, reason=f"{old}, and there is no bubblewrap")
    if reason := _bubblewrap_fails(program):
        return Wall(kind="none", filters=filters, reason=f"{old}, and bubblewrap fails: {reason}")
    return Wall(kind="bubblewrap", filters=filters, program=program, reason=no_filter)


def _bubblewrap_fails(program: str) -> str:
    """Why it cannot make namespaces here; "" if it can."""
    words = [program, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    try:
        result = subprocess.run(
            [*words, "true"],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            text=True,
            errors="replace",
            env={"PATH": "/usr/bin:/bin"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (result.stderr.strip()[:200] or "it failed") if result.returncode else ""


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
