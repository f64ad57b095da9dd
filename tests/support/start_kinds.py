"""The kinds of children that edgeconv starts, and the journey that starts each as a user does.

A test may fork a child of a kind in this table (forking.py). Any other is started. Each journey
checks that it started what the table says of it.
"""

from collections.abc import Mapping, Sequence

ENTER = "/processes/sandbox/enter.py"
_TASKS = "edgeconv.system.processes.tasks"

_README = "test_readme.py::test_the_ten_lines_give_a_verified_file"
_INT8 = "test_tutorials.py::test_a_tutorial_does_what_it_says[int8]"
_PLATFORM = "test_tutorials.py::test_a_tutorial_does_what_it_says[platform]"

JOURNEYS: Mapping[str, str] = {
    "edgeconv.measure.debug:compare_layers": _INT8,
    "edgeconv.system.processes.tasks": _README,
    "edgeconv.model.source.keras_files:read_archive_here": _INT8,
    "edgeconv.model.source.scanning.keras_files:scan_keras_here": _INT8,
    "edgeconv.tf.baseline:run_baseline": _README,
    "edgeconv.tf.convert:to_float": _README,
    "edgeconv.tf.reference:run_reference": _README,
    "edgeconv.tf.training.member:train_member": _PLATFORM,
    "edgeconv.training.cluster:find": _PLATFORM,
    "runner.py": _README,
}


def kind_of(command: Sequence[str]) -> str | None:
    """What a confined child of edgeconv is: a function of the package, a module or a script.

    None for any other program, and for functions and scripts of the tests' own.
    """
    enters = [number for number, word in enumerate(command) if word.endswith(ENTER)]
    if not enters:
        return None
    first, *rest = command[enters[0] + 2 :]
    if first != "-m":
        return first.rpartition("/")[2] if "/edgeconv/" in first else None
    name = rest[1] if rest[0] == _TASKS and rest[1:] else rest[0]
    return name if name.startswith("edgeconv.") else None


def may_be_forked(command: Sequence[str]) -> bool:
    """Whether a test may fork what edgeconv starts by this command."""
    kind = kind_of(command)
    return command[1].endswith(ENTER) and (kind is None or kind in JOURNEYS)
