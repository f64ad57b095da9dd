"""Markdown tables and numbers of docs/results.md."""

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def targets(rows: Iterable[tuple[str, str, bool]]) -> Iterator[str]:
    yield ""
    yield from table(
        ("target", "measured", ""),
        [(target, measured, "met" if met else "**not met**") for target, measured, met in rows],
    )


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def three(value: float) -> str:
    """An accuracy as .968, or 1.000."""
    return f"{value:.3f}".removeprefix("0")
