"""Limits, and numbers held against them."""

from __future__ import annotations

from edgeconv.nouns.model import Noun


class Finding(Noun, kw_only=True, frozen=True):
    """One limit held against one number. A number that is missing or NaN never passes."""

    model: str
    limit: str
    allowed: float
    actual: float | None
    ok: bool


class Verdict(Noun, kw_only=True, frozen=True):
    """Every limit of a budget held against a report."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there is a finding, and every one holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)


class Limits(Noun, kw_only=True, frozen=True, rename="kebab", omit_defaults=True):
    """The limits a budget may set; all are inclusive maxima but `min-accuracy`."""

    max_size_bytes: float | None = None
    max_gzip_size_bytes: float | None = None
    max_size_ratio: float | None = None
    max_latency_p50_us: float | None = None
    max_latency_ratio: float | None = None
    max_peak_memory_bytes: float | None = None
    max_accuracy_drop: float | None = None
    min_accuracy: float | None = None


class Budget(Noun, kw_only=True, frozen=True):
    """Limits for every artifact, and further ones by recipe name.

    As TOML: a table `[budget]` for all, and `[budget.recipe.NAME]` for one recipe.
    """

    every: Limits = Limits()
    recipe: dict[str, Limits] = {}
