"""The hostile models, by name: what each tries, how it is reached, and whether TensorFlow does it.

`CASES` is the list. Nothing here needs TensorFlow; every case is written anew by its function.
"""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import keras_attacks as keras
import numpy as np
from attacks import OPERATORS, Aim, Attempt, read_file, write_file
from file_attacks import ARCHIVES, BOMBS, SAVED_MODELS, TFLITE
from reading_attacks import READINGS
from reading_keras_attacks import READINGS as KERAS_READINGS
from running_graphs import OBJECT_PLACES, PLACES, Body, object_model, session_model

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


def _graph(
    path: Path, aim: Aim, *, attack: Callable[[Body, Aim], str], place: str, is_object: bool = False
) -> Path:
    model = object_model if is_object else session_model
    return model(path, lambda body: attack(body, aim), place)


def _suffixed(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _operators() -> list[Case]:
    """Each operator where the signature runs it."""
    return [
        Case("operator", name, attempts, partial(_graph, attack=attack, place="top"), idle(name))
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
        for is_object, places in ((False, tuple(PLACES)[1:]), (True, OBJECT_PLACES)):
            for place in places:
                write = partial(_graph, attack=attack, place=place, is_object=is_object)
                made.append(Case("place", f"{operator} {place}", attempts, write))
    return made


def _keras(
    path: Path,
    aim: Aim,
    *,
    kind: str,
    make: Callable[[Aim], keras.Config] | None = None,
    link: keras.Link | None = None,
) -> Path:
    """A Keras file of a kind, with a layer or weights that attack."""
    layers = (make(aim),) if make else ()
    change = link(aim) if link else None
    if kind == "h5":
        return keras.hdf5(_suffixed(path, ".h5"), keras.functional(*layers), change)
    file = _suffixed(path, ".keras")
    if kind == "keras-3":
        return keras.archive(file, keras.sequential(*layers), change=change)
    # A version that is none chooses the loader of Keras 2 all the same.
    version = "2." if kind == "2." else "2.15.0"
    return keras.archive(file, keras.functional(*layers), version=version, change=change)


def _keras_calls() -> list[Case]:
    made = [
        Case("keras-2 Lambda", name, attempts, partial(_keras, kind="keras-2", make=make))
        for name, (attempts, make) in keras.CALLS.items()
    ]
    attempts, make = keras.CALLS["os.system"]
    two_point = partial(_keras, kind="2.", make=make)
    made.append(Case("keras-2 Lambda", "keras_version 2.", attempts, two_point))
    for name, (attempts, make) in keras.SYMBOLS.items():
        for family, kind in (("TFOpLambda h5", "h5"), ("TFOpLambda keras", "keras-2")):
            write = partial(_keras, kind=kind, make=make)
            made.append(Case(family, name, attempts, write, _IDLE_SYMBOLS.get(name, "")))
    for name, (attempts, make) in keras.OTHERS.items():
        why = "tf_keras refuses it by itself" if name == "Lambda of bytecode" else ""
        for family, kind in (("keras-2 layer h5", "h5"), ("keras-2 layer keras", "keras-2")):
            write = partial(_keras, kind=kind, make=make)
            made.append(Case(family, name, attempts, write, why if kind == "keras-2" else ""))
    return made


_IDLE_SYMBOLS = {
    "raw_ops.WriteFile": "it takes its arguments by name, and a layer's first has none",
    "numpy_function": "a file has no function to give it",
    "py_function": "a file has no function to give it",
    "profiler.experimental.start": "it writes when it is stopped",
}


def _keras_3_cases() -> list[Case]:
    return [
        Case(
            "keras-3", name, attempts, partial(_keras, kind="keras-3", make=make), _KERAS_3_REFUSES
        )
        for name, (attempts, make) in keras.KERAS_3.items()
    ]


def _read_elsewhere() -> list[Case]:
    """Vocabularies and weights that are other files."""
    made = []
    words = {name: {"make": partial(keras.words, name)} for name in keras.VOCABULARIES}
    links = {name: {"link": link} for name, link in keras.LINKS.items()}
    for family, attacks in (("vocabulary", words), ("HDF5", links)):
        for name, attack in attacks.items():
            leads_back = family == "HDF5" and name != "external storage"
            for kind in ("h5", "keras-2", "keras-3"):
                why = _KERAS_3_REFUSES if kind == "keras-3" else _LEADS_BACK * leads_back
                write = partial(_keras, kind=kind, **attack)
                made.append(Case(f"{family} {kind}", name, "read", write, why))
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
    *_read_elsewhere(),
    *_files(),
    *(Case("reading", *row) for row in (*READINGS, *KERAS_READINGS)),
)
