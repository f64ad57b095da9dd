"""The state of a model: outputs that the app feeds back as inputs with the next sample."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from edgeconv.model.tflite.summary import end_levels
from edgeconv.types.conversion import FED_BACK
from edgeconv.types.errors import UsageError, unknown_name
from edgeconv.types.words import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edgeconv.conversion.candidate import Candidate
    from edgeconv.conversion.prepare import Part
    from edgeconv.types import Signature, TensorSpec

    # The output that is fed back, by input.
    States = Mapping[str, str]

# Says that no output is fed back.
NO_STATE = "none"
# What a name adds to say when, and on which side.
_WHEN = frozenset({"next", "new", "old", "prev", "previous", "past", "present", "updated"})
_SIDE = frozenset({"in", "out", "input", "output", "outputs", "inputs"})
# What a state is called.
_STATE = frozenset(
    {"state", "states", "hidden", "h", "c", "cell", "carry", "memory", "mem", "cache", "recurrent"}
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def find_states(signature: Signature, declared: Sequence[str]) -> dict[str, str]:
    """The output that is fed back to each input that is a state, by input; {} for none.

    `declared` are texts OUTPUT=INPUT, or `NO_STATE` alone; without any, an output of an input's
    shape and dtype is its state where the names say so: both but for words such as "next" and
    "in", or an input called a state that no other output fits. Raises `UsageError` for names that
    the signature does not have, and for tensors that differ.
    """
    if declared:
        return _declared(signature, declared)
    pairs: dict[str, str] = {}
    for spec in signature.inputs:
        alike = [other for other in signature.outputs if _are_alike(spec, other)]
        named = [other for other in alike if _has_name_of(spec.name, other.name)]
        if len(named) == 1:
            pairs[spec.name] = named[0].name
        elif len(alike) == 1 and _is_state(spec.name):
            pairs[spec.name] = alike[0].name
    uses = Counter(pairs.values())
    pairs = {name: output for name, output in pairs.items() if uses[output] == 1}
    # What takes nothing but its state has no samples.
    return pairs if len(pairs) < len(signature.inputs) else {}


def state_notes(states: States, *, is_declared: bool) -> tuple[str, ...]:
    """A note on the pairs; nothing without any."""
    if not states:
        return ()
    pairs = ", ".join(f"{output!r} to {name!r}" for name, output in states.items())
    why = "" if is_declared else ", by the names and shapes; --state none denies it"
    return (
        f"{FED_BACK}{pairs}{why}. Calibrated and verified on consecutive samples, each file with "
        "its own states",
    )


def state_warnings(candidate: Candidate, parts: Sequence[Part]) -> tuple[str, ...]:
    """A warning for each state of a file whose integers are not those of its output."""
    warnings = []
    for part in parts if candidate.recipe.full_integer else ():
        inputs, outputs = end_levels(candidate.file.read_bytes(), part.signature.key)
        for name, output in part.split.states.items():
            if inputs.get(name) != outputs.get(output):
                warnings.append(
                    f"the state {name!r} and the output {output!r} that is fed back to it have "
                    "different scales, so that each turn rounds again"
                )
    return tuple(warnings)


def _declared(signature: Signature, declared: Sequence[str]) -> dict[str, str]:
    if list(declared) == [NO_STATE]:
        return {}
    inputs = {spec.name: spec for spec in signature.inputs}
    outputs = {spec.name: spec for spec in signature.outputs}
    pairs = {}
    for text in declared:
        output, equals, name = text.partition("=")
        if not equals:
            raise UsageError(
                f"--state {text}: not of the form OUTPUT=INPUT",
                hint=f"for example --state h_out=h_in; outputs are {quoted(outputs)}",
            )
        if output not in outputs:
            raise unknown_name("output in --state", output, outputs)
        if name not in inputs:
            raise unknown_name("input in --state", name, inputs)
        if not _are_alike(inputs[name], outputs[output]):
            raise UsageError(
                f"--state {text}: the output is {outputs[output].dtype} "
                f"{outputs[output].shape_text}, and the input {inputs[name].dtype} "
                f"{inputs[name].shape_text}",
                hint="a state goes back as it came out",
            )
        pairs[name] = output
    return pairs


def _are_alike(spec: TensorSpec, other: TensorSpec) -> bool:
    """Whether two tensors have the same dtype and the same shape, an open batch being any."""
    return (
        spec.dtype == other.dtype == "float32"
        and len(spec.shape) == len(other.shape) > 0
        and spec.shape[1:] == other.shape[1:]
        and (spec.shape[0] == other.shape[0] or -1 in (spec.shape[0], other.shape[0]))
    )


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _has_name_of(name: str, output: str) -> bool:
    """Whether an output is called as an input, before or after."""
    own, other = _words(name), _words(output)
    stems = [[word for word in words if word not in _WHEN | _SIDE] for words in (own, other)]
    if stems[0] != stems[1] or not any(word.isalpha() for word in stems[0]):
        return False
    return bool(_WHEN & {*own, *other}) or _is_state(name)


def _is_state(name: str) -> bool:
    return not _STATE.isdisjoint(_words(name))
