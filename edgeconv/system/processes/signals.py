"""Ctrl-C and SIGTERM as an exception that cannot get lost."""

import signal
from types import FrameType

# Not a threading.Event: its lock could be held by what the signal interrupts.
_interrupted = False


def end_on_signals() -> None:
    """Make Ctrl-C and SIGTERM an exception that cannot get lost, so that no child is left behind.

    Native code such as the import of numpy may clear errors, an interrupt among them. So every wait
    for a child raises it again.
    """
    global _interrupted
    _interrupted = False

    def stop(_signal: int, _frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def raise_interrupt() -> None:
    """Raise `KeyboardInterrupt` again where a signal came before."""
    if _interrupted:
        raise KeyboardInterrupt
