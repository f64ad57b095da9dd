"""What names a runtime: the texts of `--runtime`, `--target-runtime` and `--runtimes`, and devices.

A target runtime is `litert`, `litert==2.1.0`, `tflite-micro` or `tflite-runtime==2.14.0`. The
location in `--runtime NAME:LOCATION` may end in options: `host?key=value&key=value`. `litert>=2.0`
names the versions that pip's index has for this Python.

Devices have one user at a time: their times are wrong otherwise, and their memory is small.
"""

import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType
from typing import cast

import msgspec

from edgeconv.plugins import runtime_module
from edgeconv.runtimes.interface import Runtime, RuntimeSettings
from edgeconv.system.store import (
    cache_directory,
    hash_of,
    locked,
    publish_sealed,
    read_sealed,
    scratch_directory,
    tool_versions,
    writable_directory,
)
from edgeconv.types import Accelerator, RuntimeChoice, RuntimeVersions, TargetRuntime
from edgeconv.types.errors import OutputRefused, ToolFailed, UsageError, unknown_name

# What a name without a version means; tflite-runtime has no release after 2.14, and later
# releases of TensorFlow for Python cannot run Select-TF operators in its interpreter.
# tflite-micro has a build of each day, and no releases.
_DEFAULT_VERSION = {
    "arm64": "",
    "armv7": "2.14.0",
    "gpu": "",
    "litert": "",
    "tensorflow": "2.15.1",
    "tflite-micro": "0.dev20261023182759",
    "tflite-runtime": "2.14.0",
}
_GPU = "gpu"
_PRESENT = RuntimeChoice(name="litert")
_VERSION = r"(\d+\.\d+)(\.\d+)?((?:a|b|rc|\.post)\d+)?"
_DAILY = r"0\.dev\d{14}"
_TIMEOUT_S = 120.0
# A check where nothing changed must not wait for the index.
_FRESH_S = 86400.0
# tflite-micro has a build for each day, and no specifier chooses one.
_NAMES = ("litert", "tensorflow", "tflite-runtime")
_FORM = r"([a-z][a-z-]*?)\s*([<>=!~].*)?"
# What pip prints on the line of its answer.
_ANSWER = r"(?m)^Available versions: (.+)$"
_DEVICES = frozenset({"adb", "ssh"})
_DIGITS = 16


def parse_choice(text: str) -> RuntimeChoice:
    """The choice in NAME, NAME==VERSION or NAME:LOCATION. Raises `UsageError`."""
    is_location = ":" in text and not text.partition(":")[0].count("==")
    name, sign, rest = (part.strip() for part in text.partition(":" if is_location else "=="))
    module = runtime_module(name)
    if sign and not rest:
        raise UsageError(
            f"runtime {text!r} has nothing after {sign}", hint=f"{name}, or {name}{sign}SOMETHING"
        )
    if is_location:
        return _located(name, rest, module)
    if rest and not getattr(module, "HAS_VERSIONS", False):
        raise UsageError(
            f"the runtime {name} has no versions to choose from: =={rest}", hint=f"remove =={rest}"
        )
    return RuntimeChoice(name=name, version=rest)


def runs_here_alone(choice: RuntimeChoice) -> bool:
    """Whether a runtime runs on this machine, from edgeconv's own environments.

    Only a user may choose the others, which reach other machines or start programs.
    """
    return getattr(runtime_module(choice.name), "RUNS_HERE_ALONE", False)


def compared_with(choice: RuntimeChoice, accelerator: Accelerator) -> RuntimeChoice | None:
    """The runtime with whose answers to the same files `choice` is compared, if any."""
    name = getattr(runtime_module(choice.name), "COMPARES_WITH", {}).get(accelerator)
    return RuntimeChoice(name=name) if name else None


def verified_in(choice: RuntimeChoice) -> RuntimeChoice:
    """The LiteRT of this Python, where models are verified, for other kernels of this machine.

    Those are of other versions, and of devices. For all other runtimes it is `choice` itself.
    """
    has_versions = getattr(runtime_module(choice.name), "HAS_VERSIONS", False)
    is_here = runs_here_alone(choice) and has_versions
    return _PRESENT if is_here or compared_with(choice, "interpreter") else choice


def most_samples(choices: Iterable[RuntimeChoice]) -> dict[str, int]:
    """How many samples the slow runtimes of `choices` get where that is not chosen, by runtime."""
    slow = ((each, getattr(runtime_module(each.name), "MOST_SAMPLES", {})) for each in choices)
    return {str(each): most[each.name] for each, most in slow if each.name in most}


def files_named(choice: RuntimeChoice) -> tuple[str, ...]:
    """The files that decide which programs a runtime starts."""
    named = getattr(runtime_module(choice.name), "files_named", None)
    return tuple(named(choice)) if named else ()


def open_runtime(
    choice: RuntimeChoice, settings: RuntimeSettings
) -> AbstractContextManager[Runtime]:
    """The runtime, opened and closed by its module. Raises as that does."""
    module = runtime_module(choice.name)
    return cast("AbstractContextManager[Runtime]", module.open_runtime(choice, settings))


def _located(name: str, text: str, module: ModuleType) -> RuntimeChoice:
    """The choice of NAME:LOCATION. Raises `UsageError` for an option that the runtime has not."""
    known = getattr(module, "OPTIONS", frozenset[str]())
    location, mark, written = text.partition("?") if known else (text, "", "")
    if not getattr(module, "HAS_LOCATION", True):
        location, mark, written = "", "?", text
    options = {}
    for part in written.split("&") if mark else ():
        option, equals, value = part.partition("=")
        if option not in known:
            raise unknown_name(f"option of the runtime {name}", option, known)
        if not equals or not value:
            raise UsageError(
                f"the runtime's option {option!r} has no value",
                hint=f"as in {name}:{location}?{option}=VALUE",
            )
        options[option] = value
    return RuntimeChoice(name=name, location=location, options=options)


def parse_target_runtime(text: str) -> TargetRuntime:
    """The runtime that `text` names. Raises `UsageError` for an unknown name or a bad version."""
    name, separator, version = (part.strip() for part in text.partition("=="))
    return target_runtime(name, version) if separator else default_target(name)


def default_target(name: str) -> TargetRuntime:
    """The runtime that a name without a version means. Raises `UsageError` for an unknown name."""
    if name not in _DEFAULT_VERSION:
        raise unknown_name("target runtime", name, _DEFAULT_VERSION)
    version = _DEFAULT_VERSION[name]
    if name == "arm64":
        # That of this environment, so that only the kernels differ.
        version = tool_versions()["ai-edge-litert"]
    return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]


def recorded_target(text: str) -> TargetRuntime:
    """The runtime that a manifest records, such as `tflite_runtime 2.14.0`. Raises `UsageError`.

    The text of a GPU is `gpu` and its name.
    """
    package, _, version = text.partition(" ")
    name = {"ai_edge_litert": "litert"}.get(package, package.replace("_", "-"))
    if name == _GPU:
        return default_target(name)
    return target_runtime(name, version)


def target_runtime(name: str, version: str) -> TargetRuntime:
    """The runtime of a version, such as 2.14, which is 2.14.0.

    Raises `UsageError` for an unknown name, and for what is not a version.
    """
    default_target(name)
    if name == _GPU:
        raise UsageError(
            f"{name} is the GPU delegate of the installed LiteRT, and has no versions: =={version}",
            hint=f"remove =={version}",
        )
    if re.fullmatch(_DAILY, version):
        return TargetRuntime(name=name, version=version)  # type: ignore[arg-type]
    if not (match := re.fullmatch(_VERSION, version)):
        example = _DEFAULT_VERSION[name] or "2.1.0"
        raise UsageError(
            f"the runtime {name}=={version} has no version after ==",
            hint=f"as in {name}=={example}, or {name} alone",
        )
    full = f"{match[1]}{match[2] or '.0'}{match[3] or ''}"
    return TargetRuntime(name=name, version=full)  # type: ignore[arg-type]


def parse_versions(text: str) -> RuntimeVersions:
    """The runtime and the PEP 440 specifier of its versions in `text`. Raises `UsageError`."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    match = re.fullmatch(_FORM, text.strip())
    name = match[1] if match else re.split(r"[^a-z-]", text.strip())[0]
    if name not in _NAMES:
        raise unknown_name("runtime with versions", name, _NAMES)
    specifier = (match[2] or "").strip() if match else ""
    try:
        if not specifier:
            raise InvalidSpecifier(text)
        return RuntimeVersions(name=name, specifier=str(SpecifierSet(specifier)))
    except InvalidSpecifier as error:
        raise UsageError(
            f"{text!r} has no version specifier after {name}",
            hint=f"write one as in PEP 440: '{name}>=2.0' or '{name}>=2.0,!=2.1.0', in quotes",
        ) from error


def matching_versions(choice: RuntimeVersions) -> tuple[TargetRuntime, ...]:
    """The versions of `choice` in pip's index that have files for this Python, the oldest first.

    Raises `ToolFailed` where pip does not reach its index, `UsageError` where none matches.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    known = sorted(map(Version, index_versions(choice.name)))
    matching = list(SpecifierSet(choice.specifier).filter(known))
    if not matching:
        raise UsageError(
            f"no version of {choice.name} for Python {_python()} matches {choice.specifier}",
            hint=f"pip's index has {', '.join(map(str, known))}",
        )
    return tuple(target_runtime(choice.name, str(version)) for version in matching)


def index_versions(name: str) -> list[str]:
    """All versions of a runtime that pip can install in this Python; pip lists them once a day.

    Raises `ToolFailed`.
    """
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    what = ("versions", name, _python(), hash_of(settings))
    note = cache_directory() / "versions" / hash_of(*what)
    with contextlib.suppress(OSError):
        is_fresh = abs(time.time() - note.stat().st_mtime) < _FRESH_S
        if is_fresh and (kept := read_sealed(note, *what)):
            return msgspec.json.decode(kept, type=list[str])
    versions = _listed_by_pip(name)
    # A cache may be read-only.
    with contextlib.suppress(OSError, OutputRefused):
        note.parent.mkdir(parents=True, exist_ok=True)
        publish_sealed(msgspec.json.encode(versions), note, *what)
    return versions


def _listed_by_pip(name: str) -> list[str]:
    from edgeconv.runtimes.isolated import distribution_of
    from edgeconv.system.processes.workers import run_program

    distribution = distribution_of(name)
    pip = ["-I", "-m", "pip", "index", "versions", distribution, "--disable-pip-version-check"]
    with scratch_directory() as scratch:
        output, failure = run_program(
            [sys.executable, *pip, "--no-input", "--retries", "1", "--timeout", "15"],
            label=f"listing the versions of {distribution}",
            cwd=scratch,
            timeout_s=_TIMEOUT_S,
        )
    if failure is None and (answer := re.search(_ANSWER, output)):
        return [each.strip() for each in answer[1].split(",")]
    message = failure.message if failure else "pip listed no versions"
    raise ToolFailed(
        f"the versions of {name} for Python {_python()} are unknown: {message}",
        hint=f"check that `python -m pip index versions {distribution}` reaches pip's index; "
        f"--runtime {name}==VERSION runs a version whose environment already exists",
    ) from failure


def _python() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def is_device(choice: RuntimeChoice) -> bool:
    """Whether a runtime is on a device, which one machine leases."""
    return choice.name in _DEVICES


def device_name(choice: RuntimeChoice) -> str:
    """What tells a device from others: `ssh:pi@host`, `adb:SERIAL`; "" for what is not one."""
    return f"{choice.name}:{choice.location}" if is_device(choice) else ""


@contextlib.contextmanager
def leased(choices: Iterable[RuntimeChoice], on_progress: Callable[[str], None]) -> Iterator[None]:
    """A block in which no other run of this machine's user has the devices among `choices`.

    It waits for one that does. Raises `OutputRefused` if the locks cannot be made.
    """
    # In one order for all, so that no two wait for each other.
    names = sorted({device_name(choice) for choice in choices} - {""})
    with contextlib.ExitStack() as stack:
        for name in names:
            lock = cache_directory() / "devices" / f"{hash_of(name)[:_DIGITS]}.lock"
            writable_directory(lock.parent)
            waiting = functools.partial(on_progress, f"waiting for another run on {name}")
            stack.enter_context(locked(lock, on_wait=waiting))
        yield
