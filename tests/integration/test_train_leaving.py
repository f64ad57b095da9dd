"""Members of a cluster leave it together: the end of one is no error of another."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
from training_modules import written

from edgeconv.system.processes.sandbox import Access
from edgeconv.system.processes.tasks import start_task
from edgeconv.tf.export import versions
from edgeconv.tf.training.member import TrainJob, train_member
from edgeconv.training.cluster import host_and_port, local_cluster
from edgeconv.types import Allowance, Distribution, Training
from edgeconv.types.errors import (
    ClusterLost,
    EdgeconvError,
    InputRefused,
    ToolFailed,
    WorkerCrashed,
)


@contextlib.contextmanager
def slow_link(port: int, delay_s: float) -> Iterator[int]:
    """A port of this machine for what listens on `port`.

    What it answers comes `delay_s` later. When it closes a connection, what is still on the way is
    lost, and the connection is reset: as the system does for a process that ends with data unread.
    """
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_relay_to(port, delay_s), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def _relay_to(
    port: int, delay_s: float
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]:
    async def relay(asks: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        try:
            answered, asked = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            answers.transport.abort()
            return

        async def ask() -> None:
            with contextlib.suppress(OSError):
                while content := await asks.read(2**16):
                    asked.write(content)
            asked.close()

        asking = asyncio.ensure_future(ask())
        with contextlib.suppress(OSError):
            while content := await answered.read(2**16):
                asyncio.get_running_loop().call_later(delay_s, answers.write, content)
        answers.transport.abort()
        await asking

    return relay


@contextmanager
def two_members(delay_s=0.1):
    """A cluster as its two members see it; what worker 1 answers comes late, or never."""
    chief, worker = local_cluster(2)
    with slow_link(host_and_port(worker.address)[1], delay_s) as port:
        addresses = {"worker": (chief.address, f"127.0.0.1:{port}")}
        yield msgspec.structs.replace(chief, addresses=addresses), worker


def outcomes(directory, views, *, checkpoints=("kept", "kept"), on_line=None, **options):
    """What each member returned or raised; no one supervises both, as on two machines."""
    module = written(directory, "small")
    short = {"epochs": 1, "steps_per_epoch": 2, "loop": "custom", **options}
    training = Training(module=module, distribution=Distribution(strategy="multiworker"), **short)
    with ExitStack() as stack:
        tasks = [
            stack.enter_context(
                start_task(
                    train_member,
                    TrainJob(
                        training=training,
                        directory=str(directory / "out"),
                        checkpoints=str(directory / own),
                        work=str(directory),
                        workers=2,
                        is_chief=view.is_chief,
                    ),
                    label=view.member_name,
                    scratch=directory,
                    access=Access(profile="code", writes=(directory,)),
                    allowance=Allowance(timeout_s=240),
                    environment={"TF_CONFIG": view.tf_config()},
                )
            )
            for view, own in zip(views, checkpoints, strict=True)
        ]

        def relayed(line):
            print(line)
            if on_line is not None:
                on_line(line, tasks)

        return [_outcome(task, relayed) for task in tasks]


def _outcome(task, on_line):
    try:
        return task.result(on_line)
    except EdgeconvError as error:
        print(error)
        return error


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_no_member_misses_one_that_has_ended_its_training(loop, tmp_path):
    with two_members() as views:
        chief, worker = outcomes(tmp_path, views, loop=loop)
    assert chief.record is not None
    assert worker.record is None


def test_each_member_says_what_all_refuse(tmp_path):
    with two_members() as views:
        apart = {"checkpoints": ("one", "other"), "validation_fraction": 0.2}
        ended = outcomes(tmp_path, views, **apart)
    assert [type(one) for one in ended] == [InputRefused, InputRefused]
    assert all("do not see the same checkpoints" in one.message for one in ended)


@pytest.mark.slow
def test_each_member_says_that_the_training_diverged(tmp_path):
    with two_members(delay_s=0.5) as views:
        ended = outcomes(tmp_path, views, learning_rate=1e38)
    assert [type(one) for one in ended] == [ToolFailed, ToolFailed]
    assert all("training diverged" in one.message for one in ended)


@pytest.mark.slow
def test_where_a_member_is_lost_while_the_chief_exports_the_training_has_ended_well(tmp_path):
    def kill_the_worker(line, tasks):
        if line.endswith("saving"):
            tasks[1].child.kill()

    chief, worker = outcomes(tmp_path, local_cluster(2), on_line=kill_the_worker)
    assert isinstance(worker, WorkerCrashed)
    assert chief.record is not None
    assert versions(tmp_path / "out" / "small") == [1]


@pytest.mark.slow
def test_where_the_chief_is_lost_while_it_exports_the_others_say_so(tmp_path):
    def kill_the_chief(line, tasks):
        if line.endswith("saving"):
            tasks[0].child.kill()

    chief, worker = outcomes(tmp_path, local_cluster(2), on_line=kill_the_chief)
    assert isinstance(chief, WorkerCrashed)
    assert type(worker) is ClusterLost
    assert versions(tmp_path / "out" / "small") == []
