"""What the verbs return, as a person sees it who evaluates it in a terminal or a notebook."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from edgeconv.reporting.changes import difference_page
from edgeconv.reporting.debugged import debugged_page
from edgeconv.reporting.diagnosis import diagnosis_page
from edgeconv.reporting.inspected import inspection_page
from edgeconv.reporting.layout import to_html, to_text
from edgeconv.reporting.scans import scan_page
from edgeconv.reporting.text import conversion_page, report_page, training_page, verdict_page
from edgeconv.reporting.tuning import tuning_page
from edgeconv.reporting.verdicts.terminal import check_page
from edgeconv.reporting.verified import evidence_page
from edgeconv.types import (
    Check,
    Conversion,
    Debugged,
    Diagnosis,
    Difference,
    Evidence,
    Inspection,
    Report,
    Scan,
    TrainingRecord,
    Tuning,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGES: dict[type, Callable[[Any], Any]] = {
    Check: check_page,
    Conversion: conversion_page,
    Debugged: debugged_page,
    Diagnosis: diagnosis_page,
    Difference: difference_page,
    Evidence: evidence_page,
    Inspection: inspection_page,
    Report: report_page,
    Scan: scan_page,
    TrainingRecord: training_page,
    Tuning: tuning_page,
    Verdict: verdict_page,
}


def as_text(result: Any) -> str:
    """The result as text, as wide as the terminal."""
    width = os.get_terminal_size(1).columns if os.isatty(1) else None
    return to_text(tuple(_PAGES[type(result)](result)), width=width, color=False)


def as_html(result: Any) -> str:
    """The result as a fragment of HTML."""
    return to_html(tuple(_PAGES[type(result)](result)))
