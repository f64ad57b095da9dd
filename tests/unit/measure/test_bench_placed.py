"""What `bench --on` refuses, before anything starts."""

from __future__ import annotations

import pytest

from edgeconv.errors import UsageError
from edgeconv.measure.on_ray import refuse_measuring
from edgeconv.runtimes.choice import parse_choice
from edgeconv.types import Measuring


@pytest.mark.parametrize("text", ["tfserving:http://h:8501", "web", "gpu", "arm64", "fake"])
def test_a_runtime_of_one_machine_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match=f"the runtime {text} does not run on a cluster"):
        refuse_measuring("ray", Measuring(runtimes=(parse_choice(text),)))


@pytest.mark.parametrize(
    "text",
    ["litert", "litert==2.1.0", "tflite-micro", "tensorflow==2.15.1", "ssh:pi@host", "adb:123"],
)
def test_a_runtime_in_an_environment_and_a_named_device_are_taken(text: str) -> None:
    refuse_measuring("ray", Measuring(runtimes=(parse_choice(text),)))


@pytest.mark.parametrize(
    ("name", "measuring"),
    [
        ("every", Measuring(every=0.01)),
        ("cold", Measuring(cold=3)),
        ("profile", Measuring(profile=True)),
        ("layers", Measuring(layers=True)),
    ],
)
def test_what_is_measured_here_is_refused(name: str, measuring: Measuring) -> None:
    with pytest.raises(UsageError, match=f"--{name} is measured on this machine"):
        refuse_measuring("ray", measuring)


def test_a_phone_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="adb may be a different device on each node"):
        refuse_measuring("ray", Measuring(runtimes=(parse_choice("adb"),)))


def test_what_is_not_a_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a cluster"):
        refuse_measuring("rays", Measuring())
