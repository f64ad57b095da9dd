"""`train --on ray`: the same weights as here, and a lost member costs little.

A kill takes up to three minutes: Ray starts, and two members that import TensorFlow themselves
(no child is forked here) train, are killed and start again, until all three epochs are done.
"""

import filecmp

import msgspec
import pytest
from train_commands import LONG, TWO_WORKERS, Command, checkpoint
from training_modules import written

from edgeconv.types import TrainingRecord

pytest.importorskip("ray", reason="edgeconv[ray] is not installed")

ON_RAY = (*TWO_WORKERS, "--on", "ray")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("modules"), "small")


@pytest.fixture(scope="module")
def here(small, tmp_path_factory):
    """The variables of the long training by two workers of this machine, and its record."""
    directory = tmp_path_factory.mktemp("here")
    with trains(directory, small, *TWO_WORKERS) as command:
        assert command.wait() == 0, command.printed
    return variables(directory), record(directory)


def trains(directory, module, *options):
    # Ray's sockets have a limit of 107 characters, which a TMPDIR of pytest's goes over.
    out = directory / "out"
    arguments = (module, "-o", out, *LONG, *options)
    return Command(directory, *arguments, pause_s=0.3, TMPDIR="/tmp")


def variables(directory):
    return directory / "out/small/1/variables/variables.data-00000-of-00001"


def record(directory):
    path = directory / "out/small/1.training.json"
    return msgspec.json.decode(path.read_bytes(), type=TrainingRecord)


def actor_of(child):
    """The worker of Ray that runs a member's child."""
    return next(each for each in child.parents() if each.name().startswith("ray::"))


@pytest.mark.slow
def test_two_workers_give_the_same_bytes_as_here_and_leave_no_process(small, here, tmp_path):
    with trains(tmp_path, small, *ON_RAY) as command:
        assert command.wait() == 0, command.printed
        lines = command.printed.splitlines()
    assert filecmp.cmp(variables(tmp_path), here[0], shallow=False)
    own = record(tmp_path)
    assert (own.workers, own.replicas, own.resumed_at) == (2, 2, ())
    assert own.test_metrics == here[1].test_metrics
    assert any(line.startswith("placed: worker 0 at ") for line in lines)
    assert sum(line.startswith("worker 1 | epoch 3/3") for line in lines) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda member: member.kill(), "worker 1 was ended by SIGKILL"),
        (lambda member: actor_of(member).kill(), "worker 1: its worker of Ray was lost"),
    ],
    ids=["the member", "its worker of Ray"],
)
def test_after_a_kill_all_start_again_from_the_last_checkpoint(end, reason, small, here, tmp_path):
    with trains(tmp_path, small, *ON_RAY) as command:
        command.wait_until(lambda: checkpoint(tmp_path) >= 2)
        end(command.member(index=1))
        assert command.wait() == 0, command.printed
        text = command.printed
    assert reason in text
    assert text.count("; all start again from the last checkpoint") == 1
    (step,) = record(tmp_path).resumed_at
    assert 8 <= step < 120
    assert filecmp.cmp(variables(tmp_path), here[0], shallow=False)
    assert not (tmp_path / "out/small/.checkpoints").exists()


@pytest.mark.slow
def test_under_parameter_servers_a_killed_server_starts_all_again(small, tmp_path):
    options = ("--strategy", "parameter-server", "--workers", "1", "--loop", "custom")
    with trains(tmp_path, small, *options, "--on", "ray") as command:
        command.wait_until(lambda: checkpoint(tmp_path) >= 2)
        command.member(type="ps", index=0).kill()
        assert command.wait() == 0, command.printed
        assert "ps 0 was ended by SIGKILL; all start again" in command.printed
    assert len(record(tmp_path).resumed_at) == 1
    assert [epoch.samples for epoch in record(tmp_path).epochs] == [640] * 3


@pytest.mark.slow
def test_a_killed_command_leaves_no_process(small, tmp_path):
    with trains(tmp_path, small, *ON_RAY) as command:
        command.wait_until(lambda: checkpoint(tmp_path) >= 1)
        command.look()
        command.process.kill()
        assert command.wait() == -9
    assert checkpoint(tmp_path)
