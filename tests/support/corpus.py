"""The hostile models, by name: what each tries, how it is reached, and whether TensorFlow does it.

`CASES` is the list. Nothing here needs TensorFlow; every case is written anew by its function.
"""

from __future__ import annotations

import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import h5py
import keras_attacks as keras
import numpy as np
from attacks import OPERATORS, Aim, read_file, write_file
from file_attacks import ARCHIVES, BOMBS, SAVED_MODELS, TFLITE
from reading_attacks import READINGS
from reading_keras_attacks import READINGS as KERAS_READINGS
from running_graphs import OBJECT_PLACES, PLACES, object_model, session_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from attacks import Attempt
    from running_graphs import Attack, Body

_KERAS_3_REFUSES = "Keras 3.15 refuses it by itself"
_LEADS_BACK = "tf_keras opens the file by an object of Python's, to which every link leads back"
_NO_FLEX = "no runtime of this pip stack has the Flex delegate"
_LATER = "it fails before it opens anything"


class Case(NamedTuple):
    """One hostile model.

    `write(place, aim)` writes it to `place`, or that with a suffix, and returns where. `idle` says
    why TensorFlow does not do what it `attempts`, "" where it does. The copy that is loaded lacks
    the attack of a model that is not refused.
    """

    family: str
    name: str
    attempts: Attempt
    write: Callable[[Path, Aim], Path]
    idle: str = ""
    is_refused: bool = True

    @property
    def id(self) -> str:
        """A name that a file can have."""
        return (
            f"{self.family}-{self.name}".replace(" ", "_")
            .replace("/", "")
            .replace(":", "")
            .replace(",", "")
            .replace("'", "")
        )


def place_aim(world: Path, case: Case, listening: list[socket.socket]) -> Aim:
    """What a case is after, made: nothing else in the world has these names."""
    server = socket.create_server(("127.0.0.1", 0))
    listening.append(server)
    aim = Aim(
        canary=world / "home" / "canaries" / case.id / "canary",
        written=world / "outside" / case.id / "mark",
        port=server.getsockname()[1],
        program=world / "programs" / case.id,
    )
    renew(aim)
    return aim


def renew(aim: Aim) -> None:
    """Make what an attack may have removed: the canaries, the folders and the program."""
    for folder in (aim.canary.parent, aim.written.parent, aim.program.parent):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("canary", "canary.index"):
        _write_canary(aim.canary.with_name(name))
    aim.program.write_text(f"#!/bin/sh\necho > {aim.written.parent}/started\n")
    aim.program.chmod(0o755)


def _write_canary(path: Path) -> None:
    """Lines of text, and a file of HDF5 behind these: so any reader gets something."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["kernel"] = np.ones((4, 3), np.float32)
    with path.open("r+b") as raw:
        raw.write(b"secret line\n" * 40)


def _attacking(attack: Callable[[Body, Aim], str], aim: Aim) -> Attack:
    return lambda body: attack(body, aim)


def _session(path: Path, aim: Aim, *, attack: Callable[[Body, Aim], str], place: str) -> Path:
    return session_model(path, _attacking(attack, aim), place)


def _object(path: Path, aim: Aim, *, attack: Callable[[Body, Aim], str], place: str) -> Path:
    return object_model(path, _attacking(attack, aim), place)


def _suffixed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _operators() -> list[Case]:
    """Each operator where the signature runs it."""
    return [
        Case("operator", name, attempts, partial(_session, attack=attack, place="top"), idle(name))
        for name, (attempts, attack) in OPERATORS.items()
    ]


def idle(operator: str) -> str:
    return _IDLE_OPERATORS.get(operator, "")


_IDLE_OPERATORS = {
    "ReadFile of gs://": "it asks the network for a name that is nobody's in this test",
    "Skipgram": "TensorFlow 2.21 has no kernel for it",
    "LMDBDataset": "TensorFlow 2.21 has no kernel for it",
    "LoadDataset": _LATER,
    "SnapshotDatasetReader": _LATER,
    "CSVDataset": _LATER,
    "ImportEvent": _LATER,
}


def _places() -> list[Case]:
    """Two operators at each place that TensorFlow reaches by itself or by a signature."""
    both = {"WriteFile": ("write", write_file), "ReadFile": ("read", read_file)}
    made: list[Case] = []
    for operator, (attempts, attack) in both.items():
        for write, places in ((_session, tuple(PLACES)[1:]), (_object, OBJECT_PLACES)):
            made += [
                Case("place", f"{operator} {place}", attempts,
                     partial(write, attack=attack, place=place))
                for place in places
            ]  # fmt: skip
    return made


def _keras_2(path: Path, aim: Aim, *, make: Callable[[Aim], keras.Config]) -> Path:
    return keras.archive(_suffixed(path, ".keras"), keras.functional(make(aim)), version="2.15.0")


def _two_point(path: Path, aim: Aim, *, make: Callable[[Aim], keras.Config]) -> Path:
    """A version that is none chooses the loader of Keras 2 all the same."""
    return keras.archive(_suffixed(path, ".keras"), keras.functional(make(aim)), version="2.")


def _hdf5(path: Path, aim: Aim, *, make: Callable[[Aim], keras.Config]) -> Path:
    return keras.hdf5(_suffixed(path, ".h5"), keras.functional(make(aim)))


def _keras_3(path: Path, aim: Aim, *, make: Callable[[Aim], keras.Config]) -> Path:
    return keras.archive(_suffixed(path, ".keras"), keras.sequential(make(aim)))


def _keras_calls() -> list[Case]:
    made = [
        Case("keras-2 Lambda", name, attempts, partial(_keras_2, make=make))
        for name, (attempts, make) in keras.CALLS.items()
    ]
    attempts, make = keras.CALLS["os.system"]
    made.append(
        Case("keras-2 Lambda", "keras_version 2.", attempts, partial(_two_point, make=make))
    )
    for name, (attempts, make) in keras.SYMBOLS.items():
        why = _IDLE_SYMBOLS.get(name, "")
        made.append(Case("TFOpLambda h5", name, attempts, partial(_hdf5, make=make), why))
        made.append(Case("TFOpLambda keras", name, attempts, partial(_keras_2, make=make), why))
    for name, (attempts, make) in keras.OTHERS.items():
        why = "tf_keras refuses it by itself" if name == "Lambda of bytecode" else ""
        made.append(Case("keras-2 layer h5", name, attempts, partial(_hdf5, make=make)))
        made.append(Case("keras-2 layer keras", name, attempts, partial(_keras_2, make=make), why))
    return made


_IDLE_SYMBOLS = {
    "raw_ops.WriteFile": "it takes its arguments by name, and a layer's first has none",
    "numpy_function": "a file has no function to give it",
    "py_function": "a file has no function to give it",
    "profiler.experimental.start": "it writes when it is stopped",
}


def _keras_3_cases() -> list[Case]:
    return [
        Case("keras-3", name, attempts, partial(_keras_3, make=make), _KERAS_3_REFUSES)
        for name, (attempts, make) in keras.KERAS_3.items()
    ]


def _vocabularies() -> list[Case]:
    made = []
    for name in keras.VOCABULARIES:
        make = partial(keras.words, name)
        made += [
            Case("vocabulary h5", name, "read", partial(_hdf5, make=make)),
            Case("vocabulary keras-2", name, "read", partial(_keras_2, make=make)),
            Case(
                "vocabulary keras-3", name, "read", partial(_keras_3, make=make), _KERAS_3_REFUSES
            ),
        ]
    return made


def _links() -> list[Case]:
    def h5(path: Path, aim: Aim, *, link: keras.Link) -> Path:
        return keras.hdf5(_suffixed(path, ".h5"), keras.functional(), link(aim))

    def legacy(path: Path, aim: Aim, *, link: keras.Link) -> Path:
        file = _suffixed(path, ".keras")
        return keras.archive(file, keras.functional(), version="2.15.0", change=link(aim))

    def current(path: Path, aim: Aim, *, link: keras.Link) -> Path:
        return keras.archive(_suffixed(path, ".keras"), keras.sequential(), change=link(aim))

    made = []
    for name, link in keras.LINKS.items():
        why = "" if name == "external storage" else _LEADS_BACK
        made += [
            Case("HDF5 h5", name, "read", partial(h5, link=link), why),
            Case("HDF5 keras-2", name, "read", partial(legacy, link=link), why),
            Case("HDF5 keras-3", name, "read", partial(current, link=link), _KERAS_3_REFUSES),
        ]
    return made


def _files() -> list[Case]:
    made = [
        Case("files", name, tries, write, idle)
        for name, (tries, write, idle) in SAVED_MODELS.items()
    ]
    made += [
        Case("archive", name, tries, write, idle) for name, (tries, write, idle) in ARCHIVES.items()
    ]
    made += [
        Case("tflite", name, tries, write, _NO_FLEX) for name, (tries, write) in TFLITE.items()
    ]
    return made + [
        Case("bomb", name, "write", write, "it takes memory or time, and touches nothing")
        for name, write in BOMBS.items()
    ]


CASES = (
    *_operators(),
    *_places(),
    *_keras_calls(),
    *_keras_3_cases(),
    *_vocabularies(),
    *_links(),
    *_files(),
    *(Case("reading", *row) for row in (*READINGS, *KERAS_READINGS)),
)
