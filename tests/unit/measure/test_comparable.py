"""Measurements that do not compare are refused, and it is said why."""

import re

import msgspec
import pytest
from report_example import report

from edgeconv.measure.compare import accuracy_differences, differences_of, latency_differences

replace = msgspec.structs.replace


def with_environment(**changes: object):
    one = report()
    return replace(one, environment=replace(one.environment, **changes))


def with_rows(change):
    one = report()
    measured = [row for row in one.measurements if row.latency and row.accuracy]
    return replace(one, measurements=tuple(change(row) for row in measured))


def test_a_report_compares_with_itself():
    assert latency_differences(report(), report()) == ()
    assert accuracy_differences(report(), report()) == ()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"cpu": "Cortex-A76"}, "processor: .* and Cortex-A76"),
        ({"machine": "riscv64"}, "machine: .* and riscv64"),
        ({"cores": 64}, "cores: .* and 64"),
        ({"host": "ssh:pi@shelf"}, "host: this machine and ssh:pi@shelf"),
        ({"system": "Darwin 24.1"}, "system: Linux and Darwin"),
    ],
)
def test_times_of_another_machine_are_refused(changes, what):
    assert re.search(what, "; ".join(latency_differences(report(), with_environment(**changes))))
    assert accuracy_differences(report(), with_environment(**changes)) == ()


def test_an_updated_kernel_is_the_same_machine():
    system = report().environment.system + "-after-an-update"
    assert latency_differences(report(), with_environment(system=system)) == ()


def test_times_in_another_runtime_are_refused():
    other = with_rows(lambda row: replace(row, runtime="ai_edge_litert 9.9"))
    assert re.search(
        r"runtime: .* and ai_edge_litert 9\.9", "; ".join(latency_differences(report(), other))
    )


@pytest.mark.parametrize(("field", "value"), [("threads", 4), ("batch", 8)])
def test_times_with_other_threads_or_batches_are_refused(field, value):
    other = with_rows(lambda row: replace(row, latency=replace(row.latency, **{field: value})))
    assert re.search(f"{field}: 1 and {value}", "; ".join(latency_differences(report(), other)))


def test_accuracies_on_other_samples_are_refused():
    one = report()
    other = replace(one, data=replace(one.data, sha256="f" * 64, samples=7))
    assert re.search(
        r"number of samples: \d+ and 7; hash", "; ".join(accuracy_differences(one, other))
    )
    assert latency_differences(one, other) == ()


def test_answers_to_other_samples_do_not_stand_beside_each_other_without_labels_either():
    def without_labels(row):
        return replace(row, accuracy=None, metrics=(), accuracy_drop=None)

    one = with_rows(without_labels)
    assert any(row.agreement for row in one.measurements)
    one = replace(one, baseline=None)
    other = replace(one, data=replace(one.data, sha256="f" * 64))
    assert accuracy_differences(one, other) == ()
    assert differences_of(one, one) == ()
    (difference,) = differences_of(one, other)
    assert difference.startswith("hash of the samples: ")
    alone = replace(other, measurements=tuple(replace(r, agreement=()) for r in other.measurements))
    assert differences_of(one, alone) == ()


def test_samples_that_were_preprocessed_otherwise_are_refused():
    one = report()
    other = replace(one, data=replace(one.data, preprocessing="scale=1/255"))
    (difference,) = accuracy_differences(one, other)
    assert difference.startswith("preprocessing: ")
    assert difference.endswith(" and scale=1/255")


def test_metrics_of_which_none_is_the_same_do_not_compare():
    one = report()
    other = replace(
        with_rows(
            lambda row: replace(row, accuracy=replace(row.accuracy, metric="odd"), metrics=())
        ),
        baseline=None,
    )
    assert accuracy_differences(one, other)[-1].endswith("and odd")


def test_what_one_of_the_two_has_not_measured_is_no_difference():
    untimed = with_rows(lambda row: replace(row, latency=None, accuracy=None, metrics=()))
    untimed = replace(untimed, baseline=None)
    other = with_environment(cpu="another")
    assert latency_differences(untimed, other) == accuracy_differences(untimed, other) == ()
