"""A device has one tenant at a time; runs on other devices, and here, do not wait."""

import threading

import pytest

from edgeconv.runtimes.choice import leased
from edgeconv.types import RuntimeChoice

PI = RuntimeChoice(name="ssh", location="pi@host")
PHONE = RuntimeChoice(name="adb", location="R58")
HERE = RuntimeChoice(name="litert")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECONV_CACHE_DIR", str(tmp_path))


def test_a_second_run_waits_until_the_first_has_ended():
    waits, enters = threading.Event(), threading.Event()
    lines: list[str] = []

    def on_progress(line: str) -> None:
        lines.append(line)
        waits.set()

    def second() -> None:
        # In another order, with other options: it is the same device.
        with leased([HERE, PHONE, RuntimeChoice(name="ssh", location="pi@host")], on_progress):
            enters.set()

    other = threading.Thread(target=second)
    with leased([PI, PHONE], pytest.fail):
        other.start()
        assert waits.wait(30)
        assert not enters.wait(0.2)
    assert enters.wait(30)
    other.join()
    assert lines == ["waiting for another run on adb:R58"]


def test_other_devices_and_this_machine_wait_for_nobody():
    with leased([PI, HERE], pytest.fail), leased([PHONE, HERE], pytest.fail):
        pass
    # A device that is named twice is leased once.
    with leased([PI, PI], pytest.fail):
        pass
