"""What test_store.py lets other processes do; each runs until it is done or killed."""

import sys
import time
from itertools import cycle
from pathlib import Path

from edgeconv.system.store import Cache, locked, publish_bytes

CONTENTS = [bytes([65 + index]) * 300_000 for index in range(2)]


def publish_for_ever(target: str) -> None:
    for content in cycle(CONTENTS):
        publish_bytes(content, Path(target))
        print("published", flush=True)


def keep(root: str, number: str) -> None:
    """Make the entry s/k of three files; they all hold the same, whoever makes it."""
    source = Path(root, f"source-{number}")
    (source / "tree").mkdir(parents=True)
    files = {"a": source / "a", "tree": source / "tree"}
    files["a"].write_bytes(CONTENTS[0] * 5)
    (source / "tree" / "b").write_bytes(CONTENTS[1] * 5)
    wait_for(Path(root, "go"))
    Cache(Path(root, "cache")).keep("s", "k", files)


def hold(lock: str, log: str, number: str) -> None:
    """Take the lock 20 times; what is in the log shows whether two ever held it at once."""
    for _ in range(20):
        with locked(Path(lock)):
            note(log, f"in {number}")
            time.sleep(0.001)
            note(log, f"out {number}")


def hold_for_ever(lock: str) -> None:
    with locked(Path(lock), on_wait=lambda: print("waiting", flush=True)):
        print("held", flush=True)
        time.sleep(600)


def note(log: str, line: str) -> None:
    with Path(log).open("a") as file:
        file.write(line + "\n")


def wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.001)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
