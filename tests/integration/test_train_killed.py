"""Trainings that are killed, interrupted, or find a cluster or checkpoint that is not theirs.

With parameter servers a kill takes up to two minutes: four members start, are killed after three
checkpoints, and start again for the rest of three epochs, in which each step is a remote call.
"""

import json
import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import msgspec
import pytest
from train_commands import LONG, TWO_WORKERS, Command, checkpoint
from training_modules import assert_same_weights, written

from edgeconv.tf.export import versions
from edgeconv.tf.training import checkpoints
from edgeconv.tf.training.epochs import TrainingContext, run_epochs
from edgeconv.tf.training.modules import load_module, read_data, spec_of
from edgeconv.tf.training.spec import Schedule
from edgeconv.training.cluster import local_cluster
from edgeconv.types import TrainingRecord
from edgeconv.types.errors import InputRefused, OutputRefused, ToolFailed


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("modules"), "small")


@pytest.fixture(scope="module")
def undisturbed(small, tmp_path_factory):
    """The long training as one process does it that nobody kills."""
    directory = tmp_path_factory.mktemp("undisturbed")
    return finished(directory, small, "--strategy", "none", "--loop", "custom")


def finished(directory, module, *options, version=1):
    """Run the long training to its end; its record."""
    with Command(directory, module, "-o", directory / "out", *LONG, *options) as command:
        assert command.wait() == 0, command.printed
    path = directory / "out" / "small" / f"{version}.training.json"
    return msgspec.json.decode(path.read_bytes(), type=TrainingRecord)


def killed(directory, module, *options, checkpoints=3, **task):
    """Run the long training, and kill a member once so many new checkpoints are there."""
    before = checkpoint(directory)
    with Command(directory, module, "-o", directory / "out", *LONG, *options) as command:
        command.wait_until(lambda: checkpoint(directory) >= before + checkpoints)
        command.member(**task).kill()
        assert command.wait() == 4, command.printed
        assert not versions(directory / "out" / "small")
        return command.printed


def assert_nothing_repeated_or_lost(record, undisturbed, runs):
    steps = record.resumed_at
    assert len(steps) == runs - 1
    assert steps[0] > 0
    assert list(steps) == sorted(steps)
    assert steps[-1] < 120
    assert all(step % 4 == 0 for step in steps)
    assert len(record.epochs) == 3
    for own, other in zip(record.epochs, undisturbed.epochs, strict=True):
        assert own.samples == other.samples == 640
        assert own.metrics == pytest.approx(other.metrics, rel=1e-3)
    assert_same_weights(record, undisturbed, rtol=1e-3)
    assert record.test_metrics == pytest.approx(undisturbed.test_metrics, rel=1e-3)


# Killed, and run again


@pytest.mark.slow
def test_a_worker_and_then_the_chief_killed_nothing_is_repeated_or_lost(
    small, undisturbed, tmp_path
):
    said = killed(tmp_path, small, *TWO_WORKERS, index=1)
    assert "error: worker 1 was ended by SIGKILL" in said
    assert "Traceback" not in said.partition("error: ")[2]
    said = killed(tmp_path, small, *TWO_WORKERS, index=0)
    assert "error: worker 0 was ended by SIGKILL" in said
    assert re.search(r"worker [01] \| resumed at step \d+ of 120", said)
    record = finished(tmp_path, small, *TWO_WORKERS)
    assert_nothing_repeated_or_lost(record, undisturbed, runs=3)
    assert (record.replicas, record.workers) == (2, 2)
    names = {path.name for path in (tmp_path / "out" / "small").iterdir()}
    assert {"1", "1.keras", "1.training.json"} <= names
    assert not (tmp_path / "out" / "small" / ".checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--strategy", "none", "--loop", "fit"),
        ("--strategy", "none", "--loop", "custom"),
        ("--strategy", "mirrored", "--loop", "fit"),
        ("--strategy", "mirrored", "--loop", "custom"),
        ("--strategy", "central-storage"),
    ],
    ids=" ".join,
)
def test_a_training_of_one_process_goes_on_where_it_was_killed(
    options, small, undisturbed, tmp_path
):
    said = killed(tmp_path, small, *options)
    assert "error: training was ended by SIGKILL" in said
    assert "next: run the same command again: the training resumes" in said
    record = finished(tmp_path, small, *options)
    assert_nothing_repeated_or_lost(record, undisturbed, runs=2)


@pytest.mark.slow
def test_keras_fit_with_two_workers_goes_on_too(small, undisturbed, tmp_path):
    options = (*TWO_WORKERS[:-1], "fit")
    killed(tmp_path, small, *options, index=1)
    assert_nothing_repeated_or_lost(finished(tmp_path, small, *options), undisturbed, runs=2)


@pytest.mark.slow
def test_a_cluster_is_gone_on_with_by_one_process(small, undisturbed, tmp_path):
    killed(tmp_path, small, *TWO_WORKERS, index=0)
    record = finished(tmp_path, small, "--strategy", "none", "--loop", "fit")
    assert_nothing_repeated_or_lost(record, undisturbed, runs=2)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["chief", "worker"])
def test_under_parameter_servers_a_killed_member_ends_all_and_it_goes_on(role, small, tmp_path):
    options = ("--strategy", "parameter-server", "--workers", "2", "--loop", "custom")
    with Command(tmp_path, small, "-o", tmp_path / "out", *LONG, *options) as command:
        command.wait_until(lambda: checkpoint(tmp_path) >= 3)
        command.member(type=role, index=0).kill()
        assert command.wait() == 4
        name = "chief" if role == "chief" else "worker 0"
        assert f"error: {name} was ended by SIGKILL" in command.printed
    record = finished(tmp_path, small, *options)
    assert len(record.resumed_at) == 1
    assert [epoch.samples for epoch in record.epochs] == [640] * 3


@pytest.mark.slow
def test_killed_while_it_exports_it_leaves_no_version_and_exports_again(
    small, undisturbed, tmp_path
):
    options = ("--strategy", "none", "--loop", "custom")
    parent = tmp_path / "out" / "small"
    with Command(tmp_path, small, "-o", tmp_path / "out", *LONG, *options) as command:
        command.wait_until(lambda: list(parent.glob(".unfinished-*")))
        command.member().kill()
        assert command.wait() == 4
    assert not versions(parent)
    record = finished(tmp_path, small, *options)
    assert record.resumed_at == (120,)
    assert not list(parent.glob(".unfinished-*"))
    assert_same_weights(record, undisturbed)


@pytest.mark.parametrize(
    ("number", "checkpoints"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, 0),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("started_children")
def test_an_interrupted_command_leaves_no_process(number, checkpoints, small, tmp_path):
    with Command(tmp_path, small, "-o", tmp_path / "out", *LONG, *TWO_WORKERS) as command:
        command.wait_until(lambda: len(command.started) >= 2)
        time.sleep(1)
        command.wait_until(lambda: checkpoint(tmp_path) >= checkpoints)
        command.process.send_signal(number)
        assert command.wait() == 130
        assert command.printed.endswith("from its last checkpoint\n\ninterrupted\n")


@pytest.mark.slow
def test_of_two_trainings_in_one_place_the_second_waits_and_gives_the_next_version(
    small, undisturbed, tmp_path
):
    options = ("-o", tmp_path / "out", *LONG, "--strategy", "none", "--loop", "custom")
    with Command(tmp_path, small, *options) as first, Command(tmp_path, small, *options) as second:
        assert (first.wait(), second.wait()) == (0, 0)
        waited = [c for c in (first, second) if "waiting for another training" in c.printed]
        assert len(waited) == 1
    parent = tmp_path / "out" / "small"
    assert versions(parent) == [1, 2]
    for number in (1, 2):
        path = parent / f"{number}.training.json"
        record = msgspec.json.decode(path.read_bytes(), type=TrainingRecord)
        assert record.resumed_at == ()
        assert_same_weights(record, undisturbed)
    assert not (parent / ".checkpoints").exists()


# A cluster that was set up by hand


def hand_made(count=2):
    """TF_CONFIG of each member of a cluster on this machine."""
    return [member.tf_config() for member in local_cluster(count)]


@pytest.mark.slow
def test_two_commands_with_tf_config_are_a_cluster_and_the_chief_alone_exports(
    small, undisturbed, tmp_path
):
    options = ("-o", tmp_path / "out", *LONG, "--strategy", "multiworker", "--loop", "custom")
    first, second = hand_made()
    with (
        Command(tmp_path, small, *options, TF_CONFIG=second) as worker,
        Command(tmp_path, small, *options, TF_CONFIG=first) as chief,
    ):
        assert (chief.wait(), worker.wait()) == (0, 0), chief.printed + worker.printed
        assert "SavedModel" in chief.printed
        assert "SavedModel" not in worker.printed
    path = tmp_path / "out" / "small" / "1.training.json"
    record = msgspec.json.decode(path.read_bytes(), type=TrainingRecord)
    assert (record.workers, record.replicas) == (2, 2)
    assert_same_weights(record, undisturbed, rtol=1e-3)
    assert versions(tmp_path / "out" / "small") == [1]


@pytest.mark.slow
def test_a_member_of_a_hand_made_cluster_that_is_killed_ends_the_other_and_both_go_on(
    small, undisturbed, tmp_path
):
    options = ("-o", tmp_path / "out", *LONG, "--strategy", "multiworker", "--loop", "custom")
    first, second = hand_made()
    with (
        Command(tmp_path, small, *options, TF_CONFIG=second) as worker,
        Command(tmp_path, small, *options, TF_CONFIG=first) as chief,
    ):
        chief.wait_until(lambda: checkpoint(tmp_path) >= 3)
        worker.member(index=1).kill()
        assert worker.wait() == 4
        assert chief.wait() == 4, chief.printed
        assert "another member of the cluster is lost" in chief.printed
    with (
        Command(tmp_path, small, *options, TF_CONFIG=second) as worker,
        Command(tmp_path, small, *options, TF_CONFIG=first) as chief,
    ):
        assert (chief.wait(), worker.wait()) == (0, 0), chief.printed + worker.printed
    path = tmp_path / "out" / "small" / "1.training.json"
    record = msgspec.json.decode(path.read_bytes(), type=TrainingRecord)
    assert_nothing_repeated_or_lost(record, undisturbed, runs=2)


@pytest.mark.slow
def test_a_worker_that_never_answers_is_named_when_the_time_is_up(small, tmp_path):
    options = ("--strategy", "multiworker", "--loop", "custom", "--connect-timeout-s", "5")
    mine, _ = hand_made()
    address = json.loads(mine)["cluster"]["worker"][1]
    host, _, port = address.partition(":")
    with (
        # Held, so that no other test gets it and answers.
        socket.socket() as held,
        Command(tmp_path, small, "-o", "out", *options, TF_CONFIG=mine) as command,
    ):
        held.bind((host, int(port)))
        assert command.wait() == 4
        assert f"no answer within 5 s from worker 1 ({address})" in command.printed
    assert not (tmp_path / "out").exists()


def refused(tmp_path, *arguments, code=2, **variables):
    with Command(tmp_path, *arguments, "-o", "out", **variables) as command:
        assert command.wait() == code, command.printed
        assert "Traceback" not in command.printed
    assert not (tmp_path / "out").exists()
    return command.printed


def test_a_port_in_use_is_refused_with_who_has_it(small, tmp_path):
    mine, _ = hand_made()
    host, _, port = json.loads(mine)["cluster"]["worker"][0].partition(":")
    with socket.create_server((host, int(port))):
        said = refused(tmp_path, small, "--strategy", "multiworker", TF_CONFIG=mine)
    assert f"port {port} of worker 0" in said
    assert f"process {os.getpid()}" in said


@pytest.mark.slow
def test_what_one_member_finds_wrong_is_said_once_and_ends_all(small, tmp_path):
    said = refused(tmp_path, small, *TWO_WORKERS, "--global-batch", "15")
    assert "a global batch of 15 cannot be shared evenly by 2 replicas" in said
    assert "--global-batch 14 or 16" in said


# Checkpoints that are not of this training; in this process, without a strategy


def trained_here(module, checkpoints, *, loop="custom", **options):
    """Train as a member that is alone does, with the numbers of `Schedule`."""
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    found = load_module(module)
    data = read_data(found, "small", None)
    fraction = options.pop("validation_fraction", 0.0)
    rate = options.pop("learning_rate", 0.01)
    problem = spec_of(
        found, "small", data, learning_rate=rate, validation_fraction=fraction, seed=0
    )
    schedule = Schedule(**{"epochs": 2, "global_batch": 16, "seed": 0, **options})
    place = TrainingContext(
        strategy=tf.distribute.get_strategy(),
        loop=loop,
        coordinates=False,
        is_chief=True,
        checkpoints=str(checkpoints),
        tensorboard=None,
    )
    return run_epochs(problem, schedule, place)


@pytest.fixture(scope="module")
def one_epoch(small, tmp_path_factory):
    """What is kept of a training after its first epoch."""
    directory = tmp_path_factory.mktemp("one-epoch")
    trained_here(small, directory, epochs=1)
    return directory


@pytest.fixture
def kept(one_epoch, tmp_path):
    """A copy of it for a test to spoil."""
    return Path(shutil.copytree(one_epoch, tmp_path / "kept"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"global_batch": 20}, "is of another training: global batch: 16 there, 20 here"),
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"steps_per_epoch": 5}, "steps per epoch: one pass there, 5 here"),
        ({"validation_fraction": 0.5}, r"training samples: 100 of \w+ there, 50 of"),
    ],
)
def test_a_checkpoint_of_other_numbers_is_refused_with_what_differs(options, match, small, kept):
    with pytest.raises(InputRefused, match=match) as refusal:
        trained_here(small, kept, **options)
    assert "--checkpoint-dir" in refusal.value.hint


@pytest.mark.parametrize(
    ("replaced", "match"),
    [
        (("Dense(8,", "Dense(9,"), r"weights: \w+ there, \w+ here"),
        (("x[:100]}, y[:100]", "x[:90]}, y[:90]"), r"training samples: 100 of \w+ there, 90 of"),
        (("argmax(1)", "argmin(1)"), r"training samples: 100 of \w+ there, 100 of"),
        (('{"x": x[:100]}', '{"x": x[:100] + 1}'), r"training samples: 100 of \w+ there, 100"),
    ],
)
def test_a_checkpoint_of_another_model_or_data_is_refused_with_what_differs(
    replaced, match, kept, tmp_path
):
    other = written(tmp_path, "other", replaced)
    with pytest.raises(InputRefused, match=match):
        trained_here(other, kept)


def test_a_checkpoint_of_somebody_else_s_is_refused(small, tmp_path):
    import tensorflow as tf

    tf.train.CheckpointManager(
        tf.train.Checkpoint(weight=tf.Variable(1.0)), str(tmp_path), max_to_keep=1
    ).save()
    with pytest.raises(InputRefused, match=r"is not a checkpoint of edgeconv|be resumed"):
        trained_here(small, tmp_path)


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", ["empty", "cut", "gone", "noise"])
def test_a_damaged_checkpoint_is_refused_with_its_name(part, damage, small, kept):
    (path,) = kept.glob(f"ckpt-*.{part}")
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        half = len(content) // 2
        noise = bytes(byte ^ 0x5A for byte in content[half : half + 64])
        changed = {
            "empty": b"",
            "cut": content[:half],
            "noise": content[:half] + noise + content[half + 64 :],
        }
        path.write_bytes(changed[damage])
    with pytest.raises(InputRefused, match=r"ckpt-1 cannot be resumed") as refusal:
        trained_here(small, kept, epochs=2)
    assert "remove this one to start again" in refusal.value.hint


def test_more_epochs_go_on_from_a_finished_training(small, kept):
    first = trained_here(small, kept, epochs=1).progress
    assert first.resumed_at == (7,)
    more = trained_here(small, kept, epochs=3).progress
    assert more.epochs[:1] == first.epochs
    assert len(more.epochs) == 3


def test_a_training_that_diverges_keeps_its_last_good_checkpoint(small, kept):
    before = sorted(path.name for path in kept.iterdir())
    with pytest.raises(ToolFailed, match=r"training diverged: .* of epoch 2/4"):
        trained_here(small, kept, epochs=4, learning_rate=1e38)
    assert sorted(path.name for path in kept.iterdir()) == before
    assert len(trained_here(small, kept, epochs=2).progress.epochs) == 2


def test_the_best_weights_are_those_of_which_the_checkpoint_speaks(small, tmp_path, monkeypatch):
    """Killed after the best weights were written, and before the checkpoint was."""
    options = {"validation_fraction": 0.2, "learning_rate": 0.03}
    trained_here(small, tmp_path, epochs=1, **options)

    def killed_before(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.Checkpoints, "save", killed_before)
        with pytest.raises(KeyboardInterrupt):
            trained_here(small, tmp_path, epochs=2, **options)
    both = {path.name.partition(".")[0] for path in tmp_path.glob("best-*")}
    assert both == {"best-1", "best-2"}
    progress = trained_here(small, tmp_path, epochs=2, **options).progress
    assert progress.best_epoch == 2
    assert {path.name.partition(".")[0] for path in tmp_path.glob("best-*")} == {"best-2"}


def test_a_full_disk_is_told_from_other_faults(small, tiny_disk):
    (tiny_disk / "filler").write_bytes(b"x" * (56 << 10))
    with pytest.raises(OutputRefused, match="cannot write a checkpoint") as refusal:
        trained_here(small, tiny_disk / "kept", epochs=1)
    assert "free some space" in refusal.value.hint
