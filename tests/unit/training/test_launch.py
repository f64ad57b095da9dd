"""What is started for a training, and where it keeps things; nothing is run here."""

import json
from pathlib import Path

import pytest
import worker_tasks
from wording import fails

import edgeconv
from edgeconv.training import baseline
from edgeconv.training.members import ProcessSettings, clusters_of, is_chief, launch, workers_of
from edgeconv.types import Distribution, Training
from edgeconv.types.errors import OutputRefused, UsageError, WorkerCrashed

WORKERS = ["host1:2222", "host2:2222"]
COORDINATED = {"chief": ["host0:2222"], "worker": WORKERS, "ps": ["host3:2222"]}


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    for name in ("TF_CONFIG", "AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"):
        monkeypatch.delenv(name, raising=False)


def tf_config(monkeypatch, cluster, role="worker", index=0):
    task = {"type": role, "index": index}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))


def clusters(strategy, **options):
    return clusters_of(Distribution(strategy=strategy, **options))


# Clusters


@pytest.mark.parametrize("strategy", ["none", "mirrored", "central-storage", "tpu"])
def test_a_strategy_of_one_process_starts_one_also_where_tf_config_has_it_alone(
    strategy, monkeypatch
):
    assert clusters(strategy) == ()
    assert is_chief(())
    assert workers_of(()) == 1
    for text in ("", "  ", "{}"):
        monkeypatch.setenv("TF_CONFIG", text)
        assert clusters(strategy) == ()
    tf_config(monkeypatch, {"chief": ["host0:2222"]}, "chief")
    assert clusters(strategy) == ()


@pytest.mark.parametrize("strategy", ["none", "mirrored", "central-storage", "tpu"])
def test_a_strategy_of_one_process_is_refused_for_each_member_of_a_cluster(strategy, monkeypatch):
    tf_config(monkeypatch, {"worker": WORKERS})
    with fails(UsageError):
        clusters(strategy)


def test_workers_here_are_a_cluster_whose_first_is_the_chief():
    members = clusters("multiworker", workers=3)
    assert [member.member_name for member in members] == ["worker 0", "worker 1", "worker 2"]
    assert [member.is_chief for member in members] == [True, False, False]
    assert len(set(members[0].members.values())) == 3
    assert is_chief(members)
    assert workers_of(members) == 3


def test_a_coordinator_and_one_server_come_with_workers_unless_more_are_asked_for():
    members = clusters("parameter-server", workers=2)
    names = [member.member_name for member in members]
    assert names == ["chief", "worker 0", "worker 1", "ps 0"]
    assert [member.serves for member in members] == [False, True, True, True]
    assert workers_of(members) == 2, "a coordinator does not train"
    assert len(clusters("parameter-server", workers=2, servers=3)) == 6


@pytest.mark.parametrize("text", ["", "{}", None])
@pytest.mark.parametrize("strategy", ["multiworker", "parameter-server"])
def test_without_workers_and_tf_config_a_cluster_is_refused_with_both(text, strategy, monkeypatch):
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with fails(UsageError):
        clusters(strategy)
    assert len(clusters(strategy, workers=1)) == (1 if strategy == "multiworker" else 3)


def test_tf_config_gives_the_one_member_that_this_process_is(monkeypatch):
    tf_config(monkeypatch, {"worker": WORKERS}, index=1)
    (member,) = clusters("multiworker")
    assert (member.member_name, member.address) == ("worker 1", "host2:2222")
    assert not is_chief((member,))
    assert workers_of((member,)) == 2
    tf_config(monkeypatch, {"chief": ["host0:2222"], "worker": WORKERS}, "chief")
    (chief,) = clusters("multiworker")
    assert is_chief((chief,))
    assert workers_of((chief,)) == 3, "this chief trains"
    tf_config(monkeypatch, COORDINATED, "chief")
    assert workers_of(clusters("parameter-server")) == 2


def test_workers_besides_a_tf_config_are_refused(monkeypatch):
    tf_config(monkeypatch, {"worker": WORKERS})
    with fails(UsageError):
        clusters("multiworker", workers=2)


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {}, "task": {"type": "worker", "index": 0}}',
    ],
)
@pytest.mark.parametrize("strategy", ["multiworker", "parameter-server", "mirrored"])
def test_a_malformed_tf_config_is_refused(text, strategy, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with fails(UsageError):
        clusters(strategy)


def test_a_cluster_of_the_other_strategy_is_refused(monkeypatch):
    tf_config(monkeypatch, COORDINATED)
    with fails(UsageError):
        clusters("multiworker")
    tf_config(monkeypatch, {"worker": WORKERS})
    with fails(UsageError):
        clusters("parameter-server")


# TrainingPaths


def places(directory=None, checkpoints=None, tensorboard=None, module="models/tiny.py"):
    return baseline._paths(Training(module=module), directory, checkpoints, tensorboard)


def test_by_default_all_is_in_a_directory_of_the_models_name_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert places() == baseline.TrainingPaths(
        directory=str(tmp_path),
        exact=False,
        checkpoints=str(tmp_path / "tiny" / ".checkpoints" / "current"),
        forget=True,
        tensorboard=None,
    )


def test_relative_places_are_those_of_the_directory_the_user_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = places("out", "../kept", "logs")
    assert Path(chosen.directory) == tmp_path / "out"
    assert Path(chosen.checkpoints).resolve() == tmp_path.parent / "kept"
    assert not chosen.forget
    assert chosen.tensorboard == str(tmp_path / "logs")


def test_vertex_ai_names_all_three_and_the_model_goes_into_the_directory_itself(monkeypatch):
    monkeypatch.setenv("AIP_MODEL_DIR", "gs://bucket/model/")
    monkeypatch.setenv("AIP_CHECKPOINT_DIR", "gs://bucket/checkpoints/")
    monkeypatch.setenv("AIP_TENSORBOARD_LOG_DIR", "gs://bucket/logs/")
    assert places() == baseline.TrainingPaths(
        directory="gs://bucket/model",
        exact=True,
        checkpoints="gs://bucket/checkpoints",
        forget=False,
        tensorboard="gs://bucket/logs",
    )


def test_what_is_asked_for_goes_before_what_vertex_ai_says(monkeypatch, tmp_path):
    for name in ("MODEL", "CHECKPOINT", "TENSORBOARD_LOG"):
        monkeypatch.setenv(f"AIP_{name}_DIR", "gs://bucket/x")
    asked = places(str(tmp_path / "m"), str(tmp_path / "c"), str(tmp_path / "t"))
    assert (asked.directory, asked.exact) == (str(tmp_path / "m"), False)
    assert (asked.checkpoints, asked.forget) == (str(tmp_path / "c"), False)
    assert asked.tensorboard == str(tmp_path / "t")


def test_only_with_a_model_directory_of_vertex_ai_checkpoints_are_in_it_until_the_end(monkeypatch):
    monkeypatch.setenv("AIP_MODEL_DIR", "gs://bucket/model")
    chosen = places()
    assert chosen.checkpoints == "gs://bucket/model/.checkpoints"
    assert chosen.forget


def test_two_models_in_one_directory_have_checkpoints_of_their_own(tmp_path):
    first, second = (places(str(tmp_path), module=name) for name in ("digits_cnn", "mnist_cnn"))
    assert first.checkpoints != second.checkpoints


@pytest.mark.parametrize("kept", [None, "elsewhere"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_started(tmp_path, kept):
    (tmp_path / "file").write_text("in the way")
    checkpoints = kept and str(tmp_path / kept)
    with fails(OutputRefused):
        edgeconv.train("digits_cnn", out=str(tmp_path / "file"), checkpoint_dir=checkpoints)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_name_too_long_for_a_directory_is_refused(tmp_path):
    with fails(OutputRefused):
        edgeconv.train("digits_cnn", out=str(tmp_path / ("m" * 300)))
    assert not list(tmp_path.iterdir())


# What is advised when a process fails


@pytest.mark.parametrize(
    ("train", "job", "resumes"),
    [
        (worker_tasks.fail_otherwise, worker_tasks.Job(text="OSError"), False),
        (worker_tasks.die_by_signal, worker_tasks.Job(number=9), True),
        (worker_tasks.die_by_signal, worker_tasks.Job(number=15), True),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_same_command_is_advised_only_where_it_may_end_otherwise(
    train, job, resumes, workers, tmp_path
):
    distribution = Distribution(strategy="multiworker", workers=workers)
    members = clusters_of(distribution) if workers else ()
    settings = ProcessSettings(
        label="training", scratch=tmp_path, access=worker_tasks.FREE, environment=worker_tasks.HERE
    )
    with pytest.raises(WorkerCrashed) as failed:
        launch(members, train, lambda _: job, distribution, settings)
    assert ("same command" in failed.value.hint) == resumes
    assert "last checkpoint" in failed.value.hint
