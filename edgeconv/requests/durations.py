"""Durations as they are typed: a number and its unit, as in "10ms"."""

from __future__ import annotations

import math
import re

from edgeconv.errors import UsageError

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_FORM = re.compile(r"([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([^\d\s]*)", re.IGNORECASE)
_HINT = f"a number and its unit, one of {', '.join(_SECONDS)}: as in 10ms or 0.5s"
# A request for more would run for minutes with nothing to see.
_LONGEST_S = 10.0


def parse_period(text: str) -> float:
    """The seconds of a period such as "10ms", above 0 and 10 s at most. Raises `UsageError`."""
    match = _FORM.fullmatch(text.strip())
    number = _number(match[1]) if match else None
    if match is None or number is None:
        raise UsageError(f"the period {text!r} is not a duration", hint=_HINT)
    if not match[2]:
        raise UsageError(f"the period {text!r} has no unit", hint=_HINT)
    if match[2] not in _SECONDS:
        raise UsageError(f"the period {text!r} has an unknown unit, {match[2]!r}", hint=_HINT)
    seconds = number * _SECONDS[match[2]]
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(
            f"the period {text!r} is not above 0 and {_LONGEST_S:g}s at most", hint="as in 10ms"
        )
    return seconds


def period_text(seconds: float) -> str:
    """What is typed for a period: 0.01 is "10ms"."""
    unit = next((u for u in ("s", "ms") if seconds >= _SECONDS[u]), "us")
    return f"{seconds / _SECONDS[unit]:.12g}{unit}"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
