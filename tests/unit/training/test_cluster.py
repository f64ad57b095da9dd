import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import fails

from edgeconv.training import cluster as cluster_module
from edgeconv.training.cluster import (
    Cluster,
    from_tf_config,
    host_and_port,
    local_cluster,
    refuse_taken_port,
)
from edgeconv.types.errors import ToolFailed, UsageError

CHIEF, WORKER, SERVER = ("one:1",), ("two:2", "three:3"), ("four:4",)


def config(index: Any = 0, role: Any = "worker", **cluster: Any) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})


def cluster_of(index: int = 0, role: str = "worker", **addresses: tuple[str, ...]) -> Cluster:
    return from_tf_config(config(index, role, **addresses))


# Reading TF_CONFIG


def test_tf_config_gives_the_roles_the_addresses_and_who_this_is():
    cluster = cluster_of(1, chief=CHIEF, worker=WORKER)
    assert cluster == Cluster(addresses={"chief": CHIEF, "worker": WORKER}, role="worker", index=1)
    assert (cluster.member_name, cluster.address) == ("worker 1", "three:3")
    assert cluster.members == {"chief": "one:1", "worker 0": "two:2", "worker 1": "three:3"}


def test_the_members_are_in_one_order_whatever_that_in_the_text():
    cluster = cluster_of(0, evaluator=["e:5"], ps=SERVER, worker=WORKER, chief=CHIEF)
    assert [*cluster.members] == ["chief", "worker 0", "worker 1", "ps 0", "evaluator"]


def test_what_vertex_ai_writes_is_read():
    text = json.dumps(
        {
            "cluster": {
                "chief": ["cmle-training-workerpool0-ab12-0:2222"],
                "worker": ["cmle-training-workerpool1-ab12-0:2222"],
                "ps": [],
            },
            "environment": "cloud",
            "job": '{"python_module": "trainer"}',
            "task": {"type": "worker", "index": "0", "trial": "1", "cloud": "x"},
        }
    )
    cluster = from_tf_config(text)
    assert (cluster.role, cluster.index) == ("worker", 0)
    assert cluster.for_strategy("multiworker").size("ps") == 0


@given(
    sizes=st.tuples(*(st.integers(0, most) for most in (1, 4, 3, 1))).filter(any),
    picked=st.randoms(use_true_random=False),
)
def test_a_cluster_becomes_tf_config_and_comes_back_as_it_was(sizes, picked):
    roles = ("chief", "worker", "ps", "evaluator")
    ports_left = iter(range(1000, 2000))
    addresses: Any = {
        role: tuple(f"host{size}:{next(ports_left)}" for _ in range(size))
        for role, size in zip(roles, sizes, strict=True)
        if size
    }
    role = picked.choice(sorted(addresses))
    index = picked.randrange(len(addresses[role]))
    cluster = Cluster(addresses=addresses, role=role, index=index)
    assert from_tf_config(cluster.tf_config()) == cluster


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "{}",
        "not json",
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "wor',
        "[1, 2]",
        "null",
        '{"task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1"]}}',
        json.dumps({"cluster": [], "task": {}}),
        json.dumps({"cluster": {"worker": "a:1"}, "task": {}}),
        config(worker=[1]),
        config(worker={"0": "a:1"}),
        config(),
        config(worker=[]),
        config(1, worker=["a:1"]),
        config(-1, worker=["a:1"]),
        config(1.5, worker=["a:1"]),
        config(True, worker=["a:1"]),
        config("one", worker=["a:1"]),
        config("\u0660", worker=["a:1"]),
        config(10**30, worker=["a:1"]),
        config("9" * 5000, worker=["a:1"]),
        config(role="chief", worker=["a:1"]),
        config(role="ps", worker=["a:1"], ps=[]),
        config(worker=["a"]),
        config(worker=["a:"]),
        config(worker=[":1"]),
        config(worker=["a:b"]),
        config(worker=["a:1:2"]),
        config(worker=["grpc://a:1"]),
        config(worker=["a b:1"]),
        config(worker=["a..b:1"]),
        config(worker=["-a:1"]),
        config(worker=["a:1\n"]),
        config(worker=["a:\u0661"]),
        config(worker=["a" * 64 + ":1"]),
        config(worker=["a." * 130 + "b:1"]),
        config(worker=["a:0"]),
        config(worker=["a:65536"]),
        config(worker=["a:1", "A:1"]),
        config(worker=["a:1"], ps=["a:01"]),
        config(chief=["a:1", "b:1"], role="chief"),
        '{"cluster": ' + '{"a":' * 100_000,
        "\udcff{}",
    ],
)
def test_a_wrong_tf_config_is_refused_with_what_is_wrong(text):
    with fails(UsageError) as caught:
        from_tf_config(text)
    assert len(caught.value.message) < 400
    # It goes to a terminal.
    assert caught.value.message.isprintable()


def test_an_unknown_role_is_refused_with_the_closest_one():
    with fails(UsageError):
        from_tf_config(config(workers=["a:1"]))
    with fails(UsageError):
        from_tf_config(config(role="Chief", worker=["a:1"]))


def test_the_error_shows_a_tf_config_that_is_right():
    with pytest.raises(UsageError) as caught:
        from_tf_config("nonsense")
    example = caught.value.hint.split("as in ")[1].split(";")[0]
    assert from_tf_config(example).member_name == "worker 0"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cluster", "task", "type", "index", "worker", "ps", "a"]),
            inner,
            max_size=4,
        )
    ),
)


@settings(max_examples=200)
@given(st.text(max_size=60) | st.binary(max_size=60).map(os.fsdecode) | JSON.map(json.dumps))
def test_any_text_is_a_cluster_or_refused(text):
    with contextlib.suppress(UsageError):
        from_tf_config(text)


def test_an_address_is_split_into_host_and_port():
    assert host_and_port("worker-0.train_svc.default:2222") == ("worker-0.train_svc.default", 2222)
    assert host_and_port("127.0.0.1:80") == ("127.0.0.1", 80)
    assert host_and_port("[::1]:80") == ("::1", 80)


# Who is who


@pytest.mark.parametrize(
    ("role", "index", "chief"),
    [("chief", 0, True), ("worker", 0, False), ("worker", 1, False), ("ps", 0, False)],
)
def test_where_there_is_a_chief_it_alone_is_the_chief(role, index, chief):
    assert cluster_of(index, role, chief=CHIEF, worker=WORKER, ps=SERVER).is_chief is chief


@pytest.mark.parametrize(("index", "chief"), [(0, True), (1, False)])
def test_where_there_is_no_chief_the_first_worker_is(index, chief):
    assert cluster_of(index, worker=WORKER).is_chief is chief


def test_workers_serve_only_where_there_are_parameter_servers():
    assert not cluster_of(0, chief=CHIEF, worker=WORKER).serves
    everyone = {"chief": CHIEF, "worker": WORKER, "ps": SERVER}
    assert [cluster_of(0, role, **everyone).serves for role in everyone] == [False, True, True]


def test_a_member_has_to_reach_all_others_but_the_evaluator_and_one_that_serves_nobody():
    addresses = {"chief": CHIEF, "worker": WORKER, "evaluator": ("e:5",)}
    assert cluster_of(0, **addresses).peers == {"chief": "one:1", "worker 1": "three:3"}
    assert cluster_of(0, "evaluator", **addresses).peers == {}
    served = {"chief": CHIEF, "worker": WORKER, "ps": SERVER}
    assert [*cluster_of(0, "chief", **served).peers] == ["worker 0", "worker 1", "ps 0"]
    assert cluster_of(0, "ps", **served).peers == cluster_of(0, "worker", **served).peers == {}


@pytest.mark.parametrize(
    ("strategy", "addresses"),
    [
        ("multiworker", {"worker": WORKER, "ps": SERVER}),
        ("parameter-server", {"worker": WORKER, "ps": SERVER}),
        ("parameter-server", {"chief": CHIEF, "worker": WORKER}),
        ("mirrored", {"worker": WORKER}),
        ("none", {"chief": CHIEF, "worker": WORKER}),
    ],
)
def test_a_cluster_in_which_the_strategy_cannot_train_is_refused(strategy, addresses):
    with fails(UsageError):
        cluster_of(0, **addresses).for_strategy(strategy)


@pytest.mark.parametrize(
    ("strategy", "role", "addresses"),
    [
        ("multiworker", "worker", {"worker": WORKER}),
        ("multiworker", "worker", {"worker": ("a:1",)}),
        ("multiworker", "chief", {"chief": CHIEF, "worker": WORKER, "evaluator": ("e:5",)}),
        ("parameter-server", "ps", {"chief": CHIEF, "worker": WORKER, "ps": SERVER}),
        ("mirrored", "chief", {"chief": CHIEF}),
    ],
)
def test_a_cluster_in_which_the_strategy_can_train_is_given_back(strategy, role, addresses):
    cluster = cluster_of(0, role, **addresses)
    assert cluster.for_strategy(strategy) is cluster


@pytest.mark.parametrize("strategy", ["multiworker", "parameter-server", "none"])
def test_an_evaluator_is_told_that_there_is_none(strategy):
    with fails(UsageError):
        cluster_of(0, "evaluator", worker=WORKER, evaluator=["e:5"]).for_strategy(strategy)


# Ports of this machine


def test_a_local_cluster_is_one_as_each_of_its_members_sees_it():
    clusters = local_cluster(2, 1, coordinator=True)
    assert [one.member_name for one in clusters] == ["chief", "worker 0", "worker 1", "ps 0"]
    assert all(one.addresses == clusters[0].addresses for one in clusters)
    assert [one.is_chief for one in clusters] == [True, False, False, False]
    for one in clusters:
        assert from_tf_config(one.tf_config()).for_strategy("parameter-server") == one


def test_a_local_cluster_of_workers_is_one_for_multiworker():
    clusters = local_cluster(2)
    assert [one.for_strategy("multiworker").member_name for one in clusters] == [
        "worker 0",
        "worker 1",
    ]
    assert [one.is_chief for one in clusters] == [True, False]


def test_every_member_has_a_port_of_its_own_on_which_it_can_listen():
    addresses = [*local_cluster(30, 10, coordinator=True)[0].members.values()]
    assert len(set(addresses)) == 41
    with contextlib.ExitStack() as stack:
        for address in addresses:
            stack.enter_context(socket.create_server(host_and_port(address)))


def test_two_clusters_that_begin_at_once_have_different_ports_even_with_one_seed():
    drawn = set()
    for _ in range(10):
        random.seed(0)
        drawn.add(local_cluster(2)[0].addresses["worker"])
    assert len(drawn) == 10


def test_no_port_is_one_that_the_system_gives_to_connections(tmp_path, monkeypatch):
    given_out = tmp_path / "range"
    given_out.write_text("22000\t60999\n")
    monkeypatch.setattr(cluster_module, "_EPHEMERAL", given_out)
    listed = local_cluster(50)[0].addresses["worker"]
    assert all(20_000 <= host_and_port(address)[1] < 22_000 for address in listed)


@pytest.mark.parametrize("text", ["1024\t65535\n", "", "nonsense", None])
def test_where_the_system_gives_out_all_or_does_not_say_there_are_ports_too(
    text, tmp_path, monkeypatch
):
    given_out = tmp_path / "range"
    if text is not None:
        given_out.write_text(text)
    monkeypatch.setattr(cluster_module, "_EPHEMERAL", given_out)
    assert len({*local_cluster(20)[0].addresses["worker"]}) == 20


def test_a_port_that_is_in_use_is_not_drawn(monkeypatch):
    with taken_port() as port:
        monkeypatch.setattr(cluster_module, "_candidates", lambda: range(port, port + 1))
        with fails(ToolFailed):
            local_cluster(1)


@contextlib.contextmanager
def taken_port(host: str = "127.0.0.1") -> Iterator[int]:
    with socket.create_server((host, 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_port_in_use_is_refused_with_the_process_that_has_it(host):
    with taken_port(host) as port:
        cluster = cluster_of(0, worker=[f"127.0.0.1:{port}"])
        with pytest.raises(UsageError) as caught:
            refuse_taken_port(cluster)
    assert caught.value.message == (
        f"port {port} of worker 0 (127.0.0.1:{port}) is in use by {psutil.Process().name()} "
        f"(process {os.getpid()})"
    )


def test_a_port_of_which_a_connection_is_still_timing_out_can_be_listened_on():
    """As right after a training that was killed, when it is started again."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        client = socket.create_connection(address)
        accepted, _ = server.accept()
        # Who closes first waits.
        accepted.close()
        client.close()
    with socket.socket() as strict, fails(OSError):
        strict.bind(address)
    refuse_taken_port(cluster_of(0, worker=[f"127.0.0.1:{address[1]}"]))


def test_a_free_port_and_that_of_an_evaluator_who_never_listens_are_no_matter():
    refuse_taken_port(local_cluster(1)[0])
    with taken_port() as port:
        refuse_taken_port(
            cluster_of(0, "evaluator", worker=["a:1"], evaluator=[f"127.0.0.1:{port}"])
        )
