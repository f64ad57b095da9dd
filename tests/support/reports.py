"""What is in a report.json, as tests look at it."""

import json
from pathlib import Path


def accuracies(report: Path) -> dict[str, float]:
    """The accuracy of each row of the report in a directory, by name."""
    content = json.loads((report / "report.json").read_text(encoding="utf-8"))
    return {row["name"]: row["accuracy"]["value"] for row in content["measurements"]}
