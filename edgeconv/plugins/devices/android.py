"""An Android device, reached by the system's adb."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from edgeconv.system.processes.failures import shown
from edgeconv.system.processes.workers import run_program
from edgeconv.types import Allowance
from edgeconv.types.errors import ToolFailed, UsageError, WorkerCrashed

_ANSWER_TIMEOUT_S = 120.0
_LIST = "List of devices attached"
# Before Android 7, adb does not pass exit codes on.
_MARK = "edgeconv-exit:"
_READY = "device"
# What adb prints for a device that is not ready, and what to do.
_STATES = {
    "unauthorized": "unlock it, and allow this computer to debug it",
    "offline": "plug it in again, or: adb reconnect",
    "no permissions": "see https://developer.android.com/tools/device for the udev rules",
    "recovery": "start Android on it",
    "sideload": "start Android on it",
    "bootloader": "start Android on it",
}


class Adb:
    """The program. Raises `UsageError` where it is not installed."""

    def __init__(self, scratch: Path) -> None:
        self._program = shutil.which("adb") or ""
        if not self._program:
            raise UsageError(
                "adb is not installed", hint="install Debian's adb or Google's platform-tools"
            )
        self._scratch = scratch

    def states(self) -> dict[str, str]:
        """The state of every device that it knows, by serial number. Raises `ToolFailed`."""
        command, allowance = ["devices"], Allowance(timeout_s=_ANSWER_TIMEOUT_S)
        code, output = self.run(command, "adb devices", allowance)
        if code:
            raise ToolFailed(f"adb devices failed\n{_indented(output)}", hint="adb kill-server")
        _, _, listed = output.partition(_LIST)
        rows = (line.split(None, 1) for line in listed.splitlines() if line.strip())
        return {row[0]: _state(row[1]) for row in rows if len(row) == 2}

    def run(self, arguments: list[str], what: str, allowance: Allowance) -> tuple[int, str]:
        """0, or 1 where it failed, and what it printed. Raises where it does not end in time."""
        directory = Path(tempfile.mkdtemp(prefix="adb-", dir=self._scratch))
        command = [self._program, *arguments]
        timeout_s = allowance.timeout_s
        output, failure = run_program(command, label=what, cwd=directory, timeout_s=timeout_s)
        if failure is not None and not isinstance(failure, WorkerCrashed):
            raise failure
        return int(failure is not None), output


class Device:
    """A device that takes commands.

    `serial` "" is the only one. Raises `UsageError` where there is no adb, no such device, or
    several without a serial, and `ToolFailed` where the device takes no commands.
    """

    def __init__(self, serial: str, scratch: Path) -> None:
        self._adb = Adb(scratch)
        self.serial = _chosen(serial, self._adb.states())

    def shell(self, script: str, what: str, allowance: Allowance) -> tuple[int, str]:
        """The exit code of a script on the device, and what it printed. Raises `ToolFailed`."""
        code, output = self._run(["shell", f"({script}\n)\necho {_MARK}$?"], what, allowance)
        before, mark, ended = output.rpartition(_MARK)
        if not mark or not ended.strip().isdecimal():
            raise self._gone(what, code, output)
        return int(ended), before.replace("\r\n", "\n")

    def push(self, source: Path, target: str) -> None:
        """Copy a file, or a directory's content, to the device. Raises `ToolFailed`."""
        self._copy(["push", str(source), target], f"copying {source.name} to {self.serial}")

    def pull(self, source: str, target: Path) -> None:
        """Copy a directory of the device to a new one here. Raises `ToolFailed`."""
        self._copy(["pull", source, str(target)], f"copying from {self.serial}")

    def remove(self, directory: str) -> None:
        """Remove a directory of the device, if that works."""
        allowance = Allowance(timeout_s=_ANSWER_TIMEOUT_S)
        with suppress(ToolFailed):
            self.shell(f"rm -rf {shlex.quote(directory)}", "cleaning up", allowance)

    def _copy(self, arguments: list[str], what: str) -> None:
        code, output = self._run(arguments, what, Allowance(timeout_s=_ANSWER_TIMEOUT_S))
        if code:
            if self._adb.states().get(self.serial) != _READY:
                raise self._gone(what, code, output)
            raise ToolFailed(
                f"{what} failed\n{_indented(output)}", hint="check that the device has free space"
            )

    def _gone(self, what: str, code: int, output: str) -> ToolFailed:
        state = self._adb.states().get(self.serial, "gone")
        if state == _READY:
            return ToolFailed(f"{what}: adb ended with exit code {code}\n{_indented(output)}")
        return ToolFailed(
            f"{what}: the device {self.serial} is {state}\n{_indented(output)}".rstrip(),
            hint=_STATES.get(state, "plug it in again, and check that `adb devices` lists it"),
        )

    def _run(self, arguments: list[str], what: str, allowance: Allowance) -> tuple[int, str]:
        return self._adb.run(["-s", self.serial, *arguments], what, allowance)


def _chosen(serial: str, states: dict[str, str]) -> str:
    listed = ", ".join(f"{name} ({state})" for name, state in states.items())
    if not states:
        raise UsageError(
            "there is no Android device",
            hint="plug one in with USB debugging on, and check that `adb devices` lists it",
        )
    if not serial and len(states) > 1:
        raise UsageError(
            f"there are several Android devices: {listed}", hint="choose one: --runtime adb:SERIAL"
        )
    serial = serial or next(iter(states))
    if serial not in states:
        raise UsageError(f"there is no Android device {serial}", hint=f"connected: {listed}")
    if states[serial] != _READY:
        state = states[serial]
        hint = _STATES.get(state, "check that it is on, and what `adb devices` prints")
        raise ToolFailed(f"the Android device {serial} is {state}", hint=hint)
    return serial


def _state(text: str) -> str:
    """The state in a line of `adb devices`, where more may follow it."""
    known = (state for state in _STATES if text.startswith(state))
    return next(known, text.split()[0])


def _indented(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(_MARK)]
    return "\n".join(f"  | {shown(line)}" for line in lines[-8:])
