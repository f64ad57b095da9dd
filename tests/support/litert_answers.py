"""What the `.tflite` files of a folder answer in LiteRT, so many rows at a time.

    python litert_answers.py FOLDER INPUTS.npz BATCH[,BATCH] [STATE_IN STATE_OUT]

One interpreter gets all rows, one batch after another, as in an app; NAME.tflite answers in
NAME.BATCH.npz. BATCH 0 gives it each row without a batch dimension. With the names of a state, the
file's own state is fed back.
"""

import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def main(folder: str, inputs: str, batches: str, *state: str) -> None:
    with np.load(inputs) as archive:
        given = dict(archive)
    for model in Path(folder).glob("*.tflite"):
        for batch in map(int, batches.split(",")):
            np.savez(model.with_suffix(f".{batch}.npz"), **answers(model, given, batch, *state))


def answers(
    model: Path, given: dict[str, np.ndarray], batch: int, *state: str
) -> dict[str, np.ndarray]:
    runner = Interpreter(str(model)).get_signature_runner()
    wanted = {name: detail["dtype"] for name, detail in runner.get_input_details().items()}
    count, runs = len(next(iter(given.values()))), []
    for start in range(0, count, batch or 1):
        rows = {name: x[start : start + batch] if batch else x[start] for name, x in given.items()}
        if state and runs:
            rows[state[0]] = runs[-1][state[1]]
        runs.append(runner(**{name: rows[name].astype(wanted[name]) for name in wanted}))
    return {
        name: np.concatenate([run[name] for run in runs])
        if batch and np.ndim(runs[0][name]) and len(runs[0][name]) == batch
        else np.stack([run[name] for run in runs])
        for name in runs[0]
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
