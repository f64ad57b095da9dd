"""How busy the machine was, from files as Linux has them."""

import os
from pathlib import Path

import pytest

from edgeconv.measure.machine import LoadMonitor, load_warnings
from edgeconv.types import Conditions

TICKS = os.sysconf("SC_CLK_TCK")


def write_stat(proc: Path, user: int, idle: int, steal: int) -> None:
    proc.mkdir(exist_ok=True)
    line = f"cpu  {user * TICKS} 0 0 {idle * TICKS} 0 0 0 {steal * TICKS} 0 0\ncpu0 1 2 3\n"
    (proc / "stat").write_text(line, encoding="ascii")


def write_cpu(cpus: Path, number: int, governor: str, khz: int) -> None:
    folder = cpus / f"cpu{number}" / "cpufreq"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scaling_governor").write_text(governor + "\n", encoding="ascii")
    (folder / "scaling_cur_freq").write_text(f"{khz}\n", encoding="ascii")


def test_time_that_others_used_and_that_was_stolen_are_shares_of_all_time(tmp_path):
    proc = tmp_path / "proc"
    write_stat(proc, user=1000, idle=5000, steal=10)
    (proc / "loadavg").write_text("0.25 0.5 0.75 1/100 42\n", encoding="ascii")
    with LoadMonitor(proc, tmp_path / "none") as watch:
        write_stat(proc, user=1000 + 500, idle=5000 + 450, steal=10 + 50)
        (proc / "loadavg").write_text("2.5 1 1 1/100 43\n", encoding="ascii")
    seen = watch.conditions
    assert (seen.load_before, seen.load_after) == (0.25, 2.5)
    assert seen.steal == pytest.approx(0.05)
    # This process's own time, under a second of a thousand, does not count.
    assert seen.busy == pytest.approx(0.5, abs=0.01)


def test_the_time_of_this_process_is_not_that_of_others(tmp_path):
    proc = tmp_path / "proc"
    write_stat(proc, user=0, idle=0, steal=0)
    with LoadMonitor(proc, tmp_path / "none") as watch:
        before = sum(os.times()[:4])
        while sum(os.times()[:4]) - before < 0.3:
            pass
        line = f"cpu {int(0.3 * TICKS)} 0 0 {int(0.7 * TICKS)} 0 0 0 0\n"
        (proc / "stat").write_text(line, encoding="ascii")
    assert watch.conditions.busy == pytest.approx(0.0, abs=0.05)


def test_governors_and_the_lowest_and_highest_frequency_are_told(tmp_path):
    cpus = tmp_path / "cpu"
    write_cpu(cpus, 0, "powersave", 800_000)
    write_cpu(cpus, 1, "powersave", 3_200_000)
    with LoadMonitor(tmp_path / "none", cpus) as watch:
        write_cpu(cpus, 0, "powersave", 2_000_000)
    assert watch.conditions.governor == "powersave"
    assert watch.conditions.frequency_mhz == (800.0, 3200.0)


def test_the_frequency_of_a_virtual_machine_is_in_cpuinfo(tmp_path):
    (tmp_path / "cpuinfo").write_text("model name: x\ncpu MHz\t\t: 2599.9\n", encoding="utf-8")
    with LoadMonitor(tmp_path, tmp_path / "none") as watch:
        pass
    assert watch.conditions.frequency_mhz == (2599.9, 2599.9)


def test_a_system_that_says_nothing_is_no_error(tmp_path):
    with LoadMonitor(tmp_path, tmp_path) as watch:
        pass
    assert watch.conditions == Conditions()


@pytest.mark.parametrize("content", ["", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_a_file_of_another_form_is_no_error(tmp_path, content):
    (tmp_path / "stat").write_text(content, encoding="ascii")
    (tmp_path / "loadavg").write_text(content, encoding="ascii")
    with LoadMonitor(tmp_path, tmp_path) as watch:
        pass
    assert (watch.conditions.busy, watch.conditions.load_before) == (None, None)


def test_each_thing_that_spoils_times_is_remarked_upon_once():
    assert load_warnings(Conditions()) == ()
    assert load_warnings(Conditions(busy=0.02, steal=0.001, governor="performance")) == ()
    said = load_warnings(Conditions(busy=0.4, steal=0.08, governor="powersave"))
    assert ["40%" in said[0], "8%" in said[1], "'powersave'" in said[2]] == [True] * 3
