"""Numbers, values of metrics and foreign text as people read them.

The types keep bytes, microseconds and fractions; only here do they become "71.4 kB",
"8.02 ms" and "97.78 %". None is "–" (not measured); NaN stays visible as "NaN".
"""

import math

from edgeconv.system.processes.escaping import plain as plain
from edgeconv.types import MAX_SNR_DB, Accuracy
from edgeconv.types.words import first_line

Metric = Accuracy | str | None

Interval = tuple[float, float]
ABSENT = "–"
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e15
_METRIC_DIGITS = 4
_LONGEST_LINE = 4000
_SHARES = ("top1", "top5", "masked_accuracy")


def size(value_bytes: float | None, digits: int = 3) -> str:
    """A size in bytes with a decimal prefix: 71400 is "71.4 kB"."""
    return _prefixed(value_bytes, ("B", "kB", "MB", "GB", "TB"), digits)


def duration(value_us: float | None, digits: int = 3) -> str:
    """A time in microseconds: 8020 is "8.02 ms"."""
    return _prefixed(value_us, ("µs", "ms", "s"), digits)


def percent(fraction: float | None, decimals: int = 2) -> str:
    """A fraction as a percentage: 0.9778 is "97.78 %".

    Only 1 and 0 are "100 %" and "0 %": 0.99999 is ">99.99 %".
    """
    if fraction is None or not math.isfinite(fraction * 100):
        return _special(fraction, " %")
    if fraction in (0.0, 1.0):
        return f"{_fixed(fraction * 100, 0)} %"
    step = 10.0**-decimals
    if fraction > 0 and round(fraction * 100, decimals) <= 0:
        return f"<{step:.{decimals}f} %"
    if fraction < 1 and round(fraction * 100, decimals) >= 100:
        return f">{100 - step:.{decimals}f} %"
    return f"{_fixed(fraction * 100, decimals)} %"


def points(difference: float | None, decimals: int = 2) -> str:
    """A difference of two fractions in percentage points: 0.0028 is "0.28 pp"."""
    if difference is None or not math.isfinite(difference * 100):
        return _special(difference, " pp")
    return f"{_fixed(difference * 100, decimals)} pp"


def times(ratio: float | None, digits: int = 3) -> str:
    """A ratio as a factor: 0.258 is "0.258×"."""
    if ratio is None or not math.isfinite(ratio):
        return _special(ratio, "×")
    return f"{significant(ratio, digits)}×"


def decibels(value_db: float | None, decimals: int = 1) -> str:
    """A signal-to-noise ratio: "34.2 dB", and "exact" where nothing differs.

    Ratios end at ±`MAX_SNR_DB`: equal outputs have the highest.
    """
    if value_db is None or not math.isfinite(value_db):
        return _special(value_db, " dB")
    if value_db >= MAX_SNR_DB:
        return "exact"
    if value_db <= -MAX_SNR_DB:
        return "none"
    return f"{_fixed(value_db, decimals)} dB"


def speed_up(latency_ratio: float | None) -> float | None:
    """How many times as fast as the reference a model with this latency ratio is."""
    if latency_ratio is None:
        return None
    return 1 / latency_ratio if latency_ratio else math.inf


def significant(value: float, digits: int = 3) -> str:
    """A number rounded to `digits` significant digits; large ones to a whole number: "1234".

    Only very large and very small numbers have an exponent.
    """
    if not math.isfinite(value):
        return _special(value, "")
    if value == 0:
        return "0"
    if not _LEAST_PLAIN <= abs(value) < _MOST_PLAIN:
        return _fixed(value, digits - 1, "e")
    # Rounding can add a digit (9.996 to 10.0), so it comes before counting them.
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return _fixed(rounded if decimals > 0 else value, max(0, decimals))


def is_share(metric: Metric) -> bool:
    """Whether the metric, by its name or its accuracy, is a share of right answers, as "" is."""
    if isinstance(metric, str):
        return not metric or metric in _SHARES
    return metric is not None and (bool(metric.correct) or metric.metric in _SHARES)


def value_of(metric: Metric, value: float | None) -> str:
    """A value of the metric: "97.78 %", or "0.9741" where it is not a share."""
    if value is None:
        return ABSENT
    return percent(value) if is_share(metric) else significant(value, _METRIC_DIGITS)


def metric_value(accuracy: Accuracy | None) -> str:
    """The value of an accuracy, or "–"."""
    return ABSENT if accuracy is None else value_of(accuracy, accuracy.value)


def metric_heading(accuracy: Accuracy) -> str:
    """Its name, with an arrow where less is better."""
    return f"{plain(accuracy.title)}{'' if accuracy.higher_is_better else ' ↓'}"


def metric_drop(accuracy: Accuracy) -> str:
    """Its drop from the baseline: "drop 0.17 pp [−0.15, 0.48]"; "" where that is not known."""
    if accuracy.drop is None:
        return ""
    interval = interval_value(accuracy.drop_interval, accuracy)
    return f"drop {with_interval(drop_value(accuracy.drop, accuracy), interval)}"


def drop_value(drop: float | None, metric: Metric) -> str:
    """A drop in percentage points for a share, else in the metric's unit."""
    if drop is None:
        return ABSENT
    return points(drop) if is_share(metric) else significant(drop)


def interval_value(interval: Interval | None, metric: Metric) -> str:
    """An interval of drops in brackets, without a unit: "[−0.91, 0.30]"."""
    if interval is None:
        return ABSENT
    return f"[{', '.join(drop_value(end, metric).removesuffix(' pp') for end in interval)}]"


def duration_interval(interval: Interval | None) -> str:
    """An interval of times in brackets; the unit once where both limits have the same."""
    if interval is None:
        return ABSENT
    low, high = (duration(end) for end in interval)
    unit = high.rpartition(" ")[2]
    return f"[{low.removesuffix(f' {unit}')}, {high}]"


def factor_interval(ratio: Interval | None) -> str:
    """The interval of a speed-up in brackets, from the interval of the ratio of times."""
    if ratio is None:
        return ABSENT
    ends = (significant(1 / end) if end else "∞" for end in reversed(ratio))
    return f"[{', '.join(ends)}]"


def with_interval(value: str, interval: str) -> str:
    """A value with its interval, where that is known."""
    return value if interval == ABSENT else f"{value} {interval}"


def counted(count: int, what: str) -> str:
    """A number of things: "1 epoch", "3 epochs"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def data(source: str) -> str:
    """A data set by its name; one from memory is called "data (ndarray)" already."""
    return plain(source if source.startswith("data (") else f"data {source}")


def count(value: int | None) -> str:
    """A number of things alone; "–" where it is not known."""
    return ABSENT if value is None else str(value)


def plain_line(text: str) -> str:
    """The first line of `text` that is not blank, made harmless."""
    return plain(first_line(text, _LONGEST_LINE))


def _prefixed(value: float | None, units: tuple[str, ...], digits: int) -> str:
    if value is None or not math.isfinite(value):
        return _special(value, f" {units[0]}")
    if units[0] == "B" and abs(value) < 1000 and value == int(value):
        return f"{_fixed(value, 0)} B"
    for unit in units[:-1]:
        if abs(float(f"{value:.{digits - 1}e}")) < 1000:
            return f"{significant(value, digits)} {unit}"
        value /= 1000
    return f"{significant(value, digits)} {units[-1]}"


def _special(value: float | None, unit: str) -> str:
    if value is None:
        return ABSENT
    if math.isnan(value):
        return "NaN"
    return f"{'−' if value < 0 else ''}∞{unit}"


def _fixed(value: float, decimals: int, style: str = "f") -> str:
    if abs(value) >= _MOST_PLAIN:
        style = "e"
    text = f"{abs(value):.{decimals}{style}}"
    negative = value < 0 and any(digit in "123456789" for digit in text)
    return f"−{text}" if negative else text
