"""Who may import whom: the table in tests/rooms.toml, held against the code and the documentation.

Set EDGECONV_WRITE_GOLDEN=1 to write the imports in the table and the rooms in the documentation
anew, and read the difference before keeping it.
"""

import ast
import functools
import graphlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypedDict

from package_sources import SOURCES, imports
from places import ROOT, TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Edges = dict[str, set[str]]

TABLE = TESTS / "rooms.toml"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms -->\n", "<!-- /rooms -->\n"
MOST_ROOMS = 16
MOST_FLOORS = 10
MOST_ARROWS = 120
MOST_WORDS = 700
PLUGINS = {"plugins/devices", "plugins/scale", "plugins/evidence"}
MODULES = {source.module for source in SOURCES}


class Room(TypedDict):
    """A folder or a module at the top of the package, or the baseline models."""

    text: str
    imports: list[str]
    names: list[str]


def rooms() -> dict[str, Room]:
    """The table, by name."""
    found: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return found


@functools.cache
def names_of_rooms() -> frozenset[str]:
    """What there is at the top, and the plug-ins. `__main__` is the door of `cli`."""
    folder = ROOT / "edgeconv"
    found = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    found |= {path.parent.name for path in folder.glob("*/__init__.py")}
    found |= {f"plugins/{path.parent.name}" for path in folder.glob("plugins/*/__init__.py")}
    return frozenset({*found, "models"})


def room_of(module: str) -> str:
    """The room of a module, "" for the package itself; `plugins` is the table of plug-ins."""
    parts = module.partition(":")[0].split(".")[1:]
    if parts[:1] == ["__main__"]:
        return "cli"
    either = ("/".join(parts[:2]), parts[0] if parts else "")
    return next((room for room in either if room in names_of_rooms()), "")


def is_module(text: str) -> bool:
    """Whether a text names a module, or something in it, to be imported when it is needed."""
    return text.partition(":")[0] in MODULES


@functools.cache
def imported() -> Edges:
    """By room, the others that it imports at run time, inside functions as well."""
    found: Edges = defaultdict(set)
    for source in SOURCES:
        room = room_of(source.module)
        for one in imports(source):
            if one.is_run and one.module.startswith("edgeconv"):
                found[room].add(room_of(one.module))
    return {room: others - {room, ""} for room, others in found.items() if room}


@functools.cache
def named() -> Edges:
    """By room, the others of which a table of it names modules."""
    found: Edges = defaultdict(set)
    for source in SOURCES:
        for node in ast.walk(source.tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and is_module(text):
                found[room_of(source.module)].add(room_of(text))
    return {room: others - {room, ""} for room, others in found.items() if room}


def floors(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """The floor of each room: one above the highest that it imports. 1 is the lowest."""

    def floor(room: str, above: tuple[str, ...] = ()) -> int:
        assert room not in above, f"a circle: {' -> '.join((*above, room))}"
        return 1 + max((floor(one, (*above, room)) for one in edges.get(room, ())), default=0)

    return {room: floor(room) for room in names_of_rooms()}


def rendered(table: Mapping[str, Room]) -> str:
    """The rooms as the documentation has them, the highest floor first; imports stay in TABLE."""
    level = floors({room: {*one["imports"]} for room, one in table.items()})
    lines = ["| floor | room | is |", "|---|---|---|"]
    for room in sorted(table, key=lambda one: (-level[one], one)):
        folder = (ROOT / "edgeconv" / room).is_dir() or room == "models"
        name = f"`{room}/`" if folder else f"`{room}.py`"
        lines.append(f"| {level[room]} | {name} | {table[room]['text']} |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """Write what is imported into the table, and the table into the documentation."""
    before, level = rooms(), floors(imported())
    lines = ["# Who imports whom at run time; see tests/unit/repository/test_rooms.py."]
    for room in sorted(names_of_rooms(), key=lambda one: (-level[one], one)):
        text = before[room]["text"] if room in before else ""
        lines += ["", f'["{room}"]', f"text = {json.dumps(text, ensure_ascii=False)}"]
        lines.append(f"imports = {json.dumps(sorted(imported().get(room, ())))}")
        if by_name := named().get(room):
            lines.append(f"names = {json.dumps(sorted(by_name))}")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    foot = rest.partition(END)[2]
    PAGE.write_text(head + BEGIN + rendered(rooms()) + END + foot, encoding="utf-8")


if os.environ.get("EDGECONV_WRITE_GOLDEN"):
    write()


def test_every_import_is_in_the_table_and_nothing_else_is():
    listed = {room: {*one["imports"]} for room, one in rooms().items()}
    assert listed == {room: imported().get(room, set()) for room in names_of_rooms()}


def test_every_module_that_a_table_of_the_code_names_is_in_the_table():
    listed = {room: {*one.get("names", ())} for room, one in rooms().items()}
    assert listed == {room: named().get(room, set()) for room in names_of_rooms()}


def test_no_arrow_runs_back_up_and_rooms_floors_and_arrows_are_few():
    level = floors(imported())
    assert len({*level} - PLUGINS - {"plugins", "models"}) <= MOST_ROOMS
    assert max(level.values()) <= MOST_FLOORS
    assert sum(map(len, imported().values())) <= MOST_ARROWS


def test_no_core_room_imports_a_plug_in():
    assert {room: others & PLUGINS for room, others in imported().items() if others & PLUGINS} == {}


def test_no_files_import_one_another_in_a_circle():
    """At run time, inside functions as well; generated ones import nothing."""
    edges = defaultdict(set)
    for source in SOURCES:
        for one in imports(source):
            if one.is_run and one.module in MODULES - {source.module}:
                edges[source.module].add(one.module)
    graphlib.TopologicalSorter(edges).prepare()


def test_the_documentation_shows_the_table_and_fits_a_page():
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    assert table == rendered(rooms())
    assert len((before + after).split()) <= MOST_WORDS
