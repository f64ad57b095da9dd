"""A training that is killed at its calls that write below the directory of its checkpoints."""

import json
import sys

import pytest
from commands import captured
from fault_injection import require_tracing
from places import SUPPORT

MOST = 200


@pytest.mark.parametrize(
    "step", [pytest.param(60, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
def test_killed_while_it_keeps_or_forgets_a_checkpoint_it_goes_on_and_gives_the_same_bytes(
    step, tmp_path
):
    require_tracing(tmp_path)
    script = SUPPORT / "checkpointed_training.py"
    done = captured([sys.executable, script, tmp_path, str(step)])
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["wrong"] == []
    assert len(answer["killed"]) == -(-min(len(answer["calls"]), MOST) // step)
    assert any("rename" in call and call.endswith("/checkpoint") for call in answer["calls"])
