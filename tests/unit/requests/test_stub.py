"""edgeconv/__init__.pyi, from which editors and type checkers know the verbs: as the options say.

Set EDGECONV_WRITE_GOLDEN=1 to write it anew.
"""

import inspect
import os
import re
import sys
import textwrap
from typing import Any

from commands import captured
from places import ROOT

import edgeconv
from edgeconv.requests.table import VERBS, named

FILE = ROOT / "edgeconv" / "__init__.pyi"
BEGINNING = '''\
"""What editors and type checkers know of edgeconv; tests/unit/requests/test_stub.py writes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias

from edgeconv.model.source import load as load
from edgeconv.types import (
{values}
)
from edgeconv.types.errors import EdgeconvError as EdgeconvError

class KerasModel(Protocol):
    """A Keras 3 or tf_keras model in memory."""

    name: Any
    def save(self, filepath: Any, /) -> Any: ...
    def export(self, filepath: Any, /) -> Any: ...

class Array(Protocol):
    """An array of NumPy, or what gives one: a tensor, a column or a table of pandas."""

    def __array__(self) -> Any: ...

# A path, or a model in memory.
Model: TypeAlias = str | PathLike[str] | KerasModel
# A SOURCE; arrays, those of several inputs by name; (samples, labels); batches of all these.
Samples: TypeAlias = (
    str | PathLike[str] | DataSource | Array | Mapping[str, Array] | tuple[Any, Any] | Iterable[Any]
)
__version__: str
'''


def defined(name: str) -> str:
    """A verb with its arguments, the type of its result, and the first line about it."""
    verb: Any = getattr(edgeconv, name)
    text, words = inspect.signature(verb), []
    for each in text.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in words and not has_rest(text):
            words.append("*")
        default = "" if each.default is each.empty else f" = {shown(each.default)}"
        star = "*" if each.kind is each.VAR_POSITIONAL else ""
        words.append(f"{star}{each.name}: {each.annotation}{default}")
    function = named(VERBS["convert" if name == "qat" else name].function)
    given = inspect.formatannotation(function.__annotations__["return"])
    result = re.sub(r"\w+\.|'", "", given)
    listed = "\n".join(textwrap.wrap(", ".join(words), 92, break_on_hyphens=False))
    about = verb.__doc__.splitlines()[0]
    return f'\ndef {name}(\n{textwrap.indent(listed, "    ")},\n) -> {result}:\n    """{about}"""\n'


def has_rest(signature: inspect.Signature) -> bool:
    return any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values())


def shown(default: Any) -> str:
    return "..." if isinstance(default, float) and default == float("inf") else repr(default)


def rendered() -> str:
    values = sorted({*dir(edgeconv)} - {*edgeconv.__all__, "__version__", "EdgeconvError"})
    lines = "\n".join(f"    {name} as {name}," for name in values)
    verbs = [name for name in edgeconv.__all__ if name != "load"]
    return BEGINNING.replace("{values}", lines) + "".join(map(defined, verbs))


if os.environ.get("EDGECONV_WRITE_GOLDEN"):
    FILE.write_text(rendered(), encoding="utf-8")


def test_editors_know_what_the_options_say():
    assert FILE.read_text(encoding="utf-8") == rendered()


RIGHT = """\
import edgeconv

class Model:
    name = "m"
    def save(self, filepath: object) -> None: ...
    def export(self, filepath: object) -> None: ...

class Array:
    def __array__(self) -> object: ...

made = edgeconv.convert(Model(), to=["int8"], calibration=Array(), out="here", qat_epochs=3)
report: edgeconv.Report = edgeconv.bench(made, data=(Array(), [1, 2]), threads=1)
file: str = made["int8"].file
edgeconv.check(report, budget={"max_accuracy_drop": 0.01})
edgeconv.verify("a", "b", require=["lock"])
"""
WRONG = {
    'edgeconv.convert("m", "int8", directory="x")': "call-arg",
    'edgeconv.convert("m", "int8", engine="other")': "arg-type",
    'edgeconv.convert("m", "int8", qat_epochs="3")': "arg-type",
    'edgeconv.tune("m", "d", "x")': "arg-type",
}


def test_a_type_checker_takes_right_calls_and_refuses_wrong_ones(tmp_path):
    lines = [*RIGHT.splitlines(), *WRONG]
    script = tmp_path / "calls.py"
    script.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(script)]
    ended = captured(
        [*command, "--cache-dir", os.devnull, "--follow-imports", "silent"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    first = len(RIGHT.splitlines()) + 1
    said = ended.stdout.splitlines()
    for number, code in enumerate(WRONG.values(), first):
        assert any(f"calls.py:{number}:" in line and f"[{code}]" in line for line in said), said
    assert not [line for line in said if "calls.py:" in line and int(line.split(":")[1]) < first]
