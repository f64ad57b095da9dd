"""One pair of models has one interval in what `check` says."""

from typing import get_args

import msgspec
import pytest
import verdict_example as example

from edgeconv.reporting.verdicts.words import stage_table
from edgeconv.types import Check, Finding, Reference, StageState, Verdict

STAGE = StageState(
    stage="float32",
    model="net-float32",
    changed=True,
    moved=False,
    metric="top1",
    before=0.9,
    after=0.89,
    drop=0.01,
    interval=(0.005, 0.015),
    own_drop=0.02,
    own_interval=(0.012, 0.028),
)
TRAINED = msgspec.structs.replace(STAGE, stage="trained", model="net")


def finding(model: str, reference: Reference) -> Finding:
    return Finding(
        model=model,
        limit="max-accuracy-drop",
        allowed=0.03,
        actual=0.02,
        outcome="passed",
        severity="error",
        reference=reference,
        interval=(0.011, 0.028),
    )


def drops(check: Check, model: str) -> tuple[str, ...]:
    table = stage_table(check)
    (row,) = [row for row in table.rows if row.cells[1].text == model]
    return tuple(cell.text for cell in row.cells[-2:])


def checked(stages: tuple[StageState, ...], *findings: Finding) -> Check:
    check = example.checked().checks[0]
    return msgspec.structs.replace(check, stages=stages, verdict=Verdict(findings=findings))


@pytest.mark.parametrize("reference", [one for one in get_args(Reference) if one])
def test_a_stage_has_its_intervals_whatever_the_findings_say(reference):
    found = drops(checked((TRAINED, STAGE), finding(STAGE.model, reference)), STAGE.model)
    assert found == ("1.00 pp [0.50, 1.50]", "2.00 pp [1.20, 2.80]")
