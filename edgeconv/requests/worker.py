"""The request of `worker`."""

from __future__ import annotations

from typing import Annotated

from edgeconv.requests.option import Option
from edgeconv.requests.request import Request
from edgeconv.requests.texts import DEVICES, TEXT
from edgeconv.types import RuntimeChoice


class WorkerRequest(Request, frozen=True, kw_only=True):
    """A node of a cluster: the address of the cluster's head, and what this machine gives to it.

    `devices` are runtimes such as `ssh:pi@host` and `adb:SERIAL`; `adb` is every phone that is
    connected. `cores`: None gives all.
    """

    address: Annotated[str, Option(is_argument=True, text=TEXT, metavar="HEAD:PORT")]
    devices: Annotated[
        tuple[RuntimeChoice, ...],
        Option(
            "Input",
            "Devices that this machine can reach, comma-separated: ssh:USER@HOST, adb:SERIAL, or "
            "adb for every phone that is connected.",
            text=DEVICES,
            is_typed=True,
            metavar="DEVICES",
        ),
    ] = ()
    cores: Annotated[
        int | None,
        Option(
            "Execution",
            "How many cores of this machine take work. [default: all]",
            least=1,
            is_typed=True,
        ),
    ] = None
