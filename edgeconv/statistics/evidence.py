"""What samples say of a number that is held against a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Levels:
    """How often the gate may be wrong: each a probability.

    `fail`: a number is said to be beyond its limit, and is not. `hold`: it is said to keep the
    limit, and does not. `missed`: with enough samples, it is left open.
    """

    fail: float
    hold: float
    missed: float

    def shared(self, count: int) -> Levels:
        """Those of each of so many questions, where one beyond its limit fails them all.

        Bonferroni. All of them must hold, so that this one need not be shared: R. Berger,
        "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24 (1982).
        """
        return Levels(self.fail / count, self.hold, self.missed / count)


class Evidence(Protocol):
    """A number and what it rests on: paired samples, or right answers."""

    @property
    def method(self) -> str:
        """What the bounds are found by."""

    @property
    def samples(self) -> int:
        """How many samples there are."""

    @property
    def value(self) -> float:
        """The number, as it was measured."""

    def bounds(self, low_level: float, high_level: float, limit: float) -> tuple[float, float]:
        """The bounds of the true number, each wrong at most as often as its level says.

        Whether they are beyond `limit` is decided by the test itself. They may be infinite.
        """

    def enough(self, limit: float, levels: Levels) -> int | None:
        """How many samples can tell the true number from the limit; None where none can."""
